"""A comparison as values: table, curves, header and names of variants."""

import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from app.analysis.intervals import Estimate
from app.analysis.verdict import default_baseline
from app.values.records import RunRow, StoredRun
from app.viewmodels.charts.palette import HUES, MAX_COMPARED, MAX_DRAWN, dash_pattern
from app.viewmodels.compare.arrangement import Arrangement, table_text
from app.viewmodels.compare.comparison import (
    Comparison,
    HeaderLine,
    clipboard_text,
    compare,
    comparison_curves,
    comparison_lines,
    prepare_comparison,
)
from app.viewmodels.compare.curves import CompareCurves, small_multiples
from app.viewmodels.compare.statements import Severity
from app.viewmodels.compare.table import TableRow, estimate_cell
from app.viewmodels.history.evidence import describe_mismatches, mismatches
from app.viewmodels.plot.model import Plots, limited
from tests.fakes.evidence import AS_REQUESTED, MISLABELLED
from tests.fakes.traces import CONV, traced_run
from tests.unit.viewmodels.stored import S, run_row, stored_run
from workloads.protocol import Epoch, EvidenceState


def of(rows: Sequence[RunRow], baseline: int = 1) -> Comparison:
    return compare(
        prepare_comparison([stored_run(row, measured=bool(row.summary.throughput)) for row in rows]), baseline
    )


def count_calls(action: Callable[[], object]) -> int:
    """Count the Python functions that an action calls: the same on any machine, however busy."""
    counts = Counter[str]()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: counts.update([event]))
    try:
        action()
    finally:
        sys.setprofile(before)
    return counts["call"]


