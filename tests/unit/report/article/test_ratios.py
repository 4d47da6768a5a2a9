"""Tables of ratios and of portability from made-up runs: articles A and B as their presets have them."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.cli.main import main
from app.report.article.tables import MeasuredTable, measured_tables
from app.runs.experiment.presets import load_preset
from app.values.plan import Plan
from app.values.records import PortabilityResult, StoredRun
from tests.fakes.experiments import result
from workloads.catalog import Gpu, Machine
from workloads.protocol import RunSpec

ONE = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name="NVIDIA H200", compute_capability=(9, 0)),))
UTC_NS = 1_760_000_000 * 10**9


def tables_of(name: str, plan: Plan, runs: Sequence[StoredRun]) -> tuple[MeasuredTable, ...]:
    article = load_preset(name).preset.article
    assert article is not None
    return measured_tables(article, plan, [run.header for run in runs])


def variant(plan: Plan, **settings: object) -> RunSpec:
    (found,) = (spec for spec in plan.variants if settings.items() <= spec.variant.items())
    return found


def computed(
    number: int, spec: RunSpec, gflops: float, gpu_ms: float | None = None, occupancy_pct: float | None = None
) -> StoredRun:
    """A run at this rate: 400 steps in the 10 s that made-up runs measure."""
    run = result(number, spec)
    summary = replace(
        run.row.summary,
        flops_per_step=int(gflops * 1e9 * 10.0 / 400),
        gpu_step_ms=gpu_ms,
        occupancy_pct=occupancy_pct,
    )
    return replace(run, row=replace(run.row, summary=summary))


@pytest.fixture(scope="module")
def ladder() -> MeasuredTable:
    plan = load_preset("article-a").plan(ONE)
    rungs = {
        "gemm8": variant(plan, implementation="gemm8", xla=False),
        "gemm2": variant(plan, implementation="gemm2", xla=False),
        "top": variant(plan, implementation="wavefront", xla=True),
    }
    named_card = RunSpec(workload="lstm", variant={**rungs["gemm2"].variant, "devices": "GPU-0"})
    runs = [
        *(computed(number, rungs["gemm8"], rate) for number, rate in enumerate((799.0, 801.0, 800.0), 1)),
        *(computed(number, named_card, rate) for number, rate in enumerate((1998.0, 2002.0, 2000.0), 4)),
        computed(7, rungs["top"], 40_000.0),
        result(8, variant(plan, implementation="fused", xla=True), outcome="out_of_memory"),
    ]
    table, drop_in, _ = tables_of("article-a", plan, runs)
    assert (table.document["title"], drop_in.document["title"]) == (
        "The ladder: forward pass",
        "cuDNN as a drop-in layer",
    )
    return table


def test_a_rung_stands_beside_the_article_s_figure_and_ratio(ladder: MeasuredTable) -> None:
    first, second, *_, last = ladder.document["rows"]
    assert [row["article"]["value"] for row in ladder.document["rows"]] == [
        *(349, 724, 994, 1942, None, 2199, 2290, 3898)
    ]
    assert second["article"]["ratio"] == [2.1, 2.1]
    plain, compiled = second["cells"]
    assert plain["runs"] == [4, 5, 6], "on a card that was named"
    assert plain["figure"]["value"] == pytest.approx(2000, rel=1e-5)
    assert plain["ratio"]["value"] == pytest.approx(2.5, rel=1e-5)
    low, high = plain["ratio"]["interval"]
    assert 2.4 < low < 2.5 < high < 2.6
    assert (compiled["outcome"], compiled["figure"]["value"], compiled["ratio"]["value"]) == (None, None, None)
    assert first["cells"][0]["ratio"] == {"value": 1.0, "interval": None}
    assert last["cells"][1]["ratio"]["value"] == pytest.approx(50, rel=1e-5), "over the first rung without XLA"


def test_a_baseline_whose_label_is_a_number_has_its_head_before_it() -> None:
    machine = Machine(
        gpus=tuple(
            Gpu(index=number, uuid=f"GPU-{number}", name="NVIDIA H200", compute_capability=(9, 0))
            for number in range(2)
        )
    )
    plan = load_preset("frameworks").plan(machine)
    *_, table = tables_of("frameworks", plan, [])
    assert table.document["baseline"] == "GPUs 1"


def test_it_says_so_in_words(ladder: MeasuredTable) -> None:
    section = ladder.section
    (shown,) = section.tables
    assert shown.caption.startswith(
        "Speed-ups are relative to “8 separate GEMMs”; the 95\xa0% CIs of a measured column hold together"
    )
    assert shown.head == (
        "Rung",
        *("Article: GFLOPS", "Article: speed-up"),
        *("Measured: GFLOPS", "Measured: speed-up"),
        *("Measured, XLA: GFLOPS", "Measured, XLA: speed-up"),
    )
    assert shown.rows[0] == ("8 separate GEMMs", "349", "1×", "800.0", "1×", "–", "–")
    assert shown.rows[2] == ("fused gates", "1,942", "5.5×", "–", "–", "out of memory", "–")
    assert shown.rows[3][1:] == ("3,898", "11.1×", "–", "–", "40,000", "50.0×")
    assert section.lines[-1].startswith("The article: Faster LSTM in Keras")


def test_gpu_time_and_occupancy_stand_beside_the_clock() -> None:
    """A step of 25 ms on four layers computes four times as much: its ratio is of operations by GPU time."""
    plan = load_preset("article-a").plan(ONE)
    first = variant(plan, implementation="gemm8", xla=False)
    fused = variant(plan, implementation="fused", xla=False)
    top = variant(plan, implementation="wavefront", xla=False)
    runs = [
        *(computed(number, first, 1000.0, gpu_ms) for number, gpu_ms in enumerate((5.9, 6.1, 6.0), 1)),
        *(computed(number, fused, 1000.0, gpu_ms, 12.5) for number, gpu_ms in enumerate((1.49, 1.51, 1.5), 4)),
        computed(7, top, 4000.0, 3.0),
    ]
    table, *_ = tables_of("article-a", plan, runs)
    rows = table.document["rows"]
    time, occupancy, traffic = rows[3]["cells"][0]["also"]
    assert (time["figure"], time["unit"], time["value"]["value"]) == (
        "gpu_ms",
        "GPU ms per step",
        pytest.approx(1.5, rel=1e-4),
    )
    low, high = time["ratio"]["interval"]
    assert 3 < low < time["ratio"]["value"] < high < 5
    assert time["ratio"]["value"] == pytest.approx(4.0, rel=1e-3)
    assert rows[3]["cells"][0]["ratio"]["value"] == pytest.approx(1.0), "by the clock nothing is gained"
    assert rows[7]["cells"][0]["also"][0]["ratio"]["value"] == pytest.approx(8.0, rel=1e-3)
    assert (occupancy["unit"], occupancy["ratio"]["value"]) == ("occupancy, %", None)
    assert occupancy["value"]["value"] == pytest.approx(12.5)
    (plain,) = table.section.tables
    assert plain.head[3:] == (
        *("Measured: GFLOPS", "Measured: speed-up", "Measured: GPU ms per step", "Measured: speed-up by GPU time"),
        "Measured: occupancy, %",
    )
    assert [(row[5], row[7]) for row in plain.rows] == [("6.00", "–"), ("1.50", "12.5"), ("3.00", "–")]
    assert traffic["value"]["value"] is None, "without the runs' telemetry"


def test_memory_traffic_stands_beside_a_rung_that_has_the_load_of_its_memory() -> None:
    """25 % of an H200's 4.8 TB/s, for a step of 64 ms."""
    plan = load_preset("article-a").plan(ONE)
    run = result(1, variant(plan, implementation="gemm8", xla=False))
    busy = tuple(
        replace(columns, slow_t_ns=columns.t_ns, slow={"dram_active_pct": np.full(columns.t_ns.size, 25.0)})
        for columns in run.samples
    )
    article = load_preset("article-a").preset.article
    assert article is not None
    table, *_ = measured_tables(article, plan, [run.header], {1: replace(run, samples=busy)}.__getitem__)
    traffic = table.document["rows"][0]["cells"][0]["also"][-1]
    assert traffic["unit"] == "memory traffic, MB per step"
    assert traffic["value"]["value"] == pytest.approx(0.25 * 4.8e12 * 0.064 / 1e6)


