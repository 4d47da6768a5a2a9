"""Runs that go on on a host without the program: detach them, list them, play them into the database."""

import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from app.agent_protocol import FilePart, Refused
from app.environment_keys import CARRIER_KEY, DETACHED_KEY, HOST_KEY
from app.errors import UserError
from app.events import Outcome, RunEnded, RunStarted
from app.hosts.book import HostEntry
from app.hosts.channel import Channel, LineTooLongError
from app.hosts.connection import open_channel
from app.hosts.open import carrier_of
from app.paths import open_private, program_version, weights_path
from app.recording import read_events
from app.records import StoredRun
from app.runs.custom import stored_source
from app.runs.environment import program_info
from app.runs.host import ClockAnchor, WorkerTimeouts
from app.runs.leases import candidate_devices
from app.runs.session import RunServices, needs_calibration, source_info, start_order
from app.runs.sinks import Sink, StoreSink
from app.runs.supervisor import MessageOrder
from app.samples import Waiting
from app.spool_protocol import (
    DetachRun,
    FollowSpool,
    ListSpools,
    RemoveSpool,
    Spool,
    SpoolDrained,
    SpoolOrder,
    SpoolsListed,
    StopSpool,
)
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import DETACHED
from app.storage.run_store import RunStore
from app.storage.store import Store
from workloads.catalog import UsageError
from workloads.protocol import ProtocolError, RunSpec, decode

_MODULE = "app.agent.detached"
_WEIGHTS = Path("weights.npz")
_WEIGHTS_BROKEN = "(the weights could not be stored in {path}: {reason})"
_LISTED: msgspec.json.Decoder[SpoolsListed | Refused] = msgspec.json.Decoder(SpoolsListed | Refused)
_AFTER: msgspec.json.Decoder[FilePart | SpoolDrained | Refused] = msgspec.json.Decoder(
    FilePart | SpoolDrained | Refused
)
_AFTER_LINES = (b'{"type":"file_part"', b'{"type":"spool_drained"', b'{"type":"refused"')
"""How the lines begin that are none of a recording."""
Answer = TypeVar("Answer", bound=msgspec.Struct)
_KINDS = ("ssh", "docker", "sh")
"""Carriers whose host goes on when they end: an allocation of Slurm or an actor of Ray ends with its link."""


def require_lasting(entry: HostEntry) -> None:
    """Raise `UsageError` for a host on which nothing goes on without its link."""
    if entry.full_address.kind not in _KINDS:
        raise UsageError(
            f"A run on {entry.name} ends with its link, so it cannot be detached: start the program where the link"
            " lasts, in tmux on the login or head node."
        )


class SpoolLink:
    """A channel to a host's spool.

    Thread: one; `leave` any.
    """

    def __init__(self, channel: Channel, lines: Iterator[bytes], entry: HostEntry) -> None:
        """Take a channel on which the spool's process waits for orders."""
        self._channel = channel
        self._lines = lines
        self.entry = entry

    @classmethod
    def open(
        cls, entry: HostEntry, notify: Callable[[str], None], is_cancelled: Callable[[], bool] = lambda: False
    ) -> "SpoolLink":
        """Open the spool of a host.

        `notify` gets a sentence for what is waited for, on any thread.

        Raises:
            UserError: It cannot be reached, or has none; with what to do.
        """
        require_lasting(entry)
        carrier = carrier_of(entry.full_address)
        opened = open_channel(carrier, name=entry.name, notify=notify, is_cancelled=is_cancelled, module=_MODULE)
        return cls(opened.channel, opened.lines, entry)

    def listed(self) -> SpoolsListed:
        """Return the runs in the spool; raises `UserError`."""
        return self._ask(ListSpools(), _LISTED)

    def detach(self, run: DetachRun) -> None:
        """Start a run that goes on without this program; raises `UserError`."""
        self._ask(run, _LISTED)

    def remove(self, uid: str) -> None:
        """Remove a run that is over; raises `UserError`."""
        self._ask(RemoveSpool(uid), _LISTED)

    def follow(self, uid: str) -> Iterator[bytes]:
        """Return the lines of a run's recording as they come, and what comes after them."""
        with contextlib.suppress(OSError):  # else whoever reads hears that the link is lost
            self._send(FollowSpool(uid))
        return self._lines

    def stop(self, uid: str) -> None:
        """End a run, as its user would; its recording says how it ended."""
        with contextlib.suppress(OSError):
            self._send(StopSpool(uid))

    def why_ended(self) -> str:
        """Return why the link was lost."""
        return self._channel.why_ended()

    def leave(self) -> None:
        """Give the link up at once; what goes on on the host goes on."""
        self._channel.cut()

    def close(self) -> None:
        """End the link."""
        self._channel.close()
        # Its stdout is closed with the last line.
        deque(self._lines, maxlen=0)

    def _ask(self, order: SpoolOrder, decoder: "msgspec.json.Decoder[Answer | Refused]") -> Answer:
        """Send an order and return the first line of the answer."""
        try:
            self._send(order)
            answer = decoder.decode(next(self._lines))
        except (OSError, StopIteration):
            raise UserError(self._channel.why_ended()) from None
        except msgspec.DecodeError as error:
            raise UserError(
                f"The spool of {self.entry.name} holds what this version cannot read ({error}): a run that was detached"
                " by another version is fetched by that one."
            ) from None
        if isinstance(answer, Refused):
            raise UserError(answer.reason)
        return answer

    def _send(self, order: SpoolOrder) -> None:
        self._channel.write(msgspec.json.encode(order) + b"\n")


