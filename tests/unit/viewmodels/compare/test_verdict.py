"""The words of a verdict, for every decision."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from app.values.records import RunRow
from app.viewmodels.compare.verdict import (
    FEW_RUNS_NOTE,
    HOW_SURE,
    METHOD,
    NO_METHOD,
    Verdict,
    compute_verdict,
    describe_method,
    effect_name,
    effect_notes,
)
from tests.fakes.evidence import MISLABELLED
from tests.fakes.sentences import sentence_faults
from tests.unit.viewmodels.stored import run_row
from workloads.protocol import OutcomeName, RunSpec, Value

Pairs = list[tuple[float, float]]
"""Throughput and energy an example of each run."""


def variant(first: int, figures: Pairs | list[float], **settings: Value) -> list[RunRow]:
    pairs = [figure if isinstance(figure, tuple) else (figure, None) for figure in figures]
    found = [run_row(first + n, workload="cnn10", throughput=rate, energy_mj=e) for n, (rate, e) in enumerate(pairs)]
    return [replace(with_settings(row, settings), planned=str(len(figures))) for row in found]


def with_settings(row: RunRow, settings: Mapping[str, Value]) -> RunRow:
    return replace(row, spec=RunSpec(workload=row.spec.workload, variant={**row.spec.variant, **settings}))


def said(*groups: list[RunRow]) -> Verdict:
    return compute_verdict([row for group in groups for row in group], 1)


def ended(first: int, outcome: OutcomeName, reason: str | None = None, **settings: Value) -> list[RunRow]:
    row = run_row(first, workload="cnn10", outcome=outcome, reason=reason, throughput=None)
    return [with_settings(row, settings)]


NHWC = variant(1, [(1000.0, 20.0), (1001.0, 20.1), (999.0, 19.9), (1000.5, 20.0), (999.5, 20.0)], layout="NHWC")
ONE = [NHWC[0]]


def three(first: int, rate: float, spread: float = 0.001, **settings: Value) -> list[RunRow]:
    return variant(first, [rate, rate * (1 + spread), rate * (1 - spread)], **settings)


def batches(*rates: float, first: int = 10) -> list[list[RunRow]]:
    """Variants of batch size 2, 4, 8 … that run at these rates, three runs each."""
    return [three(first * n, rate, batch_size=2**n, layout="NHWC") for n, rate in enumerate(rates, 1)]


def test_of_two_the_answer_is_by_how_much_and_how_sure_then_comes_the_energy() -> None:
    nchw = [(1064.0, 19.2), (1066.0, 19.3), (1062.0, 19.1), (1064.5, 19.2), (1063.5, 19.2)]
    found = said(NHWC, variant(6, nchw))
    assert found.answer == "NCHW is 6.4\xa0% faster than NHWC (+6.2 to +6.6\xa0%)."
    assert found.sentences == (found.answer, "It uses 4.0\xa0% less energy per image.", HOW_SURE)
    assert found.text == " ".join(found.sentences)
    assert (found.decision, found.names) == ("faster", ("NHWC", "NCHW"))


def test_the_name_of_a_workload_begins_an_answer_as_it_is_written() -> None:
    other = [replace(row, spec=replace_workload(row.spec, "wrn28-10")) for row in three(50, 900.0, layout="NHWC")]
    found = said(NHWC, other, *batches(1100.0, 1500.0))
    assert found.answer.startswith("cnn10 · batch size 4 is the fastest of 3 ")


def replace_workload(spec: RunSpec, workload: str) -> RunSpec:
    return RunSpec(workload=workload, variant=spec.variant)


@pytest.mark.parametrize(
    ("second", "answer", "decision"),
    [
        (three(6, 900.0), "NCHW is 10.0\xa0% slower than NHWC (−10.2 to −9.8", "slower"),
        (three(6, 9960.0), "NCHW is 9.96× as fast as NHWC (9.", "faster"),
        (three(6, 300.0), "NCHW is 0.300× as fast as NHWC (0.29", "slower"),
        (three(6, 1001.0, 0.01), "No significant difference: NCHW and NHWC (−", "no difference seen"),
        (variant(6, [1064.0]), "NCHW is 6.4\xa0% faster than NHWC (not yet sure).", "one run each"),
    ],
)
def test_the_answer_has_one_unit(second: list[RunRow], answer: str, decision: str) -> None:
    found = said(NHWC, second)
    assert found.answer.startswith(answer)
    assert found.decision == decision
    assert ("%" in found.answer) != ("×" in found.answer)


def test_of_two_that_are_too_noisy_nothing_is_known() -> None:
    found = said(variant(1, [1000.0, 1600.0, 3000.0], layout="NHWC"), variant(6, [1100.0, 1900.0, 3400.0]))
    assert found.answer == "Not known yet which is faster: NCHW and NHWC."
    assert found.next_step == "With about 24 more repeats of each (12–92) the speed-up would be known to ±\xa050\xa0%."
    assert found.more_repeats == 24
    hopeless = said(variant(1, [100.0, 101.0, 100.0], layout="NHWC"), variant(6, [100.0, 1e12, 100.0]))
    assert hopeless.next_step == "More repeats would hardly help, as runs of one variant differ too much."
    assert hopeless.more_repeats == 0


@pytest.mark.parametrize(
    ("base", "compared", "amount"),
    [
        ((1000.0, 1049.0), (500.0, 500.0), ""),
        ((1000.0, 1050.0), (500.0, 500.0), "5.0\xa0%"),
        ((1000.0, 1061.0), (500.0, 510.0), "6.1\xa0%"),
        ((1000.0, 1059.0), (500.0, 510.0), ""),
        ((1000.0, 3000.0), (500.0, 510.0), "3.00×"),
    ],
)
def test_a_baseline_noisier_than_the_others_is_what_makes_intervals_wide(
    base: tuple[float, float], compared: tuple[float, float], amount: str
) -> None:
    sentence = said(variant(1, [base[0], *base], layout="NHWC"), variant(6, [compared[0], *compared]))
    says = "Runs of the baseline differ by"
    assert sentence.next_step.startswith(f"{says} {amount}, which") if amount else says not in sentence.next_step
    assert sentence.steadier == (6 if amount else 0)
    few = said(variant(1, list(base), layout="NHWC"), variant(6, list(compared)))
    assert says not in few.next_step, "two runs have no interval"


def test_of_two_that_are_equal_within_a_margin_that_is_the_answer() -> None:
    rows = [*NHWC, *three(6, 1001.0)]
    assert compute_verdict(rows, 1, 2.0).answer.startswith("NCHW and NHWC are equal within 2\xa0% (")
    apart = compute_verdict([*NHWC, *three(6, 1100.0)], 1, 2.0)
    assert "With a margin of 2\xa0%: 1 faster by more." in apart.sentences


@pytest.mark.parametrize(
    ("rates", "answer", "next_step"),
    [
        ((1500.0, 2100.0), "Batch size 4 is the fastest of 3 variants: 2.10× as fast as batch size 1024 (", HOW_SURE),
        ((900.0, 800.0), "Batch size 1024, the baseline, is the fastest of 3 variants.", HOW_SURE),
        (
            (1500.0, 1501.0),
            "Batch size 4 leads 3 variants: 50.1\xa0% faster than batch size 1024; batch size 2 may be as fast.",
            "With about 4 more repeats of each (2–14) their ratio would be known to ±\xa00.2\xa0%.",
        ),
    ],
)
def test_of_more_the_leader_is_called_the_fastest_where_it_is(
    rates: Sequence[float], answer: str, next_step: str
) -> None:
    found = said(NHWC, *batches(*rates))
    assert found.answer.startswith(answer)
    assert found.next_step == next_step


def test_repeats_that_would_tell_which_is_fastest_are_of_those_that_may_be() -> None:
    rows = [*NHWC, *three(6, 1100.0, 0.002, xla=True), *three(11, 1101.0, 0.002), *three(16, 500.0, batch_size=2)]
    verdict = compute_verdict(rows, 1)
    assert "their ratio would be known" in verdict.next_step
    assert [spec.variant["xla"] for spec in verdict.repeated] == [False, True], "not the baseline, nor the slow one"
    assert 0 < verdict.more_repeats <= 100
    decided = said(NHWC, three(6, 2000.0), three(11, 500.0, batch_size=2))
    assert (decided.more_repeats, decided.repeated) == (0, ())


SLOW = 1600
"""A run of batch size 8, the baseline."""


@pytest.mark.parametrize(
    ("gap", "least_said", "most_said", "least_right"), [(0.0, 0, 3, 0.0), (0.01, 0, 8, 0.0), (0.05, 15, 200, 0.95)]
)
def test_repeats_that_are_said_to_tell_which_is_fastest_do(
    gap: float, least_said: int, most_said: int, least_right: float
) -> None:
    """Three variants whose runs differ by 2 %, one of them 20 % slower; the repeats are made as they are told."""
    random, said_in, right_in = np.random.default_rng(7), 0, 0
    for _ in range(200):
        rates = {size: 1000 * np.exp(random.normal(ahead, 0.02, 103)) for size, ahead in ((2, gap), (4, 0), (8, -0.2))}
        groups = [variant(200 * size, rate[:3].tolist(), batch_size=size) for size, rate in rates.items()]
        verdict = compute_verdict([row for group in groups for row in group], SLOW)
        if "would tell which is fastest" not in verdict.next_step:
            assert "leads" not in verdict.answer or "would tell" not in verdict.next_step
            continue
        said_in += 1
        assert f"{verdict.more_repeats} more repeats of these 2 would tell" in verdict.next_step
        sizes = [int(spec.variant["batch_size"]) for spec in verdict.repeated]
        more = [
            variant(200 * size + 100, rates[size][3 : 3 + verdict.more_repeats].tolist(), batch_size=size)
            for size in sizes
        ]
        answer = compute_verdict([row for group in (*groups, *more) for row in group], SLOW).answer
        right_in += "Batch size 2 is the fastest" in answer
    assert least_said <= said_in <= most_said
    assert right_in >= least_right * said_in


def test_of_two_known_narrowly_that_are_as_fast_no_repeats_are_promised() -> None:
    pair = three(6, 2000.0, 0.0001), three(11, 2000.1, 0.0001, xla=True)
    text = said(NHWC, *pair)
    assert text.answer.endswith("; NCHW may be as fast.")
    assert (text.next_step, text.more_repeats, text.repeated) == (HOW_SURE, 0, ())


def test_where_none_is_known_to_be_faster_that_is_the_answer() -> None:
    base = three(1, 1000.0, 0.01, layout="NHWC")
    noisy = [three(10 * n, 1000.0 + n, 0.01, batch_size=2**n, layout="NHWC") for n in (1, 2)]
    found = said(base, *noisy)
    assert found.answer.replace("\xa0", " ") == (
        "None of 2 other variants is known to beat the baseline; batch size 4 measured 0.2 % faster."
    )
    assert found.more_repeats > 0
    faster = three(30, 1400.0, 0.001, batch_size=8, layout="NHWC")
    widest = three(40, 1900.0, 0.5, batch_size=16, layout="NHWC")
    led = said(base, *noisy, faster, widest)
    assert led.answer.startswith("Batch size 16 leads 5 variants: "), "one that is not first is faster"


def test_few_runs_are_not_sure_and_say_how_many_it_takes() -> None:
    found = said(ONE, variant(6, [1064.0]), variant(7, [500.0], xla=True))
    assert found.answer == "NCHW leads 3 variants: 6.4\xa0% faster than NHWC; not yet sure."
    assert (found.next_step, found.more_repeats) == (FEW_RUNS_NOTE, 2)
    assert describe_method(found.results) == NO_METHOD


def test_the_best_with_an_interval_is_the_answer_where_the_leader_has_none() -> None:
    lone = variant(20, [3000.0], layout="NHWC", xla=True)
    text = said(NHWC, lone, three(6, 1100.0), three(11, 1300.0, batch_size=512))
    assert re.fullmatch(
        r"NCHW · batch size 512 leads 3 variants with enough runs: 30\.0 % faster than the baseline "
        r"\(\+29\.\d to \+30\.\d %\); another measured faster in 1 run\.",
        text.answer.replace("\xa0", " "),
    )
    slower = said(NHWC, lone, three(6, 900.0))
    assert slower.answer.endswith("; not yet sure."), "the baseline leads those with enough runs"


@pytest.mark.parametrize(("channels", "rival"), [(12_345, "channels 12345 · XLA on"), (12_345_678_901, "1 other")])
def test_the_one_that_may_be_as_fast_is_named_where_that_is_short(channels: int, rival: str) -> None:
    named = {"xla": True, "channels": channels}
    answer = said(NHWC, three(6, 1101.0, layout="NHWC", xla=True), three(11, 1100.0, layout="NHWC", **named)).answer
    assert answer.endswith(f"; {rival} may be as fast.")


def test_a_variant_of_few_runs_is_not_said_to_be_as_fast() -> None:
    led = said(NHWC, three(6, 1100.0), variant(80, [500.0], batch_size=16, layout="NHWC"))
    assert led.answer.endswith("; 1 other has too few runs.")


def test_a_long_name_of_the_fastest_leaves_out_what_the_baseline_has_too() -> None:
    alike: dict[str, Any] = {"implementation": "native", "layout": "NCHW", "channels": 32}
    base = three(1, 1000.0, **alike, batch_size=64)
    fastest = three(6, 3700.0, **alike, batch_size=1024, precision="bfloat16", xla=True)
    slowest = three(11, 900.0, implementation="keras", layout="NHWC", channels=64, batch_size=64)
    answer = said(base, fastest, slowest).answer
    assert answer.startswith(
        "Native · NCHW · … · batch size 1024 · bfloat16 · XLA on is the fastest of 3 variants: 3.70×"
    )


@pytest.mark.parametrize(
    ("settings", "rest"),
    [
        ({}, "; 1 other may be as fast, 2 others have too few runs."),
        ({"gpus": 4, "precision": "bfloat16"}, "; 3 others are not ruled out."),
    ],
)
def test_others_are_counted_together_where_the_answer_would_be_too_long(settings: dict[str, Any], rest: str) -> None:
    pair = (three(10 * n, 3000.0 + n, layout="NHWC", batch_size=1024 * 2**n, **settings) for n in (1, 2))
    few = (variant(30 * n, [500.0], batch_size=2**n, layout="NHWC") for n in (4, 5))
    answer = said(NHWC, *pair, *few).answer
    assert answer.endswith(rest)
    assert list(sentence_faults(answer)) == []


def test_no_answer_is_longer_than_can_be_said_in_a_breath() -> None:
    settings: list[dict[str, Any]] = [
        {"gpus": gpus, "batch_size": size, "precision": "bfloat16", "xla": xla, "layout": "NHWC"}
        for gpus in (1, 2)
        for size in (512, 1024)
        for xla in (False, True)
    ]
    groups = [three(10 * n, 1000.0 * n, 0.001, **each) for n, each in enumerate(settings, 1)]
    slower = [three(10 * n, 1000.0 + n, 0.001, **each) for n, each in enumerate(settings, 1)]
    lone = variant(200, [9e4], gpus=4, batch_size=1024, precision="bfloat16", xla=True, layout="NHWC")
    for some, lead, count in product((groups, slower), ([], lone), range(2, len(groups) + 1)):
        answer = compute_verdict([*(row for group in some[:count] for row in group), *lead], 10).answer
        assert (" variants with enough runs: " in answer) == bool(lead)
        assert list(sentence_faults(answer)) == []


TERSE: dict[str, Any] = {"gpus": 2, "precision": "tf32", "xla": True, "channels": 8, "layout": "NHWC"}


@pytest.mark.parametrize(("spread", "words"), [(0.001, " leads 3 comparable "), (0.5, "None of 2 other comparable ")])
def test_a_name_of_many_short_words_is_cut_where_the_answer_would_be_too_long(spread: float, words: str) -> None:
    named = (three(10 * n, 3000.0 + n, spread, batch_size=10 + n, **TERSE) for n in (1, 2))
    answer = said(NHWC, *named, ended(50, "failed", gpus=4)).answer
    assert words in answer
    assert list(sentence_faults(answer)) == []


@pytest.mark.parametrize(
    ("rate", "answer"),
    [
        (900.0, "4 GPUs, the baseline, are the fastest of 3 variants."),
        (1000.0, "4 GPUs, the baseline, lead 3 variants; 2 GPUs may be as fast."),
    ],
)
def test_the_verb_agrees_with_the_baseline_too(rate: float, answer: str) -> None:
    four = three(1, 1000.0, gpus=4)
    assert said(four, three(6, rate, gpus=2), three(11, 500.0, gpus=1)).answer == answer


def test_two_that_differ_in_several_settings_say_which() -> None:
    found = said(NHWC, three(6, 2100.0, xla=True))
    assert found.answer.startswith("NCHW · XLA on is 2.10× as fast as NHWC · XLA off (")
    assert "They differ in 2 settings: layout and XLA." in found.sentences


def test_the_verb_agrees_with_what_a_variant_is_called() -> None:
    four = variant(1, [(rate, 1.0) for rate in (1000.0, 1001.0, 999.0)], gpus=4)
    one, two = (
        said(four, variant(6, [(rate, 2.0) for rate in (1500.0, 1501.0, 1499.0)], gpus=count)).text for count in (1, 2)
    )
    assert one.startswith("1 GPU is 50.0\xa0% faster than 4 GPUs (")
    assert two.startswith("2 GPUs are 50.0\xa0% faster than 4 GPUs (")


@pytest.mark.parametrize("outcome", ["out_of_memory", "refused", "failed", "crashed"])
def test_what_never_measured_is_told_with_how_it_ended(outcome: OutcomeName) -> None:
    why = outcome.replace("_", " ")
    assert said(NHWC, ended(6, outcome)).text == f"No run of NCHW measured to its end ({why})."
    base = compute_verdict([*ended(1, outcome), *variant(6, [1.0, 2.0], layout="NHWC")], 1)
    assert base.text == f"No run of the baseline measured to its end ({why})."
    two = said(NHWC, ended(6, outcome), ended(7, outcome, xla=True))
    assert two.text == "No variant but the baseline has a complete run."
    third = said(NHWC, three(10, 1100.0), ended(6, outcome, xla=True))
    assert f"1 did not measure to the end ({why})." in third.sentences


def test_other_workloads_have_no_ratio() -> None:
    found = said(NHWC, [run_row(6, workload="lstm")])
    assert found.text == "lstm and cnn10 are different workloads, so their speeds are not compared."
    assert found.decision == "different workloads"
    third = said(NHWC, three(10, 1100.0), [run_row(6, workload="lstm")])
    assert "1 variant of another workload (lstm) is not compared." in third.sentences


def test_workloads_too_many_to_name_in_a_breath_are_counted() -> None:
    others = [with_workload(run_row(20 + n), f"model{n}.py:train") for n in range(20)]
    assert said(NHWC, others).text == "These are 21 different workloads, so their speeds are not compared."
    assert "20 variants of other workloads are not compared." in said(NHWC, three(6, 1100.0), others).sentences


def with_workload(row: RunRow, workload: str) -> RunRow:
    return replace(row, spec=RunSpec(workload=workload, variant=row.spec.variant))


def test_one_variant_alone_has_nothing_beside_it() -> None:
    found = said(NHWC)
    assert (found.decision, found.text) == (
        "nothing to compare",
        "All chosen runs are of one variant: there is nothing to compare it with.",
    )


def working(rows: list[RunRow], flops: int) -> list[RunRow]:
    """The same runs, each of whose examples takes so many operations."""
    return [
        replace(row, summary=replace(row.summary, flops_per_step=flops * int(row.spec.variant["batch_size"])))
        for row in rows
    ]


def test_what_does_other_work_is_not_ranked_beside_those_that_do_not() -> None:
    base, nchw = working(NHWC, 1000), working(three(6, 1100.0), 1000)
    deeper = [working(three(10 * n, 9000.0 * n, layout="NHWC", depth=n), 1000 * n) for n in (2, 5)]
    found = said(base, *deeper, nchw)
    assert found.answer.startswith("NCHW is 10.0\xa0% faster than NHWC (")
    assert "2 more do 2.00–5.00× the operations per image and are not ranked." in found.sentences
    third = working(three(90, 1200.0, layout="NHWC", batch_size=64), 1000)
    assert said(base, *deeper, nchw, third).answer.startswith(
        "NHWC · batch size 64 is the fastest of 3 comparable variants: 20.0\xa0% faster than NHWC · batch size 1024 ("
    )
    only = said(base, deeper[0])
    assert only.answer.startswith("Depth 2 is 18.0× as fast as depth 1 (") or "18.0×" in only.answer
    assert "It is not directly comparable: it does 2.00× the operations per image." in only.sentences
    assert "None is directly comparable: the others do 2.00–5.00× the operations per image." in (
        said(base, *deeper).sentences
    )


def test_the_method_names_its_correction_and_how_often_runs_may_have_been_judged() -> None:
    others = batches(1100.0, 1100.0, 1100.0, 1100.0)
    found = said(NHWC, *others)
    assert describe_method(found.results) == f"{METHOD}. Šidák's correction is for 4 comparisons with one baseline."
    assert describe_method(said(NHWC, others[0]).results) == METHOD
    by_hand = [replace(row, planned=None) for row in variant(6, [1100.0, 1101.0, 1099.0, 1100.0])]
    assert describe_method(said(NHWC, by_hand).results) == f"{METHOD}. This is look 2."
    assert describe_method(said(NHWC, by_hand[:3]).results) == METHOD


@pytest.mark.parametrize(
    ("energies", "sentence"),
    [
        ((10.0, 40.0, 20.0), "Not known yet which uses more energy per image."),
        ((20.0, 20.1, 19.9), "No significant difference in energy per image."),
        ((40.0, 40.1, 39.9), "It uses 2.00× the energy per image."),
        ((25.0, 25.2, 24.8), "It uses 25.0\xa0% more energy per image."),
    ],
)
def test_energy_is_a_sentence_of_its_own(energies: Sequence[float], sentence: str) -> None:
    pairs = list(zip((1100.0, 1101.0, 1099.0), energies, strict=True))
    assert said(NHWC, variant(6, pairs)).sentences[1] == sentence


def test_what_did_not_run_as_asked_comes_first() -> None:
    wrong = [run_row(6, workload="cnn10", throughput=1064.0, found=MISLABELLED)]
    found = said(ONE, wrong)
    assert found.text.startswith(
        f"The run of NCHW did not run what was requested. {MISLABELLED.reason} "
        "So this is about what ran, not what was requested. NCHW is 6.4\xa0% faster than NHWC"
    )


def test_an_effect_says_that_a_run_of_it_was_not_as_requested() -> None:
    wrong = [replace(row, evidence_state="mismatch") for row in three(6, 1100.0)]
    rows = [*NHWC, *wrong, *three(10, 3000.0, layout="NHWC", xla=True)]
    notes = [effect_notes(effect) for effect in compute_verdict(rows, 1).effects]
    assert notes == [["includes what did not run as requested"], []]


def test_an_effect_is_named_by_the_change_of_its_setting() -> None:
    rows = [row for group in (NHWC, three(6, 1100.0), three(10, 3000.0, layout="NHWC", xla=True)) for row in group]
    assert [effect_name(effect) for effect in compute_verdict(rows, 1).effects] == ["NHWC → NCHW", "XLA off → on"]
