"""The verdict of an experiment: in a few words, as the notice has it, and as a forest plot while it is made."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import pytest

from app.queries import NO_QUESTION, Question
from app.values.events import Summary
from app.values.records import RunRow
from app.viewmodels.compare import verdict as verdict_module
from app.viewmodels.compare.verdict import compute_verdict
from app.viewmodels.experiment.queue import NO_VERDICT
from app.viewmodels.experiment.verdict_text import (
    ExperimentResult,
    experiment_result,
    experiment_verdict,
    verdict_result,
)
from tests.unit.viewmodels.stored import run_row
from workloads.protocol import OutcomeName, RunSpec


def runs(*throughputs: Sequence[float]) -> list[RunRow]:
    """Runs of variants with batch size 32, 64 …, the first of which is the baseline."""
    measured = [(32 * 2**n, value) for n, values in enumerate(throughputs) for value in values]
    return [
        run_row(number, batch_size=batch, throughput=value) for number, (batch, value) in enumerate(measured, start=1)
    ]


def result_of(
    rows: Sequence[RunRow],
    planned: Sequence[RunRow] = (),
    disturbances: Mapping[int, str] | None = None,
    question: Question = NO_QUESTION,
) -> ExperimentResult:
    """Return the result of runs, of which some may still wait."""
    result = experiment_result([row.spec for row in planned or rows], rows, disturbances or {}, question)
    assert result is not None
    return result


def test_the_first_sentence_is_the_answer_and_the_others_come_after_it() -> None:
    rows = runs((1000, 1001), (2000, 2001), (4000, 4001))
    verdict, text = compute_verdict(rows, 1), experiment_verdict(rows)
    assert (text.sentence, text.rest) == (verdict.answer, " ".join(verdict.sentences[1:]))
    assert text.is_answer


def test_runs_of_one_variant_have_no_verdict_and_two_lengths_are_one_variant() -> None:
    (row,) = runs((1000,))
    longer = replace(row, run=2, spec=RunSpec(workload="lstm", variant={**row.spec.variant, "seconds": 99.0}))
    assert experiment_verdict([row, longer]) == NO_VERDICT
    other = runs((1,), (1500,))[1:]
    answer = experiment_verdict([row, longer, *other]).sentence
    assert answer == "Batch size 64 trains 50.0\xa0% faster than batch size 32 (not yet sure)."


def test_an_experiment_is_answered_about_the_setting_that_it_asks_about() -> None:
    rows = [
        run_row(10 * n + k, batch_size=size, xla=xla, throughput=1000.0 * size * (1 + xla) + k)
        for n, (size, xla) in enumerate(product((32, 64), (False, True)))
        for k in range(3)
    ]
    for asked, answer in (("xla", "XLA on is 2.00× as fast as XLA off"), ("batch_size", "Batch size 64 is 2.00× as")):
        assert experiment_verdict(rows, Question(asked)).sentence.startswith(answer)
        result = result_of(rows, question=Question(asked))
        assert result.answer == experiment_verdict(rows, Question(asked)).sentence
        assert result.answer == compute_verdict(rows, asked=asked).answer
        chosen = result_of(rows, question=Question(asked, 30))
        assert (result.rows[0].name, chosen.rows[0].name) == ("Batch size 32", "Batch size 64 · XLA on")


def test_a_result_has_the_baseline_first_then_the_fastest_and_what_waits_last() -> None:
    rows = runs((1000, 1001, 999), (900, 901, 899), (2500, 2501, 2499), (1,))
    result = result_of(rows[:-1], rows)
    assert result.answer == compute_verdict(rows[:-1], 1).answer
    first = result_of(rows[:1], rows)
    assert first.answer == "No answer yet", "the others are still to come"
    assert (bool(result.axis.ticks), first.axis.ticks) == (True, ())
    going_on = replace(rows[-1], outcome=None, summary=Summary())
    running = result_of([*rows[:-1], going_on])
    assert (running.rows[-1].change, running.rows[-1].runs) == ("running", "")
    assert [(row.name, row.change, row.runs, row.is_fastest) for row in result.rows] == [
        ("Batch size 32", "baseline", "3 runs", False),
        ("Batch size 128", "2.50×", "3 runs", True),
        ("Batch size 64", "0.900×", "3 runs", False),
        ("Batch size 256", "waiting", "", False),
    ]
    base, fastest, slowest, waiting = result.rows
    assert (base.low, waiting.ratio) == (None, None)
    assert fastest.low is not None
    assert fastest.ratio is not None
    assert fastest.high is not None
    assert fastest.low < fastest.ratio < fastest.high
    assert slowest.ratio is not None
    assert slowest.ratio == pytest.approx(0.9, rel=1e-3)
    assert 0 < result.axis.share(slowest.ratio) < result.axis.share(1.0) < result.axis.share(fastest.high) < 1
    assert result.verdict.next_step == "The intervals hold at 95\xa0%, however often you look."


@pytest.mark.parametrize(
    ("throughputs", "next_step"),
    [
        (((1000, 1001, 999), (1500, 1501)), "An interval takes 3 runs of each variant."),
        (((1000, 1001, 999), (1500, 1501, 1499)), "The intervals hold at 95\xa0%, however often you look."),
    ],
)
def test_a_result_says_what_it_lacks(throughputs: Sequence[Sequence[float]], next_step: str) -> None:
    rows = runs(*throughputs)
    result = result_of(rows)
    assert result.verdict.next_step == next_step


def test_more_repeats_are_named_where_no_difference_is_seen_and_offered_where_they_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = runs((1000, 1100, 900), (1000, 1090, 920))
    (required,) = (result.required_repeats for result in compute_verdict(rows, 1).results if result.required_repeats)
    for most, offered in ((required.repeats, required.repeats), (required.repeats - 1, 0)):
        monkeypatch.setattr(verdict_module, "_MOST_OFFERED", most)
        found = result_of(rows)
        assert found.verdict.more_repeats == offered
        assert f"{required.repeats} more repeats of each" in found.verdict.next_step


@pytest.mark.parametrize(
    ("throughputs", "fastest"),
    [
        (((1000, 1001, 999), (2000, 2001, 1999), (4000, 4001, 3999)), "Batch size 128"),
        (((1000, 1001, 999), (2000, 2101, 1899), (2050, 2151, 1949)), None),  # faster than the baseline, both
        (((1000, 1001, 999), (500, 501, 499), (250, 251, 249)), "Batch size 32"),
        (((1000, 1101, 899), (990, 1091, 889), (250, 251, 249)), None),
        (((1000, 1001, 999), (2000,)), None),
    ],
)
def test_the_fastest_is_named_where_it_is_faster_than_all_others(
    throughputs: Sequence[Sequence[float]], fastest: str | None
) -> None:
    rows = runs(*throughputs)
    result = result_of(rows)
    assert [row.name for row in result.rows if row.is_fastest] == ([fastest] if fastest else [])


def test_seeds_of_a_variant_are_one_row() -> None:
    rows = [
        run_row(number, batch_size=32 * (1 + number % 2), seed=number // 2, throughput=1000.0) for number in range(6)
    ]
    result = result_of(rows)
    assert [(row.name, row.runs) for row in result.rows] == [("Batch size 32", "3 runs"), ("Batch size 64", "3 runs")]


def test_one_variant_has_no_result_and_none_is_needed_yet() -> None:
    (row,) = runs((1000,))
    assert experiment_result([row.spec], [row], {}) is None
    assert [row.change for row in result_of([], runs((1,), (1,))).rows] == ["waiting", "waiting"]


def test_the_lamp_says_in_how_many_runs_the_machine_was_busy_and_by_what() -> None:
    rows = runs((1000, 1001, 999), (2000, 2001, 1999))
    before, quiet, busy = (
        result_of(rows, disturbances=disturbances)
        for disturbances in ({}, {row.run: "" for row in rows}, {1: "", 2: "Others.", 4: "Others.", 5: "A sleep."})
    )
    assert (before.lamp, before.disturbance) == ("", "")
    assert (quiet.lamp, quiet.disturbance) == ("Quiet machine", "")
    assert (busy.lamp, busy.disturbance) == ("Busy machine in 3 of 4 runs", "Others.\nA sleep.")
    assert [row.runs for row in busy.rows] == ["3 runs, 1 busy", "3 runs, 2 busy"]


def test_a_run_that_was_stopped_before_it_measured_says_nothing_of_the_machine() -> None:
    rows = [*runs((1000,), (2000,)), run_row(3, batch_size=32, throughput=None, outcome="stopped")]
    one, none = (result_of(some, rows, {row.run: "Others." for row in some}) for some in (rows, rows[2:]))
    assert (one.lamp, [row.runs for row in one.rows]) == (
        "Busy machine in 2 of 2 runs",
        ["1 run, 1 stopped, 1 busy", "1 run, 1 busy"],
    )
    assert (none.lamp, none.disturbance, none.rows[0].runs) == ("", "", "0 runs, 1 stopped")


@pytest.mark.parametrize("outcome", ["stopped", "failed", "crashed", "out_of_memory"])
def test_a_run_that_did_not_come_to_its_end_is_shown_and_changes_nothing_else(outcome: OutcomeName) -> None:
    rows = runs((1000, 1001, 999), (2000, 2001, 1999))
    cut_off = run_row(9, batch_size=64, throughput=900.0, outcome=outcome)
    before, after = (result_of(some, rows) for some in (rows, [*rows, cut_off]))
    assert after.answer == before.answer
    assert [replace(row, runs="") for row in after.rows] == [replace(row, runs="") for row in before.rows]
    assert [row.runs for row in after.rows] == ["3 runs", f"3 runs, 1 {outcome.replace('_', ' ')}"]


def test_a_row_without_a_ratio_says_that_it_is_of_another_workload_or_how_it_ended() -> None:
    others = [run_row(2, workload="cnn10"), run_row(3, units=5, outcome="failed", throughput=None)]
    rows = verdict_result(compute_verdict([run_row(1), *others]), {}).rows
    assert sorted(row.change for row in rows) == ["baseline", "failed", "other workload"]