def detach_run(spec: RunSpec, services: RunServices, link: SpoolLink, hz: float) -> str:
    """Start a run on a host that goes on without this program; return its uid.

    The spec is checked for the host. The services have the host, and the database that will have the run. Telemetry has
    `hz` readings a second.

    Raises:
        UserError: It cannot be started.
    """
    devices = candidate_devices(spec, services.host.machine)
    count = int(spec.variant["gpus"]) or 1
    services.admit([spec])
    with Store.open(services.database) as store:
        source = stored_source(spec, services.database)
        start = start_order(spec, source, _WEIGHTS)
        calibrate = start.calibrate and needs_calibration(store, spec, services.host, devices[:count])
    timeouts = WorkerTimeouts()
    run = DetachRun(
        uid=uuid.uuid4().hex,
        start=msgspec.structs.replace(start, calibrate=calibrate),
        hz=hz,
        environment=program_info(),
        utc_ns=time.time_ns(),
        version=program_version(),
        hello_s=timeouts.hello_s,
        message_gap_s=timeouts.message_gap_s,
    )
    link.detach(run)
    _note(services.database, {**detached_hosts(services.database), run.uid: link.entry.name})
    return run.uid


def detached_hosts(database: Path) -> dict[str, str]:
    """Return the hosts of the runs that were detached from a database and not fetched yet, by uid."""
    return load_setting(database, DETACHED) or {}


