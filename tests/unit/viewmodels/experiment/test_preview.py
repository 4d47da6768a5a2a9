"""What an experiment would run: refused combinations, its start and its time, and prepared questions."""

from dataclasses import replace
from datetime import datetime

import pytest

from app.analysis.intervals import resolution
from app.queries import ExpectedResolution, ExperimentProgress, TimeLeft
from app.values import units
from app.values.plan import Plan
from app.viewmodels.experiment.preview import (
    PresetLine,
    RefusedGroup,
    describe_dates,
    describe_estimate,
    describe_order,
    describe_refused,
    describe_resolution,
    describe_stored,
    experiment_label,
    refused_notes,
)
from workloads.catalog import Machine, complete
from workloads.protocol import RunSpec

S = 1_000_000_000
GROUPS = tuple(
    RefusedGroup(count=count, values=what, reason="It does not fit.")
    for count, what in ((1200, "XLA on"), (30, ""), (4, "2 GPUs"))
)


def test_the_first_reasons_are_told_and_the_others_when_asked_for() -> None:
    words = describe_refused(GROUPS, 5000, show_all=False)
    assert words[0] == (
        "1,234 of 5,000 combinations cannot run here and are left out:\n"
        "1,200 ×  XLA on: It does not fit.\n"
        "30 ×  It does not fit."
    )
    assert words[1] == "1 more reason …"
    words = describe_refused(GROUPS, 5000, show_all=True)
    assert words[0].endswith("\n4 ×  2 GPUs: It does not fit.")
    assert words[1] == "Fewer reasons"
    assert describe_refused(GROUPS[:2], 5000, show_all=False)[1] == ""
    assert describe_refused((), 5000, show_all=False) == ("", "")


def ahead(**values: object) -> ExperimentProgress:
    left = TimeLeft(360.0, 420.0, 530.0)
    return ExperimentProgress(**{"planned": 18, "done": 0, "timing_runs": 7, "left": left, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("progress", "label"),
    [
        (None, "Run 18"),
        (ahead(), "Run 18 (6 to 9 min)"),
        (ahead(done=12, left=TimeLeft(40.0, 50.0, 60.0)), "Run 6 (40 to 60 s)"),
        (ahead(done=18, left=TimeLeft()), "Show the 18 stored"),
    ],
)
def test_the_label_of_the_start_says_how_many_runs_and_how_long(
    progress: ExperimentProgress | None, label: str
) -> None:
    assert experiment_label(18, progress, most=False) == label


def test_the_label_of_the_start_says_how_small_a_difference_shows_unless_that_is_nothing_of_note() -> None:
    for sd, shows in ((0.01, True), (20.0, False)):
        expected = ExpectedResolution(repeats=3, estimate=resolution(sd, 3), noise_runs=6)
        label = experiment_label(18, ahead(resolution=expected), most=True)
        assert label.startswith("Run up to 18 (6 to 9 min")
        assert ("shows" in label) is shows


def test_how_a_question_is_adapted_is_said_in_short() -> None:
    notes = ("No GPU here, so scaled down: 16 channels.", "4 variants cannot run here. TF32: It needs a GPU.")
    line = PresetLine(key="k", name="layouts", title="Both layouts", size="4 variants", notes=notes)
    assert line.adapted == "No GPU here, so scaled down. 4 variants cannot run here."


@pytest.mark.parametrize(
    ("variants", "seed", "sentences"),
    [
        (2, 7, ["Every round but the first has its own order, drawn with seed 7."]),
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
    expected = ExpectedResolution(repeats=3, estimate=resolution(sd, 3), noise_runs=6)
    assert describe_resolution(expected) == [
        "3 repeats can show only differences of 100\xa0% or more, as 6 stored runs of these variants vary so much"
        + more
    ]


TWELVE = ExperimentProgress(planned=12, done=0, left=TimeLeft(72, 90, 108), timing_runs=0)


@pytest.mark.parametrize(
    ("ahead", "says"),
    [
        (
            TWELVE,
            "This takes 1 to 2 min (estimated from runs on other machines, as none is stored here).",
        ),
        (replace(TWELVE, timing_runs=7), "This takes 1 to 2 min (estimated from 7 stored runs)."),
        (
            replace(TWELVE, done=4, left=TimeLeft(48, 60, 72), timing_runs=1),
            "4 of 12 already stored; the other 8 will take 45 to 75 s (estimated from 1 stored run).",
        ),
        (
            replace(TWELVE, timing_runs=7, from_other_workloads=True),
            "This takes 1 to 2 min (estimated from 7 stored runs of other workloads).",
        ),
        (
            replace(TWELVE, done=12, left=TimeLeft(), timing_runs=9),
            "All 12 are already stored: nothing is left to run.",
        ),
    ],
)
def test_what_is_said_of_the_time_before_it_starts(ahead: ExperimentProgress, says: str) -> None:
    assert describe_estimate(ahead) == [says]


def test_the_times_of_stored_runs_are_told_of_those_that_count_and_of_those_too_old() -> None:
    days = [int(datetime.fromisoformat(f"2026-11-{day} 14:05").astimezone().timestamp()) * S for day in (20, 20, 21)]
    assert describe_dates((), ()) == []
    assert describe_dates(days[:1], days) == [
        "Counted: 1 stored run of 2026-11-20 14:05.",
        "Not counted, because they are older than an hour: 3 stored runs of 2026-11-20 14:05 to 2026-11-21 14:05.",
    ]
    assert describe_dates((days[0], days[0] + 60 * S), ()) == ["Counted: 2 stored runs of 2026-11-20 14:05 to 14:06."]


def test_runs_of_an_experiment_that_goes_on_count_and_others_are_said_to_be_left_out() -> None:
    own, others = (days := [n * 86_400 * S for n in range(20_000, 20_003)])[:2], days[2:]
    ahead = ExperimentProgress(planned=6, done=2, counted_utc_ns=tuple(own))
    assert describe_stored(ahead, ahead) == ["2 of 6 already stored."]
    countable = ExperimentProgress(planned=6, done=3, counted_utc_ns=(*own, *others))
    assert describe_stored(ahead, countable)[1:] == [f"Not counted: 1 stored run of {units.local_time(others[0])}."]
    assert describe_stored(ExperimentProgress(planned=6, done=0), ahead)[0].startswith("Not counted: 2 stored runs")
    assert describe_stored(none := ExperimentProgress(planned=6, done=0), none) == []


def test_an_early_end_and_a_limit_are_said_and_what_does_not_count() -> None:
    ahead = replace(TWELVE, timing_runs=7, excluded=3, excluded_due_to=("driver", "GPU"))
    assert describe_estimate(ahead, at_most=True, budget_s=60.0) == [
        "This takes at most 1 to 2 min (estimated from 7 stored runs).",
        "It stops within 1:00 and can be resumed.",
        "Not counted: 3 stored runs of these variants with another driver, another GPU.",
    ]


def test_variants_that_cannot_run_for_several_reasons_are_one_note() -> None:
    machine = Machine(local=False, frameworks=("tensorflow",))
    frameworks = ("tensorflow", "pytorch", "jax")
    specs = [complete("lstm", {"framework": framework, "gpus": 0}, machine) for framework in frameworks]
    (note,) = refused_notes(specs, machine)
    assert note.startswith("2 variants cannot run here. PyTorch: PyTorch is not installed for these runs. ")
    assert note.endswith(" JAX: JAX is not installed for these runs.")
    assert refused_notes(specs[:1], machine) == ()
