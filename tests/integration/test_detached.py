"""Runs that go on without the program: detached, left, fetched whole, stopped from here, killed there."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from app.cli.main import main
from app.errors import UserError
from app.hosts.book import HostEntry, add_host
from app.hosts.fetch import detach_run, fetch_run, list_detached, stop_detached
from app.hosts.messages import CUT, WEIGHTS, DetachedRun, pieces
from app.hosts.remote import open_host
from app.paths import weights_path
from app.runs.host import Host
from app.runs.leases import FOLDER_VARIABLE, Leases
from app.runs.session import RunServices
from app.storage.store import Store
from app.values.environment_keys import CARRIER_KEY, DETACHED_KEY, HOST_KEY
from app.values.events import RunEnded, RunEvent
from app.values.records import StoredRun
from app.values.samples import HOST
from tests.fakes.command_line import dummy_arguments
from tests.fakes.hosts import HERE
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.fakes.runs import keep
from tests.fakes.sessions import LIMIT_S, Recorder, dummy
from workloads.protocol import Block, RunSpec, encode


def ignore(_sentence: str) -> None:
    pass


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, host_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for detached runs, on a host with two GPUs."""
    return folder_within(tmp_path, host_cache, monkeypatch)


def folder_within(parent: Path, host_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(host_cache))
    monkeypatch.setenv(FOLDER_VARIABLE, str(parent))
    monkeypatch.setenv("VARIANTSCOPE_HOSTS", str(parent / "hosts.json"))
    for name, value in environment(Driver(cards=TWO_H200)).items():
        monkeypatch.setenv(name, value)
    return parent / "variantscope" / "detached"


@pytest.fixture
def entry() -> HostEntry:
    here = HostEntry(name="gpu1", address=HERE)
    add_host(here)
    return here


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory, host_cache: Path) -> Path:
    """The folder of a detached run that is over."""
    parent = tmp_path_factory.mktemp("detached")
    here = HostEntry(name="gpu1", address=HERE)
    with pytest.MonkeyPatch.context() as patch:
        folder = folder_within(parent, host_cache, patch)
        add_host(here)
        run = detach(here, parent / "profiles.db", lambda host: dummy(host.inventory()))
        while list_detached(here, ignore)[0].goes_on:
            threading.Event().wait(0.05)
    return folder / run.uid


@pytest.fixture
def over(entry: HostEntry, made_once: Path, folder: Path) -> DetachedRun:
    """A detached run that is over, and was not fetched."""
    shutil.copytree(made_once, folder / made_once.name)
    (run,) = list_detached(entry, ignore)
    return run


def detach(entry: HostEntry, database: Path, make: Callable[[Host], RunSpec]) -> DetachedRun:
    """Detach a run as `run --detach` does, whose connection to the host is closed then."""
    with contextlib.closing(open_host(entry.name)) as connection:
        services = RunServices(database=database, host=connection.host)
        uid = detach_run(make(connection.host), services, entry, 10.0, ignore)
    return next(run for run in list_detached(entry, ignore) if run.uid == uid)


def long_run(host: Host) -> RunSpec:
    return dummy(host.inventory(), gpus=1, steps=0, seconds=600.0)


def stored_runs(database: Path) -> list[int]:
    with Store.open(database) as store:
        return [row.run for row in store.list_runs()]


