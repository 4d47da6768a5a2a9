"""The wait before a run: readings are handed to the real feed by hand, so that time is the test's own."""

from collections.abc import Collection, Mapping, Sequence

import pytest

from app.analysis.comparability import STEADY_S
from app.runs.experiment.idle_wait import IdleLimits, IdleWait, WaitStatus
from app.runs.host import ClockAnchor, Host
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.values.environment_keys import (
    HOST_LOAD_KEY,
    IDLE_WAIT_BLOCKERS_KEY,
    IDLE_WAIT_GPUS_KEY,
    IDLE_WAIT_KEY,
    IDLE_WAIT_S_KEY,
    OTHERS_UNKNOWN_KEY,
)
from app.values.fields import Sample
from app.values.samples import HOST, Device, DeviceLost, GpuProcess, Inventory, Processes, TelemetryGap
from workloads.catalog import Gpu, Machine

GPUS = tuple(Gpu(index=i, uuid=f"GPU-{i}", name="NVIDIA H200", compute_capability=(9, 0)) for i in (0, 1))
MACHINE = Machine(gpus=GPUS, cpu_count=2)
ON_CPU, ON_GPU = ("cpu",), ("GPU-0",)
DEVICES = (
    Device(device=HOST, kind="host", index=-1, name="A processor"),
    *(Device(device=gpu.uuid, kind="gpu", index=gpu.index, name=gpu.name) for gpu in GPUS),
)
PATIENT = IdleLimits(host_s=60.0, steady_s=1.0)
BRIEF = IdleLimits(wait_s=0.2, host_s=0.2, steady_s=1.0)


