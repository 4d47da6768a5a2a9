"""Runs that go on on a host without the program: detach them, list them, and play their lines into the database."""

import contextlib
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from app.agent_protocol import EndWorker, Refused
from app.environment_keys import DETACHED_KEY, HOST_KEY
from app.errors import UserError
from app.hosts.book import HostEntry
from app.hosts.channel import Channel
from app.hosts.connection import open_channel
from app.hosts.open import carrier_of
from app.hosts.played import EndMethod, Method, PlayedRun
from app.paths import program_version
from app.records import StoredRun
from app.runs.custom import stored_source
from app.runs.environment import program_info
from app.runs.leases import candidate_devices
from app.runs.session import RunServices, RunSession, start_order
from app.runs.sinks import Sink
from app.runs.supervisor import WorkerTimeouts
from app.spool_protocol import (
    WORKER,
    DetachRun,
    FollowSpool,
    ListSpools,
    RemoveSpool,
    Spool,
    Spooled,
    SpoolOrder,
    SpoolsListed,
)
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import DETACHED
from app.storage.store import Store
from workloads.catalog import UsageError
from workloads.protocol import RunSpec

_MODULE = "app.agent.spool"
_WEIGHTS = Path("weights.npz")
_LOOK_S, _QUIET_S = 0.2, 2.0
_SPOOLED: msgspec.json.Decoder[Spooled | Refused] = msgspec.json.Decoder(Spooled | Refused)
_LISTED: msgspec.json.Decoder[SpoolsListed | Refused] = msgspec.json.Decoder(SpoolsListed | Refused)
Answer = TypeVar("Answer", bound=msgspec.Struct)
_KINDS = ("ssh", "docker", "sh")
"""Carriers whose host goes on when they end: an allocation of Slurm or an actor of Ray ends with its link."""


