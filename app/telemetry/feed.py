"""The live telemetry of a machine: runs its sampler and forwards the readings to listeners."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection

import msgspec

from app.errors import TelemetryError
from app.telemetry.messages import Follow, ReadEnergy, SamplerCommand, SamplerMessage, SetRate
from app.telemetry.sampler_process import Sampler, SamplerProcess, StartSampler
from app.values.samples import HOST, Device, DeviceLost, FieldsUpdated, Inventory, Processes, TelemetryGap, lost_device


def updated_inventory(inventory: Inventory, update: DeviceLost | FieldsUpdated) -> Inventory:
    """Return the inventory after a message: a lost device stays listed, but no run can use it."""
    devices = (
        _updated_device(device, update) if device.device == update.device else device for device in inventory.devices
    )
    changed = msgspec.structs.replace(inventory, devices=tuple(devices))
    if isinstance(update, FieldsUpdated):
        return changed
    gpus = tuple(gpu for gpu in inventory.machine.gpus if gpu.uuid != update.device)
    return msgspec.structs.replace(changed, machine=msgspec.structs.replace(inventory.machine, gpus=gpus))


def _updated_device(device: Device, update: DeviceLost | FieldsUpdated) -> Device:
    if isinstance(update, FieldsUpdated):
        # Readings from before the loss may arrive late, from the other thread.
        if device.lost is not None:
            return device
        return msgspec.structs.replace(device, fields=update.fields, absent=update.absent)
    return lost_device(device, update.reason)


def continued_inventory(former: Inventory, inventory: Inventory) -> Inventory:
    """Return a later inventory, to which missing GPUs of the former one are added: a new sampler may lack some.

    They count as present until the driver has answered for every GPU, then as lost unless another has their index.
    """
    listed, indices = {device.device for device in inventory.devices}, {device.index for device in inventory.devices}
    missing = [device for device in former.devices if device.device not in listed]
    gpus = inventory.machine.gpus
    if inventory.pending:
        gpus += tuple(gpu for gpu in former.machine.gpus if gpu.uuid not in listed)
    else:
        missing = [device for device in missing if device.index not in indices]
        missing = [lost_device(device, _NOT_FOUND) if device.lost is None else device for device in missing]
    devices = sorted((*inventory.devices, *missing), key=lambda device: (device.device == HOST, device.index))
    machine = msgspec.structs.replace(inventory.machine, gpus=gpus)
    return msgspec.structs.replace(inventory, machine=machine, devices=tuple(devices))


def _newly_lost(former: Inventory, now: Inventory, now_ns: int) -> list[DeviceLost]:
    """Return a message for each device that was present before and is no longer."""
    reasons = {device.device: device.lost for device in now.devices}
    losses = ((device.device, reasons.get(device.device, _NOT_FOUND)) for device in former.devices if not device.lost)
    return [DeviceLost(t_ns=now_ns, device=device, reason=reason) for device, reason in losses if reason]


Listener = Callable[[SamplerMessage], None]

_log = logging.getLogger("variantscope.telemetry")

_NO_RESPONSE = "The telemetry process does not answer; start the program again."
_RESTARTED = "The telemetry process ended unexpectedly ({how}) and is being restarted; readings are missing meanwhile."
_NOT_FOUND = "The NVIDIA driver no longer shows this GPU."
_RESTART_PAUSES_S = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Pauses before restarts within `_RESTART_WINDOW_S`; after these, a sampler that ends is given up."""
_RESTART_WINDOW_S = 60.0


