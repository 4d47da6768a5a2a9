"""The live telemetry of this machine: starts the sampler's process and hands its readings to whoever listens."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection

import msgspec

from app.errors import TelemetryError
from app.places import ROOT
from app.samples import DeviceLost, FieldsSeen, Inventory, Processes
from app.telemetry.messages import Follow, Order, ReadEnergy, SamplerMessage
from app.telemetry.news import with_news

Listener = Callable[[SamplerMessage], None]

_EXIT_S = 2.0
_NO_ANSWER = "The telemetry process does not answer; start the program again."
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""The sampler computes nothing with numpy: its threads would only take processors from what is measured."""


class TelemetryFeed:
    """One sampler process and its listeners, which are called on the feed's own reader thread."""

    def __init__(self, hz: float = 20.0) -> None:
        self._hz = hz
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._listeners: list[Listener] = []
        self._inventory: Inventory | None = None
        self._ended = False
        self._closing = False
        self._followed: list[int] = []
        self._listed: dict[str, Processes] = {}
        self._changed = threading.Condition()

    def start(self) -> None:
        """Starts sampling; the first message is the inventory."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.telemetry.sampler", str(self._hz)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="telemetry", daemon=True)
        self._reader.start()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Calls `listener` with every message from now on (the inventory at once if known); returns the way out."""
        with self._changed:
            self._listeners = [*self._listeners, listener]
            inventory = self._inventory
        if inventory is not None:
            listener(inventory)
        return lambda: self._unsubscribe(listener)

    def follow(self, pid: int) -> None:
        """Adds this process's own load and memory to the host's samples; of several at once they tell none."""
        with self._changed:
            self._follow([*self._followed, pid])

    def unfollow(self, pid: int) -> None:
        """Takes this process out of the host's samples again."""
        with self._changed:
            self._follow([other for other in self._followed if other != pid])

    def _follow(self, pids: list[int]) -> None:
        self._followed = pids
        self._order(Follow(pids[0] if len(pids) == 1 else None))

    def users(self, devices: Collection[str]) -> frozenset[int]:
        """The numbers of the processes on these GPUs as the driver listed them last, at most some seconds ago."""
        with self._changed:
            lists = [listed for device, listed in self._listed.items() if device in devices]
        return frozenset(each.pid for listed in lists for each in listed.processes)

    def read_energy(self) -> None:
        """Has the energy counters read now, because a phase begins or ends."""
        self._order(ReadEnergy())

    def _order(self, order: Order) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # the sampler has ended: its listeners are told where that is read

    def wait_inventory(self, timeout_s: float = 60.0) -> Inventory:
        """What is here now; a GPU that was lost is listed, but none to run on.

        Raises `TelemetryError` when the sampler has ended by itself, or says nothing for that long.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._inventory is not None or self._ended, timeout_s)
            if self._inventory is None or (self._ended and not self._closing):
                raise TelemetryError(_NO_ANSWER)
            return self._inventory

    def close(self) -> None:
        """Ends the sampler and its reader."""
        if self._process is None or self._reader is None or self._process.stdin is None:
            return
        self._closing = True
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # hands on what a sampler that has ended did not take
        try:
            self._process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        decoder: msgspec.json.Decoder[SamplerMessage] = msgspec.json.Decoder(SamplerMessage)
        assert process.stdout is not None, "the sampler was started with a pipe"
        for line in process.stdout:
            self._hand_out(decoder.decode(line))
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            devices = self._inventory.devices if self._inventory is not None and not self._closing else ()
        for device in devices:
            self._hand_out(DeviceLost(t_ns=time.monotonic_ns(), device=device.device, reason=_NO_ANSWER))

    def _hand_out(self, message: SamplerMessage) -> None:
        with self._changed:
            if isinstance(message, Inventory):
                self._inventory = message
                self._changed.notify_all()
            elif isinstance(message, Processes):
                self._listed[message.device] = message
            elif isinstance(message, DeviceLost | FieldsSeen) and self._inventory is not None:
                self._inventory = with_news(self._inventory, message)
            listeners = self._listeners
        for listener in listeners:
            listener(message)

    def _unsubscribe(self, listener: Listener) -> None:
        with self._changed:
            self._listeners = [other for other in self._listeners if other is not listener]
