import numpy as np
import pytest

from app.viewmodels.cells import Cell
from app.viewmodels.compare import COLUMNS, ONE_PROCESS, compare, table
from tests.fakes.evidence import AS_ASKED, MISLABELLED
from tests.unit.viewmodels.stored import run_row, stored_run

TITLES = [column.title for column in COLUMNS]


def column(rows: list[tuple[Cell, ...]], title: str) -> list[str]:
    return [row[TITLES.index(title)].text for row in rows]


def test_ratios_are_against_the_chosen_baseline() -> None:
    rows = [run_row(1, throughput=1000.0, energy_mj=20.0), run_row(2, throughput=1064.0, energy_mj=19.0)]
    assert column(table(rows, 1), "Speed-up") == ["baseline", "1.064×"]
    assert column(table(rows, 1), "Energy ratio") == ["baseline", "0.950×"]
    assert column(table(rows, 2), "Speed-up") == ["0.940×", "baseline"]


def test_there_is_no_ratio_without_a_throughput_or_between_workloads() -> None:
    rows = [run_row(1), run_row(2, outcome="failed", throughput=None), run_row(3, workload="cnn10")]
    assert column(table(rows, 1), "Speed-up") == ["baseline", "–", "–"]
    assert column(table(rows, 2), "Speed-up") == ["–", "–", "–"]
    assert column(table(rows, 1), "Outcome") == ["completed", "failed", "completed"]


def test_only_what_differs_names_a_variant_and_the_rest_is_said_once() -> None:
    rows = [run_row(1, workload="cnn10", layout="NHWC"), run_row(2, workload="cnn10", xla=True)]
    assert column(table(rows, 1), "Variant") == ["NHWC · XLA off", "NCHW · XLA on"]
    assert compare([stored_run(row) for row in rows]).shared == "cnn10 · Native · 1 GPU · Batch size 1024 · float32"


def test_equal_variants_keep_a_row_each_under_their_short_name() -> None:
    rows = [run_row(1), run_row(2)]
    assert column(table(rows, 1), "Variant") == ["lstm Standard · CPU · batch 32"] * 2
    assert column(table(rows, 1), "Run") == ["1", "2"]


def test_curves_start_at_the_measured_part_whenever_the_run_was() -> None:
    comparison = compare([stored_run(run_row(1)), stored_run(run_row(2), begin_s=5000.0)])
    throughput = next(panel for panel in comparison.panels if panel.key == "throughput")
    first, second = throughput.curves
    assert (first.label, second.label, first.colour, second.colour) == ("Run 1", "Run 2", 0, 1)
    np.testing.assert_allclose(first.x, second.x)
    assert first.x[0] == pytest.approx(0.2)
    assert comparison.start_s == pytest.approx(-4.0)
    assert comparison.notes == (ONE_PROCESS,)


def test_gpus_of_a_run_are_put_together_and_the_title_says_how() -> None:
    comparison = compare([stored_run(run_row(1, workload="cnn10", gpus=2)), stored_run(run_row(2, workload="cnn10"))])
    panels = {panel.title: panel for panel in comparison.panels}
    assert list(panels)[1:4] == [
        "Power, sum of a run's GPUs",
        "Load, mean of a run's GPUs",
        "Memory, sum of a run's GPUs",
    ]
    power, load, memory = list(panels.values())[1:4]
    assert [curve.y[5] for curve in power.curves] == [1200.0, 600.0]
    assert [curve.y[5] for curve in load.curves] == [90.0, 90.0]
    assert [curve.y[5] for curve in memory.curves] == [8.0, 4.0]


def test_cpu_and_gpu_runs_do_not_share_a_panel() -> None:
    comparison = compare([stored_run(run_row(1)), stored_run(run_row(2, workload="cnn10"))])
    keys = {panel.key: [curve.key for curve in panel.curves] for panel in comparison.panels}
    assert keys["gpu load_pct"] == ["2"]
    assert keys["cpu load_pct"] == ["1"]
    assert keys["throughput"] == ["1", "2"]


def test_a_run_that_never_measured_is_named_with_the_reason_and_starts_at_its_start() -> None:
    failed = stored_run(run_row(9, outcome="failed", reason="Out of luck.", throughput=None), measured=False)
    comparison = compare([stored_run(run_row(1)), failed])
    assert "Run 9 (failed) never reached its measured part. Out of luck." in comparison.notes
    load = next(panel for panel in comparison.panels if panel.key == "cpu load_pct")
    assert load.curves[1].x[0] == pytest.approx(0.0)


def test_only_differing_facts_of_the_environment_are_named_and_missing_ones_are_no_difference() -> None:
    runs = [
        stored_run(run_row(1), environment={"tensorflow": "2.21.0", "driver": "580"}),
        stored_run(run_row(2), environment={"tensorflow": "2.21.0", "driver": "575"}),
        stored_run(run_row(3), environment={"driver": "580"}),
    ]
    assert compare(runs).differences == "Environments differ: NVIDIA driver 575 (run 2), else 580."
    assert compare(runs[:2]).differences == "Environments differ: NVIDIA driver 580 (run 1), 575 (run 2)."
    assert compare(runs[::2]).differences == ""


def test_more_gpus_are_no_difference_of_the_environment_but_another_card_is() -> None:
    one = stored_run(run_row(1, workload="cnn10"), environment={"gpus_used": "A"})
    other = stored_run(run_row(2, workload="cnn10"), environment={"gpus_used": "B"})
    two = stored_run(run_row(3, workload="cnn10", gpus=2), environment={"gpus_used": "A, B"})
    assert compare([one, other]).differences == "Environments differ: GPUs used A (run 1), B (run 2)."
    assert compare([one, two]).differences == ""


def test_between_workloads_a_parameter_only_one_of_them_has_is_no_difference() -> None:
    rows = [run_row(1), run_row(2, layers=4), run_row(3, workload="cnn10", gpus=0, batch_size=32)]
    assert column(table(rows, 1), "Variant") == [
        "lstm · Standard · Layers 1",
        "lstm · Standard · Layers 4",
        "cnn10 · Native",
    ]


def test_a_run_that_is_not_what_its_name_says_is_told_above_the_table() -> None:
    rows = [run_row(1, found=AS_ASKED), run_row(2, layers=4, found=MISLABELLED, gflops=1870.0)]
    assert compare([stored_run(row) for row in rows]).mislabelled == (
        f"Run 2 did not run what was asked. {MISLABELLED.reason}"
    )
    assert compare([stored_run(row) for row in rows[:1]]).mislabelled == ""
    assert column(table(rows, 1), "As asked") == ["yes", "no"]
    assert column(table(rows, 1), "GFLOPS") == ["–", "1,870"]
    assert column(table(rows, 1), "Of peak") == ["–", "0.5"]


def test_nothing_chosen_is_an_empty_comparison() -> None:
    empty = compare([])
    assert (empty.rows, empty.panels, empty.notes) == ((), (), ())
