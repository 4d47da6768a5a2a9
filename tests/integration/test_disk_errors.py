"""A disk that fails at any write of a run: the outcome is a sentence, and what is stored is whole."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

from app.errors import DatabaseError
from app.runs import sinks
from app.runs.host import Host
from app.runs.launcher import Exited, Launcher, WorkerEvent
from app.runs.leases import Leases
from app.runs.session import RunServices, RunSession
from app.storage.store import RunStore, Store
from app.telemetry.feed import TelemetryFeed
from app.values.events import Outcome, RunEnded
from tests.fakes.runs import keep
from tests.fakes.sessions import Recorder, dummy
from tests.fakes.sqlite_vfs import Disk, on_vfs
from workloads.protocol import PROTOCOL_VERSION, Block, Finished, Hello, PhaseStarted, Start


def messages() -> Iterator[WorkerEvent]:
    """A whole run of four blocks, a microsecond each."""
    now_ns = time.monotonic_ns()
    yield Hello(protocol=PROTOCOL_VERSION, pid=1, t_ns=now_ns, utc_ns=time.time_ns())
    yield PhaseStarted(phase="measure", t_ns=now_ns)
    for step in range(4):
        start_ns = now_ns + 1000 * step
        yield Block(phase="measure", first_step=step, steps=1, examples=8, start_ns=start_ns, end_ns=start_ns + 1000)
    yield PhaseStarted(phase="finish", t_ns=now_ns + 5000)
    yield Finished(outcome="completed", t_ns=now_ns + 6000)
    yield Exited(0)


class Talker(Launcher):
    """A worker that says all it has to say on a thread of its own, and ends."""

    pid = 1

    def launch(self, _: Start, post: Callable[[WorkerEvent], None]) -> "Talker":
        def talk() -> None:
            for message in messages():
                post(message)

        threading.Thread(target=talk, name="a test's worker").start()
        return self

    def ask_to_stop(self) -> None:
        """It ends by itself."""

    terminate = kill = ask_to_stop


@dataclass
class FailingDisk(Disk):
    """Full from one write on, until what was set aside is given back, or failing at that write alone."""

    first: int
    full: bool
    writes: int = 0
    failed: set[str] = field(default_factory=set)
    has_room: bool = False

    def write(self, name: str, offset: int, data: bytes, *, extends: bool) -> None:
        self.writes += 1
        if self.full and self.writes >= self.first and extends and not self.has_room:
            self.failed.add(name)
            raise apsw.exception_for(apsw.SQLITE_FULL)
        if not self.full and self.writes == self.first:
            self.failed.add(name)
            raise apsw.exception_for(apsw.SQLITE_IOERR_WRITE)


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    path = tmp_path / "prepared.db"
    with Store.open(path) as store:
        keep(store)
    return path


def run_on(disk: FailingDisk, database: Path, feed: TelemetryFeed) -> tuple[str, list[Outcome]]:
    """Make a run; return the sentence that it ended with, if any, and its outcomes as listeners get them."""
    recorder = Recorder()
    host = Host(telemetry=feed, launcher=Talker(), leases=Leases(database.parent))
    session = RunSession(dummy(feed.wait_inventory()), RunServices(database=database, host=host), [recorder])
    sentence = ""
    use_reserve = RunStore.use_reserve

    def make_room(store: RunStore) -> None:
        use_reserve(store)
        disk.has_room = True

    with pytest.MonkeyPatch.context() as patch, on_vfs(disk, database):
        patch.setattr(RunStore, "use_reserve", make_room)
        try:
            session.run()
        except DatabaseError as error:
            sentence = str(error)
    return sentence, [event.outcome for event in recorder.of(RunEnded)]


def stored_runs(database: Path) -> Iterator[tuple[Outcome | None, list[int]]]:
    with Store.open(database) as store:
        assert store._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert store._db.execute("PRAGMA foreign_key_check").fetchall() == []
        for row in store.list_runs():
            if row.uid != "uid-1":
                yield row.outcome, store.load(row.run).blocks.first_step.tolist()


@pytest.mark.parametrize("full", [True, False], ids=["ENOSPC", "EIO"])
def test_a_disk_that_fails_at_any_write(
    tmp_path: Path, prepared: Path, feed: TelemetryFeed, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    monkeypatch.setattr(sinks, "_BATCH_S", 0.0)
    expected = "is full; free some space" if full else "cannot be read or written"
    counted = FailingDisk(first=10**9, full=full)
    shutil.copyfile(prepared, tmp_path / "profiles.db")
    assert run_on(counted, tmp_path / "profiles.db", feed)[0] == ""
    assert counted.writes > 50
    ends = set()
    for first in range(1, counted.writes + 1):
        folder = tmp_path / str(first)
        folder.mkdir()
        database = folder / "profiles.db"
        shutil.copyfile(prepared, database)
        disk = FailingDisk(first=first, full=full)
        sentence, outcomes = run_on(disk, database, feed)
        assert (expected in sentence) == bool(disk.failed - {"profiles.db"}), first
        for outcome, first_steps in stored_runs(database):
            assert first_steps == list(range(len(first_steps))), first
            assert outcome is not None, first
            assert outcome.name == ("failed" if sentence else "completed"), outcome
            assert not sentence or outcome.reason == sentence
            ends.add(outcome.name)
        assert [outcome.name for outcome in outcomes] in ([], ["failed" if sentence else "completed"])
        shutil.rmtree(folder)
    assert ends == {"completed", "failed"}
