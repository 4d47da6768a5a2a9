"""What stands above the table of a comparison."""

from collections.abc import Sequence

from app.records import RunRow
from app.viewmodels.compare import Comparison, compare, compared
from app.viewmodels.compare_head import Head, head_of
from app.viewmodels.evidence import mislabelled
from app.viewmodels.verdict import ONE_RUN
from tests.fakes.evidence import AS_ASKED, MISLABELLED
from tests.unit.viewmodels.stored import run_row, stored_run


def head(rows: Sequence[RunRow]) -> Head:
    return head_of(compare(compared([stored_run(row, measured=bool(row.summary.throughput)) for row in rows]), 1))


def test_the_first_sentence_of_a_verdict_stands_by_itself() -> None:
    found = head([run_row(1, throughput=1000.0), run_row(2, throughput=1064.5, units=128)])
    assert found.first == "Units 128 ran 6.5 % faster than units 64."
    assert found.rest == ONE_RUN
    assert found.method.startswith("No interval")


def test_what_runs_that_are_not_what_they_say_mean_for_the_verdict_is_said_once_on_the_screen_and_once_copied() -> None:
    rows = [run_row(1, found=AS_ASKED), run_row(2, layers=4, found=MISLABELLED)]
    found = head(rows)
    meant = "So the verdict is about what ran, not about what was asked."
    assert found.lines[0] == (f"▲  {mislabelled(rows)} {meant}", "warning")
    assert found.copied.count("did not run what was asked") == 1


def test_notes_on_the_table_come_after_the_doubts_and_are_not_copied() -> None:
    rows = [run_row(1, throughput=1000.0), run_row(2, units=128, outcome="refused", throughput=None)]
    found = head(rows)
    assert found.lines[-1] == ("Without a measured part, time zero is the start of the run.", "note")
    assert "time zero" not in found.copied


def test_of_no_runs_nothing_is_said() -> None:
    empty = head_of(Comparison())
    assert (empty.first, empty.rest, empty.lines) == ("", "", ())
