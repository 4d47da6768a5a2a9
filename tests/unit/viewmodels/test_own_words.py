from dataclasses import replace

from app.viewmodels.own_words import TagChange, own_words, tag_change, tags_typed
from tests.unit.viewmodels.stored import run_row


def test_a_tag_is_ticked_where_all_runs_have_it_and_half_ticked_where_some_have() -> None:
    rows = [replace(run_row(1), tags=("night", "baseline")), replace(run_row(2), tags=("night",))]
    words = own_words(rows, ["baseline", "night", "other"])
    assert words.tags == {"baseline": None, "night": True, "other": False}
    assert (words.runs, words.whose) == ((1, 2), "2 runs")


def test_a_note_is_known_only_where_all_runs_say_the_same() -> None:
    one, other = replace(run_row(1), note="hot"), replace(run_row(2), note="cold")
    assert own_words([one], []).note == "hot"
    assert own_words([one], []).whose == "run 1"
    assert own_words([one, other], []).note is None


def test_tags_are_typed_with_commas_between_and_each_counts_once() -> None:
    assert tags_typed(" night, for the report,, Night ,") == ("night", "for the report")


def test_only_what_differs_is_changed_and_case_is_no_difference() -> None:
    change = tag_change(7, ["night", "baseline"], "Night, candidate")
    assert change == TagChange(runs=(7,), added=("candidate",), removed=("baseline",))
