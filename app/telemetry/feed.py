"""The live telemetry of this machine: runs the sampler process and passes its readings to listeners."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection

import msgspec

from app.errors import TelemetryError
from app.log import child_environment
from app.paths import ROOT
from app.samples import Device, DeviceLost, FieldsUpdated, Inventory, Processes
from app.telemetry.messages import Follow, ReadEnergy, SamplerCommand, SamplerMessage


def updated_inventory(inventory: Inventory, update: DeviceLost | FieldsUpdated) -> Inventory:
    """Return the inventory after a message: a lost device is still listed, but no run can use it."""
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
        # What was seen of a device before it was lost may come late, from the other thread.
        if device.lost is not None:
            return device
        return msgspec.structs.replace(device, fields=update.fields, absent=update.absent)
    absent = {**device.absent, **dict.fromkeys(device.fields, "lost")}
    return msgspec.structs.replace(device, fields={}, absent=absent, lost=update.reason)


Listener = Callable[[SamplerMessage], None]

_log = logging.getLogger("variantscope.telemetry")

_EXIT_S = 2.0
_NO_RESPONSE = "The telemetry process does not answer; start the program again."
_SINGLE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
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
        self._processes: dict[str, Processes] = {}
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start sampling; the first message is the inventory."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.telemetry.sampler", str(self._hz)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **_SINGLE_THREAD, **child_environment()},
            start_new_session=True,
        )
        _log.info("sampler %d started at %g Hz", self._process.pid, self._hz)
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="telemetry", daemon=True)
        self._reader.start()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every message from now on, the inventory at once; return what unsubscribes it."""
        with self._changed:
            self._listeners = [*self._listeners, listener]
            inventory = self._inventory
        if inventory is not None:
            listener(inventory)
        return lambda: self._unsubscribe(listener)

    def follow(self, pid: int) -> None:
        """Add this process's own load and memory to the host's samples; with several processes neither is reported."""
        with self._changed:
            self._follow([*self._followed, pid])

    def unfollow(self, pid: int) -> None:
        """Remove this process from the host's samples."""
        with self._changed:
            self._follow([other for other in self._followed if other != pid])

    def _follow(self, pids: list[int]) -> None:
        self._followed = pids
        self._send(Follow(pids[0] if len(pids) == 1 else None))

    def gpu_process_ids(self, devices: Collection[str]) -> frozenset[int]:
        """Return the processes on these GPUs as the driver listed them last, at most some seconds ago."""
        with self._changed:
            lists = [found for device, found in self._processes.items() if device in devices]
        return frozenset(each.pid for listed in lists for each in listed.processes)

    def read_energy(self) -> None:
        """Read the energy counters now, because a phase begins or ends."""
        self._send(ReadEnergy())

    def _send(self, command: SamplerCommand) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(msgspec.json.encode(command) + b"\n")
            process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # the sampler has ended: the reader tells its listeners

    def wait_inventory(self, timeout_s: float = 60.0) -> Inventory:
        """Wait for the inventory; a GPU that was lost is listed, but not for runs.

        Raises `TelemetryError` when the sampler has ended by itself, or says nothing for that long.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._inventory is not None or self._ended, timeout_s)
            if self._inventory is None or (self._ended and not self._closing):
                raise TelemetryError(_NO_RESPONSE)
            return self._inventory

    def close(self) -> None:
        """End the sampler and its reader."""
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
            self._dispatch(decoder.decode(line))
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            devices = self._inventory.devices if self._inventory is not None and not self._closing else ()
        if self._closing:
            _log.info("sampler %d ended", process.pid)
        else:
            _log.error("sampler %d ended by itself", process.pid)
        for device in devices:
            self._dispatch(DeviceLost(t_ns=time.monotonic_ns(), device=device.device, reason=_NO_RESPONSE))

    def _dispatch(self, message: SamplerMessage) -> None:
        with self._changed:
            if isinstance(message, Inventory):
                self._inventory = message
                _log.info("inventory: %s", ", ".join(f"{each.name} ({each.device})" for each in message.devices))
                self._changed.notify_all()
            elif isinstance(message, Processes):
                self._processes[message.device] = message
            elif isinstance(message, DeviceLost | FieldsUpdated) and self._inventory is not None:
                if isinstance(message, DeviceLost):
                    _log.warning("device %s lost: %s", message.device, message.reason)
                self._inventory = updated_inventory(self._inventory, message)
            listeners = self._listeners
        for listener in listeners:
            listener(message)

    def _unsubscribe(self, listener: Listener) -> None:
        with self._changed:
            self._listeners = [other for other in self._listeners if other is not listener]
