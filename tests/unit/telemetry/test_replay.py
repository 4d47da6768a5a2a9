"""A stored run played again, on a clock of the test's own."""

from dataclasses import replace

import numpy as np
import pytest

from app.events import RunEnded, RunStarted
from app.fields import SLOW_FIELDS, Sample, SlowSample
from app.records import StoredRun
from app.samples import HOST, DeviceLost
from app.telemetry.replay import Event, Replay, run_recording
from tests.fakes.evidence import AS_REQUESTED
from tests.unit.viewmodels.stored import S, run_row, stored_run
from workloads.protocol import Block, PhaseStarted, Progress

RUN = stored_run(run_row(1, workload="cnn10", gpus=2))


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def of_kind(found: list[Event], kind: type) -> list[Event]:
    return [event for event in found if isinstance(event, kind)]


def everything(run: StoredRun) -> list[Event]:
    return [timed.event for timed in run_recording(run).events()]


def test_everything_comes_back_in_the_order_of_its_time() -> None:
    times = [timed.t_ns for timed in run_recording(RUN).events()]
    assert times == sorted(times)
    found = everything(RUN)
    assert isinstance(found[0], RunStarted)
    assert isinstance(found[-1], RunEnded)
    counts = [len(of_kind(found, kind)) for kind in (Sample, PhaseStarted, Block, Progress)]
    assert counts == [360, 3, 40, 40]


def test_what_a_run_left_as_evidence_comes_at_its_end() -> None:
    assert everything(replace(RUN, evidence=AS_REQUESTED))[-2] == AS_REQUESTED


def test_values_are_those_that_were_stored_and_absent_stays_absent() -> None:
    samples = [event for event in everything(RUN) if isinstance(event, Sample)]
    gpu = next(sample for sample in samples if sample.device == "GPU-1")
    assert (gpu.power_mw, gpu.load_pct, gpu.worker_memory_bytes) == (600_000, 90.0, None)
    assert isinstance(gpu.power_mw, int)
    host = next(sample for sample in samples if sample.device == HOST)
    assert (host.power_mw, host.worker_load_pct) == (None, 150.0)


def test_slow_samples_and_a_lost_card_come_at_their_time() -> None:
    gpu = RUN.samples[1]
    t_ns = gpu.t_ns[::40]
    slow = {name: np.full(len(t_ns), np.nan) for name in SLOW_FIELDS}
    slow["energy_mj"] = np.array([1.0, 2.0, 3.0])
    lost = replace(gpu, slow_t_ns=t_ns, slow=slow, lost_t_ns=int(gpu.t_ns[-1]))
    found = everything(replace(RUN, samples=(RUN.samples[0], lost)))
    assert [event.energy_mj for event in found if isinstance(event, SlowSample)] == [1, 2, 3]
    (loss,) = of_kind(found, DeviceLost)
    assert isinstance(loss, DeviceLost)
    assert (loss.device, loss.t_ns) == (gpu.device.device, int(gpu.t_ns[-1]))


@pytest.mark.parametrize("speed", [1.0, 4.0, 16.0])
def test_time_passes_as_it_did_or_faster(speed: float) -> None:
    clock = Clock()
    replay = Replay(run_recording(RUN), speed=speed, clock=clock)
    assert len(of_kind(list(replay.read()), Sample)) == 3, "those at the very start"
    assert replay.next_s == pytest.approx(0.1 / speed)
    clock.now_s += 1.0 / speed
    assert len(of_kind(list(replay.read()), Sample)) == 30
    assert replay.position_s == pytest.approx(1.0)
    clock.now_s += 60.0
    replay.read()
    assert replay.ended
    assert replay.next_s is None


def test_a_pause_stops_time_and_a_new_speed_goes_on_from_there() -> None:
    clock = Clock()
    replay = Replay(run_recording(RUN), clock=clock)
    clock.now_s += 2.0
    replay.read()
    replay.pause()
    clock.now_s += 100.0
    assert replay.read() == []
    assert (replay.position_s, replay.next_s, replay.paused) == (2.0, None, True)
    replay.resume()
    replay.set_speed(4.0)
    clock.now_s += 0.5
    assert replay.position_s == pytest.approx(4.0)


def test_restart_plays_all_of_it_again() -> None:
    clock = Clock()
    replay = Replay(run_recording(RUN), speed=1000.0, clock=clock)
    clock.now_s += 1.0
    first = list(replay.read())
    replay.restart()
    clock.now_s += 1.0
    assert list(replay.read()) == first
    assert isinstance(first[-1], RunEnded)


def test_a_jump_makes_what_was_before_due_at_once_and_lies_behind_what_was_read_too() -> None:
    clock = Clock()
    recording = run_recording(RUN)
    assert recording.measure_ns is not None
    measure_s = (recording.measure_ns - recording.start_ns) / 1e9
    replay = Replay(recording, clock=clock)
    replay.pause()
    for later_s in (0.0, 100.0):
        clock.now_s += later_s
        replay.jump(measure_s)
        found = [event for event in replay.read() if isinstance(event, PhaseStarted)]
        assert [event.phase for event in found] == ["import", "compile", "measure"]
        assert replay.position_s == pytest.approx(measure_s)
        assert not replay.paused


def test_a_flood_is_read_in_parts() -> None:
    clock = Clock()
    replay = Replay(run_recording(RUN), speed=1000.0, clock=clock)
    clock.now_s += 1.0
    assert len(replay.read(limit=100)) == 100
    assert not replay.ended


def test_a_run_that_goes_on_has_no_end_to_play() -> None:
    running = stored_run(run_row(2, outcome=None))
    assert not of_kind(everything(running), RunEnded)
    assert run_recording(running).end_ns == running.anchor_t_ns + 12 * S
