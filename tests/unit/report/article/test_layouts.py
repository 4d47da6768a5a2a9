"""The article's table from made-up runs: what each cell, gain and ratio says, in numbers and in words."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from app.cli.main import main
from app.report.article.tables import MeasuredTable, measured_tables, sections_with_runs
from app.runs.experiment.presets import load_preset, replicated_articles
from app.storage.store import Store
from app.values.records import StoredRun
from tests.fakes.experiments import result
from tests.fakes.reference import load_reference, runs_with
from tests.unit.viewmodels.stored import keep
from workloads.catalog import Gpu, Machine
from workloads.protocol import RunSpec, Value

TWO = Machine(
    gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", compute_capability=(9, 0)) for n in range(2))
)
ONE = Machine(gpus=TWO.gpus[:1])
NAMED = load_preset("article-c")
PLAN = NAMED.plan(TWO)


def spec(workload: str, batch: int, gpus: int, layout: str) -> RunSpec:
    place = {"batch_size": batch, "gpus": gpus, "layout": layout}
    return next(s for s in PLAN.variants if s.workload == workload and place.items() <= s.variant.items())


def runs() -> Iterator[StoredRun]:
    """The 10-layer network at batch 128 in all four ways, one mislabelled; at 2048 two that end otherwise."""
    variants = ((1, "NHWC", 2000.0), (1, "NCHW", 2200.0), (2, "NHWC", 1600.0), (2, "NCHW", 1980.0))
    for number, (gpus, layout, rate) in enumerate(variants, 1):
        for turn, luck in enumerate((0.999, 1.001, 1.0)):
            wrong = (gpus, layout) == (2, "NHWC") and turn == 1
            yield result(3 * number + turn, spec("cnn10", 128, gpus, layout), rate * luck, match=not wrong)
    yield result(20, spec("cnn10", 2048, 1, "NHWC"), outcome="out_of_memory")
    yield result(21, spec("cnn10", 2048, 2, "NHWC"), outcome="refused")
    yield result(22, spec("cnn10", 2048, 2, "NCHW"), 4900.0)


@pytest.fixture(scope="module")
def measured() -> tuple[MeasuredTable, ...]:
    assert NAMED.preset.article is not None
    return measured_tables(NAMED.preset.article, PLAN, [run.header for run in runs()])


@pytest.fixture(scope="module")
def tables(measured: tuple[MeasuredTable, ...]) -> list[Mapping[str, Any]]:
    return [table.document for table in measured]


def words(table: MeasuredTable, which: int) -> list[tuple[str, ...]]:
    """The head and rows of one of a section's tables."""
    shown = table.section.tables[which]
    return [shown.head, *shown.rows]


def test_a_table_a_workload_with_a_row_a_batch(tables: list[Mapping[str, Any]]) -> None:
    assert [table["workload"] for table in tables] == ["cnn10", "wrn28-10"]
    for table in tables:
        of_tf32 = [row["batch_size"] for row in table["rows"] if row["variant"].endswith("TF32")]
        assert of_tf32 == [128, 256, 512, 1024, 2048]
    assert {cell["outcome"] for row in tables[1]["rows"] for cell in row["cells"]} == {None}


def test_precisions_implementations_and_poolings_have_rows_of_their_own(tables: list[Mapping[str, Any]]) -> None:
    """Those that no run is of are left out where there are runs."""
    assert NAMED.preset.article is not None
    assert {row["variant"] for row in tables[0]["rows"]} == {"TensorFlow · Native · TF32"}
    of_float32 = next(
        each for each in PLAN.variants if (each.workload, each.variant["precision"]) == ("cnn10", "float32")
    )
    table, _ = measured_tables(NAMED.preset.article, PLAN, [result(1, of_float32, 1e3).header])
    assert [row["variant"] for row in table.document["rows"]] == ["TensorFlow · Native · float32"] * 5
    unmeasured = measured_tables(NAMED.preset.article, PLAN, [])
    small, wide = ([(row["variant"], row["batch_size"]) for row in table.document["rows"][5:]] for table in unmeasured)
    assert small[:5] == [("TensorFlow · Native · float32", batch) for batch in (128, 256, 512, 1024, 2048)]
    assert small[5:] == [
        ("TensorFlow · Keras · TF32", 1024),
        ("TensorFlow · Keras · Bias on · float32", 1024),
        ("TensorFlow · Native · Maximum pooling · TF32", 1024),
        ("TensorFlow · Native · Strided convolution · TF32", 1024),
        ("PyTorch · Native · TF32", 128),
        ("PyTorch · Native · float32", 128),
        ("PyTorch · Native · TF32 · DataParallel", 128),
        ("PyTorch · Native · float32 · DataParallel", 128),
    ]
    assert wide == [("float32", 128)]