class Clock:
    """Stands in for the module `time` in the gate; a test moves it."""

    def __init__(self) -> None:
        self._now_ns = 10**15

    def monotonic_ns(self) -> int:
        return self._now_ns

    def move(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("app.runs.experiment.idle_wait.time", made)
    monkeypatch.setattr("app.runs.experiment.idle_wait._LOOK_S", 0.0)
    return made


class Machinery:
    """A gate on a feed that says what the test hands it; each look, a tenth of a second, hands out the next to come."""

    def __init__(self, clock: Clock, limits: IdleLimits = PATIENT) -> None:
        self.clock = clock
        self._feed = TelemetryFeed()
        self.hand([Inventory(machine=MACHINE, devices=DEVICES)])
        self.gate = IdleWait(Host(telemetry=self._feed, now=lambda: ClockAnchor(clock.monotonic_ns(), 0)), limits)
        self.wait_reasons: list[str] = []
        self.facts: Mapping[str, str] = {}
        self._second = 0

    def wait(self, devices: Collection[str], *to_come: list[SamplerMessage], skip: bool = False) -> str:
        """What the gate notes of its wait: how it ended, and what the GPUs were like or what was in the way."""
        coming = iter(to_come)

        def go_on(held: WaitStatus) -> bool:
            self.wait_reasons.append(held.reason)
            self.hand(next(coming, []))
            self.clock.move(0.1)
            return not skip

        self.facts = self.gate.wait(devices, go_on)
        assert next(coming, None) is None, "the gate opened before all was told"
        details = [self.facts[key] for key in (IDLE_WAIT_GPUS_KEY, IDLE_WAIT_BLOCKERS_KEY) if key in self.facts]
        return ": ".join([self.facts[IDLE_WAIT_KEY], *details])

    def rest(self) -> "Machinery":
        """After a first wait that found the GPU at 40 °C for two seconds."""
        assert self.wait(ON_GPU, [*self.gpu(40), *self.gpu(40)]) == "idle: GPU 0 at 40\xa0°C"
        self.wait_reasons.clear()
        return self

    def hand(self, messages: Sequence[SamplerMessage]) -> None:
        for message in messages:
            self._feed._dispatch(message)

    def gpu(self, temperature_c: int, *, load_pct: float = 1.0, reasons: int = 0) -> list[SamplerMessage]:
        """One second later: the first GPU and the host."""
        self._second += 1
        t_ns = self._second * 10**9
        sample = Sample(t_ns=t_ns, device="GPU-0", temperature_c=temperature_c, throttle_reasons=reasons)
        return [sample, Sample(t_ns=t_ns, device=HOST, load_pct=load_pct)]

    def listed(self, *pids: int, later_s: float = 3600.0, device: str = "GPU-0") -> list[SamplerMessage]:
        """Who uses a GPU, so much later."""
        processes = tuple(GpuProcess(pid=pid, name="python3") for pid in pids)
        return [Processes(t_ns=self.clock.monotonic_ns() + int(later_s * 1e9), device=device, processes=processes)]


def host(load_pct: float) -> list[SamplerMessage]:
    return [Sample(t_ns=1, device=HOST, load_pct=load_pct)]


def test_on_the_cpu_a_quiet_host_is_enough_whatever_the_gpus_do(clock: Clock) -> None:
    machine = Machinery(clock)
    assert machine.wait(ON_CPU, [*host(55), *machine.gpu(90, load_pct=55)], host(9.6)) == "idle"
    assert machine.wait_reasons == ["the host without telemetry", "CPU at 55\xa0%"]
    assert machine.facts[HOST_LOAD_KEY] == "10"


def test_a_host_that_stays_busy_is_waited_for_once(clock: Clock) -> None:
    machine = Machinery(clock, BRIEF)
    assert machine.wait(ON_CPU, host(80)) == "timed out: CPU at 80\xa0%"
    machine.wait_reasons.clear()
    assert machine.wait(ON_CPU, host(70)) == "idle"
    assert machine.wait_reasons == ["the host without telemetry"]
    assert machine.facts[HOST_LOAD_KEY] == "70"


def test_before_the_first_run_a_gpu_is_waited_for_until_it_falls_no_more_and_later_until_its_band(clock: Clock) -> None:
    machine = Machinery(clock, IdleLimits())
    cooling = [machine.gpu(c) for c in (50, 45, 42, *[41] * (int(STEADY_S) + 1))]
    assert machine.wait(ON_GPU, *cooling) == "idle: GPU 0 at 41\xa0°C"
    assert machine.wait_reasons[:2] == ["GPU 0 without telemetry, the host without telemetry", "GPU 0 at 50\xa0°C"]
    assert machine.wait(ON_GPU, *(machine.gpu(c) for c in (70, 60, 46))) == "idle: GPU 0 at 46\xa0°C"


def test_a_gpu_that_is_throttled_by_heat_is_not_at_rest_however_cool(clock: Clock) -> None:
    hot = Machinery(clock, BRIEF).rest()
    assert hot.wait(ON_GPU, hot.gpu(40, reasons=0x40)) == "timed out: GPU 0 throttled"
    machine = Machinery(clock).rest()
    by_heat, by_power = machine.gpu(40, reasons=0x40), machine.gpu(40, reasons=0x4)
    assert machine.wait(ON_GPU, by_heat, by_power) == "idle: GPU 0 at 40\xa0°C"


def test_a_run_waits_until_nobody_else_uses_its_gpu_by_a_list_newer_than_the_run_before(clock: Clock) -> None:
    machine = Machinery(clock).rest()
    old, new = machine.listed(4242, later_s=-1.0), machine.listed(77)
    assert machine.wait(ON_GPU, [*machine.gpu(40), *old], new, machine.listed()) == "idle: GPU 0 at 40\xa0°C"
    assert machine.wait_reasons[1:] == ["who uses GPU 0", "python3 (77) on GPU 0"]
    assert machine.facts[IDLE_WAIT_S_KEY] == "0.3", "three looks"


def test_a_list_without_a_process_may_be_older(clock: Clock) -> None:
    machine = Machinery(clock).rest()
    assert machine.wait(ON_GPU, [*machine.gpu(40), *machine.listed(later_s=-0.4)]) == "idle: GPU 0 at 40\xa0°C"
    assert "who uses GPU 0" not in machine.wait_reasons


def test_a_process_that_stays_is_waited_for_once_and_another_again(clock: Clock) -> None:
    machine = Machinery(clock, BRIEF).rest()
    words = "timed out: python3 (77) on GPU 0"
    assert machine.wait(ON_GPU, [*machine.gpu(40), *machine.listed(77)]) == words
    assert machine.wait(ON_GPU, [*machine.gpu(40), *machine.listed(77)]) == "idle: GPU 0 at 40\xa0°C"
    assert machine.wait(ON_GPU, [*machine.gpu(40), *machine.listed(77, 78)]) == words.replace("77", "78")


def test_a_wait_may_be_skipped_and_the_next_is_one_again(clock: Clock) -> None:
    machine = Machinery(clock, BRIEF).rest()
    assert machine.wait(ON_GPU, machine.gpu(60), skip=True).startswith("skipped: GPU 0 without telemetry")
    assert machine.wait(ON_GPU, machine.gpu(60)) == "timed out: GPU 0 at 60\xa0°C"


def test_a_skip_ends_all_waits_of_an_experiment_but_none_that_begins_later(clock: Clock) -> None:
    machine = Machinery(clock)
    gate = machine.gate
    elsewhere = IdleWait(gate._host, gate._limits, gate._state)

    def skip(_: WaitStatus) -> bool:
        clock.move(0.1)
        machine.gate.skip()
        return True

    assert elsewhere.wait(ON_GPU, skip)[IDLE_WAIT_KEY] == "skipped"
    assert machine.wait(ON_GPU, [*machine.gpu(40), *machine.gpu(40)]) == "idle: GPU 0 at 40\xa0°C"


@pytest.mark.parametrize("devices", [ON_CPU, ON_GPU])
def test_no_gate_waits_for_nothing(clock: Clock, devices: tuple[str, ...]) -> None:
    machine = Machinery(clock, IdleLimits(wait_s=0.0))
    assert machine.wait(devices) == "off"
    assert machine.wait_reasons == []


def test_processes_that_nobody_can_list_are_not_waited_for_and_that_is_noted(clock: Clock) -> None:
    machine = Machinery(clock).rest()
    assert OTHERS_UNKNOWN_KEY not in machine.facts
    machine.hand([Processes(t_ns=0, device="GPU-0", reason="no permission")])
    assert machine.wait(ON_GPU, machine.gpu(40)) == "idle: GPU 0 at 40\xa0°C"
    assert machine.facts[OTHERS_UNKNOWN_KEY] == "no permission"


def test_a_gpu_that_is_lost_is_not_waited_for(clock: Clock) -> None:
    machine = Machinery(clock).rest()
    hot = machine.gpu(70)
    assert machine.wait(ON_GPU, hot, [DeviceLost(t_ns=1, device="GPU-0", reason="It fell off the bus.")]).startswith(
        "idle"
    )
    assert "GPU 0 at 70\xa0°C" in machine.wait_reasons


def test_without_a_sampler_old_readings_do_not_count(clock: Clock) -> None:
    machine = Machinery(clock).rest()
    gap = TelemetryGap(t_ns=1, reason="The telemetry process ended by itself.")
    assert machine.wait(ON_GPU, machine.gpu(70), [gap], machine.gpu(40)) == "idle: GPU 0 at 40\xa0°C"
    assert machine.wait_reasons[-1] == "GPU 0 without telemetry, the host without telemetry"


def test_a_closed_gate_listens_no_longer(clock: Clock) -> None:
    machine = Machinery(clock, BRIEF)
    machine.gate.close()
    assert machine.wait(ON_CPU, host(1.0)) == "timed out: the host without telemetry"


def test_two_runs_wait_at_once_each_for_its_own_gpu(clock: Clock) -> None:
    machine = Machinery(clock).rest()
    warm = Sample(t_ns=1, device="GPU-1", temperature_c=80)
    cooled = [Sample(t_ns=second * 10**9, device="GPU-1", temperature_c=60) for second in (2, 13)]
    wait_reasons: list[str] = []

    def other(held: WaitStatus) -> bool:
        """The wait of the run on GPU 1, in the midst of which the one for GPU 0 begins and ends."""
        wait_reasons.append(held.reason)
        if len(wait_reasons) == 1:
            machine.hand([warm, *host(1.0)])
        elif len(wait_reasons) == 2:
            machine.hand(machine.listed(77, device="GPU-1"))
            assert machine.wait(ON_GPU, machine.gpu(40)) == "idle: GPU 0 at 40\xa0°C"
            machine.hand([*cooled, *machine.listed(device="GPU-1")])
        return True

    machine.gate.wait(["GPU-1"], other)
    assert wait_reasons == ["GPU 1 without telemetry, the host without telemetry", "GPU 1 at 80\xa0°C"]
    assert machine.wait_reasons == ["GPU 0 without telemetry, the host without telemetry"], "nobody else is on GPU 0"


@pytest.mark.parametrize(
    ("max_s", "limits_s"), [(None, (60.0, 3.0)), (0.0, (0.0, 3.0)), (60.0, (60.0, 3.0)), (61.0, (61.0, 61.0))]
)
def test_a_plan_that_waits_longer_than_usual_waits_for_a_busy_host_as_long(
    max_s: float | None, limits_s: tuple[float, float]
) -> None:
    limits = IdleLimits.of_plan(max_s)
    assert (limits.wait_s, limits.host_s) == limits_s
