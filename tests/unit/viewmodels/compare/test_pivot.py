"""Pivots of the reference runs and of made-up ones: the effects' own ratios in cells, and what has none."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.report.comparison import compare_document
from app.runs.experiment.presets import load_preset, preset_names, publications
from app.storage.store import Store
from app.values.records import StoredRun
from app.viewmodels.compare.comparison import COMPARED_FIELDS, Comparison, compare, prepare_comparison
from app.viewmodels.compare.pivot import Pivot, make_pivot, make_pivots, pivot_table
from app.viewmodels.format.ratios import format_interval, format_ratio
from tests.fakes.experiments import result
from tests.fakes.reference import copy_reference, runs_with
from workloads.catalog import UsageError
from workloads.protocol import RunSpec, Value

PLAN = load_preset("article-c").all_plans()[0]
FASTER = 1.1


def compared(runs: Sequence[StoredRun]) -> Comparison:
    """The runs against the first one's variant."""
    return compare(prepare_comparison(runs), runs[0].row.run)


def spec(batch: int, gpus: int, layout: str, **settings: Value) -> RunSpec:
    place = {"batch_size": batch, "gpus": gpus, "layout": layout, "precision": "tf32", **settings}
    return next(one for one in PLAN.variants if one.workload == "cnn10" and place.items() <= one.variant.items())


def grid(*specs: RunSpec, repeats: int = 3, **outcome: Any) -> list[StoredRun]:
    """Runs of these variants, NCHW faster by a tenth, with a thousandth of noise."""
    rates = [1000 * FASTER ** (one.variant["layout"] == "NCHW") * int(one.variant["gpus"]) for one in specs]
    return [
        result(10 * number + turn, one, rate * (1 + turn / 1000), **outcome)
        for number, (one, rate) in enumerate(zip(specs, rates, strict=True), 1)
        for turn in range(repeats)
    ]


def pivot_of(runs: Sequence[StoredRun], asked: str = "", rows: str = "", columns: str = "") -> Pivot:
    pivot = make_pivot(compared(runs), asked, rows, columns)
    assert pivot is not None
    return pivot


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    database = tmp_path_factory.mktemp("reference") / "cnn.db"
    copy_reference("cnn", database)
    with Store.open(database) as store:
        runs = [store.load(row.run, COMPARED_FIELDS) for row in reversed(store.list_runs())]
    chosen = [*runs_with(runs, "cnn10"), *runs_with(runs, "cnn10", gpus=2), *runs_with(runs, "wrn28-10")]
    native = [run for run in chosen if run.row.spec.variant["implementation"] == "native"]
    return compared(sorted(native, key=lambda run: run.row.spec.variant["layout"] != "NHWC"))


def test_the_layout_s_cells_have_the_effects_own_ratios(reference: Comparison) -> None:
    """Of the baseline's workload; those of the other are of an effect of its own."""
    pivot = make_pivot(reference, "layout")
    assert pivot is not None
    (effect,) = (effect for effect in reference.verdict.effects if effect.parameter == "layout")
    ratios = {(pair.before[0].run, pair.after[0].run): pair.ratio for pair in effect.pairs}
    cells = [cell for cell in pivot.cells if cell.spec.workload == "cnn10" and cell.ratio]
    assert len(cells) == len(ratios) >= 8
    for cell in cells:
        assert cell.before is not None
        assert cell.after is not None
        assert cell.ratio is ratios[cell.before.result.runs[0].run, cell.after.result.runs[0].run]
    assert {cell.spec.workload for cell in pivot.cells} == {"cnn10", "wrn28-10"}
    assert (pivot.rows_by, pivot.columns_by) == (("batch_size",), "gpus"), "the two with most values"


def test_the_numbers_of_the_document_are_those_of_the_text(reference: Comparison) -> None:
    pivot = make_pivot(reference, "layout")
    assert pivot is not None
    (document,) = compare_document(reference, [pivot])["pivot"]
    table = pivot_table(pivot)
    assert table.head == ("Variant", "Batch size", "1 GPU", "images/s", "2 GPUs", "images/s")
    assert [row[1] for row in table.rows][:5] == ["128", "256", "512", "1024", "2048"]
    texts = {(row[0], row[1], gpus): row[2 * gpus : 2 * gpus + 2] for row in table.rows for gpus in (1, 2)}
    for cell in document["cells"]:
        settings = cell["settings"]
        assert settings["layout"] == "NCHW"
        effect, figures = texts[cell["workload"], str(settings["batch_size"]), settings["gpus"]]
        assert format_ratio(cell["ratio"]) in effect or cell["ratio"] is None
        if cell["interval"]:
            assert format_interval(tuple(cell["interval"]), cell["ratio"]) in effect
        else:
            assert cell["state"] == effect.replace(" ", "_")
        rates = [number for side in ("before", "after") if (number := cell[side]["figure"]) is not None]
        shown = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", figures)]
        assert shown == list(map(round, rates))
    assert [text for text in _texts(document) if " " in text] == [], "keys and numbers"


