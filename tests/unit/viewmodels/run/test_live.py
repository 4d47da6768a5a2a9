import numpy as np
import pytest

from app.analysis.steps import without_waits
from app.values.events import Outcome
from app.values.fields import Sample
from app.values.samples import DeviceLost, LogLine, Waiting
from app.viewmodels.history.kernel_time import kernel_rows
from app.viewmodels.monitor.details import chosen_details
from app.viewmodels.monitor.model import MonitorModel, RowKey
from app.viewmodels.plot.model import Panel
from app.viewmodels.run.live import LiveModel, LiveState, TimeView
from tests.fakes.runs import EPOCHS
from tests.fakes.scaling import exchanging
from tests.present import present
from tests.unit.viewmodels.events import CPU_INVENTORY, GPU_INVENTORY, ended, handle_all, ns, samples, started, training
from workloads.protocol import PhaseStarted, Progress


def panel(state: LiveState, key: str) -> Panel:
    return next(panel for panel in state.plots.panels if panel.key == key)


def model_in_a_run(until: float = 16.0) -> LiveModel:
    model = LiveModel()
    handle_all(model, (GPU_INVENTORY, *samples(-2, 0), started(GPU_INVENTORY), *samples(0, until), *training(until)))
    return model


def test_before_any_run_it_says_what_to_do_and_shows_the_machine() -> None:
    model = LiveModel()
    handle_all(model, (GPU_INVENTORY, *samples(-10, 0)))
    state = model.state()
    assert "press Run" in state.status.detail
    assert [p.key for p in state.plots.panels] == ["power_mw", "load_pct", "memory_bytes"]
    assert [p.unit for p in state.plots.panels] == ["W", "%", "GiB"]
    assert state.throughput == ""
    assert 0.9 < 10.0 / -state.plots.window[0] <= 1.0, "all there is fills the width"
    just_started = LiveModel()
    handle_all(just_started, (GPU_INVENTORY, *samples(0, 1)))
    assert just_started.state().plots.window == (-10.0, 0.0)
    assert len(panel(state, "power_mw").curves[0].y) == 100


def test_a_run_fills_its_panels_from_its_own_start() -> None:
    state = model_in_a_run().state()
    assert [p.key for p in state.plots.panels] == ["power_mw", "load_pct", "memory_bytes", "throughput", "loss"]
    assert [curve.label for curve in panel(state, "memory_bytes").curves] == ["GPU 0", "GPU 1", "Framework"]
    power = panel(state, "power_mw").curves[1]
    assert len(power.y) == 160
    assert power.y[0] == pytest.approx(601.0)
    assert (power.colour, power.value_text) == (1, "601\N{NO-BREAK SPACE}W")
    assert panel(state, "power_mw").y_range == (0, 700)
    np.testing.assert_allclose(panel(state, "throughput").curves[0].y, 1000.0)


def test_phases_are_named_in_their_place_and_the_last_one_goes_on() -> None:
    bands = model_in_a_run().state().plots.bands
    assert [band.name for band in bands] == ["import", "build", "compile", "warmup", "measure"]
    assert (bands[-1].start, bands[-1].end, bands[-1].strong) == (6.0, 16.0, True)


def test_time_left_follows_the_measured_part() -> None:
    model = model_in_a_run()
    status = model.state().status
    assert (status.title, status.fraction, status.left) == ("Measuring", 0.5, "0:10 left")
    model.handle(Progress(phase="measure", fraction=0.75, t_ns=ns(21)))
    assert model.state().status.left == "0:05 left"


def test_evidence_is_as_on_the_page_of_the_run() -> None:
    model = model_in_a_run()
    evidence = exchanging((24, 14, 11), (15, 13, 3))
    handle_all(model, (evidence, ended(Outcome(name="completed"))))
    kernels = present(model.state().evidence).kernels
    assert kernels == kernel_rows(without_waits(evidence).kernels) != kernel_rows(evidence.kernels)


def test_accuracy_has_a_panel_once_an_epoch_was_tested() -> None:
    model = model_in_a_run()
    assert "accuracy" not in [panel.key for panel in model.state().plots.panels]
    for epoch in EPOCHS:
        model.handle(epoch)
    (curve,) = panel(model.state(), "accuracy").curves
    assert curve.value_text.replace("\N{NO-BREAK SPACE}", " ") == "70.0 %"
    assert curve.y.tolist() == [50.0, 75.0, 70.0]


def test_the_headline_is_all_examples_over_all_time_with_the_spread_of_blocks() -> None:
    state = model_in_a_run().state()
    assert (state.throughput, state.unit) == ("1,000", "images/s")
    assert state.spread.endswith("over 40 blocks")