def test_two_gpus_of_dataparallel_are_compared_with_one_that_exchanges_nothing() -> None:
    assert NAMED.preset.article is not None
    pytorch = [
        spec for spec in PLAN.variants if (spec.variant["framework"], spec.variant["precision"]) == ("pytorch", "tf32")
    ]
    rates: dict[tuple[Value, Value], float] = {(1, "nccl"): 2000.0, (2, "nccl"): 1300.0, (2, "data_parallel"): 140.0}
    chosen = [spec for spec in pytorch if spec.variant["layout"] == "NCHW"]
    results = [
        result(3 * number + turn, spec, rates[spec.variant["gpus"], spec.variant["all_reduce"]]).header
        for number, spec in enumerate(chosen, 1)
        for turn in range(3)
    ]
    table, _ = measured_tables(NAMED.preset.article, PLAN, results)
    scaling = {row["variant"]: row["scaling"][1] for row in table.document["rows"]}
    assert {name: (spec["layout"], round(spec["value"], 3)) for name, spec in scaling.items()} == {
        "PyTorch · Native · TF32": ("NCHW", 0.65),
        "PyTorch · Native · TF32 · DataParallel": ("NCHW", 0.07),
    }


def test_gain_scaling_and_epoch_are_of_the_throughput(tables: list[Mapping[str, Any]]) -> None:
    row = tables[0]["rows"][0]
    assert [cell["throughput"]["value"] for cell in row["cells"]] == pytest.approx([2000, 2200, 1600, 1980], rel=1e-5)
    assert [cell["epoch_s"] for cell in row["cells"]] == pytest.approx([25, 22.7273, 31.25, 25.2525], rel=1e-4)
    assert [gain["value"] for gain in row["gains"]] == pytest.approx([1.1, 1980 / 1600])
    assert [ratio["value"] for ratio in row["scaling"]] == pytest.approx([0.8, 0.9])
    low, high = row["gains"][0]["interval"]
    assert 1.09 < low < 1.1 < high < 1.11
    assert [cell["match"] for cell in row["cells"]] == [True, True, False, True]


def test_words_stand_where_there_is_no_figure(measured: tuple[MeasuredTable, ...]) -> None:
    header, *rows = [row[1:] for row in words(measured[0], 0) if row[0] in ("Variant", "TensorFlow · Native · TF32")]
    first, *_, last = rows
    assert header == (
        "Batch size",
        *("1 GPU NHWC: images/s", "1 GPU NCHW: images/s", "1 GPU: NCHW gain"),
        *("2 GPUs NHWC: images/s", "2 GPUs NCHW: images/s", "2 GPUs: NCHW gain"),
        *("NHWC: 2 GPUs over 1", "NCHW: 2 GPUs over 1"),
    )
    assert first[:3] == ("128", "2,000", "2,200")
    assert first[3].startswith("+10.0\xa0% (+9")
    assert (first[4], first[5]) == ("1,600 ✘", "1,980")
    assert first[7].startswith("−20.0\xa0% (−20.")
    assert last == ("2,048", "out of memory", "–", "–", "refused", "4,900", "–", "–", "–")
    assert words(measured[0], 1)[2][1:] == ("2,048", "out of memory", "–", "refused", "10.2")


def test_a_loss_has_a_minus_of_the_width_of_a_plus() -> None:
    slower = [
        result(n, spec("cnn10", 128, 1, layout), rate) for n, layout, rate in ((1, "NHWC", 1e3), (2, "NCHW", 979.0))
    ]
    assert NAMED.preset.article is not None
    table, *_ = measured_tables(NAMED.preset.article, PLAN, [run.header for run in slower])
    assert words(table, 0)[1][4] == "\N{MINUS SIGN}2.1\xa0%"


def test_of_what_no_run_measures_there_is_a_line_and_no_dash(measured: tuple[MeasuredTable, ...]) -> None:
    """Rows, columns, tables of a section, and whole sections."""
    small, wide = (table.section for table in measured)
    assert [row[1] for row in small.tables[0].rows] == ["128", "2,048"]
    assert (wide.title, wide.tables, wide.lines) == ("wrn28-10: nothing measured", (), ())
    assert NAMED.preset.article is not None
    pair = [result(n, spec("cnn10", 512, 2, layout)).header for n, layout in enumerate(("NHWC", "NCHW"), 1)]
    rates, epochs = measured_tables(NAMED.preset.article, PLAN, pair)[0].section.tables
    assert rates.head == (
        *("Variant", "Batch size"),
        *("2 GPUs NHWC: images/s", "2 GPUs NCHW: images/s", "2 GPUs: NCHW gain"),
    )
    assert (len(rates.rows), len(epochs.rows), len(epochs.head)) == (1, 1, 4)


def test_beside_it_stands_what_the_article_says() -> None:
    both = [result(n, spec(name, 128, 1, "NCHW")).header for n, name in enumerate(("cnn10", "wrn28-10"), 1)]
    assert NAMED.preset.article is not None
    small, wide = (table.section.lines for table in measured_tables(NAMED.preset.article, PLAN, both))
    assert "The article, NCHW gain: just under 10 % faster, on one GPU and on two." in small
    assert "The article, NCHW gain: just under 5 % faster." in wide
    assert "The article, out of memory: batch 256 on 1 GPU." in wide
    dominated = "where convolutions dominate, as in networks with many coefficients, channels first brings little"
    assert f"The article, why it gains less: {dominated}." in wide
    assert not [line for line in small if "convolution" in line], "it gives no reason for the gain"
    assert "The article, 2 GPUs over 1: similar to the 10-layer network, without a figure." in wide
    assert small[-1].endswith("(note.com, 2019). It measured on 2x RTX 2080 Ti.")