class Fetching:
    def __init__(
        self, entry: HostEntry, run: DetachedRun, database: Path, notify: Callable[[str], None] = ignore
    ) -> None:
        self.recorder = Recorder()
        self.stored: StoredRun | None = None
        self.error: UserError | None = None
        self.left = threading.Event()
        self._fetch = partial(
            fetch_run, entry, run.uid, database, [self.recorder], notify=notify, is_left=self.left.is_set
        )
        self._thread = threading.Thread(target=self._run, name="a test's fetching", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.stored = self._fetch()
        except UserError as error:
            self.error = error

    def result(self) -> StoredRun | None:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the run is not fetched"
        if self.error is not None:
            raise self.error
        return self.stored


def launcher() -> psutil.Process:
    """The process that fetches here."""
    (launched,) = (child for child in psutil.Process().children() if "--events" in child.cmdline())
    return launched


def test_a_run_is_fetched_whole_whoever_was_killed_before_or_fetches_too(
    entry: HostEntry, database_path: Path, folder: Path
) -> None:
    run = detach(entry, database_path, long_run)
    assert (run.goes_on, run.workload) == (True, "dummy")
    cut = Fetching(entry, run, database_path)
    cut.recorder.wait(Block)
    os.killpg(launcher().pid, signal.SIGKILL)
    with pytest.raises(UserError, match=r"guards it was killed|by signal 9"):
        cut.result()
    assert stored_runs(database_path) == []
    left = Fetching(entry, run, database_path)
    left.recorder.wait(Block)
    left.left.set()
    assert left.result() is None
    assert stored_runs(database_path) == []
    whole = Fetching(entry, run, database_path)
    whole.recorder.wait(Block)
    other = Fetching(entry, run, folder.parent / "other.db")
    other.recorder.wait(Block)
    with pytest.raises(UserError, match="another process is storing it"):
        fetch_run(entry, run.uid, database_path)
    stop_detached(entry, run.uid, ignore)
    assert other.result() is not None
    stored = whole.result()
    assert stored is not None
    assert stored.row.outcome is not None
    assert stored.row.outcome.name == "stopped"
    assert stored.row.uid == run.uid
    of_link = {HOST_KEY: "gpu1", CARRIER_KEY: "sh", DETACHED_KEY: "yes"}
    assert stored.environment.items() >= of_link.items()
    assert {columns.device.device for columns in stored.samples} >= {HOST}
    assert abs(stored.row.started_utc_ns - time.time_ns()) < LIMIT_S * 10**9
    assert list_detached(entry, ignore) == ()
    assert not (folder / run.uid).exists()
    assert stored_runs(database_path) == [stored.row.run], "no part of it is left"


def test_a_fetched_run_is_not_fetched_twice_and_kept_lines_stay(
    entry: HostEntry, database_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*dummy_arguments(), "--db", str(database_path)]
    assert main(["run", *words, "--on", "gpu1", "--detach"]) == 0
    assert main(["hosts", "fetch", "gpu1", "--keep", "--db", str(database_path), "--json"]) == 0
    assert '"outcome": "completed"' in capsys.readouterr().out
    assert main(["hosts", "jobs", "gpu1"]) == 0
    assert " over " in capsys.readouterr().out
    (run,) = list_detached(entry, ignore)
    orders = (folder / run.uid / "orders.jsonl").read_bytes()
    assert main(["hosts", "stop", "gpu1", run.uid]) == 0
    assert capsys.readouterr().out.startswith("The run is over; ")
    assert (folder / run.uid / "orders.jsonl").read_bytes() == orders
    assert main(["hosts", "fetch", "gpu1", "--db", str(database_path)]) == 0
    assert len(stored_runs(database_path)) == 1
    assert list_detached(entry, ignore) == ()
    assert main(["hosts", "fetch", "gpu1", "--db", str(database_path)]) == 0
    assert "There is no detached run on gpu1" in capsys.readouterr().out
    assert main(["hosts", "stop", "gpu1", "abc", "--db", str(database_path)]) == 1


def test_a_run_is_stored_once_when_another_fetch_comes_at_its_end(
    entry: HostEntry, over: DetachedRun, database_path: Path
) -> None:
    class Another:
        """Fetches the run when the first fetch has stored its end, and not yet that it is complete."""

        def handle(self, event: RunEvent) -> None:
            if isinstance(event, RunEnded):
                with pytest.raises(UserError, match="another process is storing it"):
                    fetch_run(entry, over.uid, database_path)

    stored = fetch_run(entry, over.uid, database_path, [Another()])
    assert stored is not None
    assert stored_runs(database_path) == [stored.row.run]


def test_a_run_that_cannot_be_read_leaves_the_others(
    entry: HostEntry, over: DetachedRun, database_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, uid = folder / over.uid, over.uid[::-1]
    broken = shutil.copytree(other, folder / uid)
    (broken / "orders.jsonl").write_bytes(
        (other / "orders.jsonl").read_bytes().replace(over.uid.encode(), uid.encode())
    )
    (broken / "events.jsonl").write_bytes(b"no message\n")
    assert main(["hosts", "fetch", "gpu1", "--db", str(database_path)]) == 1
    assert f"Run {uid[:8]}: " in capsys.readouterr().err
    assert [run.uid for run in list_detached(entry, ignore)] == [uid]
    assert len(stored_runs(database_path)) == 1


def test_a_run_whose_maker_was_killed_there_is_crashed_with_all_that_came(
    entry: HostEntry, database_path: Path, folder: Path
) -> None:
    run = detach(entry, database_path, long_run)
    following = Fetching(entry, run, database_path)
    following.recorder.wait(Block)
    makers = [process for process in psutil.process_iter() if _executes(process, folder)]
    below = [child for maker in makers for child in maker.children(recursive=True)]
    for maker in sorted(makers, key=lambda process: process.create_time())[-1:]:
        maker.kill()
    stored = following.result()
    assert stored is not None
    assert stored.row.outcome is not None
    assert stored.row.outcome.name == "crashed"
    assert stored.row.outcome.reason == "The process of the run on gpu1 was killed, or the host was restarted."
    assert stored.blocks.end_ns.size
    assert psutil.wait_procs(below, LIMIT_S)[1] == [], "nothing of it goes on"


def _executes(process: psutil.Process, folder: Path) -> bool:
    with contextlib.suppress(psutil.Error):
        return "--detach" in process.cmdline() and process.environ()["XDG_STATE_HOME"] == str(folder.parents[1])
    return False


def test_a_run_waits_there_for_its_device(entry: HostEntry, database_path: Path, folder: Path) -> None:
    lease = Leases(folder.parents[1]).take([card.uuid for card in TWO_H200], 2)
    assert lease is not None
    run = detach(entry, database_path, lambda host: dummy(host.inventory(), gpus=1))
    waits = threading.Event()
    following = Fetching(entry, run, database_path, lambda said: waits.set() if "waits on gpu1" in said else None)
    assert waits.wait(LIMIT_S)
    lease.release()
    stored = following.result()
    assert stored is not None
    assert stored.row.completed


def test_weights_come_with_the_run(entry: HostEntry, database_path: Path, folder: Path, over: DetachedRun) -> None:
    saved, lines = folder.parent / "saved", folder / over.uid / "events.jsonl"
    saved.write_bytes(weights := os.urandom(700_000))
    *others, ended = lines.read_bytes().splitlines(keepends=True)
    lines.write_bytes(b"".join((*others, *map(encode, pieces(saved, WEIGHTS)), ended)))
    stored = fetch_run(entry, over.uid, database_path)
    assert stored is not None
    assert weights_path(database_path, over.uid).read_bytes() == weights


def test_another_run_with_that_id_is_never_touched(entry: HostEntry, database_path: Path, over: DetachedRun) -> None:
    with Store.open(database_path) as store:
        keep(store, uid=over.uid)
    with pytest.raises(UserError, match="is another one: nothing was fetched"):
        fetch_run(entry, over.uid, database_path)
    assert len(stored_runs(database_path)) == 1


def test_every_run_of_a_host_is_listed(entry: HostEntry, over: DetachedRun, folder: Path) -> None:
    order = (folder / over.uid / "orders.jsonl").read_bytes()
    for number in range(1_100):
        (run := folder / f"{number:032x}").mkdir()
        (run / "orders.jsonl").write_bytes(order.replace(over.uid.encode(), run.name.encode()))
        (run / "stderr").touch()
    assert {run.uid for run in list_detached(entry, ignore)} == {run.name for run in folder.iterdir()}


def test_what_a_damaged_folder_says(entry: HostEntry, folder: Path) -> None:
    for uid in ("../../etc", "0" * 12):
        with pytest.raises(UserError, match="no longer on the host"):
            stop_detached(entry, uid, ignore)
    (folder / "00112233").mkdir(parents=True)
    (folder / "00112233" / "orders.jsonl").write_text("{}")
    assert list_detached(entry, ignore) == (), "another version's"


RECORD = """\
import pathlib, resource, sys
from app.errors import UserError
from app.hosts import serve
from app.values.fields import Sample
from app.values.samples import LogLine
serve.MOST_RECORDING_BYTES = 300
reports = serve.Reports(pathlib.Path("absent"))
for t_ns in range(20):
    reports.record(Sample(t_ns=t_ns, device="host"))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    while True:
        reports.record(LogLine(1, "x" * 70))
except UserError as error:
    reports.record(LogLine(2, str(error)))
"""


def test_a_full_recording_and_a_full_disk_are_said(tmp_path: Path) -> None:
    with (tmp_path / "recording").open("ab") as recording:
        subprocess.run([sys.executable, "-c", RECORD], stdout=recording, check=True)
    lines = (tmp_path / "recording").read_bytes().splitlines(keepends=True)
    (full,) = (number for number, line in enumerate(lines) if b"is full" in line)
    assert full < 10
    assert b"The host's disk was full or failed (File too large)" in lines[-1]
    assert [line for line in lines if line.endswith(CUT)] == [lines[-2]]


def test_a_line_that_its_writer_was_killed_in_is_left_out(
    entry: HostEntry, database_path: Path, folder: Path, over: DetachedRun
) -> None:
    path = folder / over.uid / "events.jsonl"
    head, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + lines[0] + b'{"type":"sample","t_ns":12' + CUT + b"".join(lines[1:]))
    stored = fetch_run(entry, over.uid, database_path)
    assert stored is not None
    assert stored.row.completed, "what stands behind it is whole"


def test_old_recordings_that_nobody_fetched_are_removed(entry: HostEntry, folder: Path, over: DetachedRun) -> None:
    lines = folder / over.uid / "events.jsonl"
    for days, number in ((29, 1), (31, 0)):
        old_s = time.time() - days * 86_400
        os.utime(lines, (old_s, old_s))
        assert len(list_detached(entry, ignore)) == number
    assert not lines.exists()
