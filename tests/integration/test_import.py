"""`import` as a user has it: ended with Ctrl-C in the middle, it leaves nothing."""

import signal
from pathlib import Path

from app.storage.store import Store
from tests.fakes.command_line import LIMIT_S, CommandLine
from tests.fakes.runs import S, keep
from tests.present import present

MANY = 600_000
"""Samples that take some seconds to import."""


def test_ctrl_c_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    file, line = tmp_path / "there" / "big.db", CommandLine(tmp_path)
    with Store.open(file) as store:
        keep(store)
        store._db.conn.executemany(
            "INSERT INTO samples (device_id, t_ns, power_mw) VALUES (1, ?, ?)", ((10 * S + n, n) for n in range(MANY))
        )
        store._db.conn.commit()
    with Store.open(line.database) as store:
        keep(store, uid="mine")
    process = line.start("import", str(file))
    first = present(process.stderr).readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT_S)
    assert first.startswith("Importing … ")
    assert (process.returncode, out) == (1, "")
    assert err.splitlines()[-1] == "Stopped; nothing was written."
    with Store.open(line.database) as store:
        assert [row.uid for row in store.list_runs()] == ["mine"]
    left = {path.name for path in tmp_path.iterdir()}
    assert {name for name in left if name.startswith("profiles.db")} == {"profiles.db"}
