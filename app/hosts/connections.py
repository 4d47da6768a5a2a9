"""The window's connections to hosts: opened in the background, reopened when lost, and closed together."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
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


@dataclass(eq=False)
class _Slot:
    """One host to connect, until `cancelled`; its thread writes, any reads."""

    name: str
    hz: float
    stage: Stage = "connecting"
    text: str = ""
    connection: "Connection | None" = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def state(self) -> HostState:
        connection = self.connection
        if connection is not None and connection.lost:
            return HostState(name=self.name, stage="lost", text=connection.lost)
        silent_s = 0.0 if connection is None else connection.silent_s
        return HostState(name=self.name, stage=self.stage, text=self.text, silent_s=silent_s)


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
        self._listen, self._changed, self._open = listen, changed, open_host
        self.entries: tuple[HostEntry, ...] = ()
        # Guards changes of the two below, which readers see whole.
        self._lock = threading.Lock()
        self._slots: Mapping[str, _Slot] = {}
        self._threads: list[threading.Thread] = []
        self._closed = False

    def reload(self) -> None:
        """Read the user's hosts again; raises `UserError` for a damaged file."""
        self.entries = read_hosts()
        self._changed()

    def states(self) -> tuple[HostState, ...]:
        """Return all hosts of the book in order, then others that are used by address."""
        return tuple(map(self.state, dict.fromkeys((*(entry.name for entry in self.entries), *self._slots))))

    def state(self, name: str) -> HostState:
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
            slot = _Slot(name, hz)
            self._slots = {**self._slots, name: slot}
            # Under the lock: `close` joins every thread that it sees.
            thread = threading.Thread(target=self._run, args=(slot,), name=f"host {name}", daemon=True)
            self._threads = [*(other for other in self._threads if other.is_alive()), thread]
            thread.start()
        self._changed()

    def disconnect(self, name: str) -> None:
        """End a connection; returns immediately."""
        with self._lock:
            slot = self._slots.get(name)
            self._slots = {key: value for key, value in self._slots.items() if key != name}
        if slot is not None:
            slot.cancelled.set()
            self._changed()

    def connected(self, name: str) -> "Host":
        """Return a connected host; raises `UserError` with the reason if it is not connected."""
        slot = self._slots.get(name)
        connection = slot.connection if slot is not None and slot.state.stage == "connected" else None
        if connection is None:
            raise UserError(self.state(name).text or f"{name} is not connected.")
        return connection.host

    def wait_host(self, name: str, is_cancelled: Callable[[], bool] = lambda: False) -> "Host":
        """Return a host for runs, connected if necessary, which may take hours in Slurm's queue.

        `name` is the one in the book, or an address. Raises `UserError` if it cannot be reached, or was cancelled.
        """
        self.connect(name, FULL_HZ)
        while (state := self.state(name)).stage != "connected":
            if is_cancelled():
                raise UserError(f"Waiting for {name} was stopped.")
            if state.stage in ("failed", "lost") or self._closed:
                raise UserError(state.text or f"{name} is not connected any more.")
            time.sleep(_LOOK_S / 5)
        return self.connected(name)

    def close(self) -> None:
        """End all connections, and wait for them for a limited time."""
        with self._lock:
            self._closed = True
            slots, self._slots = self._slots.values(), {}
        for slot in slots:
            slot.cancelled.set()
        deadline_s = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _set(self, slot: _Slot, stage: Stage, text: str = "") -> None:
        slot.stage, slot.text = stage, text
        self._changed()

    def _run(self, slot: _Slot) -> None:
        """Connect, watch and reconnect a host until it is cancelled."""
        tries = 0
        while not slot.cancelled.is_set():
            try:
                slot.connection = connection = self._open(
                    slot.name,
                    hz=slot.hz,
                    notify=lambda text: self._set(slot, slot.stage, text),
                    is_cancelled=slot.cancelled.is_set,
                )
            except (UserError, UsageError) as error:
                self._set(slot, "lost" if tries else "failed", str(error))
                if not tries:
                    return
            except BaseException as error:
                self._set(slot, "failed", bug_message(error))
                raise
            else:
                tries = 0
                unsubscribe = connection.host.telemetry.subscribe(partial(self._listen, slot.name))
                self._set(slot, "connected")
                while not (slot.cancelled.wait(_LOOK_S) or connection.lost):
                    pass
                slot.connection = None
                self._set(slot, "lost", connection.lost or "")
                unsubscribe()
                connection.close()
            slot.cancelled.wait(_RETRY_S[min(tries, len(_RETRY_S) - 1)])
            tries += 1