def test_advice_is_confirmed_or_refuted_by_the_interval_of_its_row() -> None:
    """NVIDIA's is about tensor cores, TensorFlow's about all; without an interval or a GPU, neither is judged."""
    named = load_preset("layout-advice")
    assert named.preset.article is not None
    plan = named.plan(ONE)
    gains = {"float16": (0.8, 3), "bfloat16": (1.2, 3), "tf32": (1.0, 3), "float32": (1.3, 1)}
    runs = [
        result(number, variant, 1000.0 * (gain if variant.variant["layout"] == "NCHW" else 1) * (1 + turn / 1000))
        for number, (variant, gain, turn) in enumerate(
            (variant, gain, turn)
            for variant in plan.variants
            if variant.workload == "cnn10"
            for gain, turns in [gains[str(variant.variant["precision"])]]
            for turn in range(turns)
        )
    ]
    table, _ = measured_tables(named.preset.article, plan, [run.header for run in runs])
    head, *rows = words(table, 0)
    assert head[4:] == ("1 GPU: NCHW gain", "1 GPU: NVIDIA says NHWC", "1 GPU: TensorFlow says NCHW")
    assert {row[0]: row[5:] for row in rows} == {
        "float16": ("confirmed", "refuted"),
        "bfloat16": ("refuted", "confirmed"),
        "TF32": ("no difference seen", "no difference seen"),
        "float32": ("–", "one run each"),
    }
    assert table.document["rows"][0]["advice"] == [
        {"gpus": 1, "by": "NVIDIA", "layout": "NHWC", "verdict": "confirmed"},
        {"gpus": 1, "by": "TensorFlow", "layout": "NCHW", "verdict": "refuted"},
    ]
    cpu = named.plan(Machine())
    made = [result(number, variant, 1e3) for number, variant in enumerate(cpu.variants * 2)]
    for each in measured_tables(named.preset.article, cpu, [run.header for run in made]):
        assert [row["advice"] for row in each.document["rows"]] == [[]]
        assert words(each, 0)[0][-1] == "CPU: NCHW gain"


def test_below_a_table_stands_why_its_layouts_differ(tmp_path: Path) -> None:
    """At one batch size: of the reference runs that is average pooling. Runs without kernels have no such sentence."""
    reference = load_reference(tmp_path)
    pair = [runs_with(reference, "cnn10", batch_size=1024, layout=layout) for layout in ("NHWC", "NCHW")]
    small = runs_with(reference, "cnn10", batch_size=128, layout="NHWC", gpus=1)
    articles = replicated_articles([*pair[0], *pair[1], *small])
    (section,) = sections_with_runs(next(each for each in articles if each.plan.preset == "article-c"))
    (reason,) = section.reasons
    words = reason.replace("\N{NO-BREAK SPACE}", " ")
    assert words.startswith("TensorFlow · Native · TF32, batch 1,024: NCHW takes 1.70 ms less per step than NHWC (")
    assert "77 % is in pooling" in words
    assert section.lines[0] == reason


def test_stored_runs_are_shown_on_a_machine_without_a_gpu(
    database_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(database_path) as store:
        for run in runs():
            keep(store, run)
    report = tmp_path / "table.md"
    shown = ["experiment", "--preset", "article-c", "--show", "--db", str(database_path)]
    assert main([*shown, "--report", str(report)]) == 0
    out, err = capsys.readouterr()
    assert "Measured images/s; gains and ratios are comparisons of their own, each with a 95\xa0% CI:" in out
    wrong = "did not run what was requested. TensorFlow's layout optimizer turned NHWC into NCHW."
    assert wrong in out
    done, written = err.splitlines()
    assert done.startswith(
        "15 of 230 runs done. Without --show and with --reuse the same command goes on from here. 3 repeats can show "
    )
    assert written == f"Written to {report}."
    text = report.read_text(encoding="utf-8")
    assert text.count("| Variant | Batch size |") == 2
    assert "| TensorFlow · Native · TF32 | 2,048 | out of memory | – | – | refused | 4,900 | – | – | – |" in text
    page = tmp_path / "page.html"
    assert main([*shown, "--report", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.count(">Batch size</th>") == 2
    assert "It measured on 2x RTX 2080 Ti." in text
    assert "Throughput against batch size" in text, "the pictures of every comparison too"


def test_where_nothing_is_stored_that_is_said(database_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store.open(database_path).close()
    assert main(["experiment", "--preset", "quick", "--show", "--db", str(database_path)]) == 1
    assert capsys.readouterr() == ("", "No run of “Quick comparison” is stored; without --show it makes them.\n")
