"""The words of a verdict, for every decision."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product

import numpy as np
import pytest

from app.values.records import RunRow
from app.viewmodels.compare.verdict import (
    METHOD,
    NO_METHOD,
    Verdict,
    compute_verdict,
    describe_method,
    effect_name,
    effect_notes,
)
from tests.fakes.evidence import MISLABELLED
from tests.unit.viewmodels.stored import run_row, with_settings
from workloads.protocol import OutcomeName, RunSpec, Value

Pairs = list[tuple[float, float]]
"""Throughput and energy an example of each run."""


def variant(first: int, figures: Pairs | list[float], **settings: Value) -> list[RunRow]:
    pairs = [figure if isinstance(figure, tuple) else (figure, None) for figure in figures]
    found = [run_row(first + n, workload="cnn10", throughput=rate, energy_mj=e) for n, (rate, e) in enumerate(pairs)]
    return [replace(with_settings(row, settings), planned=str(len(figures))) for row in found]


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


def keys(found: Verdict) -> list[str]:
    return [said.key for said in found.statements]


def plain(text: str) -> str:
    return text.replace("\xa0", " ")


def test_of_two_the_answer_is_by_how_much_and_how_sure_then_comes_the_energy() -> None:
    nchw = [(1064.0, 19.2), (1066.0, 19.3), (1062.0, 19.1), (1064.5, 19.2), (1063.5, 19.2)]
    found = said(NHWC, variant(6, nchw))
    assert [plain(sentence) for sentence in found.sentences] == [
        "NCHW trains 6.4 % faster than NHWC (+6.2 to +6.6 %).",
        "NHWC uses 4.2 % more energy per image (+3.5 to +4.8 %).",
        "The intervals hold at 95 %, however often you look.",
    ]
    assert keys(found) == ["effect", "energy", "sure"]
    assert (found.answer, found.next_step, found.asked) == (found.sentences[0], found.sentences[-1], "layout")
    assert found.text == " ".join(found.sentences)
    assert (found.decision, found.names) == ("faster", ("NHWC", "NCHW"))


@pytest.mark.parametrize(
    ("second", "key", "answer", "decision"),
    [
        (three(6, 900.0), "effect", "NHWC trains 11.1 % faster than NCHW (+10.", "slower"),
        (three(6, 9960.0), "effect", "NCHW is 9.96× as fast as NHWC (9.", "faster"),
        (three(6, 300.0), "effect", "NHWC is 3.33× as fast as NCHW (3.", "slower"),
        (three(6, 1001.0, 0.01), "no difference", "No difference seen between NCHW and NHWC (−", "no difference seen"),
        (three(6, 1900.0, 0.3), "not known", "Not known yet which is faster, NCHW or NHWC (", "no difference seen"),
        (variant(6, [1064.0]), "not sure", "NCHW trains 6.4 % faster than NHWC (not yet sure).", "one run each"),
        (three(6, 900.0, mode="inference"), "effect", "NHWC runs 11.1 % faster than NCHW", "slower"),
    ],
)
def test_the_winner_of_two_comes_first_with_a_number_in_one_unit(
    second: list[RunRow], key: str, answer: str, decision: str
) -> None:
    mode = second[0].spec.variant["mode"]
    found = said([with_settings(row, {"mode": mode}) for row in NHWC], second)
    assert plain(found.answer).startswith(answer)
    assert (keys(found)[0], found.decision) == (key, decision)
    assert ("%" in found.answer) != ("×" in found.answer)


def test_of_two_that_are_equal_neither_is_ahead() -> None:
    found = said(variant(1, [(1000.0, 20.0)], layout="NHWC"), variant(6, [(1000.0, 20.0)]))
    assert [plain(sentence) for sentence in found.sentences[:2]] == [
        "No difference seen between NHWC and NCHW (not yet sure).",
        "No difference seen in energy per image (not yet sure).",
    ]


def test_of_two_that_are_too_noisy_repeats_would_tell_more_or_not() -> None:
    found = said(variant(1, [1000.0, 1600.0, 3000.0], layout="NHWC"), variant(6, [1100.0, 1900.0, 3400.0]))
    assert found.next_step == "With about 24 more repeats of each (12–92) the ratio would be known to ±\xa050\xa0%."
    assert found.more_repeats == 24
    hopeless = said(variant(1, [100.0, 101.0, 100.0], layout="NHWC"), variant(6, [100.0, 1e12, 100.0]))
    assert hopeless.next_step == "More repeats would hardly help, as runs of one variant differ too much."
    assert hopeless.more_repeats == 0


@pytest.mark.parametrize(
    ("base", "compared", "amount"),
    [
        ((1000.0, 1049.0), (500.0, 500.0), ""),
        ((1000.0, 1051.0), (500.0, 500.0), "5.1 %"),
        ((1000.0, 1061.0), (500.0, 510.0), "6.1 %"),
        ((1000.0, 1059.0), (500.0, 510.0), ""),
        ((1000.0, 3000.0), (500.0, 510.0), "3.00×"),
    ],
)
def test_a_baseline_noisier_than_the_others_is_what_makes_intervals_wide(
    base: tuple[float, float], compared: tuple[float, float], amount: str
) -> None:
    sentence = said(variant(1, [base[0], *base], layout="NHWC"), variant(6, [compared[0], *compared]))
    says = "Runs of the baseline differ by"
    assert plain(sentence.next_step).startswith(f"{says} {amount}, which") if amount else says not in sentence.next_step
    assert sentence.steadier == (6 if amount else 0)
    few = said(variant(1, list(base), layout="NHWC"), variant(6, list(compared)))
    assert says not in few.next_step, "two runs have no interval"


def test_of_two_that_are_equal_within_a_margin_that_is_the_answer() -> None:
    rows = [*NHWC, *three(6, 1001.0)]
    equal = compute_verdict(rows, 1, 2.0)
    assert plain(equal.answer).startswith("NCHW and NHWC are equal within 2 % (")
    assert keys(equal)[0] == "equal"
    apart = compute_verdict([*NHWC, *three(6, 1100.0)], 1, 2.0)
    assert "With a margin of 2\xa0%: 1 faster by more." in apart.sentences


GRID = (("NHWC", 1.0), ("NCHW", 1.07))


def grid(gains: Mapping[int, float], spread: float = 0.001, **settings: Value) -> list[RunRow]:
    """Runs of both layouts at these batch sizes, at each of which NCHW is so many times as fast."""
    return [
        row
        for n, (size, gain) in enumerate(gains.items())
        for k, rate in enumerate((1000.0 + size, (1000.0 + size) * gain))
        for row in three(1 + 20 * n + 10 * k, rate, spread, batch_size=size, layout=GRID[k][0], **settings)
    ]


EFFECTS = [
    ({128: 1.07, 256: 1.07}, "effect", "NCHW trains 7.0 % faster than NHWC (*), in 2 pairs."),
    ({128: 1.0, 256: 1.0}, "no difference", "No difference seen between N* and N* (−* to +* %), in 2 pairs."),
    (
        {128: 1.0, 256: 1.07, 512: 1.07},
        "by region",
        "NCHW trains 7.0 % faster than NHWC from batch size 256 up (+* %); at batch size 128 it is not known.",
    ),
    (
        {128: 1.07, 256: 1.07, 512: 0.5, 1024: 1.0, 2048: 1.0},
        "by region",
        (
            "NCHW is 1.07× as fast as NHWC up to batch size 256 (*×); "
            "at batch size 512 NHWC is 2.00× as fast (*×); from batch size 1024 up it is not known."
        ),
    ),
    (
        {128: 1.0, 256: 1.07, 512: 1.07, 1024: 1.0},
        "by region",
        ("NCHW trains 7.0 % faster than NHWC from batch size 256 to batch size 512 (* %); elsewhere it is not known."),
    ),
    (
        {128: 1.07, 256: 0.9, 512: 1.07, 1024: 0.9},
        "varies",
        (
            "NHWC trains 1.9 % faster than NCHW in the mean of 4 pairs (*); it depends on batch size: "
            "NHWC trains 11.1 % faster at batch size *, NCHW trains 7.0 % faster at batch size *."
        ),
    ),
    (
        {128: 1.02, 256: 1.2},
        "varies",
        (
            "NCHW trains * it depends on batch size: NCHW trains 2.0 % faster at batch size 128, "
            "20.0 % at batch size 256."
        ),
    ),
]


@pytest.mark.parametrize(("gains", "key", "answer"), EFFECTS)
def test_the_answer_is_the_effect_of_the_setting_asked_about_and_where_it_holds(
    gains: Mapping[int, float], key: str, answer: str
) -> None:
    found = compute_verdict(grid(gains), 1, asked="layout")
    assert fnmatchcase(plain(found.answer), answer)
    assert (keys(found)[0], found.asked) == (key, "layout")
    assert keys(found)[1] in ("fastest", "leads"), "who is fastest of all is second"


def test_an_effect_of_more_work_says_that_it_includes_that() -> None:
    rows = [
        row
        for n, (size, depth) in enumerate(product((64, 128), (1, 2)))
        for row in working(three(1 + 10 * n, 1000.0 * size / depth, batch_size=size, depth=depth), 1000 * depth)
    ]
    asked, free = compute_verdict(rows, 1, asked="depth"), compute_verdict(rows, 1)
    assert keys(asked)[:2] == ["effect", "includes other work"]
    assert (free.asked, keys(free)[0]) == ("batch_size", "effect"), "what is no other work is asked about first"


def test_an_effect_that_another_word_explains_says_with_which() -> None:
    rows = [*grid({128: 1.0}), *(replace(row, run=row.run + 100) for row in grid({128: 1.2}, precision="tf32"))]
    assert plain(compute_verdict(rows, 1, asked="layout").answer).endswith("; with float32 it is not known.")


def test_without_a_question_it_is_about_what_most_pairs_show() -> None:
    rows = grid({128: 1.07, 256: 1.07, 512: 1.07})
    assert compute_verdict(rows, 1).asked == "layout"
    sizes = compute_verdict(rows, 1, asked="batch_size")
    assert plain(sizes.answer).startswith("Batch size 512 is the fastest of 3: 20.4 % ahead of batch size 256 (+")
    assert (sizes.asked, sizes.statements[0].facts["of"]) == ("batch_size", "batch sizes")
    assert compute_verdict(rows, 1, asked="xla").asked == "layout", "no pair shows XLA"


RANKINGS = [
    (
        (1500.0, 2100.0),
        "Batch size 4 is the fastest of 3: 1.40× as fast as batch size 2 (*×), 2.10× as batch size 1024.",
        "sure",
    ),
    (
        (900.0, 800.0),
        "Batch size 1024 is the fastest of 3: 11.1 % ahead of batch size 2 (* %), 25.0 % of batch size 4.",
        "sure",
    ),
    (
        (1200.0, 1300.0, 1400.0),
        "Batch size 8 is the fastest of 4: 7.7 % ahead of batch size 4 (*), 40.0 % of batch size 1024, the slowest.",
        "sure",
    ),
    (
        (1500.0, 1501.0),
        (
            "Batch size 4 and batch size 2 are the fastest of 3 variants; batch size 4 is 50.1 % ahead of batch size "
            "1024; which of the two leads is unknown (* %)."
        ),
        "repeats for a width",
    ),
]


@pytest.mark.parametrize(("rates", "answer", "next_step"), RANKINGS)
def test_of_more_the_leader_is_called_the_fastest_where_it_is(
    rates: Sequence[float], answer: str, next_step: str
) -> None:
    found = said(NHWC, *batches(*rates))
    assert fnmatchcase(plain(found.answer), answer)
    assert keys(found) == ["leads" if "unknown" in answer else "fastest", next_step]
    assert found.asked == "batch_size"


def test_repeats_that_would_tell_which_is_fastest_are_of_those_that_may_be() -> None:
    rows = [*NHWC, *three(6, 1100.0, 0.002, xla=True), *three(11, 1101.0, 0.002), *three(16, 500.0, batch_size=2)]
    verdict = compute_verdict(rows, 1)
    assert "the ratio would be known" in verdict.next_step
    assert {spec.variant["xla"] for spec in verdict.repeated} == {False, True}, "not the baseline, nor the slow one"
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
            continue
        said_in += 1
        assert f"{verdict.more_repeats} more repeats of these 2 would tell" in verdict.next_step
        sizes = [int(spec.variant["batch_size"]) for spec in verdict.repeated]
        more = [
            variant(200 * size + 100, rates[size][3 : 3 + verdict.more_repeats].tolist(), batch_size=size)
            for size in sizes
        ]
        answer = compute_verdict([row for group in (*groups, *more) for row in group], SLOW).answer
        right_in += answer.startswith("Batch size 2 is the fastest")
    assert least_said <= said_in <= most_said
    assert right_in >= least_right * said_in


def test_of_two_known_narrowly_that_are_as_fast_no_repeats_are_promised() -> None:
    pair = three(6, 2000.0, 0.0001), three(11, 2000.1, 0.0001, xla=True)
    text = said(NHWC, *pair)
    assert text.statements[1].facts["rivals"] == 1
    assert (keys(text)[-1], text.more_repeats, text.repeated) == ("sure", 0, ())


def test_few_runs_are_not_sure_and_say_how_many_it_takes() -> None:
    found = said(ONE, variant(6, [1064.0]), variant(7, [500.0], layout="NHWC", batch_size=2))
    assert plain(found.sentences[1]).startswith(
        "NCHW · batch size 1024 measured fastest of 3 variants: 1.06× as fast as "
    )
    assert " (not yet sure); 2 others" in plain(found.sentences[1])
    assert (found.next_step, found.more_repeats) == ("An interval takes 3 runs of each variant.", 2)
    assert describe_method(found.results) == NO_METHOD


def test_variants_of_few_runs_are_counted_apart_from_those_that_are_ranked() -> None:
    lone = variant(20, [3000.0], layout="NHWC", xla=True)
    text = said(NHWC, lone, three(6, 1100.0), three(11, 1300.0, batch_size=512))
    assert keys(text)[1:3] == ["fastest", "not ranked"]
    assert text.sentences[1].startswith("NCHW · batch size 512 is the fastest of 3: ")
    assert text.sentences[2] == "Not ranked: 1 with too few runs."


def test_an_answer_names_its_workload_once() -> None:
    other = [replace(row, spec=replace_workload(row.spec, "wrn28-10")) for row in three(50, 900.0, layout="NHWC")]
    assert said(NHWC, other, *batches(1100.0, 1500.0)).answer.startswith("cnn10: Batch size 4 is the fastest of 3: ")


def replace_workload(spec: RunSpec, workload: str) -> RunSpec:
    return RunSpec(workload=workload, variant=spec.variant)


def test_two_that_differ_in_several_settings_say_which() -> None:
    found = said(NHWC, three(6, 2100.0, xla=True))
    assert found.answer.startswith("NCHW · XLA on is 2.10× as fast as NHWC · XLA off (")
    assert "They differ in 2 settings: layout and XLA." in found.sentences


def test_the_verb_agrees_with_what_a_variant_is_called() -> None:
    four = variant(1, [(rate, 1.0) for rate in (1000.0, 1001.0, 999.0)], gpus=4)
    one, two = (
        said(four, variant(6, [(rate, 2.0) for rate in (1500.0, 1501.0, 1499.0)], gpus=count)).text for count in (1, 2)
    )
    assert one.startswith("1 GPU trains 50.0\xa0% faster than 4 GPUs (")
    assert two.startswith("2 GPUs train 50.0\xa0% faster than 4 GPUs (")
    assert ". 2 GPUs use 2.00× the energy per image (" in two


@pytest.mark.parametrize("outcome", ["out_of_memory", "refused", "failed", "crashed"])
def test_what_never_measured_is_told_with_how_it_ended(outcome: OutcomeName) -> None:
    why = outcome.replace("_", " ")
    assert said(NHWC, ended(6, outcome)).text == f"No run of NCHW measured to its end ({why})."
    base = compute_verdict([*ended(1, outcome), *variant(6, [1.0, 2.0], layout="NHWC")], 1)
    assert base.text == f"No run of NCHW measured to its end ({why})."
    two = said(NHWC, ended(6, outcome), ended(7, outcome, xla=True))
    assert two.text == "No variant but the baseline has a complete run."
    third = said(NHWC, three(10, 1100.0), ended(6, outcome, xla=True))
    assert "Not ranked: 1 without a complete run." in third.sentences


def test_other_workloads_have_no_ratio() -> None:
    found = said(NHWC, [run_row(6, workload="lstm")])
    assert found.text == "lstm and cnn10 are different workloads, so their speeds are not compared."
    assert found.decision == "different workloads"
    third = said(NHWC, three(10, 1100.0), [run_row(6, workload="lstm")])
    assert "Not ranked: 1 of other workloads." in third.sentences


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
    assert found.answer.startswith("NCHW trains 10.0\xa0% faster than NHWC (")
    assert "Not ranked: 2 with other work." in found.sentences
    third = working(three(90, 1200.0, layout="NHWC", batch_size=64), 1000)
    assert "NHWC · batch size 64 is the fastest of 3: " in said(base, *deeper, nchw, third).text
    only = said(base, deeper[0])
    assert " is 18.0× as fast as " in only.answer
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
        ((10.0, 40.0, 20.0), "No difference seen in energy per image ("),
        ((40.0, 40.1, 39.9), "NCHW uses 2.00× the energy per image ("),
        ((25.0, 25.2, 24.8), "NCHW uses 25.0\xa0% more energy per image (+"),
    ],
)
def test_energy_is_a_sentence_of_its_own(energies: Sequence[float], sentence: str) -> None:
    pairs = list(zip((1100.0, 1101.0, 1099.0), energies, strict=True))
    assert said(NHWC, variant(6, pairs)).sentences[1].startswith(sentence)


def test_what_did_not_run_as_asked_comes_first() -> None:
    wrong = [run_row(6, workload="cnn10", throughput=1064.0, found=MISLABELLED)]
    found = said(ONE, wrong)
    assert found.text.startswith(
        f"The run of NCHW did not run what was requested. {MISLABELLED.reason} "
        "So the verdict is about what ran, not what was requested. NCHW trains 6.4\xa0% faster than NHWC"
    )


def test_what_did_not_run_as_asked_follows_an_answer_that_is_not_about_it() -> None:
    wrong = [replace(row, evidence_state="mismatch") for row in three(20, 3000.0, batch_size=512, xla=True)]
    found = said(NHWC, three(6, 1064.0), wrong)
    assert found.statements[1].key == "evidence"
    assert found.text.startswith(f"{found.answer} {found.statements[1].sentence} ")


def test_an_answer_about_one_of_several_workloads_names_it() -> None:
    other = [run_row(90, throughput=70.0)]
    assert said(NHWC, three(6, 1064.0), three(10, 1200.0, batch_size=512), other).answer.startswith("cnn10: NCHW ")


def test_where_the_mean_decides_nothing_the_setting_that_tells_where_is_named() -> None:
    """Of two batches one is noise, whose interval has the other's in it: no contradiction, and yet one is known."""
    noisy = three(20, 1000.0, 0.4, layout="NHWC", batch_size=128), three(24, 1000.0, 0.4, batch_size=128)
    found = said(NHWC, three(6, 1100.0), *noisy)
    assert (keys(found)[0], found.statements[0].facts["by"]) == ("by region", "batch size")
    assert found.answer.endswith("; at batch size 128 it is not known.")


