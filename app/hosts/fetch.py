"""Detached runs on a host: starts, lists and ends them, and reads them into the database."""

import contextlib
import time
import uuid
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from pathlib import Path

import msgspec

from app.errors import UserError
from app.hosts.book import HostEntry
from app.hosts.messages import TREE, WEIGHTS, DetachedEnd, DetachedOrder, DetachedRun, pieces
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

_MOST_RUNS = 20_000
"""Whatever a host says, the list of its runs fits into memory."""


def detach_run(spec: RunSpec, services: RunServices, entry: HostEntry, hz: float, notify: Callable[[str], None]) -> str:
    """Start a run on a host that continues without this program; return its uid. The spec is checked for the host.

    Raises `UserError` if it cannot start.
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
        return _ask(process, DetachedOrder("list"))


def stop_detached(entry: HostEntry, uid: str, notify: Callable[[str], None]) -> None:
    """Ask a detached run to end; raises `UserError`."""
    with contextlib.closing(_start(entry, notify)) as process:
        _ask(process, DetachedOrder("stop", uid))


def _start(entry: HostEntry, notify: Callable[[str], None]) -> HostProcess:
    return HostProcess(Start(address=entry.full_address, on_entry=True), entry.name, notify)


def _ask(process: HostProcess, order: DetachedOrder) -> tuple[DetachedRun, ...]:
    process.wait_hello()
    process.send(order)
    reports = takewhile(lambda report: not isinstance(report, DetachedEnd), reports_of(process, {}, lambda: None))
    return tuple(islice((report for report in reports if isinstance(report, DetachedRun)), _MOST_RUNS))


def fetch_run(
    entry: HostEntry,
    uid: str,
    database: Path,
    sinks: Sequence[Sink] = (),
    *,
    keep: bool = False,
    notify: Callable[[str], None] = lambda _: None,
    is_left: Callable[[], bool] = lambda: False,
) -> StoredRun | None:
    """Store a detached run in the database, to its end, and return it; None if it was left before.

    The sinks get its events, `notify` a sentence while it waits for its devices. With `keep` its recording stays on the
    host. Raises `UserError` if it cannot be fetched now, or never started.
    """
    with contextlib.closing(_start(entry, notify)) as process, RunStore.open(database) as store:
        problem = ""
        try:
            process.wait_hello(is_left)
            number = store.library.fetched_run(uid, entry.name)
            if number is None:
                number, problem = _store(store, process, uid, sinks, notify, is_left)
        except UserError:
            if is_left():
                return None
            raise
        if not keep:
            _ask(process, DetachedOrder("remove", uid))
        if number is None:
            raise UserError(problem)
        return store.load(number)


def _store(
    store: RunStore,
    process: HostProcess,
    uid: str,
    sinks: Sequence[Sink],
    notify: Callable[[str], None],
    is_left: Callable[[], bool],
) -> tuple[int | None, str]:
    """Store a recording as it arrives; return the run's number, or None and why it never began.

    If its process was killed, the run ends after its last event. Raises `UserError` if the recording did not come to
    its end, of which then nothing is left here.
    """
    sink, name, problem, last_ns = StoreSink(store, sinks), process.name, "", 0
    here = {HOST_KEY: name, CARRIER_KEY: process.address.kind, DETACHED_KEY: "in part"}
    files = {WEIGHTS: weights_path(store.path, uid).absolute()}
    try:
        for event in follow_run(process, DetachedOrder("fetch", uid), files, RunWishes()):
            if is_left():
                raise UserError("Fetching was stopped.")
            match event:
                case Waiting(reason=reason) if sink.run is None:
                    problem = reason
                    if reason:
                        notify(f"The run waits on {name}: {reason}")
                case RunStarted():
                    last_ns = event.t_ns
                    sink.handle(msgspec.structs.replace(event, uid=uid, environment={**event.environment, **here}))
                case _ if event is not None:
                    last_ns = last_ns if isinstance(event, Waiting) else max(last_ns, getattr(event, "t_ns", 0))
                    sink.handle(event)
    except (UserError, ProtocolError) as error:
        if sink.run is not None:
            if sink.ended is None:
                sink.abandon()
            _purge(store, sink.run)
        raise UserError(
            f"What {name} has of the run is {error}." if isinstance(error, ProtocolError) else str(error)
        ) from None
    if sink.ended is None:
        reason = f"The process of the run on {name} was killed, or the host was restarted."
        problem = problem or reason
        if sink.run is not None:
            sink.handle(RunEnded(t_ns=last_ns, outcome=Outcome(name="crashed", reason=reason)))
    if sink.failure is not None:
        raise sink.failure
    if sink.run is not None:
        store.add_environment(sink.run, {DETACHED_KEY: "yes"})
        for part in store.library.parts(uid):
            _purge(store, part)
    return sink.run, problem


def _purge(store: Store, run: int) -> None:
    store.library.delete([run])
    store.library.purge([run])
