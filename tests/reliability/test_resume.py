"""What `resume` would notice: a folder in which every invariant is broken, and one in which none is."""

import fcntl
from pathlib import Path

from app.storage.store import Store
from app.values.fields import Sample
from app.values.samples import HOST
from tests.fakes.runs import BLOCKS, LOG, PHASES, SAMPLES, S, begin, keep
from tests.reliability.invariants import BROKEN, broken_in
from workloads.protocol import Block, PhaseStarted


def test_a_sound_folder_has_nothing_broken(tmp_path: Path) -> None:
    assert broken_in(tmp_path, ended=True).total() == 0, "no database yet"
    with Store.open(tmp_path / "profiles.db") as store:
        run = begin(store)
        store.write(run, (*PHASES, *BLOCKS, *SAMPLES, *LOG))
    (tmp_path / "variantscope-cpu.lock").touch()
    (tmp_path / "crash-1.txt").write_text("Run 1 crashed: The worker was killed.")
    assert +broken_in(tmp_path, ended=False) == {}, "a run that a killed program left is marked when one looks"
    assert +broken_in(tmp_path, ended=True) == {"runs without an outcome": 1}


def test_whatever_is_broken_is_found(tmp_path: Path) -> None:
    with Store.open(tmp_path / "profiles.db") as store:
        run = keep(store)
        gap = Block(phase="measure", first_step=99, steps=1, examples=8, start_ns=7 * S, end_ns=8 * S, loss=None)
        store.write(run, (gap, PhaseStarted(phase="finish", t_ns=9 * S), Sample(t_ns=90 * S, device=HOST)))
        store._db.execute("UPDATE phases SET end_ns = 8000000000 WHERE phase = 'finish'")
        store._db.execute("INSERT INTO experiments (uid, name, created_utc_ns, plan) VALUES ('a', 'a', 1, '{}')")
        store._db.execute("INSERT INTO experiments (uid, name, created_utc_ns, plan) VALUES ('b', 'b', 1, '{}')")
        store._db.execute("INSERT INTO experiment_runs VALUES (1, 1, 1), (2, 1, 1)")
        store._db.execute("PRAGMA foreign_keys = OFF")
        store._db.execute("INSERT INTO tags (run, tag) VALUES (77, 'of no run')")
        begin(store, uid="uid-2")
        store._db.conn.commit()
    (tmp_path / "crash-1.txt").write_text("KeyError: 1\n\nTraceback (most recent call last):")
    with (tmp_path / "variantscope-cpu.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = broken_in(tmp_path, ended=True)
    assert {name for name, count in found.items() if count} == set(BROKEN)