def crossed(gain: float, other: float, spread: float = 0.0001) -> Verdict:
    """The verdict on both layouts at two batches without and with XLA: one gain where both or none is on or large."""
    groups = [
        three(100 * n + 10 * (layout == "NCHW"), rate, wide, layout=layout, batch_size=size, xla=xla)
        for n, (size, xla) in enumerate(product((128, 1024), (False, True)), 1)
        for layout, rate in (("NHWC", 1000.0), ("NCHW", 1000.0 * (gain if (size == 1024) == xla else other)))
        for wide in [spread if n > 1 else 0.0001]
    ]
    return compute_verdict([row for group in groups for row in group], 100, asked="layout")


def test_pairs_that_differ_by_no_setting_are_told_by_both_ends_with_a_name_once() -> None:
    assert plain(crossed(1.02, 1.2).answer).endswith(
        "; they differ: NCHW trains 2.0 % faster in one, 20.0 % in another."
    )
    assert plain(crossed(0.9, 1.2).answer).endswith(
        "; they differ: NHWC trains 11.1 % faster in one, NCHW trains 20.0 % faster in another."
    )


@pytest.mark.parametrize(("gain", "winner"), [(1.1, "NCHW"), (0.9, "NHWC")])
def test_one_pair_shows_a_variant_ahead_and_two_show_it(gain: float, winner: str) -> None:
    found = crossed(gain, gain, 0.4)
    assert (keys(found)[0], found.statements[0].facts["pairs_ahead"]) == ("no difference", 1)
    assert found.answer.endswith(f", in 4 pairs, of which 1 shows {winner} ahead.")


