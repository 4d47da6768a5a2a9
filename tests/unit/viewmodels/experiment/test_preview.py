"""What an experiment would run: refused combinations and preset lines."""

import pytest

from app.analysis.intervals import resolution
from app.plan import Plan
from app.queries import ExpectedResolution
from app.viewmodels.experiment.preview import (
    PresetLine,
    RefusedGroup,
    describe_order,
    describe_refused,
    describe_resolution,
)
from workloads.protocol import RunSpec

GROUPS = tuple(
    RefusedGroup(count=count, values=what, reason="It does not fit.")
    for count, what in ((1200, "XLA on"), (30, ""), (4, "2 GPUs"))
)


def test_the_first_reasons_are_told_and_how_many_more_there_are() -> None:
    words = describe_refused(GROUPS, 5000, show_all=False)
    assert words.text == (
        "1,234 of 5,000 combinations cannot run here and are left out:\n"
        "1,200 ×  XLA on: It does not fit.\n"
        "30 ×  It does not fit."
    )
    assert words.more_label == "1 more reason …"


def test_every_reason_is_told_when_asked_for() -> None:
    words = describe_refused(GROUPS, 5000, show_all=True)
    assert words.text.endswith("\n4 ×  2 GPUs: It does not fit.")
    assert words.more_label == "Fewer reasons"


def test_there_are_no_others_where_all_reasons_are_told_at_once() -> None:
    assert describe_refused(GROUPS[:2], 5000, show_all=False).more_label == ""
    assert describe_refused((), 5000, show_all=False) == ("", "")


LINE = PresetLine(key="k", name="layouts", title="Both layouts", size="4 variants, 12 runs", time="About 2 min.")


def test_how_much_a_preset_is_begins_with_its_name_where_its_title_is_another() -> None:
    assert LINE.size_text == "layouts · 4 variants, 12 runs. About 2 min."
    own = PresetLine(key="k", name="mine", title="mine", size="2 variants, 6 runs")
    assert own.size_text == "2 variants, 6 runs"
    assert PresetLine(key="k", name="mine", title="mine", problem="It has no [gpu].").size_text == ""


@pytest.mark.parametrize(
    ("variants", "seed", "sentences"),
    [
        (2, 7, ["Every round but the first has an order of its own, drawn with seed 7."]),
        (1, 7, []),
        (2, None, []),
    ],
)
def test_a_plan_names_the_seed_of_its_order(variants: int, seed: int | None, sentences: list[str]) -> None:
    specs = tuple(RunSpec(workload="dummy", variant={"batch_size": size}) for size in range(1, variants + 1))
    assert describe_order(Plan(name="some", variants=specs, repeats=3, order_seed=seed)) == sentences


@pytest.mark.parametrize(
    ("sd", "more"), [(0.3, "; about 5 can show smaller ones."), (1.0, "; about 39 can show smaller ones."), (20.0, ".")]
)
def test_so_wide_a_spread_that_nothing_of_note_can_be_shown_is_said_plainly(sd: float, more: str) -> None:
    expected = ExpectedResolution(repeats=3, found=resolution(sd, 3), noise_runs=6)
    assert describe_resolution(expected) == [
        "3 repeats can show only differences of 100\xa0% or more, as 6 stored runs of these variants vary so much"
        + more
    ]
