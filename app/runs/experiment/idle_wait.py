"""Waits before a run until its GPUs are cool and unused by other processes, or the host is idle."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from app.analysis.comparability import QUIET_PCT, STEADY_S, TIMED_OUT, is_cool, is_throttled, lowest_temperature_c
from app.fields import Sample
from app.records import HOST_LOAD_KEY, IDLE_WAIT_KEY
from app.runs.host import Host
from app.samples import HOST, Device, Processes
from app.telemetry.messages import SamplerMessage

MAX_WAIT_S = 60.0
"""How long a run waits at most."""

_MAX_HOST_WAIT_S = 3.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLimits:
    """How long to wait: at most `wait_s`, of that at most `host_s` for a quiet host; a `wait_s` of 0 is no gate.

    A GPU cools in tens of seconds. What keeps a host busy ends within seconds, or nobody knows when. `steady_s` is how
    long a temperature that no longer falls is watched.
    """

    wait_s: float = MAX_WAIT_S
    host_s: float = _MAX_HOST_WAIT_S
    steady_s: float = STEADY_S


@dataclass(frozen=True, slots=True)
class WaitStatus:
    """What a run waits for, in words, since when, and how long it will at most, in seconds."""

    reason: str
    waited_s: float
    limit_s: float


ContinueWaiting = Callable[[WaitStatus], bool]
"""Is told several times a second what is waited for; says whether to go on waiting."""


@dataclass(slots=True)
class _PendingWait:
    """What was told since one wait began, on the devices of one run."""

    gpus: Sequence[Device]
    began_ns: int
    samples: dict[str, list[Sample]]


class IdleWait:
    """Waits before each run of one experiment. Made before its first run: how the machine is then is how it rests.

    Several runs may wait at once, each on a thread of its own for GPUs of its own.
    """

    def __init__(self, host: Host, limits: IdleLimits) -> None:
        self._host = host
        self._limits = limits
        self._changed = threading.Condition()
        self._pending: list[_PendingWait] = []
        self._host_load_pct: float | None = None
        self._process_lists: dict[str, Processes] = {}
        self._idle_c: dict[str, int | None] = {}
        self._ignored: set[str] = set()
        self._unsubscribe = host.telemetry.subscribe(self._receive)

    def close(self) -> None:
        """Listens no longer."""
        self._unsubscribe()

    def wait(self, devices: Collection[str], continue_waiting: ContinueWaiting) -> Mapping[str, str]:
        """Waits until a run on these devices would be fair, or long enough; facts that say how it went."""
        gpus = [device for device in self._host.inventory().devices if device.device in devices]
        limit_s = self._limits.wait_s if gpus else min(self._limits.wait_s, self._limits.host_s)
        ending = self._wait_until_idle(gpus, limit_s, continue_waiting) if limit_s else "off"
        with self._changed:
            load_pct = self._host_load_pct
        return {IDLE_WAIT_KEY: ending, **({} if load_pct is None else {HOST_LOAD_KEY: f"{load_pct:.0f}"})}

    def _wait_until_idle(self, gpus: Sequence[Device], limit_s: float, continue_waiting: ContinueWaiting) -> str:
        """Waits, and says in words how that ended."""
        watch = _PendingWait(gpus, time.monotonic_ns(), {})
        with self._changed:
            self._pending.append(watch)
        try:
            return self._wait_loop(watch, limit_s, continue_waiting)
        finally:
            with self._changed:
                self._pending.remove(watch)
                for gpu in gpus:
                    if self._idle_c.get(gpu.device) is None:
                        self._idle_c[gpu.device] = lowest_temperature_c(watch.samples.get(gpu.device, ()))

    def _wait_loop(self, watch: _PendingWait, limit_s: float, continue_waiting: ContinueWaiting) -> str:
        while blockers := self._blockers(watch):
            status = WaitStatus(", ".join(blockers), (time.monotonic_ns() - watch.began_ns) / 1e9, limit_s)
            if status.waited_s >= limit_s:
                with self._changed:
                    self._ignored |= self._foreign_activity(watch).keys()
                return _format_ending(TIMED_OUT, status)
            if not continue_waiting(status):
                return _format_ending("skipped after", status)
            with self._changed:
                self._changed.wait(_LOOK_S)
        return ", ".join([f"{(time.monotonic_ns() - watch.began_ns) / 1e9:.0f} s", *self._temperatures(watch)])

    def _temperatures(self, watch: _PendingWait) -> list[str]:
        with self._changed:
            newest = {_gpu_name(gpu): watch.samples[gpu.device][-1].temperature_c for gpu in watch.gpus}
        return [f"{name} at {c} °C" for name, c in newest.items() if c is not None]

    def _blockers(self, watch: _PendingWait) -> list[str]:
        """What a run would be unfair beside, in words."""
        with self._changed:
            others = self._foreign_activity(watch)
            gpu_states = [
                f"{_gpu_name(gpu)} {description}"
                for gpu in watch.gpus
                if (description := self._describe_gpu(gpu, watch))
            ]
            return [*gpu_states, *(activity for key, activity in others.items() if key not in self._ignored)]

    def _describe_gpu(self, gpu: Device, watch: _PendingWait) -> str:
        samples = watch.samples.get(gpu.device, [])
        if not samples:
            return "tells nothing yet"
        if is_throttled(samples[-1]):
            return "throttled"
        if is_cool(samples, self._idle_c.get(gpu.device), self._limits.steady_s):
            return ""
        return f"at {samples[-1].temperature_c} °C"

    def _foreign_activity(self, watch: _PendingWait) -> Mapping[str, str]:
        """By a key of each what others do here, in words; a wait that gave up will not wait for the same again."""
        found: dict[str, str] = {}
        if HOST not in watch.samples:
            found["host"] = "the host tells nothing yet"
        elif not watch.gpus and (load_pct := watch.samples[HOST][-1].load_pct or 0.0) > QUIET_PCT:
            found["load"] = f"the processors at {load_pct:.0f} %"
        for gpu in watch.gpus:
            listed = self._process_lists.get(gpu.device)
            if listed is not None and listed.t_ns < watch.began_ns:
                # The newest list may still name the worker of the run before.
                found[gpu.device] = f"who uses {_gpu_name(gpu)}"
            elif listed is not None:
                found |= {f"{each.pid}": f"{each.name} ({each.pid}) on {_gpu_name(gpu)}" for each in listed.processes}
        return found

    def _receive(self, message: SamplerMessage) -> None:
        with self._changed:
            if isinstance(message, Sample):
                if message.device == HOST:
                    self._host_load_pct = message.load_pct
                for watch in self._pending:
                    watch.samples.setdefault(message.device, []).append(message)
            elif isinstance(message, Processes):
                self._process_lists[message.device] = message
            self._changed.notify_all()


def _format_ending(ending: str, status: WaitStatus) -> str:
    return f"{ending} {status.waited_s:.0f} s: {status.reason}"


def _gpu_name(gpu: Device) -> str:
    return f"GPU {gpu.index}"