@pytest.mark.parametrize(
    ("outcome", "title", "tone"),
    [
        (Outcome(name="completed"), "Completed", "good"),
        (Outcome(name="stopped", reason="Stopped by the user."), "Stopped", "muted"),
        (Outcome(name="out_of_memory", reason="GPU 0 ran out of memory."), "Out of memory", "warning"),
        (Outcome(name="failed", reason="The loss is not finite."), "Failed", "bad"),
        (Outcome(name="crashed", reason="The worker was killed."), "Crashed", "bad"),
        (Outcome(name="refused", reason="No GPU."), "Refused", "muted"),
    ],
)
def test_every_outcome_is_said_in_words(outcome: Outcome, title: str, tone: str) -> None:
    model = model_in_a_run()
    model.handle(ended(outcome))
    status = model.state().status
    assert (status.title, status.tone, status.detail) == (title, tone, outcome.reason or "")
    assert not model.state().growing


def test_a_failure_shows_its_traceback_before_the_log() -> None:
    model = model_in_a_run()
    model.handle(LogLine(ns(1), "a warning of TensorFlow"))
    model.handle(ended(Outcome(name="failed", reason="It failed.", detail="Traceback: line 3")))
    assert model.log == "Traceback: line 3\na warning of TensorFlow"
    assert model.state().status.has_log


def test_an_ended_run_stays_as_it_was_while_telemetry_goes_on() -> None:
    model = model_in_a_run()
    model.handle(ended(Outcome(name="completed")))
    before = len(panel(model.state(), "power_mw").curves[0].y)
    for sample in samples(17, 40):
        model.handle(sample)
    state = model.state()
    assert len(panel(state, "power_mw").curves[0].y) == before
    assert state.plots.window == pytest.approx((6.0, 16.5)), "opened on the measured part"
    model.follow("all")
    assert model.state().plots.window == pytest.approx((0.0, 16.5))
    model.follow("measured")
    assert model.state().plots.window == pytest.approx((6.0, 16.5))


@pytest.mark.parametrize(("now_s", "start"), [(16.9, 0.0), (17.0, 6.0)])
def test_a_part_that_has_just_begun_to_be_measured_does_not_empty_the_plots(now_s: float, start: float) -> None:
    view = TimeView()
    assert view.run_axis(10.0, now_s, (16.0, now_s), ended=False).start == start
    assert view.run_axis(10.0, now_s, (16.0, now_s), ended=True).start == 6.0
    assert view.run_axis(10.0, 18.0, (16.0, now_s), ended=False).start == 6.0, "it is measured to its end"


def test_a_run_on_the_cpu_shows_the_host_and_the_worker_beside_it() -> None:
    model = LiveModel()
    handle_all(model, (CPU_INVENTORY, started(CPU_INVENTORY), *samples(0, 3, gpus=0)))
    load = panel(model.state(), "load_pct")
    assert [curve.label for curve in load.curves] == ["All", "Worker"]
    assert load.curves[1].y[-1] == pytest.approx(50.0)  # one whole processor of two


def test_waiting_for_a_device_is_said_until_the_run_begins() -> None:
    model = LiveModel()
    model.handle(GPU_INVENTORY)
    model.request(started(GPU_INVENTORY).spec)
    model.handle(Waiting(ns(0), "Another run uses this device."))
    status = model.state().status
    assert (status.title, status.detail) == ("Waiting", "Another run uses this device.")
    model.handle(started(GPU_INVENTORY))
    assert model.state().status.title == "Starting"


def test_a_device_that_vanishes_is_named() -> None:
    model = model_in_a_run()
    model.handle(DeviceLost(t_ns=ns(16), device="GPU-1", reason="the GPU fell off the bus"))
    state = model.state()
    assert state.status.detail == "GPU 1 stopped answering: the GPU fell off the bus."
    (moment,) = state.plots.markers
    assert moment.name == "GPU 1 lost"
    assert moment.time == pytest.approx(16.0)


def test_the_last_seconds_of_a_long_run_can_be_followed_on_an_axis_that_stands_still() -> None:
    model = model_in_a_run(until=90.0)
    model.follow("30 s")
    state = model.state()
    assert state.plots.window == (-30.0, 0.0)
    assert state.plots.origin_s == pytest.approx(ns(90) / 1e9)


def test_a_held_view_stands_still_until_it_follows_again() -> None:
    model = model_in_a_run()
    before = model.state()
    model.toggle_pause()
    for sample in samples(16, 40):
        model.handle(sample)
    paused = model.state()
    assert (paused.pause_label, paused.plots.window, paused.plots.origin_s) == (
        "Paused",
        before.plots.window,
        before.plots.origin_s,
    )
    assert len(panel(paused, "power_mw").curves[0].y) == 400
    model.toggle_pause()
    assert model.state().pause_label == ""
    assert model.state().plots.window[1] > 40.0


def test_a_range_that_the_user_chose_is_held_until_the_view_follows() -> None:
    model = model_in_a_run()
    model.follow("30 s")
    model.hold(5.0, 20.0)
    assert model.state().plots.window == (5.0, 20.0)
    assert model.state().pause_label
    model.follow()
    assert model.state().plots.window == (0.0, 30.0)


