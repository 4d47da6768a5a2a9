"""The table of stored runs and the page of one, as values."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any

import pytest

from app.queries import RUN_ORDERS, RunQuery, SearchResult, StoredExperiment, Totals
from app.values.records import RunRow
from app.viewmodels.charts.palette import MAX_COMPARED
from app.viewmodels.format.cells import Cell
from app.viewmodels.format.derived import summary_line
from app.viewmodels.history.labels import (
    can_compare,
    collect_annotations,
    compare_label,
    count_label,
    deleted_label,
    empty_text,
    facet_groups,
    parse_tags,
    restore_label,
)
from app.viewmodels.history.run_detail import run_detail
from app.viewmodels.history.table import (
    ANNOTATIONS_COLUMN,
    COLUMNS,
    DEFAULT_COLUMNS,
    EXPECTED,
    ORDERS,
    OUTCOME_COLUMN,
    VARIANT_COLUMN,
    HistoryOptions,
    Listing,
    RowView,
    group_by_experiment,
    history_cells,
    toggle_order,
    widest,
)
from tests.fakes.evidence import AS_REQUESTED, IN_PART
from tests.unit.viewmodels.stored import UTC_NS, S, run_row, stored_run
from workloads.protocol import RunSpec

TITLES = [column.title for column in COLUMNS]


def rows_of(*runs: RunRow) -> list[tuple[Cell, ...]]:
    return [history_cells(run, RowView(zone=UTC)) for run in runs]


def texts(row: Sequence[Cell]) -> dict[str, str]:
    return {title: f"{cell.text} {cell.unit}".strip() for title, cell in zip(TITLES, row, strict=True)}


def offered(total: int, deleted: int = 0, **of: Any) -> HistoryOptions:
    return HistoryOptions(totals=Totals(total=total, deleted=deleted), **of)


def experiment(number: int, name: str, *runs: int) -> StoredExperiment:
    return StoredExperiment(
        experiment=number,
        uid=f"experiment-{number}",
        name=name,
        preset=None,
        created_utc_ns=UTC_NS + number * 60 * S,
        plan="{}",
        runs=runs,
    )


def test_a_row_shows_every_figure_with_its_unit() -> None:
    (row,) = rows_of(
        run_row(
            7,
            workload="cnn10",
            throughput=68899.2,
            energy_mj=19.94,
            gpus=2,
            gpu_names=("NVIDIA H200",) * 2,
            found=IN_PART,
        )
    )
    assert texts(row) == {
        "Run": "7",
        "Started": "2025-10-09 09:00",
        "Workload": "cnn10",
        "Framework": "TensorFlow",
        "Variant": "Native NCHW · batch 1024",
        "Tags, note": "",
        "Host": "",
        "Devices": "2× H200",
        "Outcome": "completed",
        "Evidence": "verified in part",
        "Throughput, 1/s": "68,899",
        "Step p50": "32.0 ms",
        "Mean power, W": "688",
        "Energy, mJ": "19.9",
        "Duration": "0:12",
    }
    assert "2025-10-09 09:00:20 UTC" in row[1].tooltip
    assert "layout = NCHW" in row[VARIANT_COLUMN].tooltip


def test_the_column_of_hosts_is_there_where_a_run_was_made_elsewhere() -> None:
    (row,) = rows_of(replace(run_row(7), host="gpu1"))
    assert texts(row)["Host"] == "gpu1"
    here = Listing(options=offered(3))
    away = Listing(options=HistoryOptions(totals=replace(here.options.totals, other_hosts=True)))
    assert [name for name in away.columns if name not in here.columns] == ["host"]


def test_absent_figures_are_dashes_and_a_run_without_an_outcome_is_running() -> None:
    (row,) = rows_of(run_row(1, outcome=None, throughput=None))
    shown = texts(row)
    assert shown["Outcome"] == "running"
    assert {shown[t] for t in ("Throughput, 1/s", "Step p50", "Mean power, W", "Energy, mJ", "Duration")} == {"–"}


def test_tags_stand_before_the_first_line_of_a_note_and_both_are_told_in_full() -> None:
    (row,) = rows_of(replace(run_row(1), tags=("baseline", "night"), note="Too hot.\nRepeat it."))
    cell = row[ANNOTATIONS_COLUMN]
    assert (cell.chips, cell.text) == (("baseline", "night"), "Too hot.")
    assert cell.tooltip == "baseline, night\n\nToo hot.\nRepeat it."


def test_a_workload_of_another_version_is_shown_all_the_same() -> None:
    unknown = replace(run_row(1), spec=RunSpec(workload="gone", variant={"gpus": 1, "depth": 3}))
    shown = texts(rows_of(unknown)[0])
    assert shown["Workload"] == "gone"
    assert "depth 3" in shown["Variant"]
    assert shown["Throughput, 1/s"] == "1,000"


def test_every_column_orders_by_something_of_its_own() -> None:
    assert len(set(ORDERS)) == len(COLUMNS)
    assert set(ORDERS) == {*RUN_ORDERS} - {"match"}, "of a search the best come first"
    assert set(DEFAULT_COLUMNS) < set(ORDERS)


def test_a_click_on_a_head_starts_numbers_downwards_and_words_upwards_and_a_second_one_turns() -> None:
    query = toggle_order(RunQuery(text="cudnn"), OUTCOME_COLUMN)
    assert (query.order, query.descending, query.text) == ("outcome", False, "cudnn")
    assert toggle_order(query, OUTCOME_COLUMN).descending is True
    assert toggle_order(query, TITLES.index("Energy, mJ")).descending is True


def test_a_column_is_as_wide_as_what_was_ever_shown_in_it() -> None:
    short = rows_of(run_row(1, workload="cnn10", throughput=5.0))
    long = rows_of(run_row(2, workload="cnn10", gpu_names=("A card with a very long name",)))
    devices = TITLES.index("Devices")
    assert widest((EXPECTED, *short))[TITLES.index("Throughput, 1/s")].text == "100,000"
    assert widest((widest(long), *short))[devices].text == "A card with a very long name"


def test_runs_stand_below_the_newest_experiment_they_belong_to_and_those_without_one_last() -> None:
    experiments = [experiment(2, "layouts", 4, 3), experiment(1, "layers", 3, 1)]
    first, second, rest = group_by_experiment([5, 4, 3, 2, 1], experiments, UTC)
    assert (first.title, first.runs, first.details) == ("layouts", (4, 3), "2 runs · 2025-10-09 08:55")
    assert (second.title, second.runs) == ("layers", (1,))
    assert (rest.title, rest.runs, rest.details) == ("Without an experiment", (5, 2), "2 runs")
    listing = Listing(matches=SearchResult(runs=[5, 4, 3, 2, 1]), groups=(first, second, rest))
    assert listing.lines(None) == [5, 4, 3, 2, 1]
    assert listing.lines([]) == (first, 4, 3, second, 1, rest, 5, 2)
    assert listing.lines([1, 2]) == (first, second, rest, 5, 2)


def test_an_experiment_without_a_run_among_those_found_has_no_line() -> None:
    assert [group.title for group in group_by_experiment([1], [experiment(2, "layouts", 4)], UTC)] == [
        "Without an experiment"
    ]


def test_labels_say_how_many() -> None:
    assert [can_compare(n) for n in (0, 1, 2, MAX_COMPARED, MAX_COMPARED + 1)] == [False, False, True, True, False]
    assert compare_label(1) == "Compare"
    assert compare_label(3) == "Compare 3 runs"
    assert str(MAX_COMPARED) in compare_label(MAX_COMPARED + 1)
    assert restore_label(1) == "Restore 1 run"
    assert deleted_label([7]) == "Run 7 deleted"
    assert deleted_label([7, 8]) == "2 runs deleted"
    assert count_label(Listing(matches=SearchResult(runs=[1]), options=offered(1)), 1, 0) == "1 run"
    assert (
        count_label(Listing(matches=SearchResult(runs=range(12)), options=offered(1034)), 2, 3)
        == "12 of 1,034 runs · 2 checked"
    )
    searched = Listing(query=RunQuery(text="x"), matches=SearchResult(runs=range(2)), options=offered(9))
    assert count_label(searched, 1, 1) == "2 of 9 runs · 1 checked, 1 more out of sight"
    trash = Listing(query=RunQuery(deleted=True), matches=SearchResult(runs=range(3)), options=offered(3, 3))
    assert count_label(trash, 0, 0) == "3 deleted runs"


def test_frameworks_have_their_names_in_the_filter_and_the_column() -> None:
    counts = {"framework": {"pytorch": 4, "": 3, "jax": 2, "odd": 1}}
    (group,) = facet_groups(counts, RunQuery(), ())
    assert [value.label for value in group.values] == ["PyTorch", "unknown", "JAX", "odd"]
    script = replace(run_row(1), spec=RunSpec(workload="script:train.py", variant={"gpus": 0}))
    of_scripts = [replace(script, framework=key) for key in ("", "jax")]
    cells = [row[ORDERS.index("framework")].text for row in rows_of(run_row(1), *of_scripts)]
    assert cells == ["TensorFlow", "", "JAX"]


def test_an_empty_table_says_what_to_do() -> None:
    assert "Ctrl+1" in empty_text(Listing())
    assert "Escape" in empty_text(Listing(query=RunQuery(tag="x"), options=offered(5)))
    assert "restored" in empty_text(Listing(query=RunQuery(deleted=True)))
    assert empty_text(Listing(matches=SearchResult(runs=[1]), options=offered(1))) == ""


def test_a_run_page_tells_how_it_ended_what_it_was_and_how_to_run_it_again() -> None:
    row = run_row(12, workload="cnn10", outcome="failed", reason="Out of luck.", gpus=2, throughput=None)
    detail = run_detail(stored_run(row, measured=False, environment={"tensorflow": "2.21.0"}), UTC)
    assert (detail.outcome.text, detail.reason) == ("failed", "Out of luck.")
    assert detail.figures == ()
    assert [panel.title for panel in detail.plots.panels] == ["Power", "Load", "Memory"]
    assert [curve.label for curve in detail.plots.panels[0].curves] == ["GPU 0", "GPU 1"]
    assert (detail.plots.panels[0].unit, detail.plots.panels[0].curves[0].y[0]) == ("W", 600.0)
    assert (detail.plots.panels[2].unit, detail.plots.panels[2].curves[0].y[0]) == ("GiB", 4.0)
    assert [(band.name, band.start, band.end) for band in detail.plots.bands] == [("import", 0, 2), ("compile", 2, 4)]
    facts = {fact.name: fact.value for group in detail.groups for fact in group.items}
    assert facts["TensorFlow"] == "2.21.0"
    settings = [facts[label] for label in ("Framework", "All-reduce", "XLA", "Measure for")]
    assert settings == ["TensorFlow", "NCCL", "off", "10 s"], "in the words of the form"
    assert facts["GPU 1"] == "NVIDIA H200\nGPU-1"
    assert detail.log.splitlines()[1].split() == ["2.000", "cuDNN", "version", "91002"]
    assert detail.command.startswith(
        "python -m app run cnn10 -s framework=tensorflow -s implementation=native -s layout=NCHW "
    )


def test_a_run_page_tells_how_fast_it_computed_and_what_ran() -> None:
    row = run_row(12, gpus=1, gflops=13_375.0, found=AS_REQUESTED)
    row = replace(row, summary=replace(row.summary, compile_s=0.00115))
    detail = run_detail(stored_run(row, evidence=AS_REQUESTED), UTC)
    assert detail.title.startswith("Run 12 · lstm TensorFlow ")
    assert [name for name, _ in detail.figures] == ["Throughput", "Step p50", "Computed"]
    assert (detail.figures[2][1].text, detail.figures[2][1].unit) == ("13.4", "TFLOPS")
    facts = {fact.name: fact.value for group in detail.groups for fact in group.items}
    assert facts["Operations per step"] == "334\N{NO-BREAK SPACE}billion"
    assert facts["Compile"] == "1.15\N{NO-BREAK SPACE}ms"
    assert "compile 1.15\N{NO-BREAK SPACE}ms" in summary_line(row.summary, "image")
    assert facts["MFU"] == "3.3\N{NO-BREAK SPACE}%"
    assert facts["Measured peak"] == "400\N{NO-BREAK SPACE}TFLOPS"
    assert detail.evidence.badge.title == "Verified"


def test_a_run_on_the_cpu_shows_the_host() -> None:
    detail = run_detail(stored_run(run_row(1)), UTC)
    assert [panel.title for panel in detail.plots.panels] == ["CPU load", "Memory", "Throughput", "Loss"]
    assert detail.plots.panels[2].curves[0].y[0] == pytest.approx(1600.0)
    assert [band.name for band in detail.plots.bands if band.strong] == ["measure"]
    assert detail.plots.ranges["all"] == pytest.approx((0.0, 12.0))
    assert detail.plots.ranges["measured"] == pytest.approx((3.2, 12.0))


def test_a_try_of_a_search_says_that_it_is_one() -> None:
    (shown,) = rows_of(replace(run_row(1), purpose="a try for the largest batch"))
    assert texts(shown)["Variant"].endswith(" · a try for the largest batch")


def test_a_tag_is_ticked_where_all_runs_have_it_and_half_ticked_where_some_have() -> None:
    rows = [replace(run_row(1), tags=("night", "baseline")), replace(run_row(2), tags=("night",))]
    words = collect_annotations(rows, ["baseline", "night", "other"])
    assert words.tags == {"baseline": None, "night": True, "other": False}
    assert (words.runs, words.runs_label) == ((1, 2), "2 runs")


def test_a_note_is_known_only_where_all_runs_say_the_same() -> None:
    one, other = replace(run_row(1), note="hot"), replace(run_row(2), note="cold")
    assert collect_annotations([one], []).note == "hot"
    assert collect_annotations([one], []).runs_label == "run 1"
    assert collect_annotations([one, other], []).note is None


def test_tags_are_typed_with_commas_between_and_each_counts_once() -> None:
    assert parse_tags(" night, for the report,, Night ,") == ("night", "for the report")
