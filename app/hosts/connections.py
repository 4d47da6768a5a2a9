"""The window's connections to hosts: opened in the background, reopened when lost, and closed together."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from app.errors import UserError, bug_message
from app.hosts.book import HostEntry, read_hosts
from app.telemetry.messages import SamplerMessage
from app.viewmodels.hosts import HostState, Stage
from workloads.catalog import UsageError

if TYPE_CHECKING:
    from app.hosts.remote import Connection
    from app.runs.host import Host

FULL_HZ = 20.0
"""Readings per second of a host that is displayed or executes runs."""
OVERVIEW_HZ = 2.0
"""Readings per second of one of many hosts: 200 with eight GPUs each send 3,600 samples per second."""
_RETRY_S = (5.0, 15.0, 60.0)
"""Pauses before a lost host is tried again; the last one repeats."""
_LOOK_S = 0.5
_CLOSE_S = 5.0
"""How long closing waits for connections that do not end."""


def open_late(word: str, **how: Any) -> "Connection":
    """Connect like `app.hosts.remote.open_host`, whose import the window's first paint does not wait for."""
    from app.hosts.remote import open_host

    return open_host(word, **how)


class _Slot:
    """One host to connect: its thread connects, watches, and reconnects until cancelled.

    Thread: `run` is its own; the rest any.
    """

    def __init__(self, name: str, hz: float, owner: "Connections") -> None:
        self.name, self.hz = name, hz
        self.connection: Connection | None = None
        self.cancelled = threading.Event()
        self._owner = owner
        self._state = HostState(name=name, stage="connecting")
        self.thread = threading.Thread(target=self._run, name=f"host {name}", daemon=True)

    def _run(self) -> None:
        tries = 0
        while not self.cancelled.is_set():
            try:
                connection = self._owner.open(
                    self.name, hz=self.hz, notify=self._note, is_cancelled=self.cancelled.is_set
                )
            except (UserError, UsageError) as error:
                self._set("lost" if tries else "failed", str(error))
                if not tries:
                    return
            except BaseException as error:
                self._set("failed", bug_message(error))
                raise
            else:
                tries = 0
                self._serve(connection)
            self.cancelled.wait(_RETRY_S[min(tries, len(_RETRY_S) - 1)])
            tries += 1

    def _serve(self, connection: "Connection") -> None:
        """Forward the host's messages until its link is lost or nobody wants them."""
        self.connection = connection
        unsubscribe = connection.host.telemetry.subscribe(lambda message: self._owner.listen(self.name, message))
        self._set("connected")
        while not (self.cancelled.wait(_LOOK_S) or connection.lost):
            pass
        self.connection = None
        self._set("lost", connection.lost or "")
        unsubscribe()
        connection.close()

    def _note(self, text: str) -> None:
        self._set(self._state.stage, text)

    def _set(self, stage: Stage, text: str = "") -> None:
        self._state = HostState(name=self.name, stage=stage, text=text)
        self._owner.changed()

    @property
    def state(self) -> HostState:
        if (connection := self.connection) is None:
            return self._state
        if connection.lost:
            return HostState(name=self.name, stage="lost", text=connection.lost)
        return replace(self._state, silent_s=connection.silent_s)


class Connections:
    """The hosts of the user's book, and their connections.

    `changed` is called when a host connects, is lost or has a message for the user; `listen` with every message of a
    host's telemetry, and its name. Both are called on other threads, and must return immediately.

    Thread: any; only `wait_host` and `close` wait.
    """

    def __init__(
        self,
        listen: Callable[[str, SamplerMessage], None],
        changed: Callable[[], None],
        open_host: Callable[..., "Connection"] = open_late,
    ) -> None:
        self.listen = listen
        self.changed = changed
        self.open = open_host
        self._lock = threading.Lock()
        self.entries: tuple[HostEntry, ...] = ()
        self._slots: dict[str, _Slot] = {}
        self._closed = False

    def reload(self) -> None:
        """Read the user's hosts again; raises `UserError` for a damaged file."""
        self.entries = read_hosts()
        self.changed()

    def states(self) -> tuple[HostState, ...]:
        """Return all hosts of the book in order, then others that are used by address."""
        with self._lock:
            names = dict.fromkeys((*(entry.name for entry in self.entries), *self._slots))
        return tuple(map(self.state, names))

    def state(self, name: str) -> HostState:
        with self._lock:
            slot = self._slots.get(name)
        return HostState(name=name) if slot is None else slot.state

    def connect(self, name: str, hz: float = OVERVIEW_HZ) -> None:
        """Start connecting to a host, or try again; an existing connection stays, unless its rate is too low.

        `name` is the one in the book, or an address. Telemetry has `hz` readings per second.
        """
        with self._lock:
            former = self._slots.get(name)
            is_enough = former is not None and former.state.stage in ("connecting", "connected") and former.hz >= hz
            if self._closed or is_enough:
                return
            if former is not None:
                former.cancelled.set()
            slot = self._slots[name] = _Slot(name, hz, self)
            # Under the lock: `close` joins every thread that it sees.
            slot.thread.start()
        self.changed()

    def disconnect(self, name: str) -> None:
        """End a connection; returns immediately."""
        with self._lock:
            slot = self._slots.pop(name, None)
        if slot is not None:
            slot.cancelled.set()
            self.changed()

    def host(self, name: str) -> "Host | None":
        with self._lock:
            slot = self._slots.get(name)
        connection = slot.connection if slot is not None and slot.state.stage == "connected" else None
        return None if connection is None else connection.host

    def connected(self, name: str) -> "Host":
        """Return a connected host; raises `UserError` with the reason if it is not connected."""
        if (host := self.host(name)) is None:
            raise UserError(self.state(name).text or f"{name} is not connected.")
        return host

    def wait_host(self, name: str, is_cancelled: Callable[[], bool] = lambda: False) -> "Host":
        """Return a host for runs, connected if necessary, which may take hours in Slurm's queue.

        `name` is the one in the book, or an address.

        Raises:
            UserError: It cannot be reached, or the wait was cancelled.
        """
        self.connect(name, FULL_HZ)
        while (host := self.host(name)) is None:
            state = self.state(name)
            if is_cancelled():
                raise UserError(f"Waiting for {name} was stopped.")
            if state.stage in ("failed", "lost") or self._closed:
                raise UserError(state.text or f"{name} is not connected any more.")
            time.sleep(_LOOK_S / 5)
        return host

    def close(self) -> None:
        """End all connections, and wait for them for a limited time."""
        with self._lock:
            self._closed = True
            slots = list(self._slots.values())
            self._slots = {}
        for slot in slots:
            slot.cancelled.set()
        deadline_s = time.monotonic() + _CLOSE_S
        for slot in slots:
            slot.thread.join(max(0.0, deadline_s - time.monotonic()))