@pytest.mark.parametrize("seconds", [1.0, 7.0, 90.0])
def test_all_of_a_run_fills_the_width_and_thirty_seconds_are_thirty_while_it_is_shorter(seconds: float) -> None:
    model = model_in_a_run(until=seconds)
    model.follow("all")
    start, end = model.state().plots.window
    assert start == 0.0
    assert 0.9 < (seconds - 0.05) / end <= 1.0
    model.follow("30 s")
    start, end = model.state().plots.window
    assert end - start == 30.0


def test_the_axis_of_a_growing_run_stands_still_most_of_the_time() -> None:
    model = model_in_a_run(until=1.0)
    model.follow("all")
    ends = []
    for sample in samples(1, 30):
        model.handle(sample)
        ends.append(model.state().plots.window[1])
    assert ends == sorted(ends)
    assert len(set(ends)) < len(ends) / 20


def test_before_it_measures_all_of_a_run_is_shown_and_what_comes_after_is_left_out() -> None:
    model = LiveModel()
    handle_all(model, (GPU_INVENTORY, started(GPU_INVENTORY)))
    model.handle(PhaseStarted(t_ns=ns(1.0), phase="import"))
    for sample in samples(0, 4):
        model.handle(sample)
    assert model.state().plots.window[0] == 0.0
    model.handle(PhaseStarted(t_ns=ns(5.0), phase="measure"))
    for sample in samples(5, 15):
        model.handle(sample)
    start, end = model.state().plots.window
    assert start == 5.0
    assert 15.0 - 0.1 < end < 17.0, "with room to grow"
    model.handle(PhaseStarted(t_ns=ns(15.0), phase="finish"))
    for sample in samples(15, 30):
        model.handle(sample)
    assert model.state().plots.window == (5.0, 15.0)


def test_no_range_is_shorter_than_half_a_second() -> None:
    model = model_in_a_run()
    model.hold(10.0, 10.5)
    assert model.state().plots.window == (10.0, 10.5)
    model.hold(10.0, 10.4)
    assert model.state().plots.window == pytest.approx((9.95, 10.45))


def test_each_gpu_can_have_panels_of_its_own() -> None:
    model = model_in_a_run()
    model.split_by_gpu(True)
    state = model.state()
    assert [p.title for p in state.plots.panels[:2]] == ["Power of GPU 0", "Power of GPU 1"]
    assert [curve.label for curve in panel(state, "memory_bytes GPU-0").curves] == ["GPU 0", "Framework"]
    assert [curve.label for curve in panel(state, "memory_bytes GPU-1").curves] == ["GPU 1"]


def test_a_gpu_held_back_is_marked_with_the_reason() -> None:
    model = model_in_a_run()
    for tick, reasons in enumerate((0x1, 0x4, 0x4, 0x24, 0x2, 0x0)):
        model.handle(Sample(t_ns=ns(16.1 + tick / 10), device="GPU-1", throttle_reasons=reasons))
    state = model.state()
    throttles = panel(state, "power_mw").throttles
    assert [(round(t.start_s - 1016, 1), round(t.end_s - 1016, 1), t.text) for t in throttles] == [
        (0.2, 0.4, "power cap"),
        (0.4, 0.5, "power cap, thermal limit"),
    ]
    assert state.plots.describe_time(16.25, (0.0, 30.0)) == "0:16.2  ·  measure  ·  GPU 1 throttled: power cap"
    assert panel(state, "load_pct").throttles == ()


def test_running_out_of_memory_is_marked_when_the_log_said_it() -> None:
    model = model_in_a_run()
    model.handle(LogLine(ns(15), "W tensorflow: RESOURCE_EXHAUSTED: OOM when allocating tensor"))
    assert model.state().plots.markers == ()
    model.handle(ended(Outcome(name="out_of_memory", reason="GPU 0 ran out of memory.")))
    (moment,) = model.state().plots.markers
    assert moment.name == "out of memory"
    assert moment.time == pytest.approx(15.0)


def test_a_value_can_be_read_at_any_time() -> None:
    model = model_in_a_run()
    power = panel(model.state(), "power_mw").curves[1]
    assert power.value_at(ns(8) / 1e9) == "601\N{NO-BREAK SPACE}W"
    assert power.value_at(ns(30) / 1e9) == "–"


def test_the_monitor_and_the_run_screen_fold_a_sample_once() -> None:
    model = LiveModel()
    monitor = MonitorModel(model.recent)
    handle_all(model, (GPU_INVENTORY,))
    handle_all(monitor, (GPU_INVENTORY,))
    for event in samples(0, 2):
        model.handle(event)
        monitor.handle(event)
    monitor.read()
    panels = {panel.key: panel for panel in chosen_details(monitor, RowKey("", "GPU-0")).plots.panels}
    (curve,) = panels["power_mw"].curves
    assert curve.source is model.recent.series("GPU-0", "power_mw")
    assert len(curve.y) == 20