def test_of_several_tables_each_names_what_it_has() -> None:
    plan = load_preset("article-a").plan(ONE)
    both = (variant(plan, implementation="gemm8", xla=xla) for xla in (False, True))
    table, *_ = tables_of("article-a", plan, [computed(n, each, 1000.0, 6.0) for n, each in enumerate(both, 1)])
    plain, compiled = table.section.tables
    assert plain.head[:3] == compiled.head[:3]
    assert compiled.caption == f"{plain.caption} (XLA)"


def test_where_there_is_no_gpu_a_table_of_nothing_is_left_out() -> None:
    plan = load_preset("article-a").plan(Machine(cpu_count=2))
    table, _ = tables_of("article-a", plan, [])
    assert table.document["title"] == "The ladder: forward pass"
    assert table.document["columns"] == ["", "XLA"]


@pytest.fixture(scope="module")
def training() -> tuple[MeasuredTable, ...]:
    plan = load_preset("article-b").plan(ONE)
    names = {"standard": 1000.0, "cudnn": 8000.0, "block_fused": 2500.0}
    runs = [
        result(number, variant(plan, implementation=name, layers=4, bidirectional=True), rate)
        for number, (name, rate) in enumerate(names.items(), 1)
    ]
    trial = PortabilityResult(
        utc_ns=UTC_NS,
        implementation="standard",
        device="cpu",
        device_name="A processor",
        precision="float32",
        max_difference=1.2e-7,
        max_output=1.18,
    )
    elsewhere = replace(trial, implementation="block_fused", device="GPU-0")
    weights = replace(
        result(9, plan.weight_transfers[0].spec), portability=(replace(trial, max_output=9.0), trial, elsewhere)
    )
    return tables_of("article-b", plan, [*runs, weights])


