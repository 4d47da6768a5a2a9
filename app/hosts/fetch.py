"""Detached runs on a host: starts, lists and ends them, and reads them into the database."""

import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from app.errors import UserError
from app.hosts.book import Address, HostEntry
from app.hosts.launchers import option_arguments
from app.hosts.messages import DetachedRun, DetachedRuns, Drained, Refused, Stored
from app.hosts.process import HostProcess, LinkLostError
from app.hosts.remote import play
from app.hosts.serve import WEIGHTS
from app.hosts.wheel import Start
from app.paths import weights_path
from app.runs.custom import stored_source
from app.runs.environment import program_info
from app.runs.host import RunOrder
from app.runs.leases import candidate_devices
from app.runs.script import pack_tree
from app.runs.session import RunServices, needs_calibration, source_info, start_order
from app.runs.sinks import Sink, StoreSink
from app.storage.store import RunStore, Store
from app.values.environment_keys import CARRIER_KEY, DETACHED_KEY, HOST_KEY
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted
from app.values.records import StoredRun
from app.values.samples import Waiting
from workloads.catalog import UsageError
from workloads.protocol import ProtocolError, RunSpec, encode


def detach_run(spec: RunSpec, services: RunServices, entry: HostEntry, hz: float, notify: Callable[[str], None]) -> str:
    """Start a run on a host that continues without this program; return its uid. The spec is checked for the host.

    Raises:
        UserError: It cannot start.
    """
    address = entry.full_address
    if address.kind == "ray":
        raise UsageError(f"A run on {entry.name} ends with its link, so it cannot be detached: start it on the head.")
    devices = candidate_devices(spec, services.host.machine)
    services.admit([spec])
    with Store.open(services.database) as store:
        source = stored_source(spec, services.database)
        start = start_order(spec, source, Path(WEIGHTS))
        calibrate = start.calibrate and needs_calibration(store, spec, services.host, devices)
    order = RunOrder(
        start=msgspec.structs.replace(start, calibrate=calibrate),
        uid=uuid.uuid4().hex,
        utc_ns=time.time_ns(),
        devices=() if address.kind == "slurm" else tuple(devices),
        environment=program_info() | source_info(source),
        hz=hz,
    )
    sbatch = option_arguments(address) if address.kind == "slurm" else None
    tree = pack_tree(source).read_bytes() if source and source.command and source.modules else b""
    start_it = Start(
        address=_entered_by(address), detached_uid=order.uid, order=encode(order), tree=tree, sbatch=sbatch
    )
    process = HostProcess(start_it, entry.name, notify)
    try:
        process.wait_detached()
    finally:
        process.cut()
    return order.uid


def list_detached(entry: HostEntry, notify: Callable[[str], None]) -> tuple[DetachedRun, ...]:
    """Return a host's detached runs, oldest first; raises `UserError`."""
    report = _ask(entry, ("jobs",), notify)
    return report.runs if isinstance(report, DetachedRuns) else ()


def stop_detached(entry: HostEntry, uid: str, notify: Callable[[str], None]) -> None:
    """Ask a detached run to end; raises `UserError`."""
    _ask(entry, ("stop", uid), notify)


def _ask(entry: HostEntry, words: Sequence[str], notify: Callable[[str], None]) -> DetachedRuns | Drained:
    process = _start(entry, words, notify)
    try:
        process.wait_hello()
        match process.next(None):
            case DetachedRuns() | Drained() as report:
                return report
            case Refused(reason=reason):
                raise UserError(reason)
        raise UserError(f"{entry.name} answered something else; try again.")
    finally:
        process.close()


def _start(entry: HostEntry, words: Sequence[str], notify: Callable[[str], None]) -> HostProcess:
    address = _entered_by(entry.full_address)
    return HostProcess(Start(address=address, words=("hosts", *words, "--events")), entry.name, notify)


def _entered_by(address: Address) -> Address:
    """Return the address of a cluster's entry node; other hosts' addresses are their own."""
    if address.kind not in ("slurm", "ray"):
        return address
    return replace(address, kind="ssh" if address.host else "sh", options=())