def _texts(document: Any) -> list[str]:
    if isinstance(document, dict | list):
        inner = document.values() if isinstance(document, dict) else document
        return [text for value in inner for text in _texts(value)]
    return [document] if isinstance(document, str) else []


def test_a_cell_without_a_ratio_says_why_in_a_word() -> None:
    lacking, refused = (spec(2048, 1, layout) for layout in ("NHWC", "NCHW"))
    runs = grid(*(spec(batch, 1, layout) for batch in (128, 256) for layout in ("NHWC", "NCHW")), spec(128, 2, "NHWC"))
    once = grid(spec(256, 2, "NHWC"), spec(256, 2, "NCHW"), repeats=1)
    memory = [result(901, lacking, 500.0), result(902, refused, outcome="out_of_memory")]
    numbered = [result(1000 + n, run.row.spec, run.row.summary.throughput) for n, run in enumerate(once)]
    pivot = pivot_of([*runs, *numbered, *memory], "layout", "batch_size", "gpus")
    states = {(cell.spec.variant["batch_size"], cell.spec.variant["gpus"]): cell.state for cell in pivot.cells}
    assert [states.get((batch, gpus)) for batch in (128, 256, 2048) for gpus in (1, 2)] == [
        *("", "no_run"),
        *("", "one_run"),
        *("out_of_memory", None),
    ]
    texts = pivot_table(pivot).rows
    assert texts[0][3] == "no run"
    assert texts[0][4] == "2,002 → –", "what there is of it"
    assert texts[1][3] == "one run", "others have an interval"
    assert texts[2][1] == "out of memory"


def test_single_runs_have_a_ratio_without_an_interval() -> None:
    table = pivot_table(pivot_of(grid(spec(128, 1, "NHWC"), spec(128, 1, "NCHW"), repeats=1)))
    assert table.rows == (("NCHW", "+10.0\N{NO-BREAK SPACE}% (one run)", "1,000 → 1,100"),)


def test_two_variants_are_one_cell_with_the_speed_up_of_the_table() -> None:
    comparison = compared(grid(spec(128, 1, "NHWC"), spec(128, 1, "NCHW")))
    pivot = make_pivot(comparison)
    assert pivot is not None
    assert (pivot.asked, pivot.rows_by, pivot.columns_by, pivot.axes) == ("layout", ("layout",), "", ("layout",))
    (cell,) = pivot.cells
    assert cell.ratio == comparison.verdict.results[1].speedup
    assert make_pivot(compared(grid(spec(128, 1, "NHWC")))) is None


@pytest.mark.parametrize(("fast", "unit"), [(1.99, "%"), (2.0, "×")])
def test_a_column_has_one_unit(fast: float, unit: str) -> None:
    rates = {(128, "NHWC"): 1000.0, (128, "NCHW"): 1100.0, (256, "NHWC"): 1000.0, (256, "NCHW"): 1000.0 * fast}
    runs = [result(n, spec(batch, 1, layout), rate) for n, ((batch, layout), rate) in enumerate(rates.items(), 1)]
    assert [unit in row[1] for row in pivot_table(pivot_of(runs, "layout")).rows] == [True, True]


def test_one_other_setting_makes_one_column() -> None:
    pivot = pivot_of(grid(*(spec(batch, 1, layout) for batch in (128, 256) for layout in ("NHWC", "NCHW"))), "layout")
    assert (pivot.rows_by, pivot.columns_by) == (("batch_size",), "")
    assert pivot_table(pivot).head == ("Batch size", "Change", "images/s")


def test_a_setting_of_several_values_has_a_row_for_each_and_can_be_the_columns() -> None:
    runs = grid(*(spec(batch, 1, layout) for batch in (128, 256, 512) for layout in ("NHWC", "NCHW")))
    pivot = pivot_of(runs, "batch_size")
    assert (pivot.before, pivot.rows_by, pivot.columns_by) == (128, ("batch_size",), "layout")
    assert [row[0] for row in pivot_table(pivot).rows] == ["256", "512"]
    assert pivot_table(pivot).head == ("Batch size", "NHWC", "images/s", "NCHW", "images/s")
    turned = pivot_of(runs, "batch_size", "layout", "batch_size")
    assert pivot_table(turned).head == ("Layout", "Batch size 256", "images/s", "Batch size 512", "images/s")
    assert [cell.ratio for cell in turned.cells] == [cell.ratio for cell in pivot.cells]
    both = pivot_of([*runs, *grid_of_two_gpus()], "batch_size", "gpus", "layout")
    assert both.rows_by == ("batch_size", "gpus")