def test_of_several_the_one_that_uses_least_energy_is_named_and_how_much_more_the_next_one_uses() -> None:
    def energy(*uses: float, noise: float = 0.1) -> str:
        groups = [
            variant(10 * n, [(1000.0 + n + k, use + k * noise) for k in (-1, 0, 1)], batch_size=n)
            for n, use in enumerate(uses, 1)
        ]
        found = compute_verdict([row for group in groups for row in group], 10)
        assert [statement.key for statement in found.statements].count("energy") == 1
        return plain(next(statement for statement in found.statements if statement.key == "energy").sentence)

    assert energy(40.0, 30.0, 20.0, 24.0).startswith(
        "Batch size 3 uses least energy of 4: batch size 4 uses 20.0 % more per image (+1"
    )
    assert " least energy of 3: batch size 3 uses 3.00× as much per image (2." in energy(40.0, 10.0, 30.0)
    assert energy(20.0, 20.1, 30.0, noise=1.0) == (
        "Batch size 1 measured the least energy per image of 3; 1 other may use as little."
    )
    assert energy(20.0, 20.1, 20.2, noise=1.0).endswith(" of 3; 2 others may use as little.")


def test_values_of_a_number_are_counted_as_values() -> None:
    groups = (three(10 * n, 1000.0 * n, 0.3, gpus=n, layout="NHWC") for n in (1, 2, 3))
    others = (three(100 * n, 1000.0 * n, 0.3, gpus=n) for n in (1, 2, 3))
    rows = [row for group in (*groups, *others) for row in group]
    assert " are the fastest of 3 values; 3 GPUs are 3.00×" in compute_verdict(rows, 10, asked="gpus").answer


