from dataclasses import replace
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.records import RunRow
from app.viewmodels.history import (
    COLUMNS,
    MOST_COMPARED,
    OUTCOME_COLUMN,
    History,
    HistoryRow,
    Query,
    arrange,
    can_compare,
    compare_label,
    count_label,
    empty_text,
    history,
    history_rows,
)
from app.viewmodels.run_detail import run_detail
from tests.fakes.evidence import AS_ASKED, MISLABELLED, UNKNOWN
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.protocol import RunSpec

TITLES = [column.title for column in COLUMNS]


def rows_of(*runs: RunRow) -> list[HistoryRow]:
    return history_rows(runs, {}, UTC)


def texts(row: HistoryRow) -> dict[str, str]:
    return {title: f"{cell.text} {cell.unit}".strip() for title, cell in zip(TITLES, row.cells, strict=True)}


def numbers(rows: list[HistoryRow]) -> list[int]:
    return [row.run for row in rows]


def test_a_row_shows_every_figure_with_its_unit() -> None:
    (row,) = rows_of(
        run_row(
            7, workload="cnn10", throughput=68899.2, energy_mj=19.94, gpus=2, gpu_names=("NVIDIA H200", "NVIDIA H200")
        )
    )
    assert texts(row) == {
        "Run": "7",
        "Started": "2025-10-09 09:00",
        "Workload": "cnn10",
        "Variant": "Native NCHW · 2 GPUs · batch 1024",
        "Devices": "2 × NVIDIA H200",
        "Outcome": "completed",
        "As asked": "",
        "Throughput": "68,899 images/s",
        "Step p50": "32.0 ms",
        "Mean power": "688 W",
        "Energy": "19.9 mJ/image",
        "Duration": "0:12",
    }
    assert "2025-10-09 09:00:20 UTC" in row.cells[1].tooltip
    assert "layout = NCHW" in row.cells[3].tooltip


def test_absent_figures_are_dashes_and_a_run_without_an_outcome_is_running() -> None:
    (row,) = rows_of(run_row(1, outcome=None, throughput=None))
    shown = texts(row)
    assert shown["Outcome"] == "running"
    assert {shown[t] for t in ("Throughput", "Step p50", "Mean power", "Energy", "Duration")} == {"–"}


def test_runs_can_be_searched_and_sorted_by_whether_they_ran_as_asked() -> None:
    found = (AS_ASKED, MISLABELLED, UNKNOWN, None)
    rows = rows_of(*(run_row(n, found=each) for n, each in enumerate(found, 1)))
    assert [texts(row)["As asked"] for row in rows] == ["yes", "no", "unknown", ""]
    assert numbers(arrange(rows, Query(text="did not run as asked"))) == [2]
    assert numbers(arrange(rows, Query(column=TITLES.index("As asked"), descending=False))) == [2, 3, 1, 4]


def test_a_workload_of_another_version_is_shown_all_the_same() -> None:
    unknown = replace(run_row(1), spec=RunSpec(workload="gone", variant={"gpus": 1, "depth": 3}))
    shown = texts(rows_of(unknown)[0])
    assert shown["Workload"] == "gone"
    assert "depth 3" in shown["Variant"]
    assert shown["Throughput"].endswith("examples/s")


@pytest.mark.parametrize("descending", [True, False])
def test_absent_values_come_last_whichever_way_and_equal_ones_newest_first(descending: bool) -> None:
    rows = rows_of(
        run_row(1, throughput=5.0), run_row(2, throughput=None), run_row(3, throughput=9.0), run_row(4, throughput=5.0)
    )
    query = Query(column=TITLES.index("Throughput"), descending=descending)
    assert numbers(arrange(rows, query)) == ([3, 4, 1, 2] if descending else [4, 1, 3, 2])


@given(
    st.lists(st.one_of(st.none(), st.floats(0.1, 1e6)), max_size=30), st.integers(0, len(COLUMNS) - 1), st.booleans()
)
def test_sorting_by_any_column_loses_nothing(values: list[float | None], column: int, descending: bool) -> None:
    rows = rows_of(*(run_row(n, throughput=value) for n, value in enumerate(values)))
    assert sorted(numbers(arrange(rows, Query(column=column, descending=descending)))) == list(range(len(values)))


def test_a_click_on_a_head_starts_numbers_downwards_and_words_upwards_and_a_second_one_turns() -> None:
    query = Query().by(OUTCOME_COLUMN)
    assert (query.column, query.descending) == (OUTCOME_COLUMN, False)
    assert query.by(OUTCOME_COLUMN).descending is True
    assert query.by(TITLES.index("Energy")).descending is True


def test_search_looks_for_all_words_in_all_that_is_shown_without_regard_to_case() -> None:
    rows = rows_of(
        run_row(1, workload="cnn10", layout="NHWC", gpu_names=("NVIDIA H200",)),
        run_row(2, outcome="failed", reason="The loss is not a number."),
    )
    assert numbers(arrange(rows, Query(text="nhwc  H200"))) == [1]
    assert numbers(arrange(rows, Query(text="not a number"))) == [2]
    assert numbers(arrange(rows, Query(text="nhwc failed"))) == []