def test_all_cells_have_factors_as_soon_as_one_needs_them() -> None:
    specs = [spec(batch, 1, layout) for batch in (128, 256) for layout in ("NHWC", "NCHW")]
    for rate, signs in ((1900.0, "%%"), (2100.0, "××")):
        runs = [*grid(*specs[:3]), *(result(100 + turn, specs[3], rate + turn) for turn in range(3))]
        effects = [row[1] for row in pivot_table(pivot_of(runs, "layout")).rows]
        assert all(sign in effect for effect, sign in zip(effects, signs, strict=True)), effects


def grid_of_two_gpus() -> list[StoredRun]:
    runs = grid(*(spec(batch, 2, layout) for batch in (128, 256, 512) for layout in ("NHWC", "NCHW")))
    return [result(500 + n, run.row.spec, run.row.summary.throughput) for n, run in enumerate(runs)]


def test_what_cannot_be_asked_is_told_with_what_can() -> None:
    comparison = compared(grid(*(spec(batch, 1, layout) for batch in (128, 256) for layout in ("NHWC", "NCHW"))))
    with pytest.raises(UsageError, match=r"in xla alone\. Ask about layout, batch_size"):
        make_pivot(comparison, "xla")
    with pytest.raises(UsageError, match="can be two of batch_size, not gpus"):
        make_pivot(comparison, "layout", "gpus")
    with pytest.raises(UsageError, match="not batch_size"):
        make_pivot(comparison, "layout", "batch_size", "batch_size")


def test_runs_that_were_not_what_was_requested_are_marked() -> None:
    runs = grid(spec(128, 1, "NHWC")) + [
        result(100 + n, spec(128, 1, "NCHW"), 1100.0 + n, match=bool(n)) for n in range(3)
    ]
    assert pivot_table(pivot_of(runs)).rows[0][2].endswith(" ✘")


def test_published_figures_stand_beside_the_rows_that_they_are_of() -> None:
    named = load_preset("article-a")
    ladder = [one for one in named.all_plans()[0].variants if one.variant["mode"] == "inference"]
    runs = [result(3 * n + turn, one, 100.0 + n + turn / 10) for n, one in enumerate(ladder, 1) for turn in range(3)]
    comparison = compared(runs)
    ladder_pivot, steps = make_pivots(comparison, publications(ladder, ["article-a"]))
    assert (ladder_pivot.asked, ladder_pivot.before, ladder_pivot.figure) == ("implementation", "gemm8", "gflops")
    table = pivot_table(ladder_pivot)
    assert table.head[-1] == "Article"
    article = {row[1]: row[-1] for row in table.rows}
    assert article["2 GEMMs"] == "349 → 724, 2.1×"
    assert article["Wavefront"] == "349 → 3,898, 11.1×", "though no variant has four layers before it"
    assert article["Transposed"] == ""
    document = compare_document(comparison, [ladder_pivot, steps])["pivot"]
    published = [one for cell in document[0]["cells"] for one in cell["article"]]
    assert {"before": 349.0, "after": 724.0, "ratio": [2.1, 2.1]} in published
    assert steps.asked == "input_steps"
    assert [source.startswith("The article: Faster LSTM in Keras") for source in ladder_pivot.sources] == [True]


def test_publications_are_those_of_which_two_variants_were_measured(tmp_path: Path) -> None:
    nhwc, nchw = spec(128, 1, "NHWC"), spec(128, 1, "NCHW")

    def titles(*specs: RunSpec) -> list[str]:
        names = [*preset_names(), str(tmp_path / "none.toml")]
        return [one.article.title.partition(" ")[0] for one in publications(specs, names)]

    assert titles(nhwc, nchw) == ["channels_first"]
    assert titles(nhwc) == titles(nhwc, nhwc) == []
    longer = RunSpec(workload=nchw.workload, variant={**nchw.variant, "seconds": 9.0})
    assert titles(nhwc, longer) == ["channels_first"], "as long as its steps are the same"
    larger = RunSpec(workload=nchw.workload, variant={**nchw.variant, "batch_size": 96})
    assert titles(nhwc, larger) == []


@pytest.mark.parametrize("name", [name for name in preset_names() if load_preset(name).preset.article])
def test_what_the_presets_quote_is_of_variants_that_they_measure(name: str) -> None:
    named = load_preset(name)
    assert named.preset.article is not None
    variants = named.all_plans()[0].variants
    for effect in named.preset.article.effects:
        assert any(spec.variant.get(effect.setting) == effect.before for spec in variants)
        for value in effect.values:
            wanted = {**effect.settings, **value.settings, effect.setting: value.after}.items()
            assert any(spec.workload == effect.workload and wanted <= spec.variant.items() for spec in variants), value