def test_a_value_that_is_compared_with_only_one_other_is_not_the_fastest_of_two() -> None:
    rates = {(1, 512): 1000.0, (2, 512): 1500.0, (1, 256): 1000.0, (3, 256): 3000.0}
    groups = [three(10 * n, rates[key], gpus=key[0], batch_size=key[1]) for n, key in enumerate(rates, 1)]
    rows = [row for group in groups for row in group]
    assert compute_verdict(rows, 10, asked="gpus").answer.startswith("3 GPUs are 3.00× as fast as 1 GPU (")


def test_pairs_that_contradict_each_other_answer_with_the_largest_effect() -> None:
    """`b` beats `a` where `c` was not tried, and `c` beats `b` where `a` was not."""
    rates = {("a", 512): 1000.0, ("b", 512): 3000.0, ("b", 256): 1000.0, ("c", 256): 2000.0, ("c", 128): 1000.0}
    rates |= {("a", 128): 900.0}
    groups = [
        three(10 * n, rate, implementation=name, batch_size=size)
        for n, ((name, size), rate) in enumerate(rates.items(), 1)
    ]
    found = compute_verdict([row for group in groups for row in group], 10, asked="implementation")
    assert found.asked == "implementation"
    assert plain(found.answer).startswith("Implementation b is 3.00× as fast as implementation a")


def test_an_effect_says_that_a_run_of_it_was_not_as_requested() -> None:
    wrong = [replace(row, evidence_state="mismatch") for row in three(6, 1100.0)]
    rows = [*NHWC, *wrong, *three(10, 3000.0, layout="NHWC", xla=True)]
    notes = [effect_notes(effect) for effect in compute_verdict(rows, 1).effects]
    assert notes == [["includes what did not run as requested"], []]


def test_an_effect_is_named_by_the_change_of_its_setting() -> None:
    rows = [row for group in (NHWC, three(6, 1100.0), three(10, 3000.0, layout="NHWC", xla=True)) for row in group]
    assert [effect_name(effect) for effect in compute_verdict(rows, 1).effects] == ["NHWC → NCHW", "XLA off → on"]