def require_lasting(entry: HostEntry) -> None:
    """Raise `UsageError` for a host on which nothing goes on without its link."""
    if entry.place.kind not in _KINDS:
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

        Args:
            entry: The host.
            notify: Gets a sentence for what is waited for; on any thread.
            is_cancelled: Returns whether to wait no longer.

        Raises:
            UserError: It cannot be reached, or has none; with what to do.
        """
        require_lasting(entry)
        carrier = carrier_of(entry.place)
        opened = open_channel(carrier, name=entry.name, notify=notify, is_cancelled=is_cancelled, module=_MODULE)
        return cls(opened.channel, opened.lines, entry)

    def spools(self) -> tuple[Spool, ...]:
        """Return the runs in the spool, the oldest first; raises `UserError`."""
        return self._ask(ListSpools(), _LISTED).spools

    def detach(self, run: DetachRun) -> None:
        """Start a run that goes on without this program; raises `UserError`."""
        self._ask(run, _LISTED)

    def remove(self, uid: str) -> None:
        """Remove a run that is over; raises `UserError`."""
        self._ask(RemoveSpool(uid), _LISTED)

    def follow(self, uid: str, end_worker: EndMethod) -> PlayedRun:
        """Return a run to play; `end_worker` has its worker ended by one step. Raises `UserError`."""
        spooled = self._ask(FollowSpool(uid), _SPOOLED)
        return PlayedRun(spooled, self._lines, end_worker, name=self.entry.name, kind=self.entry.place.kind)

    def end_worker(self, method: Method) -> None:
        """End the worker of the run that is followed by one step, or the run if it waits for its devices."""
        # Else the player hears that the link is lost.
        with contextlib.suppress(OSError):
            self._channel.write(msgspec.json.encode(EndWorker(worker=WORKER, method=method)) + b"\n")

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
            self._channel.write(msgspec.json.encode(order) + b"\n")
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


def detach_run(spec: RunSpec, services: RunServices, link: SpoolLink, hz: float) -> str:
    """Start a run on a host that goes on without this program; return its uid.

    Args:
        spec: What to run, checked for the host.
        services: With the host, and the database that will have the run.
        link: The host's spool.
        hz: Readings a second.

    Raises:
        UserError: It cannot be started.
    """
    devices = candidate_devices(spec, services.host.machine)
    count = int(spec.variant["gpus"]) or 1
    services.admit([spec])
    with Store.open(services.database) as store:
        source = stored_source(spec, services.database)
        start = start_order(store, spec, devices[:count], services.host, source, _WEIGHTS)
    timeouts = WorkerTimeouts()
    run = DetachRun(
        uid=uuid.uuid4().hex,
        start=start,
        devices=tuple(devices),
        count=count,
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

        Args:
            link: The host's spool.
            spool: The run.
            database: The database.
            notify: Gets a sentence while the run waits for its devices.
        """
        self._link = link
        self._spool = spool
        self._database = database
        self._notify = notify
        self._session: RunSession | None = None
        self._is_left = False
        self._stop_wanted = False

    @property
    def uid(self) -> str:
        """The run's id in all databases."""
        return self._spool.spooled.run.uid

    def leave(self) -> None:
        """Follow the run no longer; it goes on on its host."""
        self._is_left = True
        if self._session is not None:
            self._session.stop()

    def stop(self) -> None:
        """End the run on its host, and store what it did until then."""
        self._stop_wanted = True
        if self._session is not None:
            self._session.stop()

    def fetch(self, sinks: Sequence[Sink], *, keep: bool = False) -> StoredRun | None:
        """Play the run into the database, to its end; return it as stored.

        Args:
            sinks: Get its events.
            keep: Whether its lines stay on the host.

        Returns:
            The run; None where `leave` came first.

        Raises:
            UserError: It cannot be fetched now, or never began.
        """
        with Store.open(self._database) as store:
            if (run := self._stored_run(store)) is not None:
                self._forget(keep=keep)
                return store.load(run)
        played = self._link.follow(self.uid, self._end_worker)
        played.start()
        try:
            stored = self._play(played, sinks)
        finally:
            if not played.is_whole:
                self._link.leave()
            played.finish()
        if stored is not None or played.is_whole:
            self._forget(keep=keep)
        if stored is None and not self._is_left:
            raise UserError(played.problem if played.is_whole else self._link.why_ended())
        return stored

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
                            "was fetched. It can be fetched into another database, by --db."
                        )
        return None

    @staticmethod
    def _purge(store: Store, run: int) -> None:
        store.library.delete([run])
        store.library.purge([run])

    def _play(self, played: PlayedRun, sinks: Sequence[Sink]) -> StoredRun | None:
        """Store the run as it is played; return None where it never began or was not played to its end."""
        if not self._begins(played):
            return None
        run = self._spool.spooled.run
        services = RunServices(
            database=self._database,
            host=played.host,
            timeouts=WorkerTimeouts(hello_s=run.hello_s, message_gap_s=run.message_gap_s),
        )
        session = self._session = RunSession(
            run.start.spec,
            services,
            sinks,
            environment={DETACHED_KEY: "in part"},
            lease=played.lease,
            uid=run.uid,
        )
        if self._is_left or self._stop_wanted:
            session.stop()
        session.run()
        played.finish()
        assert session.number is not None, "the run has begun"
        with Store.open(self._database) as store:
            if not played.is_whole:
                self._purge(store, session.number)
                return None
            store.add_environment(session.number, {DETACHED_KEY: "yes"})
            for part in store.library.parts(self.uid):
                self._purge(store, part)
            return store.load(session.number)

    def _begins(self, played: PlayedRun) -> bool:
        """Wait until the run has its devices; return whether it has."""
        waited_s, is_stopping = 0.0, False
        while not played.wait_begun(_LOOK_S):
            waited_s += _LOOK_S
            if self._is_left:
                return False
            if self._stop_wanted and not is_stopping:
                is_stopping = True
                self._end_worker("close stdin")
            if waited_s - _LOOK_S < _QUIET_S <= waited_s:
                self._notify("The run waits on its host for a free device.")
        return played.lease is not None

    def _end_worker(self, method: Method) -> None:
        """End the worker by one step; who leaves ends only the link."""
        if self._is_left:
            self._link.leave()
        else:
            self._link.end_worker(method)

    def _forget(self, *, keep: bool) -> None:
        if not keep:
            self._link.remove(self.uid)
        left = detached_hosts(self._database)
        if left.pop(self.uid, None) is not None:
            _note(self._database, left)


def _note(database: Path, hosts: dict[str, str]) -> None:
    save_setting(database, DETACHED, hosts or None)