def test_each_column_has_its_own_baseline(training: tuple[MeasuredTable, ...]) -> None:
    document = training[0].document
    rows = document["rows"]
    assert document["columns"][-1] == "4 layers, both directions"
    assert [row["cells"][3]["ratio"]["value"] for row in rows] == pytest.approx([1, 8, None, 2.5, None])
    assert rows[1]["cells"][3]["figure"]["value"] == pytest.approx(8.0), "64 sequences at 8,000 a second"
    assert [row["cells"][0]["ratio"]["value"] for row in rows] == [None] * 5
    (shown,) = training[0].section.tables
    assert [row[1] for row in shown.rows] == ["1×", "6–8×", "2.5–3×"]
    assert shown.head[2:] == ("Measured: ms per step", "Measured: speed-up"), "nothing was measured of the others"
    assert shown.caption.endswith(" (4 layers, both directions)"), "the label of a single column stands above it"
    assert shown.rows[1][2:] == ("8.000", "8.00×")


def test_weights_tried_on_the_cpu_are_in_the_article_s_table(training: tuple[MeasuredTable, ...]) -> None:
    plain, cell, fused = training[-1].document["rows"]
    assert (plain["run"], plain["device_name"], plain["max_difference"]) == (9, "A processor", 1.2e-7)
    assert plain["max_output"] == 1.18, "of the newest trial"
    assert fused["max_difference"] is None, "tried on a GPU, and the CPU is what was asked for"
    assert cell["max_difference"] is None, "not tried yet"
    (shown,) = training[-1].section.tables
    assert [row[1:] for row in shown.rows] == [("Standard", "A processor", "1.2e-07", "1.18")]
    assert shown.numeric == {3, 4}


def test_what_was_measured_on_h200s_counts_for_the_presets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = tmp_path / "lstm.db"
    shutil.copyfile(Path(__file__).parents[2] / "storage" / "older.db", database)
    assert main(["experiment", "--preset", "article-a", "--show", "--json", "--db", str(database)]) == 0
    ladder, drop_in, _ = json.loads(capsys.readouterr().out)["article"]
    rates = [row["cells"][0]["figure"]["value"] for row in ladder["rows"]]
    assert rates.pop(4) is None, "the rung that is newer than these runs"
    assert all(rate > 500 for rate in rates), "GFLOPS of every other rung"
    assert drop_in["rows"][1]["cells"][2]["ratio"]["value"] > 6, "cuDNN over the plain layer, training"
    assert main(["experiment", "--preset", "article-b", "--show", "--json", "--db", str(database)]) == 0
    training, gru, _ = json.loads(capsys.readouterr().out)["article"]
    assert [row["cells"][0]["runs"] for row in training["rows"]] == [[2], [1], [4], [5], []]
    assert [row["cells"][0]["runs"] for row in gru["rows"]] == [[]] * 3, "newer than these runs"


def test_power_and_both_memory_figures_answer_what_a_log_shows() -> None:
    """The layout's ratio is of power; memory that the framework took is no memory that the run needed."""
    plan = load_preset("article-c-log").plan(ONE)

    def logged(number: int, power_w: float, used_gib: float, **settings: object) -> StoredRun:
        run = result(number, variant(plan, **settings))
        summary = replace(run.row.summary, mean_power_mw=1e3 * power_w, device_peak_bytes=int(used_gib * 2**30))
        summary = replace(summary, allocator_peak_bytes=6 << 30)
        return replace(run, row=replace(run.row, summary=summary))

    runs = [
        *(
            logged(number, watts, 132.0, layout="NHWC", memory_growth=False)
            for number, watts in ((1, 499.0), (2, 501.0))
        ),
        *(
            logged(number, watts, 132.0, layout="NCHW", memory_growth=False)
            for number, watts in ((3, 549.0), (4, 551.0))
        ),
        logged(5, 550.0, 14.5, layout="NCHW", memory_growth=True),
    ]
    (table,) = tables_of("article-c-log", plan, runs)
    power, used, needed = table.document["rows"][1]["cells"][0]["also"]
    assert power["ratio"]["value"] == pytest.approx(1.1, rel=1e-3)
    assert (used["value"]["value"], needed["value"]["value"]) == (pytest.approx(132.0), 6.0)
    assert table.document["rows"][3]["cells"][0]["also"][1]["value"]["value"] == 14.5
    (shown,) = table.section.tables
    assert shown.head[-4:] == (
        *("Measured: mean power, W", "Measured: power, ratio"),
        *("Measured: memory used, GiB", "Measured: memory needed, GiB"),
    )
    assert [row[-2:] for row in shown.rows] == [("132", "6.00"), ("132", "6.00"), ("14.5", "6.00")]