class Fetch:
    """One detached run's transfer into the database. Thread: `run` blocks its thread, once; `leave` any."""

    def __init__(self, entry: HostEntry, detached: DetachedRun, database: Path, notify: Callable[[str], None]) -> None:
        """Create the transfer of a run; `notify` gets a sentence while the run waits for its devices."""
        self._entry, self._detached, self._database, self._notify = entry, detached, database, notify
        # A flag, set once.
        self._is_left = False
        # Used by the thread that fetches.
        self._process: HostProcess | None = None
        self._is_drained = False
        self._problem = ""
        self._t_ns = 0

    def leave(self) -> None:
        """Stop following the run; it continues on its host."""
        self._is_left = True

    def run(self, sinks: Sequence[Sink], *, keep: bool = False) -> StoredRun | None:
        """Store the run's recording in the database, to its end; return the stored run.

        The sinks get its events. With `keep` its recording stays on the host.

        Returns:
            The run; None if `leave` came first.

        Raises:
            UserError: It cannot be fetched now, or never started.
        """
        self._process = process = _start(self._entry, ("fetch", self._detached.uid), self._notify)
        try:
            process.wait_hello(lambda: self._is_left)
            return self._store(process, sinks, keep=keep)
        finally:
            process.close()

    def _store(self, process: HostProcess, sinks: Sequence[Sink], *, keep: bool) -> StoredRun | None:
        with RunStore.open(self._database) as store:
            number = self._stored_run(store)
            if number is None:
                sink = StoreSink(store, sinks)
                self._play(sink, process)
                if not self._is_drained:
                    if sink.run is not None and sink.ended is None:
                        sink.abandon()
                    if sink.run is not None:
                        self._purge(store, sink.run)
                    if self._is_left:
                        return None
                    raise UserError(self._problem or process.lost or "The host did not send the whole run; try again.")
                if sink.failure is not None:
                    raise sink.failure
                number = sink.run
                if number is not None:
                    store.add_environment(number, {DETACHED_KEY: "yes"})
                    for part in store.library.parts(self._detached.uid):
                        self._purge(store, part)
            if not keep:
                process.send(Stored())
                with contextlib.suppress(LinkLostError):  # once its recording is removed, the program there ends
                    while True:
                        process.next(None)
            if number is None:
                raise UserError(self._problem)
            return store.load(number)

    def _play(self, sink: StoreSink, process: HostProcess) -> None:
        """Store the events as they arrive; end the run if its process was killed, which shows after the last event."""

        def handle(event: RunEvent) -> None:
            match event:
                case Waiting(reason=reason) if sink.run is None:
                    self._problem = reason
                    if reason:
                        self._notify(f"The run waits on {self._entry.name}: {reason}")
                case RunStarted():
                    sink.handle(self._described(event))
                case _:
                    self._t_ns = max(self._t_ns, getattr(event, "t_ns", 0))
                    sink.handle(event)

        weights = weights_path(self._database, self._detached.uid).absolute()
        try:
            end = play(process, weights, handle, lambda: self._is_left)
            if isinstance(end, RunEnded):
                sink.handle(end)
                end = play(process, None, handle, lambda: self._is_left)
            if isinstance(end, Refused):
                self._problem = end.reason
            self._is_drained = isinstance(end, Drained)
        except LinkLostError as error:
            self._problem = str(error)
        except ProtocolError as error:
            self._problem = f"What {self._entry.name} has of the run is {error}."
        if self._is_drained and sink.ended is None:
            reason = f"The process of the run on {self._entry.name} was killed, or the host was restarted."
            self._problem = self._problem or reason
            if sink.run is not None:
                sink.handle(RunEnded(t_ns=self._t_ns, outcome=Outcome(name="crashed", reason=reason)))

    def _described(self, started: RunStarted) -> RunStarted:
        """Return the run's first event, with what this side knows about it."""
        self._t_ns = started.t_ns
        here = {HOST_KEY: self._entry.name, CARRIER_KEY: self._entry.full_address.kind, DETACHED_KEY: "in part"}
        return msgspec.structs.replace(started, uid=self._detached.uid, environment={**started.environment, **here})

    def _stored_run(self, store: Store) -> int | None:
        """Return the number of the run if it is stored completely; set aside the remains of a killed fetch.

        Raises:
            UserError: Another run has its id: a host may name any.
        """
        name = self._entry.name
        for deleted in (False, True):
            for run in store.library.runs_with_uids([self._detached.uid], deleted=deleted):
                environment = store.load_header(run).environment
                match environment.get(DETACHED_KEY):
                    case "yes":
                        return run
                    case "in part" if environment.get(HOST_KEY) == name:
                        store.library.set_aside(run)
                    case _:
                        raise UserError(
                            f"Run {run} of this database has the id of the run on {name}, and is another one: nothing "
                            "was fetched. It can be fetched into another database."
                        )
        return None

    @staticmethod
    def _purge(store: Store, run: int) -> None:
        store.library.delete([run])
        store.library.purge([run])