def test_filters_narrow_by_workload_and_outcome_and_offer_only_what_there_is() -> None:
    runs = [run_row(1), run_row(2, outcome=None), run_row(3, workload="cnn10", outcome="failed")]
    there = history(runs, History(), UTC)
    rows = list(there.rows)
    assert there.workloads == ["cnn10", "lstm"]
    assert there.outcomes == ["running", "completed", "failed"]
    assert (there.widest[OUTCOME_COLUMN].text, there.widest[TITLES.index("Throughput")].unit) == (
        "completed",
        "sequences/s",
    )
    assert numbers(arrange(rows, Query(workload="lstm"))) == [2, 1]
    assert numbers(arrange(rows, Query(workload="lstm", outcome="running"))) == [2]


def test_only_changed_runs_are_made_anew() -> None:
    before = rows_of(run_row(1), run_row(2, outcome=None))
    after = history([run_row(1), run_row(2)], History(rows=before), UTC).rows
    assert after[0] is before[0]
    assert after[1].outcome == "completed"


def test_ten_thousand_runs_are_searched_and_sorted() -> None:
    rows = rows_of(*(run_row(n, throughput=float(n % 977)) for n in range(10_000)))
    at = TITLES.index("Throughput")
    found = arrange(rows, Query(text="lstm 976", column=at))
    assert {row.run % 977 for row in found if row.cells[at].text == "976"} == {976}
    speeds = [row.source.summary.throughput or 0.0 for row in found]
    assert speeds == sorted(speeds, reverse=True)


def test_labels_say_how_many() -> None:
    assert [can_compare(n) for n in (0, 1, 2, MOST_COMPARED, MOST_COMPARED + 1)] == [False, False, True, True, False]
    assert compare_label(1) == "Compare"
    assert compare_label(3) == "Compare 3 runs"
    assert "20" in compare_label(21)
    assert count_label(1, 1, 1) == "1 run"
    assert count_label(12, 1034, 2) == "12 of 1,034 runs · 2 chosen"


def test_an_empty_table_says_what_to_do() -> None:
    assert "Ctrl+1" in empty_text(0, Query())
    assert "Escape" in empty_text(5, Query(text="x"))


def test_a_run_page_tells_how_it_ended_what_it_was_and_how_to_run_it_again() -> None:
    row = run_row(12, workload="cnn10", outcome="failed", reason="Out of luck.", gpus=2, throughput=None)
    detail = run_detail(stored_run(row, measured=False, environment={"tensorflow": "2.21.0"}), UTC)
    assert (detail.outcome.text, detail.reason) == ("failed", "Out of luck.")
    assert detail.figures == ()
    assert [panel.title for panel in detail.panels] == ["Power", "Load", "Memory"]
    assert [curve.label for curve in detail.panels[0].curves] == ["GPU 0", "GPU 1"]
    assert (detail.panels[0].unit, detail.panels[0].curves[0].y[0]) == ("W", 600.0)
    assert (detail.panels[2].unit, detail.panels[2].curves[0].y[0]) == ("GiB", 4.0)
    assert [(band.name, band.start, band.end) for band in detail.bands] == [("import", 0, 2), ("compile", 2, 4)]
    facts = {fact.name: fact.value for group in detail.groups for fact in group.facts}
    assert facts["TensorFlow"] == "2.21.0"
    assert facts["GPU 1"] == "NVIDIA H200\nGPU-1"
    assert detail.log.splitlines()[1].split() == ["2.000", "cuDNN", "version", "91002"]
    assert detail.command.startswith("python -m app run cnn10 -s layout=NCHW -s gpus=2 ")


def test_a_run_page_tells_how_fast_it_computed_and_what_ran() -> None:
    row = run_row(12, gpus=1, gflops=13_375.0, found=AS_ASKED)
    detail = run_detail(stored_run(row, evidence=AS_ASKED), UTC)
    assert [name for name, _ in detail.figures] == ["Throughput", "Step p50", "Computed"]
    facts = {fact.name: fact.value for group in detail.groups for fact in group.facts}
    assert facts["Operations a step"] == "334 billion"
    assert facts["Utilisation"] == "3.3\N{NO-BREAK SPACE}%"
    assert facts["Measured peak"] == "400,000\N{NO-BREAK SPACE}GFLOPS"
    assert detail.evidence.badge.title == "Ran as asked"


def test_a_run_on_the_cpu_shows_the_host() -> None:
    detail = run_detail(stored_run(run_row(1)), UTC)
    assert [panel.title for panel in detail.panels] == ["CPU load", "Memory", "Throughput", "Loss"]
    assert detail.panels[2].curves[0].y[0] == pytest.approx(1600.0)
    assert [band.name for band in detail.bands if band.strong] == ["measure"]
    assert detail.end_s == pytest.approx(12.0)


def test_a_try_of_a_search_says_that_it_is_one() -> None:
    row = replace(run_row(1), purpose="a try for the largest batch")
    (shown,) = rows_of(row)
    assert texts(shown)["Variant"].endswith(" · a try for the largest batch")
    assert "a try for" in shown.haystack
