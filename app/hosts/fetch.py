"""Detached runs on a host: starts, lists and ends them, and reads them into the database."""

import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from app.errors import UserError
from app.hosts.book import HostEntry
from app.hosts.messages import TREE, WEIGHTS, DetachedOrder, DetachedRun, DetachedRuns, Report, pieces
from app.hosts.process import HostProcess, LinkLostError
from app.hosts.remote import follow_run, reports_of
from app.hosts.wheel import Start
from app.paths import weights_path
from app.runs.custom import stored_source
from app.runs.environment import program_info
from app.runs.host import RunOrder, RunWishes
from app.runs.leases import candidate_devices
from app.runs.script import pack_tree
from app.runs.session import RunServices, needs_calibration, source_info, start_order
from app.runs.sinks import Sink, StoreSink
from app.storage.store import RunStore, Store
from app.values.environment_keys import CARRIER_KEY, DETACHED_KEY, HOST_KEY
from app.values.events import Outcome, RunEnded, RunStarted
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
    tree = pieces(pack_tree(source), TREE) if source and source.command and source.modules else ()
    orders = b"".join(map(encode, (*tree, order)))
    process = HostProcess(
        Start(address=address, on_entry=True, detached_uid=order.uid, orders=orders), entry.name, notify
    )
    with contextlib.closing(process), contextlib.suppress(LinkLostError):
        process.wait_hello()
    if not process.is_detached:
        raise UserError(process.lost)
    return order.uid


def list_detached(entry: HostEntry, notify: Callable[[str], None]) -> tuple[DetachedRun, ...]:
    """Return a host's detached runs, oldest first; raises `UserError`."""
    with contextlib.closing(_start(entry, notify)) as process:
        process.wait_hello()
        report = _ask(process, DetachedOrder("list"))
    return report.runs if isinstance(report, DetachedRuns) else ()


def stop_detached(entry: HostEntry, uid: str, notify: Callable[[str], None]) -> None:
    """Ask a detached run to end; raises `UserError`."""
    with contextlib.closing(_start(entry, notify)) as process:
        process.wait_hello()
        _ask(process, DetachedOrder("stop", uid))


def _start(entry: HostEntry, notify: Callable[[str], None]) -> HostProcess:
    return HostProcess(Start(address=entry.full_address, on_entry=True), entry.name, notify)


def _ask(process: HostProcess, order: DetachedOrder) -> Report:
    process.send(order)
    return next(report for report in reports_of(process, {}, lambda: None) if report is not None)


class Fetch:
    """One detached run's transfer into the database. Thread: `run` blocks its thread, once; `leave` any."""

    def __init__(self, entry: HostEntry, detached: DetachedRun, database: Path, notify: Callable[[str], None]) -> None:
        """Create the transfer of a run; `notify` gets a sentence while the run waits for its devices."""
        self._entry, self._detached, self._database, self._notify = entry, detached, database, notify
        # A flag, set once.
        self._is_left = False
        # Used by the thread that fetches.
        self._process: HostProcess | None = None
        self._problem = ""

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
        self._process = process = _start(self._entry, self._notify)
        with contextlib.closing(process), RunStore.open(self._database) as store:
            try:
                process.wait_hello(lambda: self._is_left)
                number = self._stored_run(store)
                if number is None:
                    number = self._store(store, process, sinks)
            except UserError:
                if self._is_left:
                    return None
                raise
            if not keep:
                _ask(process, DetachedOrder("remove", self._detached.uid))
            if number is None:
                raise UserError(self._problem)
            return store.load(number)

    def _store(self, store: RunStore, process: HostProcess, sinks: Sequence[Sink]) -> int | None:
        """Store the recording, and return the run's number; None if it never began. Raises `UserError`."""
        sink = StoreSink(store, sinks)
        try:
            self._play(sink, process)
        except UserError:
            if sink.run is not None:
                if sink.ended is None:
                    sink.abandon()
                self._purge(store, sink.run)
            raise
        if sink.failure is not None:
            raise sink.failure
        if sink.run is not None:
            store.add_environment(sink.run, {DETACHED_KEY: "yes"})
            for part in store.library.parts(self._detached.uid):
                self._purge(store, part)
        return sink.run

    def _play(self, sink: StoreSink, process: HostProcess) -> None:
        """Store the events as they arrive; end the run if its process was killed, which shows after the last event.

        Raises:
            UserError: The recording did not come to its end.
        """
        name, uid = self._entry.name, self._detached.uid
        here = {HOST_KEY: name, CARRIER_KEY: process.address.kind, DETACHED_KEY: "in part"}
        files = {WEIGHTS: weights_path(self._database, uid).absolute()}
        last_ns = 0
        try:
            for event in follow_run(process, DetachedOrder("fetch", uid), files, RunWishes()):
                if self._is_left:
                    raise UserError("Fetching was stopped.")
                match event:
                    case Waiting(reason=reason) if sink.run is None:
                        self._problem = reason
                        if reason:
                            self._notify(f"The run waits on {name}: {reason}")
                    case RunStarted():
                        last_ns = event.t_ns
                        sink.handle(msgspec.structs.replace(event, uid=uid, environment={**event.environment, **here}))
                    case _ if event is not None:
                        last_ns = last_ns if isinstance(event, Waiting) else max(last_ns, getattr(event, "t_ns", 0))
                        sink.handle(event)
        except ProtocolError as error:
            raise UserError(f"What {name} has of the run is {error}.") from None
        if sink.ended is None:
            reason = f"The process of the run on {name} was killed, or the host was restarted."
            self._problem = self._problem or reason
            if sink.run is not None:
                sink.handle(RunEnded(t_ns=last_ns, outcome=Outcome(name="crashed", reason=reason)))

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
