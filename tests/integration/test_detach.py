"""Runs that go on without the program: detached, left, fetched whole, stopped from here, killed there."""

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.agent import detached
from app.cli.main import main
from app.environment_keys import CARRIER_KEY, DETACHED_KEY, HOST_KEY
from app.errors import UserError
from app.hosts.attach import Attachment, SpoolLink, detach_run, detached_hosts
from app.hosts.book import HostEntry, add_host
from app.hosts.channel import ProcessChannel
from app.hosts.open import open_entry
from app.records import StoredRun
from app.runs.host import Host, describe_wait
from app.runs.leases import FOLDER_VARIABLE, Leases
from app.runs.session import RunServices
from app.samples import HOST
from app.spool_protocol import Spool
from app.storage.store import Store
from tests.fakes.command_line import dummy_arguments
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.fakes.runs import keep
from tests.fakes.sessions import LIMIT_S, Recorder, dummy
from workloads.protocol import Block, RunSpec


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the spool's own, on a host with two GPUs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("VARIANTSCOPE_HOSTS", str(tmp_path / "hosts.json"))
    for name, value in environment(Driver(cards=TWO_H200)).items():
        monkeypatch.setenv(name, value)
    return tmp_path / "variantscope" / "detached"


@pytest.fixture
def entry() -> HostEntry:
    """This machine, through an agent."""
    found = HostEntry(name="gpu1", address="sh:", python=sys.executable)
    add_host(found)
    return found


@pytest.fixture
def link(entry: HostEntry) -> Iterator[SpoolLink]:
    with contextlib.closing(SpoolLink.open(entry, lambda _: None)) as opened:
        yield opened


def detach(entry: HostEntry, link: SpoolLink, database: Path, make: Callable[[Host], RunSpec]) -> Spool:
    """Detach a run as `run --detach` does, whose connection to the host is closed then."""
    with contextlib.closing(open_entry(entry)) as connection:
        uid = detach_run(make(connection.host), RunServices(database=database, host=connection.host), link, 10.0)
    return next(spool for spool in link.listed().spools if spool.run.uid == uid)


def stored_runs(database: Path) -> list[int]:
    with Store.open(database) as store:
        return [row.run for row in store.list_runs()]


class Fetching:
    """An attachment that fetches on a thread of its own."""

    def __init__(self, attachment: Attachment) -> None:
        self.recorder = Recorder()
        self.stored: StoredRun | None = None
        self.error: UserError | None = None
        self._attachment = attachment
        self._thread = threading.Thread(target=self._fetch, name="a test's fetching", daemon=True)
        self._thread.start()

    def _fetch(self) -> None:
        try:
            self.stored = self._attachment.fetch([self.recorder])
        except UserError as error:
            self.error = error

    def result(self) -> StoredRun | None:
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the run is not fetched"
        if self.error is not None:
            raise self.error
        return self.stored


def test_a_run_is_fetched_whole_whoever_was_killed_before(
    entry: HostEntry, link: SpoolLink, database_path: Path, folder: Path
) -> None:
    spool = detach(entry, link, database_path, lambda host: dummy(host.inventory(), gpus=1, steps=0, seconds=600.0))
    assert detached_hosts(database_path) == {spool.run.uid: "gpu1"}
    cut = Fetching(Attachment(link, spool, database_path, lambda _: None))
    cut.recorder.wait(Block)
    assert isinstance(link._channel, ProcessChannel)
    os.killpg(link._channel.pid, signal.SIGKILL)
    with pytest.raises(UserError, match="by signal 9"):
        cut.result()
    assert stored_runs(database_path) == []
    with contextlib.closing(SpoolLink.open(entry, lambda _: None)) as another:
        left = Attachment(another, spool, database_path, lambda _: None)
        leaving = Fetching(left)
        leaving.recorder.wait(Block)
        left.leave()
        assert leaving.result() is None
    assert stored_runs(database_path) == []
    with contextlib.closing(SpoolLink.open(entry, lambda _: None)) as again:
        (spool,) = again.listed().spools
        assert spool.goes_on
        last = Attachment(again, spool, database_path, lambda _: None)
        following = Fetching(last)
        following.recorder.wait(Block)
        last.stop()
        stored = following.result()
        assert stored is not None
        assert again.listed().spools == ()
    assert stored.row.outcome is not None
    assert stored.row.outcome.name == "stopped"
    assert stored.environment.items() >= {HOST_KEY: "gpu1", CARRIER_KEY: "sh", DETACHED_KEY: "yes"}.items()
    assert {columns.device.device for columns in stored.samples} == {HOST, TWO_H200[0].uuid}
    assert all(phase.energy_mj is not None for phase in stored.phases if phase.name == "measure")
    begin_ns = stored.anchor_t_ns
    assert all(begin_ns - 1e9 < columns.t_ns[0] for columns in stored.samples)
    blocks = stored.blocks
    assert list(blocks.first_step[1:]) == list(blocks.first_step[:-1] + blocks.steps[:-1]), "no block is missing"
    assert detached_hosts(database_path) == {}
    assert list(folder.iterdir()) == []


