"""The charts of compared runs as values: axes, ticks, points and bars."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.analysis.energy import memory_bandwidth
from app.analysis.verdict import judge
from app.report.charts.draw import draw_chart
from app.values.records import StoredRun
from app.viewmodels.charts import model
from app.viewmodels.charts.model import BarChart, Chart, PointChart
from app.viewmodels.charts.palette import LIGHT, colour_by, colour_choices
from app.viewmodels.charts.speed_energy import pareto_front
from app.viewmodels.charts.sweeps import distinct_colours
from tests.fakes.experiments import result
from tests.fakes.pictures import (
    BATCHES,
    FLOPS_A_STEP,
    GPUS,
    LAYOUTS,
    MEMORY_PCT,
    PEAK,
    charts_of,
    grid,
    rate_of,
    spec_of,
    with_memory_traffic,
)
from workloads.protocol import RunSpec, Value


@pytest.fixture(scope="module")
def chart_list() -> tuple[Chart, ...]:
    return charts_of([with_memory_traffic(run) for run in grid()], baseline=1)


def point_chart(chart_list: tuple[Chart, ...], key: str) -> PointChart:
    return next(chart for chart in chart_list if chart.key == key and isinstance(chart, PointChart))


def bars(chart_list: tuple[Chart, ...], key: str) -> BarChart:
    return next(chart for chart in chart_list if chart.key == key and isinstance(chart, BarChart))


def test_speed_up_bars_are_the_verdicts_numbers(chart_list: tuple[Chart, ...]) -> None:
    shown = bars(chart_list, "speed-up")
    results = {result.runs[0].run: result for result in judge([run.row for run in grid()], 1)}
    base, *others = shown.bars
    assert (base.runs[0], base.value, base.text) == (1, None, "baseline")
    measured = [bar for bar in others if bar.value is not None]
    for bar in measured:
        speedup = results[bar.runs[0]].speedup
        assert speedup is not None
        assert (bar.value, bar.low, bar.high) == (speedup.value, speedup.low, speedup.high)
    values = [bar.value or 0.0 for bar in measured]
    assert values == sorted(values, reverse=True), "the fastest stands first"
    assert [(bar.label, bar.text) for bar in others if bar.value is None] == [
        ("NHWC · 1 GPU · Batch size 1024", "out of memory"),
        ("NCHW · 1 GPU · Batch size 1024", "out of memory"),
    ]


def test_no_bar_is_drawn_against_another_workload() -> None:
    runs = [*grid()[:2], result(90, spec_of("NHWC", 1, 256, "wrn28-10"), 100.0)]
    speed_ups = bars(charts_of(runs, 1), "speed-up")
    assert [bar.runs for bar in speed_ups.bars] == [(1,), (2,)]
    assert speed_ups.title.startswith("Speed-up against cnn10 · ")
    assert not any("cnn10" in bar.label for bar in speed_ups.bars), "all bars are of it"
    assert speed_ups.caption.endswith("1 variant of other workloads has no ratio.")


def test_bars_of_other_work_stand_last() -> None:
    def working(number: int, rate: float, depth: int, layout: str = "NHWC") -> StoredRun:
        spec = spec_of(layout, 1, 256)
        run = result(number, RunSpec(workload=spec.workload, variant={**spec.variant, "depth": depth}), rate)
        return replace(run, row=replace(run.row, summary=replace(run.row.summary, flops_per_step=depth * 10**9)))

    base, deep, nchw, flat = working(1, 100.0, 2), working(2, 90.0, 4), working(3, 110.0, 2, "NCHW"), working(4, 300, 1)
    speed_ups = bars(charts_of([base, deep, nchw, flat], 1), "speed-up")
    assert [bar.runs for bar in speed_ups.bars] == [(1,), (3,), (4,), (2,)]
    assert speed_ups.caption.endswith("The last 2 do different work per example than the baseline.")
    assert "other work" not in bars(charts_of([base, deep], 1), "speed-up").caption, "nothing to tell it from"


def test_wide_intervals_do_not_squeeze_all_ratios_into_a_corner() -> None:
    rates = {"NHWC": (1000.0, 1010.0, 1005.0), "NCHW": (1000.0, 9000.0, 1000.0)}
    specs = [(spec_of(layout, 1, 256), rate) for layout, each in rates.items() for rate in each]
    chart = bars(charts_of([result(n, spec, rate) for n, (spec, rate) in enumerate(specs, 1)], 1), "speed-up")
    wide = chart.bars[-1]
    assert wide.high is not None
    assert wide.value is not None
    assert 2 * wide.value < chart.axis.high < 3 * wide.value < 100 < wide.high
    assert "(arrow: beyond the axis)" in chart.caption
    drawing = draw_chart(chart, LIGHT)
    ends = [float(x) for x in re.findall(r'<line[^>]* x2="([\d.]+)"', drawing.svg())]
    assert max(ends) < drawing.width, "no whisker leaves the paper"


def test_a_narrow_axis_does_not_make_noise_look_like_news() -> None:
    runs = [result(n, spec_of(LAYOUTS[n % 2], 1, 256), 1000.0 + n % 3) for n in range(1, 7)]
    axis = bars(charts_of(runs, 1), "speed-up").axis
    assert axis.low < 0.985
    assert axis.high > 1.015


def test_energy_bars_begin_with_the_least(chart_list: tuple[Chart, ...]) -> None:
    shown = bars(chart_list, "energy-ratio")
    values = [bar.value for bar in shown.bars if bar.value is not None]
    assert values == sorted(values)


def test_batches_are_points_of_one_line_a_variant_with_the_edge_of_memory(chart_list: tuple[Chart, ...]) -> None:
    (chart,) = point_chart(chart_list, "batch").plots
    assert [series.label for series in chart.series] == [
        f"{layout} · {gpus} GPU{'s' if gpus > 1 else ''}" for gpus in GPUS for layout in LAYOUTS
    ]
    assert len({series.colour for series in chart.series}) == len(chart.series)
    line = chart.series[1]
    assert [point.x for point in line.points] == list(BATCHES)
    small, middle, too_large = line.points
    assert small.y == pytest.approx(rate_of("NCHW", 1, 256), rel=1e-3)
    assert small.low is not None
    assert small.low < rate_of("NCHW", 1, 256)
    assert (too_large.y, too_large.outcome, len(too_large.runs)) == (None, "out of memory", 3)
    assert "95\xa0% CI" in middle.tooltip
    assert chart.x.share(512.0) - chart.x.share(256.0) == pytest.approx(chart.x.share(1024.0) - chart.x.share(512.0))


def test_workloads_are_small_multiples_of_one_colouring() -> None:
    others = [replace(run, row=replace(run.row, run=run.row.run + 100)) for run in grid("wrn28-10")]
    first, second = point_chart(charts_of([*grid(), *others], 1), "batch").plots
    assert (first.title, second.title) == ("CNN · 10 layers, 32×32 images", "Wide ResNet · 28 layers, 32×32 images")
    assert [(s.label, s.colour) for s in first.series] == [(s.label, s.colour) for s in second.series]


def test_a_line_alone_is_named_without_a_batch() -> None:
    runs = [result(n, spec_of("NCHW", 1, 64 * n), 1000.0 * n) for n in (1, 2)]
    (chart,) = point_chart(charts_of(runs, 1), "batch").plots
    assert [series.label for series in chart.series] == ["Native · NCHW · 1 GPU · TF32"]


def test_the_frontier_joins_what_nothing_beats_in_both(chart_list: tuple[Chart, ...]) -> None:
    (chart,) = point_chart(chart_list, "frontier").plots
    points = [point for series in chart.series for point in series.points]
    front = [point for point in points if point.mark == "full"]
    assert len(front) >= 2
    for point in front:
        assert not [p for p in points if p.x > point.x and (p.y or 0) < (point.y or 0)]
    assert [x for x, _ in chart.guides[0].points] == sorted((point.x for point in front), reverse=True)


def test_of_equal_variants_one_is_best() -> None:
    assert pareto_front([3.0, 2.0, 1.0, 2.0], [9.0, 5.0, 6.0, 5.0]) == [0, 1]


def test_scaling_is_held_against_the_fewest_gpus(chart_list: tuple[Chart, ...]) -> None:
    rates, shares, weak, _ = point_chart(chart_list, "gpus").plots
    assert rates.title == "CNN · 10 layers, 32×32 images, one batch in all"
    assert weak.title == "CNN · 10 layers, 32×32 images, one batch per GPU"
    names = [series.label for series in rates.series]
    assert names[:2] == ["NHWC · batch 256", "NCHW · batch 256"]
    line = rates.series[names.index("NHWC · batch 256")]
    assert [point.x for point in line.points] == [1.0, 2.0, 4.0]
    ideal = rates.guides[0]
    assert ideal.points[-1] == pytest.approx((4.0, 4 * rate_of("NHWC", 1, 256)), rel=1e-3)
    efficiency = shares.series[0].points
    assert [point.y for point in efficiency] == pytest.approx([100.0, 95.0, 92.5], rel=1e-3)
    assert efficiency[1].low is not None


def test_the_roofline_counts_the_bytes_of_the_memory_bandwidth_in_use() -> None:
    (chart,) = point_chart(
        charts_of([on(with_memory_traffic(run), "NVIDIA H200") for run in grid()], 1), "roofline"
    ).plots
    gflops = FLOPS_A_STEP * 1000 / 10 / 1e9
    point = next(point for series in chart.series for point in series.points if 1 in point.runs)
    assert point.y == pytest.approx(gflops)
    assert point.x == pytest.approx(gflops * 1e9 / (4.8e12 * MEMORY_PCT / 100)), "FLOP/byte"
    assert chart.x.title == "Arithmetic intensity (FLOP/byte)"
    assert [guide.label.partition(":")[0] for guide in chart.guides] == ["TF32, 1 GPU", "TF32, 2 GPUs", "TF32, 4 GPUs"]
    (start, start_y), (ridge, corner), (_, top) = chart.guides[0].points
    assert start_y == pytest.approx(start * 4800), "GFLOPS at all of 4.8\xa0TB/s"
    assert (ridge, corner, top) == pytest.approx((PEAK / 4.8e12, PEAK / 1e9, PEAK / 1e9))
    assert not [
        picture
        for picture in charts_of([on(with_memory_traffic(run), "NVIDIA X1") for run in grid()], 1)
        if picture.key == "roofline"
    ]


def test_many_variants_are_coloured_by_the_parameter_that_explains_most() -> None:
    runs = [on(with_memory_traffic(run), "NVIDIA H200") for run in grid()]
    (chart,) = point_chart(charts_of(runs, 1), "roofline").plots
    specs = {run.row.run: run.row.spec for run in runs}
    assert [series.label for series in chart.series] == ["Batch size 256", "Batch size 512", "Batch size 1024"]
    assert len({(series.colour, series.shape) for series in chart.series}) == 3
    layouts = colour_by(point_chart(charts_of(runs, 1), "frontier"), "layout", specs)
    assert [series.label for series in layouts.plots[0].series] == ["NHWC", "NCHW"]
    assert colour_by(layouts, "units", specs) == layouts, "no run has it"
    mixed = {n: RunSpec(workload="gru", variant=spec.variant) if n % 2 else spec for n, spec in specs.items()}
    assert "workload" not in colour_choices(layouts, specs)
    assert "workload" in colour_choices(layouts, mixed)
    assert {series.label for series in colour_by(layouts, "workload", mixed).plots[0].series} == {"gru", "cnn10"}
    few = charts_of(runs[:4], 1)
    assert all(not series.label for series in point_chart(few, "frontier").plots[0].series), "a hue for each"


def on(run: StoredRun, gpu: str) -> StoredRun:
    return replace(run, row=replace(run.row, gpu_names=(gpu,) * int(run.row.spec.variant["gpus"])))


def test_a_picture_with_nothing_to_say_is_left_out() -> None:
    assert charts_of([result(n, spec_of("NHWC", 1, 256), 1000.0) for n in (1, 2)], 1) == ()


def test_a_run_keeps_the_colour_it_is_given() -> None:
    runs = grid()[:2]
    speed_ups = bars(charts_of(runs, 1, {1: 5, 2: 3}), "speed-up")
    assert [bar.colour for bar in speed_ups.bars] == [5, 3]


def test_colours_are_apart_as_long_as_there_are_some() -> None:
    assert distinct_colours([0, 8, 1, 0], 8) == (0, 1, 2, 3)
    assert sorted(distinct_colours([3] * 8, 8)) == list(range(8))
    assert distinct_colours([3] * 9, 8)[-1] == 8 + 3, "the hue again, with another shape"


def with_variant(run: StoredRun, **settings: Value) -> StoredRun:
    spec = run.row.spec
    return replace(
        run, row=replace(run.row, spec=RunSpec(workload=spec.workload, variant={**spec.variant, **settings}))
    )


@pytest.mark.parametrize("figure", ["throughput", "energy_mj_per_example", "peak_flops_per_s", "flops_per_step"])
@pytest.mark.parametrize("value", [0.0, 1e-300, 1e300, math.inf])
def test_a_figure_that_cannot_be_is_not_drawn(figure: str, value: float) -> None:
    first, second, *others = grid()[:8]
    summary = second.row.summary
    odd = replace(second, row=replace(second.row, summary=replace(summary, **{figure: value})))  # type: ignore[arg-type]
    for picture in charts_of([with_memory_traffic(run) for run in (first, odd, *others)], 1):
        assert draw_chart(picture, LIGHT).hit_areas


@pytest.mark.parametrize("batch", [0, -4])
def test_a_batch_that_is_none_has_no_place(batch: Value) -> None:
    runs = [with_variant(run, batch_size=batch) if n == 1 else run for n, run in enumerate(grid()[:12])]
    (chart,) = point_chart(charts_of(runs, 1), "batch").plots
    assert 2 not in [number for series in chart.series for point in series.points for number in point.runs]


def test_a_workload_unknown_here_is_drawn_as_far_as_it_goes() -> None:
    runs = [
        replace(run, row=replace(run.row, spec=RunSpec(workload="theirs", variant={"speed": n})))
        for n, run in enumerate(grid()[:4])
    ]
    assert [picture.key for picture in charts_of(runs, 1)] == ["speed-up", "energy-ratio", "frontier"]


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.7, 2.7, ["0.8", "1", "1.2", "1.5", "2", "2.5"]),
        (0.95, 1.1, ["0.95", "1.00", "1.05", "1.10"]),
        (0.03, 14.0, ["0.03", "0.1", "0.3", "1", "3", "10"]),
        (900.0, 15_000.0, ["1,000", "2,000", "5,000", "10,000"]),
    ],
)
def test_equal_factors_have_round_numbers(low: float, high: float, words: list[str]) -> None:
    chart_list = [word for _, word in model.log_ticks(low, high)]
    assert chart_list == words


@pytest.mark.parametrize(
    ("values", "spacing", "labels"),
    [
        ((0, 500_000, 999_999), 500_000, ["0", "500,000", "999,999"]),
        ((0, 500_000, 1_000_000), 500_000, ["0.0\xa0M", "0.5\xa0M", "1.0\xa0M"]),
        ((900_000, 1_000_000), 100_000, ["0.9\xa0M", "1.0\xa0M"]),
        ((-2_000_000, 12_000_000_000), 1_000_000, ["-2\xa0M", "12,000\xa0M"]),
        ((0.0, 0.5), 0.5, ["0.0", "0.5"]),
        ((), 1.0, []),
    ],
)
def test_labels_of_an_axis_are_short_from_a_million_on(
    values: tuple[float, ...], spacing: float, labels: list[str]
) -> None:
    assert model.tick_labels(values, spacing) == labels


@given(st.floats(1e-3, 1e9), st.floats(1.05, 1e6))
def test_numbers_lie_on_the_axis_and_differ(low: float, factor: float) -> None:
    for chart_list in (model.log_ticks(low, low * factor), model.linear_ticks(0.0, low)):
        values, words = zip(*chart_list, strict=True) if chart_list else ((), ())
        assert len(set(words)) == len(words) <= 9
        assert list(values) == sorted(values)
        for value, word in chart_list:
            number, _, unit = word.replace(",", "").partition("\xa0")
            assert float(number) * (1e6 if unit else 1.0) == pytest.approx(value, rel=1e-6, abs=1e-9)
    assert all(
        low * (1 - 1e-9) <= value <= low * factor * (1 + 1e-9) for value, _ in model.log_ticks(low, low * factor)
    )


def test_batches_keep_their_own_numbers() -> None:
    axis = model.doubling_axis([2048, 128, 256, 128], "")
    assert axis.ticks == ((128.0, "128"), (256.0, "256"), (2048.0, "2,048"))
    assert len(model.doubling_axis(range(1, 40), "").ticks) <= 10


def test_times_are_a_clock_or_seconds() -> None:
    steps = [model.clock_step(longest_s) for longest_s in (9.9, 15.0, 59.0, 500.0, 5_000.0, 1e6)]
    assert steps == [None, 10.0, 30.0, 300.0, 3_600.0, 86_400.0]
    assert model.time_labels([-30.0, 0.0, 90.0], 30.0) == ["−0:30", "0:00", "1:30"]
    assert model.time_labels([-0.5, 0.0, 0.5], 0.5) == ["−0:00.5", "0:00.0", "0:00.5"]
    assert model.time_labels([3_729.5, 3_730.0], 0.5) == ["1:02:09.5", "1:02:10.0"]


def test_an_axis_around_close_values_does_not_begin_at_zero_but_one_around_distant_or_equal_values_does() -> None:
    close = model.span_axis([25.0, 23.4, 24.0], "ms")
    assert 22 < close.low < 23.4
    assert close.high > 25.0
    assert all(close.low <= tick <= close.high for tick, _ in close.ticks)
    assert model.span_axis([50.0, 5.0], "ms").low == 0
    assert model.span_axis([20.0, 20.0], "ms").low == 0


@pytest.mark.parametrize(
    ("names", "tb_per_s"),
    [
        (["NVIDIA H200"], 4.8),
        (["NVIDIA GH200 480GB"], 4.0),
        (["NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3"], 5.35),
        (["NVIDIA H200", "NVIDIA T4"], None),
    ],
)
def test_the_bandwidth_is_that_of_the_card_named(names: list[str], tb_per_s: float | None) -> None:
    chart_list = memory_bandwidth(names)
    assert chart_list == (None if tb_per_s is None else pytest.approx(tb_per_s * 1e12))