class Attachment:
    """One detached run on its way into the database.

    Thread: `fetch` blocks its thread, once; `leave` and `stop` any.
    """

    def __init__(self, link: SpoolLink, spool: Spool, database: Path, notify: Callable[[str], None]) -> None:
        """Take the run and where it shall be stored.

        `notify` gets a sentence while the run waits for its devices, and where its weights cannot be stored.
        """
        self._link = link
        self._spool = spool
        self._database = database
        self._notify = notify
        # Flags, each set once.
        self._is_left = False
        # Of the thread that fetches.
        self._drained: SpoolDrained | None = None
        self._problem = ""
        self._t_ns = 0
        self._weights_bytes = 0

    @property
    def uid(self) -> str:
        """The run's id in all databases."""
        return self._spool.run.uid

    def leave(self) -> None:
        """Follow the run no longer; it goes on on its host."""
        self._is_left = True
        self._link.leave()

    def stop(self) -> None:
        """End the run on its host, and store what it did until then."""
        self._link.stop(self.uid)

    def fetch(self, sinks: Sequence[Sink], *, keep: bool = False) -> StoredRun | None:
        """Play the run's recording into the database, to its end; return it as stored.

        The sinks get its events. With `keep` its recording stays on the host.

        Returns:
            The run; None where `leave` came first.

        Raises:
            UserError: It cannot be fetched now, or never began.
        """
        with Store.open(self._database) as store:
            if (run := self._stored_run(store)) is not None:
                self._forget(keep=keep)
                return store.load(run)
        with RunStore.open(self._database) as run_store:
            sink = StoreSink(run_store, sinks)
            self._play(sink)
            if self._drained is None:
                if sink.run is not None:
                    sink.abandon()
                    self._purge(run_store, sink.run)
                self._link.leave()
                if self._is_left:
                    return None
                raise UserError(self._problem or self._link.why_ended())
            if sink.failure is not None:
                raise sink.failure
            if sink.run is not None:
                run_store.add_environment(sink.run, {DETACHED_KEY: "yes"})
                for part in run_store.library.parts(self.uid):
                    self._purge(run_store, part)
            self._forget(keep=keep)
            if sink.run is None:
                raise UserError(self._problem)
            return run_store.load(sink.run)

    def _play(self, sink: StoreSink) -> None:
        """Store the events as they come; end the run where its maker was killed, which is known once all came."""
        order: MessageOrder | None = None
        try:
            for event in read_events(self._recorded()):
                self._t_ns = max(self._t_ns, getattr(event, "t_ns", 0))
                match event:
                    case RunStarted():
                        if sink.run is None:  # a host may say anything, but it is one run
                            order = MessageOrder.of_events(ClockAnchor(event.t_ns, event.utc_ns))
                            sink.handle(self._described(event))
                    case Waiting(reason=reason) if sink.run is None:
                        self._problem = reason
                        self._notify(f"The run waits on {self._link.entry.name}: {reason}")
                    case _ if order is not None and sink.ended is None:
                        order.check_event(event)
                        sink.handle(event)
        except (ProtocolError, LineTooLongError) as error:
            run, name = self._spool.run, self._link.entry.name
            wrong = str(error) or "a line without an end"
            self._problem = f"What {name} has of the run is {wrong}; version {run.version} detached it, and fetches it."
            self._drained = None
            return
        if self._drained is not None and sink.ended is None:
            reason = self._why_ended(self._drained.boot_id)
            self._problem = self._problem or reason
            if sink.run is not None:
                sink.handle(RunEnded(t_ns=self._t_ns, outcome=Outcome(name="crashed", reason=reason)))

    def _recorded(self) -> Iterator[bytes]:
        """Yield the lines of the recording, and take what comes after them."""
        for line in self._link.follow(self.uid):
            if not line.startswith(_AFTER_LINES):
                yield line
                continue
            match decode(_AFTER, line, "what comes after the events of a run"):
                case FilePart() as piece:
                    self._store_piece(piece)
                case SpoolDrained() as drained:
                    self._drained = drained
                    return
                case Refused(reason=reason):
                    self._problem = reason
                    return

    def _described(self, started: RunStarted) -> RunStarted:
        """Return the run's first event, with what is known of it on this side."""
        entry = self._link.entry
        return msgspec.structs.replace(
            started,
            uid=self.uid,
            environment={
                **started.environment,
                **source_info(self._spool.run.start.source),
                HOST_KEY: entry.name,
                CARRIER_KEY: entry.full_address.kind,
                DETACHED_KEY: "in part",
            },
        )

    def _why_ended(self, boot_id: str) -> str:
        name = self._link.entry.name
        if boot_id != self._spool.boot_id:
            return f"{name} was started again while the run went on there, which ended it."
        return f"The program that made the run on {name} was killed there, and so the run ended."

    def _store_piece(self, piece: FilePart) -> None:
        """Add a piece of the weights, which come in their order."""
        path = weights_path(self._database, self.uid).absolute()
        part = path.with_name(f"{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(part, "ab" if self._weights_bytes else "wb", opener=open_private) as file:
                file.write(piece.data)
            self._weights_bytes += len(piece.data)
            if self._weights_bytes == piece.size:
                part.replace(path)
        except OSError as error:
            self._notify(_WEIGHTS_BROKEN.format(path=path, reason=error.strerror))

    def _stored_run(self, store: Store) -> int | None:
        """Return the number of the run if all of it is stored; set aside what an attachment that was killed has left.

        Raises:
            UserError: Another run has its id: a host can name any.
        """
        name = self._link.entry.name
        for deleted in (False, True):
            for run in store.library.runs_with_uids([self.uid], deleted=deleted):
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

    def _forget(self, *, keep: bool) -> None:
        if not keep:
            self._link.remove(self.uid)
        left = detached_hosts(self._database)
        if left.pop(self.uid, None) is not None:
            _note(self._database, left)


def _note(database: Path, hosts: dict[str, str]) -> None:
    save_setting(database, DETACHED, hosts or None)
