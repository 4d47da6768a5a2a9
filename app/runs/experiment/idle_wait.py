"""Waits before a run until its GPUs are cool and unused by other processes, or the host is idle."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from app.analysis.comparability import QUIET_PCT, STEADY_S, is_cool, is_throttled, lowest_temperature_c
from app.runs.host import Host
from app.telemetry.messages import SamplerMessage
from app.values import units
from app.values.environment_keys import (
    HOST_LOAD_KEY,
    IDLE_WAIT_BLOCKERS_KEY,
    IDLE_WAIT_GPUS_KEY,
    IDLE_WAIT_KEY,
    IDLE_WAIT_S_KEY,
    OTHERS_UNKNOWN_KEY,
)
from app.values.fields import Sample
from app.values.samples import HOST, Device, Inventory, Processes, TelemetryGap

MAX_WAIT_S = 60.0
"""Longest wait before a run."""

_MAX_HOST_WAIT_S = 3.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLimits:
    """How long to wait.

    A GPU cools in tens of seconds. A busy host becomes idle within seconds, or nobody knows when.

    Attributes:
        wait_s: Longest wait; 0 for none.
        host_s: Longest wait for an idle host, within `wait_s`.
        steady_s: A temperature that has not fallen for this long counts as cool.
    """

    wait_s: float = MAX_WAIT_S
    host_s: float = _MAX_HOST_WAIT_S
    steady_s: float = STEADY_S

    @classmethod
    def of_plan(cls, max_s: float | None) -> "IdleLimits":
        """Return the limits of a plan; a longer wait than usual also applies to a busy host."""
        if max_s is None:
            return cls()
        return cls(wait_s=max_s, host_s=max_s if max_s > MAX_WAIT_S else _MAX_HOST_WAIT_S)


@dataclass(frozen=True, slots=True)
class WaitStatus:
    """What a run waits for, the seconds so far, and the longest wait in seconds."""

    reason: str
    waited_s: float
    limit_s: float


ContinueWaiting = Callable[[WaitStatus], bool]
"""Called several times per second with the current wait; returns whether to continue waiting."""


@dataclass(slots=True)
class _PendingWait:
    """One wait: its GPUs, its start on the host's and on this program's clock, and the samples since then."""

    gpus: Sequence[Device]
    began_ns: int
    began_here_ns: int
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    @property
    def waited_s(self) -> float:
        return (time.monotonic_ns() - self.began_here_ns) / 1e9


@dataclass(slots=True)
class IdleState:
    """Shared by all waits of one experiment: idle temperatures, by GPU, and what not to wait for again.

    `skipped_ns` is when the user last skipped the waits, on this program's monotonic clock.
    """

    idle_c: dict[str, int | None] = field(default_factory=dict)
    ignored: set[str] = field(default_factory=set)
    skipped_ns: int = 0


class IdleWait:
    """Waits before each run of one experiment. Create it before the first: the host's state then counts as idle.

    Thread: any; several concurrent waits, each for its own GPUs. Telemetry arrives on the feed's thread; `_changed`
    guards all state and wakes the waits.
    """

    def __init__(self, host: Host, limits: IdleLimits, state: IdleState | None = None) -> None:
        """Start listening to a host's telemetry. `state` is that of earlier waits on the host; None for the first."""
        self._host = host
        self._limits = limits
        # It guards everything below; the feed's thread notifies, the runs' threads wait.
        self._changed = threading.Condition()
        self._pending: list[_PendingWait] = []
        self._host_load_pct: float | None = None
        self._process_lists: dict[str, Processes] = {}
        self._state = state or IdleState()
        self._lost: frozenset[str] = frozenset()
        self._unsubscribe = host.telemetry.subscribe(self._receive)

    def skip(self) -> None:
        """End every wait of the experiment; returns immediately."""
        self._state.skipped_ns = time.monotonic_ns()

    def close(self) -> None:
        self._unsubscribe()

    def wait(self, devices: Collection[str], continue_waiting: ContinueWaiting) -> Mapping[str, str]:
        """Wait until a run on devices that it has leased would be undisturbed, or for the longest time allowed.

        `continue_waiting` is called several times per second; it ends the wait by returning False.

        Returns:
            The outcome of the wait, for the run's environment.
        """
        gpus = [device for device in self._host.inventory().devices if device.device in devices]
        limit_s = self._limits.wait_s if gpus else min(self._limits.wait_s, self._limits.host_s)
        ending = self._wait_until_idle(gpus, limit_s, continue_waiting) if limit_s else {IDLE_WAIT_KEY: "off"}
        with self._changed:
            load_pct = self._host_load_pct
        facts = {
            **ending,
            HOST_LOAD_KEY: None if load_pct is None else f"{load_pct:.0f}",
            OTHERS_UNKNOWN_KEY: self._host.telemetry.unlisted_reason(devices),
        }
        return {key: value for key, value in facts.items() if value}

    def _wait_until_idle(
        self, gpus: Sequence[Device], limit_s: float, continue_waiting: ContinueWaiting
    ) -> Mapping[str, str]:
        watch = _PendingWait(gpus, self._host.now().t_ns, time.monotonic_ns())
        with self._changed:
            self._pending.append(watch)
        try:
            return self._wait_loop(watch, limit_s, continue_waiting)
        finally:
            with self._changed:
                self._pending.remove(watch)
                for gpu in gpus:
                    if self._state.idle_c.get(gpu.device) is None:
                        self._state.idle_c[gpu.device] = lowest_temperature_c(watch.samples.get(gpu.device, ()))

    def _wait_loop(self, watch: _PendingWait, limit_s: float, continue_waiting: ContinueWaiting) -> Mapping[str, str]:
        while blockers := self._blockers(watch):
            status = WaitStatus(", ".join(blockers), watch.waited_s, limit_s)
            if status.waited_s >= limit_s:
                with self._changed:
                    self._state.ignored.update(self._foreign_activity(watch).keys())
                return _ending("timed out", status.waited_s, {IDLE_WAIT_BLOCKERS_KEY: status.reason})
            if not continue_waiting(status) or self._state.skipped_ns > watch.began_here_ns:
                return _ending("skipped", status.waited_s, {IDLE_WAIT_BLOCKERS_KEY: status.reason})
            with self._changed:
                self._changed.wait(_LOOK_S)
        with self._changed:
            newest = [(gpu, samples[-1].temperature_c) for gpu in watch.gpus if (samples := watch.samples[gpu.device])]
        temperatures = [f"{_gpu_name(gpu)} at {units.celsius(value)}" for gpu, value in newest if value is not None]
        return _ending("idle", watch.waited_s, {IDLE_WAIT_GPUS_KEY: ", ".join(temperatures)})

    def _blockers(self, watch: _PendingWait) -> list[str]:
        with self._changed:
            others = self._foreign_activity(watch)
            gpu_states = [
                f"{_gpu_name(gpu)} {description}"
                for gpu in watch.gpus
                if (description := self._describe_gpu(gpu, watch))
            ]
            return [*gpu_states, *(activity for key, activity in others.items() if key not in self._state.ignored)]

    def _describe_gpu(self, gpu: Device, watch: _PendingWait) -> str:
        samples = watch.samples.get(gpu.device, [])
        if gpu.device in self._lost:
            return ""  # a lost GPU does not return by waiting: the run ends at once
        if not samples:
            return "without telemetry"
        if is_throttled(samples[-1]):
            return "throttled"
        if is_cool(samples, self._state.idle_c.get(gpu.device), self._limits.steady_s):
            return ""
        return f"at {units.celsius(samples[-1].temperature_c)}"

    def _foreign_activity(self, watch: _PendingWait) -> Mapping[str, str]:
        """Return other users' activity by key; once a wait for one has timed out, it is ignored."""
        activities: dict[str, str] = {}
        if HOST not in watch.samples:
            activities["host"] = "the host without telemetry"
        elif not watch.gpus and (load_pct := watch.samples[HOST][-1].load_pct or 0.0) > QUIET_PCT:
            activities["load"] = f"CPU at {units.percent(load_pct)}"
        for gpu in (process for process in watch.gpus if process.device not in self._lost):
            listed = self._process_lists.get(gpu.device)
            if listed is None or listed.reason is not None:
                continue
            if listed.t_ns < watch.began_ns and listed.processes:
                # The newest list may still contain the previous run's worker.
                activities[gpu.device] = f"who uses {_gpu_name(gpu)}"
            else:
                activities |= {f"{process.pid}": f"{process.title} on {_gpu_name(gpu)}" for process in listed.processes}
        return activities

    def _receive(self, message: SamplerMessage) -> None:
        with self._changed:
            if isinstance(message, Sample):
                if message.device == HOST:
                    self._host_load_pct = message.load_pct
                for watch in self._pending:
                    watch.samples.setdefault(message.device, []).append(message)
            elif isinstance(message, Processes):
                self._process_lists[message.device] = message
            elif isinstance(message, Inventory):
                self._lost = frozenset(device.device for device in message.devices if device.lost is not None)
            elif isinstance(message, TelemetryGap):
                for watch in self._pending:
                    watch.samples.clear()
            self._changed.notify_all()


def _ending(outcome: str, waited_s: float, details: Mapping[str, str]) -> Mapping[str, str]:
    return {IDLE_WAIT_KEY: outcome, IDLE_WAIT_S_KEY: f"{waited_s:.1f}", **details}


def _gpu_name(gpu: Device) -> str:
    return f"GPU {gpu.index}"