def test_two_programs_fetch_one_run_whole_each_into_its_own_database(
    entry: HostEntry, link: SpoolLink, database_path: Path, tmp_path: Path, folder: Path
) -> None:
    spool = detach(entry, link, database_path, lambda host: dummy(host.inventory(), gpus=1, steps=0, seconds=600.0))
    with contextlib.closing(SpoolLink.open(entry, lambda _: None)) as another:
        attachments = [
            Attachment(link, spool, database_path, lambda _: None),
            Attachment(another, spool, tmp_path / "other.db", lambda _: None),
        ]
        fetching = [Fetching(attachment) for attachment in attachments]
        for each in fetching:
            each.recorder.wait(Block)
        attachments[0].stop()
        runs = [each.result() for each in fetching]
    assert [run is not None and run.row.uid for run in runs] == [spool.run.uid] * 2
    assert list(folder.iterdir()) == []


def test_what_a_removal_that_was_killed_left_is_removed(link: SpoolLink, folder: Path) -> None:
    left = folder / "removed-1234-5"
    left.mkdir(parents=True)
    assert link.listed().unreadable == 0
    assert not left.exists()


def test_a_run_that_another_removed_is_over(tmp_path: Path) -> None:
    assert not detached._goes_on(tmp_path / "removed")
    tmp_path.joinpath("over").mkdir()
    assert not detached._goes_on(tmp_path / "over")
    lock = detached._lock_spool(tmp_path / "over")
    assert lock is not None
    assert detached._goes_on(tmp_path / "over")
    os.close(lock)


@pytest.mark.parametrize(
    ("victim", "outcome", "words"), [("maker", "crashed", "was killed there"), ("guard", "failed", "guard of this run")]
)
def test_a_run_that_waits_for_its_device_is_told_and_one_killed_there_has_ended(
    victim: str, outcome: str, words: str, entry: HostEntry, link: SpoolLink, database_path: Path, folder: Path
) -> None:
    lease = Leases(folder.parents[1]).take([card.uuid for card in TWO_H200], 2)
    assert lease is not None
    spool = detach(entry, link, database_path, lambda host: dummy(host.inventory(), gpus=1, steps=0, seconds=600.0))
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    fetching = Fetching(Attachment(link, spool, database_path, said.put))
    assert said.get(timeout=LIMIT_S) == f"The run waits on gpu1: {describe_wait()}"
    lease.release()
    fetching.recorder.wait(Block)
    maker = psutil.Process(int((folder / spool.run.uid / "pid").read_text()))
    guard = maker.parent()
    assert guard is not None
    there = [guard, maker, *maker.children(recursive=True)]
    {"maker": maker, "guard": guard}[victim].kill()
    stored = fetching.result()
    assert stored is not None
    assert stored.row.outcome is not None
    assert stored.row.outcome.name == outcome
    assert words in (stored.row.outcome.reason or "")
    _, alive = psutil.wait_procs(there, timeout=LIMIT_S)
    assert alive == []


def test_a_run_that_ends_before_it_begins_says_why(
    entry: HostEntry, link: SpoolLink, database_path: Path, folder: Path
) -> None:
    lease = Leases(folder.parents[1]).take([card.uuid for card in TWO_H200], 2)
    assert lease is not None
    spool = detach(entry, link, database_path, lambda host: dummy(host.inventory(), gpus=1, steps=0, seconds=600.0))
    said: queue.SimpleQueue[str] = queue.SimpleQueue()
    fetching = Fetching(Attachment(link, spool, database_path, said.put))
    said.get(timeout=LIMIT_S)
    psutil.Process(int((folder / spool.run.uid / "pid").read_text())).kill()
    with pytest.raises(UserError, match="free this device"):
        fetching.result()
    lease.release()
    assert stored_runs(database_path) == []
    assert list(folder.iterdir()) == []


def test_the_commands_detach_list_and_attach(
    entry: HostEntry, database_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--db", str(database_path)]
    assert main(["run", *dummy_arguments(), *words, "--on", entry.name, "--detach"]) == 0
    assert "`python -m app attach gpu1` fetches it" in capsys.readouterr().out
    assert main(["attach", "--list", *words]) == 0
    assert "gpu1" in capsys.readouterr().out
    assert main(["attach", *words]) == 0
    assert "completed" in capsys.readouterr().out
    assert len(stored_runs(database_path)) == 1
    assert main(["attach", *words]) == 0
    assert "No run was detached" in capsys.readouterr().out
    assert main(["attach", "gpu1", *words]) == 0
    assert "No run is in the spool of gpu1." in capsys.readouterr().out
    assert len(stored_runs(database_path)) == 1


def test_what_is_stored_here_stays_until_the_whole_run_is(
    entry: HostEntry, link: SpoolLink, database_path: Path
) -> None:
    """A host that names the id of a run that it never had gets nothing deleted; what a kill left goes at the end."""
    spool = detach(entry, link, database_path, lambda host: dummy(host.inventory()))
    with Store.open(database_path) as store:
        own = keep(store, uid=spool.run.uid)
        store.library.set_note(own, "precious")
    with pytest.raises(UserError, match=rf"^Run {own} of this database has the id of the run on gpu1"):
        Attachment(link, spool, database_path, lambda _: None).fetch([])
    with Store.open(database_path) as store:
        assert store.load_header(own).row.note == "precious"
        store.add_environment(own, {DETACHED_KEY: "in part", HOST_KEY: "another"})
    with pytest.raises(UserError, match="and is another one"):
        Attachment(link, spool, database_path, lambda _: None).fetch([])
    with Store.open(database_path) as store:
        store.add_environment(own, {HOST_KEY: "gpu1"})
    stored = Attachment(link, spool, database_path, lambda _: None).fetch([])
    assert stored is not None
    assert stored.row.completed
    assert stored_runs(database_path) == [stored.row.run]
    assert stored.row.run != own
