"""The wait before a run of an experiment: until its GPUs are cool and nobody else uses them, or the host is quiet."""

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from app.analysis.fairness import GAVE_UP, QUIET_PCT, STEADY_S, is_cool, is_throttled, lowest_c
from app.facts import GATE, HOST_LOAD_PCT
from app.samples import HOST, Device, Processes, Sample
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage

LIMIT_S = 60.0
"""How long a run waits at most."""

_HOST_S = 3.0
_LOOK_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """How long to wait: at most `wait_s`, of that at most `host_s` for a quiet host; a `wait_s` of 0 is no gate.

    A GPU cools in tens of seconds. What keeps a host busy ends within seconds, or nobody knows when. `steady_s` is how
    long a temperature that no longer falls is watched.
    """

    wait_s: float = LIMIT_S
    host_s: float = _HOST_S
    steady_s: float = STEADY_S


@dataclass(frozen=True, slots=True)
class Held:
    """What a run waits for, in words, since when, and how long it will at most, in seconds."""

    words: str
    waited_s: float
    limit_s: float


GoOn = Callable[[Held], bool]
"""Is told several times a second what is waited for; says whether to go on waiting."""


@dataclass(slots=True)
class _Watch:
    """What was told since one wait began, on the devices of one run."""

    gpus: Sequence[Device]
    began_ns: int
    samples: dict[str, list[Sample]]


class Gate:
    """Waits before each run of one experiment. Made before its first run: how the machine is then is how it rests.

    Several runs may wait at once, each on a thread of its own for GPUs of its own.
    """

    def __init__(self, feed: TelemetryFeed, limits: GateLimits) -> None:
        self._feed = feed
        self._limits = limits
        self._changed = threading.Condition()
        self._watches: list[_Watch] = []
        self._host_load_pct: float | None = None
        self._listed: dict[str, Processes] = {}
        self._resting_c: dict[str, int | None] = {}
        self._lasting: set[str] = set()
        self._unsubscribe = feed.subscribe(self._note)

    def close(self) -> None:
        """Listens no longer."""
        self._unsubscribe()

    def wait(self, devices: Collection[str], go_on: GoOn) -> Mapping[str, str]:
        """Waits until a run on these devices would be fair, or long enough; facts that say how it went."""
        gpus = [device for device in self._feed.wait_inventory().devices if device.device in devices]
        limit_s = self._limits.wait_s if gpus else min(self._limits.wait_s, self._limits.host_s)
        ended = self._rest(gpus, limit_s, go_on) if limit_s else "off"
        with self._changed:
            load_pct = self._host_load_pct
        return {GATE: ended, **({} if load_pct is None else {HOST_LOAD_PCT: f"{load_pct:.0f}"})}

    def _rest(self, gpus: Sequence[Device], limit_s: float, go_on: GoOn) -> str:
        """Waits, and says in words how that ended."""
        watch = _Watch(gpus, time.monotonic_ns(), {})
        with self._changed:
            self._watches.append(watch)
        try:
            return self._watch(watch, limit_s, go_on)
        finally:
            with self._changed:
                self._watches.remove(watch)
                for gpu in gpus:
                    if self._resting_c.get(gpu.device) is None:
                        self._resting_c[gpu.device] = lowest_c(watch.samples.get(gpu.device, ()))

    def _watch(self, watch: _Watch, limit_s: float, go_on: GoOn) -> str:
        while words := self._hindrances(watch):
            held = Held(", ".join(words), (time.monotonic_ns() - watch.began_ns) / 1e9, limit_s)
            if held.waited_s >= limit_s:
                with self._changed:
                    self._lasting |= self._others(watch).keys()
                return _ended(GAVE_UP, held)
            if not go_on(held):
                return _ended("skipped after", held)
            with self._changed:
                self._changed.wait(_LOOK_S)
        return ", ".join([f"{(time.monotonic_ns() - watch.began_ns) / 1e9:.0f} s", *self._temperatures(watch)])

    def _temperatures(self, watch: _Watch) -> list[str]:
        with self._changed:
            newest = {_name(gpu): watch.samples[gpu.device][-1].temperature_c for gpu in watch.gpus}
        return [f"{name} at {c} °C" for name, c in newest.items() if c is not None]

    def _hindrances(self, watch: _Watch) -> list[str]:
        """What a run would be unfair beside, in words."""
        with self._changed:
            others = self._others(watch)
            warm = [f"{_name(gpu)} {words}" for gpu in watch.gpus if (words := self._warm_words(gpu, watch))]
            return [*warm, *(words for key, words in others.items() if key not in self._lasting)]

    def _warm_words(self, gpu: Device, watch: _Watch) -> str:
        samples = watch.samples.get(gpu.device, [])
        if not samples:
            return "tells nothing yet"
        if is_throttled(samples[-1]):
            return "throttled"
        if is_cool(samples, self._resting_c.get(gpu.device), self._limits.steady_s):
            return ""
        return f"at {samples[-1].temperature_c} °C"

    def _others(self, watch: _Watch) -> Mapping[str, str]:
        """By a key of each what others do here, in words; a wait that gave up will not wait for the same again."""
        found: dict[str, str] = {}
        if HOST not in watch.samples:
            found["host"] = "the host tells nothing yet"
        elif not watch.gpus and (load_pct := watch.samples[HOST][-1].load_pct or 0.0) > QUIET_PCT:
            found["load"] = f"the processors at {load_pct:.0f} %"
        for gpu in watch.gpus:
            listed = self._listed.get(gpu.device)
            if listed is not None and listed.t_ns < watch.began_ns:
                # The newest list may still name the worker of the run before.
                found[gpu.device] = f"who uses {_name(gpu)}"
            elif listed is not None:
                found |= {f"{each.pid}": f"{each.name} ({each.pid}) on {_name(gpu)}" for each in listed.processes}
        return found

    def _note(self, message: SamplerMessage) -> None:
        with self._changed:
            if isinstance(message, Sample):
                if message.device == HOST:
                    self._host_load_pct = message.load_pct
                for watch in self._watches:
                    watch.samples.setdefault(message.device, []).append(message)
            elif isinstance(message, Processes):
                self._listed[message.device] = message
            self._changed.notify_all()


def _ended(how: str, held: Held) -> str:
    return f"{how} {held.waited_s:.0f} s: {held.words}"


def _name(gpu: Device) -> str:
    return f"GPU {gpu.index}"
