import numpy as np

from app.telemetry.feed import updated_inventory
from app.values.samples import DeviceLost
from app.viewmodels.plot.model import LiveSeries, Points, ShiftedCurve
from app.viewmodels.plot.panels import TelemetryBuffer, device_panels
from tests.unit.viewmodels.events import GPU_INVENTORY, samples


def test_silence_longer_than_three_periods_is_a_gap() -> None:
    series = LiveSeries()
    for n in range(20):
        series.append(n * 0.05, 1.0)
    series.append(1.05, 1.0)  # two samples missed
    assert not np.isnan(series.y).any()
    series.append(1.30, 1.0)  # four missed
    assert np.isnan(series.y).sum() == 1
    assert np.isnan(series.y[-2])
    assert series.x[-2] < 1.15


def test_a_slower_rate_is_learned() -> None:
    series = LiveSeries()
    for n in range(20):
        series.append(n * 0.05, 1.0)
    for n in range(1, 100):
        series.append(1.0 + n, 1.0)
    assert not np.isnan(series.y[-60:]).any()


def test_points_come_with_one_beyond_each_end() -> None:
    points = Points(np.arange(10.0), np.arange(10.0))
    x, low, high = points.window(3.5, 5.5, 100)
    assert x.tolist() == [3.0, 4.0, 5.0, 6.0]
    assert low is high


def test_a_curve_can_stand_on_another_axis_in_another_unit() -> None:
    series = LiveSeries()
    for n in range(5):
        series.append(100.0 + n, 1000.0 * n)
    x, low, _ = ShiftedCurve(series, 100.0, 1000.0).window(0.0, 4.0, 100)
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert low.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_value_of_what_has_no_period_is_known_between_its_ends_only() -> None:
    series = LiveSeries(periodic=False)
    for x in (10.0, 20.0):
        series.append(x, x)
    assert series.range_at(14.0) == (10.0, 10.0)
    assert series.range_at(9.0) is None
    assert series.range_at(21.0) is None


def test_the_legend_says_why_a_gpu_has_no_value() -> None:
    buffer = TelemetryBuffer()
    for sample in samples(0, 5):
        buffer.add(sample)
    lost = updated_inventory(GPU_INVENTORY, DeviceLost(t_ns=5, device="GPU-0", reason="it fell off the bus"))
    panels = {panel.key: panel.curves for panel in device_panels(lost.devices, buffer.read_curve)}
    assert panels["load_pct"][0].value_text == "lost"
    assert panels["load_pct"][1].value_text.endswith("%"), "the other one is there"