class TelemetryFeed:
    """A sampler and its listeners, which are called on the feed's own reader thread.

    A sampler that ends by itself is replaced: listeners get a `TelemetryGap`, then the new one's inventory. If it ends
    repeatedly, it is given up, and every device is lost. Every inventory replaces the previous one, even if it lacks a
    device that was just lost.
    """

    def __init__(
        self,
        hz: float = 20.0,
        start_sampler: StartSampler = SamplerProcess,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Create a feed, not yet started.

        It makes `hz` readings per second. `now_ns` returns the time on the machine's monotonic clock.
        """
        self.hz = hz
        """Readings per second."""
        self._start_sampler = start_sampler
        self.now_ns = now_ns
        """Returns the time on the clock of all readings."""
        self._sampler: Sampler | None = None
        self._reader: threading.Thread | None = None
        self._listeners: list[Listener] = []
        self._inventory: Inventory | None = None
        self._ended: str | None = None
        self._closing = False
        self._restarted_s: list[float] = []
        self._followed: list[int] = []
        self._processes: dict[str, Processes] = {}
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start sampling, unless it has started already; the first message is the inventory."""
        if self._sampler is not None:
            return
        self._sampler = self._start_sampler(self.hz)
        self._reader = threading.Thread(target=self._read, name="telemetry", daemon=True)
        self._reader.start()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the inventory now and every later message; return a function that unsubscribes it."""
        with self._changed:
            self._listeners = [*self._listeners, listener]
            inventory = self._inventory
        if inventory is not None:
            listener(inventory)
        # When closed, it forgets the listener: otherwise a listener that keeps it would form a reference cycle.
        subscription = contextlib.ExitStack()
        subscription.callback(self._unsubscribe, listener)
        return subscription.close

    def follow(self, pid: int) -> None:
        """Add this process's load and memory to the host's samples; with several processes neither is reported."""
        with self._changed:
            self._follow([*self._followed, pid])

    def unfollow(self, pid: int) -> None:
        with self._changed:
            self._follow([other for other in self._followed if other != pid])

    def _follow(self, pids: list[int]) -> None:
        self._followed = pids
        self._send(Follow(pids[0] if len(pids) == 1 else None))

    def gpu_process_ids(self, devices: Collection[str]) -> frozenset[int]:
        """Return the processes on these GPUs as last listed by the driver, at most a few seconds ago."""
        with self._changed:
            lists = [processes for device, processes in self._processes.items() if device in devices]
        return frozenset(process.pid for listed in lists for process in listed.processes)

    def unlisted_reason(self, devices: Collection[str]) -> str | None:
        """Return why the driver does not list the processes on one of these GPUs; None if it lists all."""
        with self._changed:
            lists = [processes for device, processes in self._processes.items() if device in devices]
        return next((processes.reason for processes in lists if processes.reason is not None), None)

    def set_rate(self, hz: float) -> None:
        """Read the fast fields that many times per second from now on."""
        self.hz = hz
        self._send(SetRate(hz))

    def read_energy(self) -> None:
        """Read the energy counters now, because a phase begins or ends."""
        self._send(ReadEnergy())

    def _send(self, command: SamplerCommand) -> None:
        if (sampler := self._sampler) is not None:
            sampler.send(command)

    def wait_inventory(self, timeout_s: float | None = 60.0) -> Inventory:
        """Wait for the inventory; a lost GPU is listed, but not for runs.

        Raises `TelemetryError` if the sampler ended too often, or sent nothing for that long; None waits forever.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._inventory is not None or self._ended is not None, timeout_s)
            # The first inventory of a slow driver lacks some of its GPUs.
            self._changed.wait_for(lambda: self._ended or not (self._inventory and self._inventory.pending), timeout_s)
            if self._inventory is None or (self._ended and not self._closing):
                raise TelemetryError(self._ended or _NO_RESPONSE)
            return self._inventory

    def close(self) -> None:
        if self._sampler is None or self._reader is None:
            return
        with self._changed:
            # From here on the reader does not start another sampler.
            self._closing = True
            self._changed.notify_all()
            sampler = self._sampler
        sampler.end()
        self._reader.join()

    def _read(self) -> None:
        sampler = self._sampler
        while sampler is not None:
            for message in sampler.messages():
                self._dispatch(message)
            sampler = self._replace(sampler)

    def _replace(self, ended: Sampler) -> Sampler | None:
        """Return a new sampler to replace one that ended; None if it was supposed to end, or was the last."""
        try:
            return self._restart(ended)
        except TelemetryError as error:
            with self._changed:
                self._ended = reason = str(error)
                self._changed.notify_all()
                devices = self._inventory.devices if self._inventory is not None else ()
            for device in devices:
                self._dispatch(DeviceLost(t_ns=self.now_ns(), device=device.device, reason=reason))
            return None

    def _restart(self, ended: Sampler) -> Sampler | None:
        """Start another sampler, after a pause if necessary; raises `TelemetryError` if that is pointless."""
        exit_code = ended.exit_code()
        if self._closing:
            return None
        how = f"signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        _log.error("the sampler ended by itself: %s", how)
        never_worked = self._inventory is None and exit_code >= 0
        while not never_worked and (pause_s := self._restart_pause_s()) is not None:
            self._dispatch(TelemetryGap(t_ns=self.now_ns(), reason=_RESTARTED.format(how=how)))
            with self._changed:
                if self._changed.wait_for(lambda: self._closing, pause_s):
                    return None
                try:
                    ended.end()
                    self._sampler = self._start_sampler(self.hz)
                    self._follow(self._followed)
                    return self._sampler
                except OSError as error:
                    how = str(error)
                    _log.error("no sampler could be started: %s", error)
        raise TelemetryError(_NO_RESPONSE)

    def _restart_pause_s(self) -> float | None:
        """Return the pause before the next restart of the sampler; None if it ended too often."""
        now_s = time.monotonic()
        self._restarted_s = [*(time_s for time_s in self._restarted_s if now_s - time_s < _RESTART_WINDOW_S), now_s]
        return dict(enumerate(_RESTART_PAUSES_S, 1)).get(len(self._restarted_s))

    def _dispatch(self, message: SamplerMessage) -> None:
        with self._changed:
            messages = self._take_in(message)
            listeners = self._listeners
        for listener in listeners:
            for update in messages:
                listener(update)

    def _take_in(self, message: SamplerMessage) -> list[SamplerMessage]:
        former = self._inventory
        if isinstance(message, Inventory):
            self._inventory = message if former is None else continued_inventory(former, message)
            _log.info("inventory: %s", ", ".join(f"{device.name} ({device.device})" for device in message.devices))
            self._changed.notify_all()
            return [*_newly_lost(former or message, self._inventory, self.now_ns()), self._inventory]
        if isinstance(message, Processes):
            self._processes[message.device] = message
        elif isinstance(message, DeviceLost | FieldsUpdated) and former is not None:
            self._inventory = updated_inventory(former, message)
            if isinstance(message, DeviceLost):
                _log.warning("device %s lost: %s", message.device, message.reason)
                return [message, self._inventory]
        return [message]

    def _unsubscribe(self, listener: Listener) -> None:
        with self._changed:
            self._listeners = [listening for listening in self._listeners if listening is not listener]