def test_comparing_four_times_as_many_variants_is_four_times_the_work() -> None:
    def calls(variants: int) -> int:
        rows = [
            run_row(1 + 3 * n + k, throughput=1000.0 + 10 * n + k, batch_size=64 << n % 4, units=100 + n // 4)
            for n in range(variants)
            for k in range(3)
        ]
        return count_calls(lambda: of(rows))

    calls(4)  # what is kept from one comparison to the next
    assert calls(120) < 5.2 * calls(30), "more, if each variant is held against each"


def column(comparison: Comparison, title: str, arrangement: Arrangement | None = None) -> list[str]:
    table = comparison.table
    place = [each.title for each in table.columns].index(title)
    return [row.cells[place].text for row in (arrangement or Arrangement()).rows(table)]


def laid_out(runs: Sequence[StoredRun], align: str = "time") -> CompareCurves:
    return comparison_curves(prepare_comparison(runs), align)  # type: ignore[arg-type]


def repeated(count: int, first: int = 1) -> list[RunRow]:
    """Runs of two variants in turn, the second about 6 % faster."""
    return [
        run_row(first + 2 * n + k, throughput=1000.0 * (1 + 0.06 * k) + n, units=64 * (k + 1), energy_mj=20.0 - k)
        for n in range(count)
        for k in range(2)
    ]


def test_the_default_baseline_is_the_first_variant_whose_ratios_have_intervals() -> None:
    single, failed = run_row(9, units=16), run_row(8, outcome="failed", throughput=None, units=32)
    other_workload = [run_row(n, workload="cnn10") for n in (20, 21, 22)]
    few = [run_row(n, units=96) for n in (5, 6)]
    rows = [failed, single, *other_workload, *few, *repeated(3, first=11)]
    assert default_baseline(rows) == 11, "20 to 22 are alone of their workload"
    assert of(rows, 11).verdict.results[-1].speedup is not None
    assert default_baseline([failed, single, *repeated(1, first=11)]) == 9, "nothing has an interval"
    assert default_baseline([single, *repeated(3, first=11)[::2]]) == 9, "only one variant has three runs"
    assert default_baseline([failed]) == 8
    assert default_baseline(repeated(2)) == 1, "an experiment's first variant stays"
    fewer, more = ([run_row(n, units=96 + count) for n in range(30, 30 + count)] for count in (5, 6))
    assert default_baseline([*repeated(3), *fewer]) == 1
    assert default_baseline([*repeated(3), *more]) == 30, "twice as many runs tell twice as much"


def test_what_did_not_run_as_requested_is_the_default_baseline_only_where_nothing_else_measured() -> None:
    rows = [replace(row, evidence_state="mismatch" if row.run == 1 else "verified") for row in repeated(3)]
    assert default_baseline(rows) == 2, "one of the first variant's runs is another than was requested"
    assert default_baseline([replace(row, evidence_state="mismatch") for row in rows]) == 1
    failed = run_row(9, outcome="failed", throughput=None, units=32)
    assert default_baseline([rows[0], failed]) == 1


@pytest.mark.parametrize(("spread", "chosen"), [(1.049, 1), (1.051, 4)])
def test_the_default_baseline_is_one_whose_runs_differ_no_more_than_those_of_others(spread: float, chosen: int) -> None:
    noisy = [run_row(run, units=96, throughput=rate) for run, rate in ((1, 1000.0), (2, 1000.0), (3, 1000.0 * spread))]
    others = [run_row(run, units=128 + run // 3, throughput=1000.0 + run % 3) for run in range(6, 15)]
    rows = [*noisy, *(run_row(run, units=127, throughput=900.0) for run in (4, 5, 15)), *others]
    assert default_baseline(rows) == chosen
    found = of(rows, chosen)
    assert found.verdict.steadier == 0, "nothing contradicts the default"
    names = [note.facts["variant"] for note in found.notes if note.key == "baseline"]
    assert names == ([("Units 127",)] if chosen == 4 else [])
    assert (of(rows, 1).verdict.steadier, of(rows, 1).notes) == (4 if chosen == 4 else 0, ())


def test_rows_go_from_the_fastest_to_the_slowest_after_the_baseline_and_other_work_is_last() -> None:
    rows = [run_row(run, units=run, throughput=1000.0 + run) for run in range(1, 5)]
    assert column(of(rows, 2), "Variant") == ["Units 2", "Units 4", "Units 3", "Units 1"]
    by_run = Arrangement(column=0, descending=False)
    assert column(of(rows, 2), "Variant", by_run) == ["Units 2", "Units 1", "Units 3", "Units 4"]
    worked = [
        replace(row, summary=replace(row.summary, flops_per_step=flops * 32))
        for row, flops in zip(rows, (10, 10, 10, 40), strict=True)
    ]
    found = of(worked, 2)
    assert column(found, "Variant") == ["Units 2", "Units 3", "Units 1", "Units 4"], "the fastest does other work"
    assert [row.other_work for row in Arrangement().rows(found.table)] == [False, False, False, True]
    assert "4.00× the operations" in Arrangement().rows(found.table)[-1].cells[3].tooltip


@pytest.mark.parametrize("wild", [-5.0, -math.inf, math.inf, math.nan, 5e-324, 1e308])
def test_figures_no_machine_can_have_are_in_the_table_and_stop_nothing(wild: float) -> None:
    figures = [(1, 1e-4), (2, wild), (3, 1e4)]
    rows = [run_row(run, units=run, throughput=figure, energy_mj=figure) for run, figure in figures]
    again = run_row(4, units=2, throughput=2000.0, energy_mj=20.0)
    for compared in (rows, [*rows, again]):
        assert len(of(compared).table.variants) == 3


def test_what_measured_fastest_leads_and_is_the_fastest_where_its_interval_lies_above_all_others() -> None:
    def marked(*groups: tuple[float, ...]) -> list[str]:
        figures = [(units, rate) for units, rates in enumerate(groups, 64) for rate in rates]
        rows = [run_row(n, units=units, throughput=rate) for n, (units, rate) in enumerate(figures, 1)]
        return [
            "fastest" if row.is_fastest else "leads" if row.leads else "" for row in Arrangement().rows(of(rows).table)
        ]

    assert marked((1000.0, 1001.0, 999.0), (1500.0, 1501.0, 1499.0)) == ["", "fastest"]
    assert marked((1000.0, 1001.0, 999.0), (500.0, 501.0, 499.0)) == ["fastest", ""]
    assert marked((1000.0, 1100.0, 900.0), (1010.0, 1110.0, 910.0)) == ["", "leads"]
    assert marked((1000.0,), (1500.0,)) == ["", "leads"], "a variant of one run has that run's row"
    judged, lone = (2000.0, 2001.0, 1999.0), (3000.0,)
    assert marked((1000.0, 1001.0, 999.0), lone, judged) == ["", "", "leads"], "the answer begins with it"


def test_columns_in_which_all_runs_agree_are_told_in_the_heading() -> None:
    rows = [replace(row, evidence_state="verified") for row in repeated(2)]
    found = of(rows)
    assert {"outcome", "evidence"} <= found.table.agreed.keys() <= found.table.folded
    assert " · all completed · all verified" in found.alike
    partly = of([replace(rows[0], evidence_state="verified in part"), *rows[1:]])
    assert "evidence" not in partly.table.folded, "where not all are verified, all say what they are"
    assert of(rows[:1]).table.agreed == {}, "one run agrees with nothing"


def test_rows_have_the_letters_of_their_curves() -> None:
    table = of([run_row(1), run_row(2, layers=2), run_row(3, layers=2)]).table
    assert [row.mark for variant in table.variants for row in (variant.summary, *variant.runs)] == list("AABBB")


def test_ratios_are_against_the_chosen_baseline() -> None:
    rows = [run_row(1, throughput=1000.0, energy_mj=20.0), run_row(2, throughput=1064.0, energy_mj=19.0, units=128)]
    assert column(of(rows), "Speed-up") == ["baseline", "+6.4\xa0%"]
    assert column(of(rows), "Energy ratio") == ["baseline", "−5.0\xa0%"]
    assert column(of(rows, 2), "Speed-up") == ["baseline", "−6.0\xa0%"]
    assert "6.4\xa0% faster" in of(rows).verdict.text
    assert of(rows, 2).verdict.text == of(rows).verdict.text, "the winner comes first, whatever the baseline"


def test_a_variant_s_runs_share_a_row_with_intervals_and_stand_under_it_when_unfolded() -> None:
    comparison = of(repeated(3))
    table = comparison.table
    assert column(comparison, "Run") == ["3 runs", "3 runs"]
    speed = [each.title for each in table.columns].index("Speed-up")
    together = Arrangement().rows(table)[1].cells[speed]
    assert (together.text, together.unit) == ("+6.0\xa0%", "+5.7 to +6.3\xa0%")
    assert "3 runs" in together.tooltip
    rate = Arrangement().rows(table)[0].cells[table.keys.index("throughput")]
    assert (rate.text, rate.unit) == ("1,001", "999–1,003")
    unfolded = Arrangement(unfolded=frozenset({2}))
    assert column(comparison, "Run", unfolded) == ["3 runs", "3 runs", "6", "4", "2"]
    assert column(comparison, "Variant", unfolded)[2:] == ["", "", ""]
    assert column(comparison, "Speed-up", unfolded)[2:] == ["+6.1\xa0%", "+6.0\xa0%", "+5.9\xa0%"]


def test_rows_are_ordered_by_any_column_and_absent_values_come_last() -> None:
    rows = [run_row(1, throughput=1000.0), run_row(2, outcome="failed", throughput=None, units=96)]
    rows.append(run_row(3, throughput=2000.0, units=128))
    comparison = of(rows)
    rate = [each.title for each in comparison.table.columns].index("Sequences/s")
    down = Arrangement().sorted_by(rate, numeric=True)
    up, back = down.sorted_by(rate, numeric=True), down.sorted_by(rate, numeric=True).sorted_by(rate, numeric=True)
    assert column(comparison, "Run", down) == ["1", "3", "2"], "the baseline is first"
    assert column(comparison, "Run", up) == ["1", "3", "2"]
    assert column(comparison, "Run", back) == ["1", "3", "2"]


def test_runs_that_failed_keep_their_row_and_their_outcome_in_words() -> None:
    rows = [
        run_row(1),
        run_row(2, outcome="out_of_memory", throughput=None, units=4096),
        run_row(3, units=4096, throughput=500.0),
        run_row(4, outcome="refused", throughput=None, layers=4),
        run_row(5, outcome=None, throughput=None, layers=8),
    ]
    comparison = of(rows)
    assert column(comparison, "Outcome") == ["completed", "1 out of memory, 1 completed", "refused", "running"]
    assert column(comparison, "Speed-up") == ["baseline", "0.500×", "refused", "running"]


def test_there_is_no_ratio_between_workloads() -> None:
    rows = [run_row(1), run_row(2, outcome="failed", throughput=None, units=32), run_row(3, workload="cnn10")]
    assert column(of(rows), "Speed-up") == ["baseline", "failed", "–"]
    assert column(of(rows, 2), "Speed-up") == ["failed", "–", "–"]


def test_a_variant_that_measured_nothing_leaves_the_unit_of_the_others() -> None:
    rows = [run_row(1), run_row(2, workload="cnn10"), run_row(3, workload="cnn10", outcome="failed", throughput=None)]
    titles = [[column.title for column in of(some, some[0].run).table.columns] for some in (rows, rows[::2], rows[2:])]
    units = [next(title for title in some if title.endswith("s/s")) for some in titles]
    assert units == ["Examples/s", "Sequences/s", "Images/s"]


def test_only_what_differs_names_a_variant_and_the_rest_is_said_once() -> None:
    rows = [run_row(1, workload="cnn10", layout="NHWC"), run_row(2, workload="cnn10", xla=True)]
    assert column(of(rows), "Variant") == ["NHWC · XLA off", "NCHW · XLA on"]
    assert of(rows).shared == "cnn10 · Native · 1 GPU · Batch size 1024 · float32"


def test_columns_of_which_no_run_has_anything_are_known_and_the_copy_leaves_them_out() -> None:
    comparison = of([run_row(1), run_row(2, units=128)])
    assert {"evidence", "energy", "peak_power", "accuracy"} <= comparison.table.empty
    assert "throughput" not in comparison.table.empty
    widths = dict(zip(comparison.table.keys, comparison.table.widest, strict=True))
    assert widths["variant"].text == "Units 128"
    assert widths["throughput"].text == "1,000"
    rows = Arrangement().rows(comparison.table)
    text = table_text(comparison.table, rows, comparison.table.empty | {"outcome"}, markdown=False)
    assert text.splitlines()[0].split("\t")[:4] == ["Run", "Variant", "Speed-up", "95\xa0% CI"]
    assert text.splitlines()[2].split("\t")[:5] == ["2", "Units 128", "1×", "–", "1,000"]
    marked = table_text(comparison.table, rows, comparison.table.empty, markdown=True)
    assert marked.splitlines()[1].startswith("| ---: | --- | ---: | ---: |")


def test_a_default_baseline_with_repeats_says_why_it_is_not_the_first() -> None:
    rows = [run_row(1, units=32), *repeated(3)]
    rows = [rows[0], *(replace(row, run=row.run + 1) for row in rows[1:])]
    chosen = default_baseline(rows)
    assert chosen == 2
    found = of(rows, chosen)
    assert (
        found.notes[0].sentence == "The baseline is Units 64: its runs are enough and steady. You can choose another."
    )
    assert of(rows, 1).notes == (), "chosen by hand"


def test_variants_are_grouped_and_groups_fold() -> None:
    sizes = [(1, 64, False), (2, 64, True), (3, 128, False), (4, 128, True), (5, 256, True)]
    table = of([run_row(run, units=size, xla=xla) for run, size, xla in sizes]).table
    assert table.parameters == (("units", "Units"), ("xla", "XLA"))

    def rows(arrangement: Arrangement) -> list[tuple[str, tuple[int, ...]]]:
        return [(row.title, row.runs) for row in arrangement.rows(table)]

    grouped = Arrangement(group_by="xla")
    on = [("XLA on", (2, 4, 5)), ("", (2,)), ("", (4,)), ("", (5,))]
    assert rows(grouped) == [("XLA off", (1, 3)), ("", (1,)), ("", (3,)), *on]
    assert rows(replace(grouped, folded=frozenset({"XLA off"}))) == [("XLA off", (1, 3)), *on]
    assert [run for _, run in rows(Arrangement(group_by="a parameter that is gone"))] == [(n,) for n in range(1, 6)]


def test_words_with_a_bar_stay_one_cell_in_markdown() -> None:
    comparison = of([run_row(1, implementation="a|b"), run_row(2, units=128)])
    marked = table_text(comparison.table, Arrangement().rows(comparison.table), comparison.table.empty, markdown=True)
    assert "a\\|b" in marked


def test_what_the_samples_say_of_the_measured_part_has_columns() -> None:
    comparison = of([run_row(1, workload="cnn10", energy_mj=20.0), run_row(2, workload="cnn10", layout="NHWC")])
    assert column(comparison, "Peak power") == ["600", "600"]
    assert column(comparison, "Hottest") == ["61", "61"]


def test_epochs_have_columns_and_a_panel() -> None:
    run = stored_run(run_row(1))
    start = run.measure_start_ns
    assert start is not None
    epochs = tuple(
        Epoch(
            epoch=n + 1,
            steps=200,
            examples=6400,
            start_ns=start + 4 * n * S,
            end_ns=start + (4 * n + 3) * S,
            tested_ns=start + (4 * n + 4) * S,
            loss=0.5,
            accuracy=0.8 + 0.05 * n,
        )
        for n in range(2)
    )
    found = prepare_comparison([replace(run, epochs=epochs), stored_run(run_row(2, units=128))])
    comparison = compare(found, 1)
    assert column(comparison, "Training") == ["6.00", "–"]
    assert column(comparison, "Accuracy") == ["85.00", "–"]
    accuracy = next(panel for panel in comparison_curves(found, "steps").panels if panel.key == "accuracy").curves[0]
    assert accuracy.x == pytest.approx([150, 350])
    assert accuracy.y == pytest.approx([80, 85])


def test_nothing_is_before_or_after_a_measured_part_that_there_is_not() -> None:
    runs = [stored_run(run_row(n, outcome="failed", throughput=None), measured=False) for n in (1, 2)]
    curves = laid_out(runs)
    assert curves.panels
    assert curves.bands == ()


def test_curves_start_at_the_measured_part_whenever_the_run_was() -> None:
    curves = laid_out([stored_run(run_row(1)), stored_run(run_row(2, units=128), begin_s=5000.0)])
    throughput = next(panel for panel in curves.panels if panel.key == "throughput")
    first, second = throughput.curves
    assert (first.label, second.label, first.colour, second.colour) == ("Units 64", "Units 128", 0, 1)
    np.testing.assert_allclose(first.x, second.x)
    assert first.x[0] == pytest.approx(0.2)
    assert curves.full_range == pytest.approx((-4.0, 8.0), abs=0.2)
    assert [band.name for band in curves.bands] == ["before", "measure"]


def test_along_steps_or_examples_curves_span_what_was_done() -> None:
    runs = [stored_run(run_row(1)), stored_run(run_row(2, units=128), begin_s=5000.0)]
    for align, each in (("steps", 10), ("examples", 320)):
        curves = laid_out(runs, align)
        load = next(panel for panel in curves.panels if panel.key == "cpu load_pct").curves[0]
        assert (load.x[0], load.x[-1]) == pytest.approx((0, 40 * each), abs=each)
        loss = next(panel for panel in curves.panels if panel.key == "loss").curves[0]
        np.testing.assert_allclose(loss.x, np.arange(1, 41) * each)
        assert curves.measured[1] == pytest.approx(40 * each)


def test_a_run_without_blocks_has_no_place_along_steps() -> None:
    failed = stored_run(run_row(9, outcome="failed", throughput=None, units=128), measured=False)
    curves = laid_out([stored_run(run_row(1)), failed], "steps")
    assert {curve.key for panel in curves.panels for curve in panel.curves} == {"1"}


def test_gpus_of_a_run_are_put_together_and_the_title_says_how() -> None:
    curves = laid_out([stored_run(run_row(1, workload="cnn10", gpus=2)), stored_run(run_row(2, workload="cnn10"))])
    panels = {panel.title: panel for panel in curves.panels}
    assert list(panels)[1:6] == [
        "Power, sum of a run's GPUs",
        "Load, mean of a run's GPUs",
        "Memory, sum of a run's GPUs",
        "SM clock, mean of a run's GPUs",
        "Temperature, highest of a run's GPUs",
    ]
    power, load, memory = list(panels.values())[1:4]
    assert [curve.y[5] for curve in power.curves] == [1200.0, 600.0]
    assert [curve.y[5] for curve in load.curves] == [90.0, 90.0]
    assert [curve.y[5] for curve in memory.curves] == [8.0, 4.0]


def test_cpu_and_gpu_runs_do_not_share_a_panel() -> None:
    curves = laid_out([stored_run(run_row(1)), stored_run(run_row(2, workload="cnn10"))])
    keys = {panel.key: [curve.key for curve in panel.curves] for panel in curves.panels}
    assert keys["gpu load_pct"] == ["2"]
    assert keys["cpu load_pct"] == ["1"]
    assert keys["throughput"] == ["1", "2"]


def test_small_multiples_have_a_row_a_run_and_one_scale_a_column() -> None:
    curves = laid_out([stored_run(run_row(1)), stored_run(run_row(2, workload="cnn10"))])
    small = small_multiples(curves.panels, (1, 2), curves.measured)
    count = len(curves.panels)
    assert len(small) == 2 * count
    heads = [f"{panel.title} {panel.unit}".strip() for panel in small[:count]]
    assert heads == [
        *("examples/s", "Power W", "Load %", "Memory GiB", "SM clock MHz", "Temperature °C"),
        *("CPU load %", "GiB", "Loss"),
    ]
    assert {panel.title for panel in small[count:]} == {""}
    assert {curve.key for panel in small[count:] for curve in panel.curves} == {"2"}
    assert [panel.y_range for panel in small[:count]] == [panel.y_range for panel in small[count:]]


def test_a_run_that_never_measured_is_named_with_the_reason_and_starts_at_its_start() -> None:
    failed = stored_run(run_row(9, outcome="failed", reason="out of luck", throughput=None), measured=False)
    comparison = prepare_comparison([stored_run(run_row(1, units=128)), failed])
    assert compare(comparison, 1).notes[-1].key == "zero"

    def uncounted(*more: StoredRun) -> tuple[str, Severity]:
        (first, *_) = compare(prepare_comparison([*comparison.runs, *more]), 1).warnings
        return first.sentence, first.severity

    assert uncounted() == ("The run of units 64 (failed) does not count. Out of luck.", "warning")
    again = replace(failed, row=replace(failed.row, run=10))
    assert uncounted(again) == ("Both runs of units 64 (failed) do not count. Out of luck.", "warning")
    counts = stored_run(run_row(11, units=64))
    assert uncounted(counts) == ("1 of 2 runs of units 64 (failed) does not count. Out of luck.", "note")
    stopped = replace(failed, row=run_row(9, outcome="stopped", throughput=None))
    (note,) = compare(prepare_comparison([comparison.runs[0], stopped]), 1).warnings
    assert (note.key, note.severity) == ("uncounted", "note")
    load = next(panel for panel in comparison_curves(comparison, "time").panels if panel.key == "cpu load_pct")
    assert load.curves[1].x[0] == pytest.approx(0.0)


def test_a_stopped_run_is_counted_apart_and_changes_no_figure_and_no_mean_curve() -> None:
    complete = [stored_run(row) for row in repeated(3)]
    cut_off = stored_run(run_row(9, units=128, outcome="stopped", throughput=10.0))
    cut_off = replace(
        cut_off,
        samples=tuple(
            replace(one, fields={**one.fields, "load_pct": one.t_ns.astype(np.float64)}) for one in cut_off.samples
        ),
    )
    before, after = (compare(prepare_comparison(runs), 1) for runs in (complete, [*complete, cut_off]))
    assert after.verdict.text == before.verdict.text
    assert [variant.metrics for variant in after.variants] == [variant.metrics for variant in before.variants]
    alone = replace(cut_off, row=replace(cut_off.row, spec=run_row(9, units=256).spec))
    (without_result,) = (
        variant
        for variant in compare(prepare_comparison([*complete, alone]), 1).variants
        if variant.result.throughput is None
    )
    assert set(without_result.metrics.values()) == {None}
    assert [variant.summary.cells[0].text for variant in after.table.variants] == ["3 runs", "3 runs, 1 stopped"]
    assert (after.notes, [warning.key for warning in after.warnings]) == ((), ["uncounted"])
    means = [
        {
            (panel.key, curve.key): curve.source.points()[1].tolist()
            for panel in laid_out(runs).means
            for curve in panel.curves
        }
        for runs in (complete, [*complete, cut_off])
    ]
    assert means[0] == means[1]


def test_one_line_says_on_what_where_and_how_often_all_was_measured_and_whether_it_ran() -> None:
    away = [replace(run_row(n, units=n, gpu_names=("NVIDIA H200",)), host="lab") for n in (1, 2)]
    assert of(away).provenance.endswith(" · measured on H200, not on this machine · 1 run each")
    assert " · 2 runs on H200, not on this machine · 1 run each" in of([*away, run_row(3, units=3)]).provenance
    assert of([away[0], run_row(3, units=3)]).origin == "1 run on H200, not on this machine"
    assert of([run_row(1), run_row(2, units=7)]).origin == ""
    states: list[EvidenceState] = ["verified", "verified in part", "verified"]
    rows = [replace(row, evidence_state=state) for row, state in zip(repeated(2)[:3], states, strict=True)]
    assert of(rows[::2]).provenance == "CPU · 2 runs · ✔ verified", "the name of the one variant says the rest"
    assert of(rows).provenance.endswith(" · CPU · 1–2 runs each · ◐ verified in part"), "the worst of all"


def test_the_reason_beside_the_answer_is_of_the_fastest_against_the_baseline_or_of_the_next() -> None:
    nhwc, nchw, keras = (
        traced_run(1, 20.0, {CONV: 10.0}, layout="NHWC"),
        traced_run(2, 18.0, {CONV: 9.0}, layout="NCHW"),
        traced_run(3, 25.0, {CONV: 11.0}, implementation="keras", layout="NHWC"),
    )

    def explained(baseline: int, *runs: StoredRun) -> tuple[int, ...]:
        why = compare(prepare_comparison(runs), baseline).leading_why
        return why.runs if why else ()

    assert explained(1, nhwc, nchw, keras) == (2,)
    assert explained(2, nhwc, nchw, keras) == (1,), "the baseline is the fastest"
    assert explained(1, nhwc) == ()


def test_a_run_that_is_not_what_its_name_says_is_told_first() -> None:
    rows = [run_row(1, found=AS_REQUESTED), run_row(2, layers=4, found=MISLABELLED, gflops=1870.0)]
    assert of(rows).verdict.text.startswith(f"The run of layers 4 did not run what was requested. {MISLABELLED.reason}")
    assert column(of(rows), "Evidence") == ["verified", "mismatch"]
    assert column(of(rows), "GFLOPS") == ["–", "1,870"]
    assert column(of(rows), "MFU") == ["–", "0.5"]


def test_a_variant_says_how_many_of_its_runs_are_not_what_was_asked() -> None:
    rows = [run_row(n, found=MISLABELLED if n == 3 else AS_REQUESTED) for n in (1, 2, 3)]
    assert column(of([*rows, run_row(4, units=128, found=AS_REQUESTED), run_row(5, units=128)]), "Evidence") == [
        "mismatch, 1 of 3",
        "verified",
    ]


def test_runs_of_a_variant_share_a_hue_and_no_two_runs_look_alike() -> None:
    looks = of(repeated(4)).styles
    assert {looks[run] % HUES for run in (1, 3, 5, 7)} == {looks[1] % HUES}
    assert {looks[run] % HUES for run in (2, 4, 6, 8)} == {looks[2] % HUES} != {looks[1] % HUES}
    assert dash_pattern(looks[1]) == dash_pattern(looks[2]) == ()


@pytest.mark.parametrize("variants", [1, 2, 4, 12, 20])
def test_twenty_runs_can_be_told_apart(variants: int) -> None:
    rows = [run_row(n + 1, units=64 + n % variants) for n in range(20)]
    looks = list(of(rows).styles.values())
    assert len(looks) == 20
    assert len({(look % HUES, dash_pattern(look)) for look in looks}) == 20


def test_of_more_runs_than_can_be_told_apart_every_variant_s_first_are_drawn() -> None:
    rows = [run_row(n + 1, units=64 + n // 3) for n in range(36)]
    comparison = of(rows)
    assert len(comparison.styles) == MAX_DRAWN
    assert set(range(1, 37, 3)) <= set(comparison.styles)
    assert comparison.notes[0].sentence == "Curves show 20 of 36 runs; table and verdict use all."
    assert sum(len(row.runs) for row in Arrangement().rows(comparison.table)) == 36
    assert comparison.compared_runs.extent == comparison.notes[:1]
    assert of(rows[:20]).compared_runs.extent == ()


def test_of_too_many_variants_the_fastest_of_the_baseline_s_workload_are_drawn() -> None:
    slow = [run_row(n, units=n, throughput=100.0 * n) for n in range(1, 31)]
    images = [run_row(n, workload="cnn10", throughput=1e6) for n in range(31, 41)]
    assert set(of([*slow, *images]).styles) == set(range(11, 31))


@pytest.mark.parametrize("count", [1234, 0])
def test_runs_too_many_to_read_are_said_before_all_other_doubts(count: int) -> None:
    stored = [
        stored_run(run_row(1 + n, units=32 + n), environment=dict.fromkeys(("driver", "keras", "cpu"), name))
        for n, name in enumerate("ab")
    ]
    first, *others = comparison_lines(compare(prepare_comparison(stored, left_out=count), 1))
    assert (first.text == f"▲  At most {MAX_COMPARED} runs are compared; of those chosen, 1,234 are not.") == (
        count > 0
    )
    assert len(others) > 1


def test_a_value_is_read_at_the_crosshair_and_nothing_where_there_is_none() -> None:
    curves = laid_out([stored_run(run_row(1))])
    loss = next(panel for panel in curves.panels if panel.key == "loss").curves[0]
    assert loss.source.range_at(0.45) == pytest.approx((np.exp(-0.1), np.exp(-0.1)))
    assert loss.source.range_at(0.1) is None
    assert loss.source.range_at(1e6) is None
    counted: tuple[Literal["", "steps", "examples"], ...] = ("", "steps", "examples")
    assert [Plots(counts=counts).describe_time(1234.4, (1220.0, 1250.0)) for counts in counted] == [
        "20:34.4",
        "step 1,234",
        "1,234 examples",
    ]


def test_a_range_never_leaves_the_whole_and_is_never_empty() -> None:
    assert limited((2.0, 7.0), (0.0, 10.0)) == (2.0, 7.0)
    assert limited((-200.0, 300.0), (0.0, 10.0)) == (0.0, 10.0)
    start, end = limited((4.0, 4.0), (0.0, 10.0))
    assert end - start == pytest.approx(1e-4)
    assert start < 4.0 < end
    assert limited((7.0, 12.0), (0.0, 10.0)) == (5.0, 10.0)
    assert limited((-3.0, 2.0), (0.0, 10.0)) == (0.0, 5.0)


def kinds(rows: Sequence[TableRow]) -> list[str]:
    return [row.kind for row in rows]


def test_a_variant_with_one_run_is_that_run_and_unfolds_to_nothing() -> None:
    comparison = of([run_row(1), run_row(2, units=128), run_row(3, units=128)])
    assert kinds(Arrangement(unfolded=frozenset({1, 2})).rows(comparison.table)) == [
        "run",
        "variant",
        "member",
        "member",
    ]


def test_intervals_wide_and_narrow_have_one_format() -> None:
    texts = [
        estimate_cell(Estimate(1000.0, low, high, 3)).unit
        for low, high in ((900.0, 1110.0), (500.0, 2000.0), (None, None))
    ]
    assert texts == ["900–1,110", "500–2,000", ""]


def test_what_runs_that_are_not_what_they_say_mean_for_the_verdict_is_said_once_on_the_screen_and_once_copied() -> None:
    rows = [run_row(1, found=AS_REQUESTED), run_row(2, layers=4, found=MISLABELLED)]
    found = of(rows)
    meant = "So the verdict is about what ran, not what was requested."
    detail = f"Run 2: {MISLABELLED.reason}"
    assert comparison_lines(found)[0] == HeaderLine(
        f"▲  {describe_mismatches(mismatches(rows))} {meant}", "warning", detail=detail
    )
    assert clipboard_text(found).count("did not run what was requested") == 1


def test_notes_on_the_table_come_after_the_doubts_and_are_not_copied() -> None:
    rows = [run_row(1, throughput=1000.0), run_row(2, units=128, outcome="refused", throughput=None)]
    found = of(rows)
    assert comparison_lines(found)[-1] == HeaderLine(
        "Without a measured part, time zero is the start of the run.", "note"
    )
    assert "time zero" not in clipboard_text(found)


def test_of_no_runs_nothing_is_said() -> None:
    assert (comparison_lines(Comparison()), clipboard_text(Comparison())) == ((), "")
