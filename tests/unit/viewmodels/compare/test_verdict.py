"""The words of a verdict, for every decision."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.records import RunRow
from app.viewmodels.compare.effects import effect_name
from app.viewmodels.compare.verdict import FEW_RUNS_NOTE, METHOD, NO_METHOD, Verdict, compute_verdict, describe_method
from tests.fakes.evidence import MISLABELLED
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


def test_faster_with_less_energy_as_the_documents_promise_it() -> None:
    nchw = [(1064.0, 19.2), (1066.0, 19.3), (1062.0, 19.1), (1064.5, 19.2), (1063.5, 19.2)]
    found = said(NHWC, variant(6, nchw))
    assert found.text == (
        "NCHW is 6.4\xa0% faster than NHWC (95\xa0% CI 6.2–6.6\xa0%, 5 runs each); it uses 4.0\xa0% less energy "
        "per image."
    )
    assert (found.decision, found.names) == ("faster", ("NHWC", "NCHW"))


def test_slower_with_more_energy_and_unequal_counts() -> None:
    found = said(NHWC, variant(6, [(900.0, 25.0), (902.0, 25.2), (898.0, 24.8)]))
    assert found.text.startswith("NCHW is 10.0\xa0% slower than NHWC (95\xa0% CI 9.")
    assert found.text.endswith("%, 3 against 5 runs); it uses 25.0\xa0% more energy per image.")
    assert found.decision == "slower"


def test_no_difference_says_how_large_one_could_be_and_what_would_tell_a_smaller_one() -> None:
    found = said(NHWC, variant(6, [(1000.0, 20.0), (1012.0, 20.1), (990.0, 19.9), (1003.0, 20.0), (998.0, 20.0)]))
    assert found.text == (
        "No significant difference between NCHW and NHWC (at most 1.2\xa0%; 95\xa0% CI −1.1 to +1.2\xa0%, 5 "
        "runs each); "
        "with about 16 more repeats of each (8–62) the speed-up would be known to ±\xa00.5\xa0%; "
        "no significant difference in energy per image (95\xa0% CI −0.6 to +0.6\xa0%)."
    )
    assert found.decision == "no difference seen"


def test_no_difference_where_more_would_tell_nothing() -> None:
    same = [1000.0, 1000.1, 999.9]
    found = said(variant(1, same, layout="NHWC"), variant(4, same))
    assert found.text == (
        "No significant difference between NCHW and NHWC (at most 0.03\xa0%; 95\xa0% CI −0.03 to +0.03\xa0%, 3 "
        "runs each)."
    )


def test_an_interval_that_extends_beyond_twice_as_fast_is_given_as_a_range() -> None:
    found = said(variant(1, [1000.0, 1500.0, 1200.0], layout="NHWC"), variant(6, [1500.0, 1900.0, 1600.0]))
    assert found.text.startswith("No significant difference between NCHW and NHWC (95\xa0% CI 0.")
    assert "×, 3 runs each); " in found.text
    assert found.decision == "no difference seen"


def test_even_the_slowest_may_be_faster_than_the_baseline_and_even_the_fastest_slower() -> None:
    rates = [(n, [1000.0 * n]) for n in range(2, 8)]
    faster = said(ONE, *(variant(n, rate, batch_size=2**n, layout="NHWC") for n, rate in rates))
    assert " Even the slowest: Batch size 4 ran 2.00× as fast as the baseline." in faster.text
    slower = said(
        variant(1, [9000.0], layout="NHWC"), *(variant(n, r, batch_size=2**n, layout="NHWC") for n, r in rates)
    )
    assert slower.text.startswith("Even the fastest of 6 other variants: Batch size 128 ran 22.2\xa0% slower than")
    assert " The slowest: Batch size 4 took 4.50× as long" in slower.text


def factorial(gain: float = 1.1, noise: float = 0.001) -> list[list[RunRow]]:
    """Both layouts without and with XLA, three runs each."""
    rates = {
        ("NHWC", False): 1000.0,
        ("NCHW", False): 1000.0 * gain,
        ("NHWC", True): 3000.0,
        ("NCHW", True): 3000.0 * gain,
    }
    return [
        variant(10 * n, [rate * (1 + noise * k) for k in (-1, 0, 1)], layout=layout, xla=xla)
        for n, ((layout, xla), rate) in enumerate(rates.items(), 1)
    ]


def test_where_variants_differ_in_several_settings_each_setting_s_effect_comes_first() -> None:
    found = compute_verdict([row for group in factorial() for row in group], 10)
    effects = found.sentences[:2]
    assert effects == (
        "XLA on is 3.00× as fast as XLA off, all else being equal (95\xa0% CI 2.99–3.01×, 2 pairs of variants).",
        "NCHW is 10.0\xa0% faster than NHWC, all else being equal (95\xa0% CI 9.8–10.2\xa0%, 2 pairs of variants).",
    )
    assert found.sentences[2].startswith(
        "The fastest of 3 other variants: NCHW · XLA on differs from NHWC in 2 settings (layout and XLA): "
        "it is 3.30× as fast (95\xa0% CI 3.2"
    )
    none = compute_verdict([row for group in factorial(gain=1.0, noise=0.01) for row in group], 10)
    assert none.sentences[1] == (
        "NCHW instead of NHWC has no significant effect, all else being equal (95\xa0% CI "
        "−1.9 to +2.0\xa0%, 2 pairs of variants)."
    )


def test_effects_that_only_differ_together_are_said_to_be_inseparable() -> None:
    base, _, xla, both = factorial()
    together = compute_verdict([*base, *both], 10)
    assert together.effects == ()
    assert together.text.startswith(
        "NCHW · XLA on differs from NHWC · XLA off in 2 settings (layout and XLA), and no two variants differ in only "
        "one of them, so their effects cannot be separated: it is 3.30× as fast (95\xa0% CI "
    )
    partly = [with_settings(row, {"precision": "tf32"}) for row in both]
    assert "in 3 settings (layout, precision and XLA), and no two variants in layout and precision alone: it is" in (
        compute_verdict([*base, *xla, *partly], 10).text
    )
    same = [replace(row, summary=replace(row.summary, throughput=1000.0 + n)) for n, row in enumerate(both)]
    assert "; they differ in 2 settings (layout and XLA), and no two variants differ in only one of them, " in (
        compute_verdict([*base, *same], 10).text
    )


def test_an_effect_that_is_not_the_same_everywhere_says_what_it_depends_on() -> None:
    *others, both = factorial()
    slow = [replace(row, summary=replace(row.summary, throughput=1050.0 + n)) for n, row in enumerate(both)]
    text = compute_verdict([row for group in (*others, slow) for row in group], 10).text
    assert ", 0.955–3.00× as fast across pairs: it depends on layout. " in text


def test_of_many_values_the_largest_effect_has_the_sentence() -> None:
    batches = [
        variant(
            100 * n + 10 * k, [rate * n * (k + 1) for rate in (1000.0, 1001.0, 999.0)], batch_size=2**n, layout=layout
        )
        for n in (1, 2, 3)
        for k, layout in enumerate(("NHWC", "NCHW"))
    ]
    found = compute_verdict([row for group in batches for row in group], 100)
    assert found.sentences[0].startswith("Batch size 8 is 3.00× as fast as batch size 2, all else being equal (")
    assert found.sentences[0].endswith("; the largest of 2 effects of batch size.")
    assert [effect_name(effect) for effect in found.effects] == [
        "NHWC → NCHW",
        "Batch size 2 → 4",
        "Batch size 2 → 8",
    ]


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "1 GPU is 50.0\xa0% faster than 4 GPUs ("), (2, "2 GPUs are 50.0\xa0% faster than 4 GPUs (")],
)
def test_the_verb_agrees_with_what_a_variant_is_called(count: int, words: str) -> None:
    four = variant(1, [(rate, 1.0) for rate in (1000.0, 1001.0, 999.0)], gpus=4)
    found = said(four, variant(6, [(rate, 2.0) for rate in (1500.0, 1501.0, 1499.0)], gpus=count)).text
    assert found.startswith(words)
    assert found.endswith(f"; {'it uses' if count == 1 else 'they use'} 2.00× the energy per image.")


def test_far_apart_it_is_times_not_percent() -> None:
    found = said(NHWC, variant(6, [(9960.0, 3.0), (9970.0, 3.02), (9950.0, 2.98)]))
    assert found.text.startswith("NCHW is 9.96× as fast as NHWC (95\xa0% CI 9.9")
    assert found.text.endswith("×, 3 against 5 runs); it uses 0.150× the energy per image.")
    slow = said(NHWC, variant(6, [300.0, 301.0, 299.0]))
    assert slow.text.startswith("NCHW takes 3.33× as long as NHWC (95\xa0% CI 3.")


@pytest.mark.parametrize(
    ("first", "second", "interval", "more"),
    [
        (
            [1000.0, 1600.0, 3000.0],
            [1100.0, 1900.0, 3400.0],
            "0.254–5.120×",
            "with about 24 more repeats of each (12–92) the speed-up would be known to ±\xa050\xa0%.",
        ),
        (
            [100.0, 101.0, 100.0],
            [100.0, 1e12, 100.0],
            "3e−16–1e22×",
            "more repeats would hardly help, as runs of one variant differ too much.",
        ),
    ],
)
def test_an_interval_that_allows_anything_is_said_to_be_not_known_yet(
    first: list[float], second: list[float], interval: str, more: str
) -> None:
    found = said(variant(1, first, layout="NHWC"), variant(6, second))
    assert found.text == (
        f"Not known yet which of NCHW and NHWC is faster (95\xa0% CI {interval}, 3 runs each); {more}"
    )
    assert found.decision == "no difference seen"


def test_within_a_sentence_a_parameter_has_no_capital_and_a_name_keeps_its_own() -> None:
    gpus = variant(1, [1000.0, 1001.0, 999.0], gpus=2, batch_size=8, layout="NHWC")
    found = said(gpus, variant(6, [5840.0, 5841.0, 5839.0], gpus=1, batch_size=128, layout="NHWC"))
    assert found.text.startswith(
        "1 GPU · batch size 128 differs from 2 GPUs · batch size 8 in 2 settings (GPUs and batch size), and no two "
        "variants differ in only one of them, so their effects cannot be separated: it is 5.84× as fast ("
    )
    assert found.names == ("2 GPUs · Batch size 8", "1 GPU · Batch size 128")
    alike = said(gpus, variant(6, [1000.0, 1000.5, 999.5], gpus=2, batch_size=16, layout="NHWC"))
    assert alike.text.startswith("No significant difference between batch size 16 and batch size 8 (at most ")
    compiled = said(gpus, variant(6, [300.0, 301.0, 299.0], gpus=2, batch_size=8, layout="NHWC", xla=True))
    assert compiled.text.startswith("XLA on takes 3.33× as long as XLA off (")


def test_one_run_has_no_interval_and_is_called_so_once() -> None:
    found = said(ONE, variant(6, [(1064.0, 19.0)]), variant(7, [(500.0, 40.0)], xla=True))
    assert found.text == (
        "NCHW ran 6.4\xa0% faster than NHWC; it used 5.0\xa0% less energy per image. "
        "NCHW · XLA on differs from NHWC in 2 settings (layout and XLA): it took 2.00× as long; "
        "it used 2.00× the energy per image. " + FEW_RUNS_NOTE
    )
    assert found.decision == "several variants"


@pytest.mark.parametrize(
    ("outcome", "why"),
    [("out_of_memory", "out of memory"), ("refused", "refused"), ("failed", "failed"), ("crashed", "crashed")],
)
def test_what_never_measured_is_told_with_how_it_ended(outcome: OutcomeName, why: str) -> None:
    found = said(NHWC, ended(6, outcome))
    assert found.text == f"NCHW and NHWC cannot be compared: no run of NCHW measured anything ({why})."
    assert found.decision == "nothing to compare"
    base = compute_verdict([*ended(1, outcome), *variant(6, [1.0, 2.0], layout="NHWC")], 1)
    assert base.text == f"NHWC and NCHW cannot be compared: no run of NCHW measured anything ({why})."


def test_a_few_variants_of_which_nothing_was_measured_share_a_sentence() -> None:
    faster = variant(6, [1064.0, 1065.0, 1063.0])
    large = ended(10, "out_of_memory", "Memory ran out.", batch_size=64, layout="NHWC")
    wrong = ended(11, "failed", "No such layer.", batch_size=32, layout="NHWC")
    text = said(NHWC, faster, large, wrong).text
    assert text.startswith("NCHW · batch size 1024 is 6.")
    assert text.endswith(
        " Nothing was measured of NHWC · batch size 64 (out of memory) and NHWC · batch size 32 (failed)."
    )
    also = ended(12, "out_of_memory", "Memory ran out.", batch_size=32, layout="NHWC")
    assert said(NHWC, large, also).text == ("Nothing was measured of batch size 64 and batch size 32 (out of memory).")


def test_how_runs_ended_that_have_no_result_is_told_once_and_notes_have_the_reasons() -> None:
    twice = [*ended(6, "failed", "mlp.py:3: no such layer"), *ended(7, "failed", "mlp.py:3: no such layer")]
    other = ended(8, "crashed", "The worker died of SIGSEGV.")
    found = said(NHWC, [*twice, *other])
    assert found.text.endswith(" (failed; crashed).")

    def several(first: int, count: int, outcome: OutcomeName) -> list[list[RunRow]]:
        return [ended(n, outcome, f"Reason {n}.", batch_size=n, layout="NHWC") for n in range(first, first + count)]

    assert said(NHWC, *several(10, 22, "failed")).text == "22 cannot be compared with batch size 1024 (failed)."
    mixed = [*several(10, 5, "failed"), *several(20, 1, "refused"), *several(30, 2, "crashed")]
    assert said(NHWC, *mixed, *several(40, 1, "out_of_memory")).text == (
        "9 cannot be compared with batch size 1024: 5 (failed), 2 (crashed), 1 (refused) and 1 for other reasons."
    )
    base = ended(1, "failed", "No.", layout="NHWC")
    rates = [variant(n, [1000.0], batch_size=n, layout="NHWC") for n in range(10, 16)]
    assert said(base, *rates).text == (
        "6 cannot be compared with batch size 1024: no run of it measured anything (failed)."
    )
    first = said(NHWC, ended(6, "out_of_memory", "Memory ran out. NVIDIA H200 has 139.8\xa0GiB.")).text
    assert first.endswith(" (out of memory).")


def test_other_workloads_have_no_ratio() -> None:
    found = said(NHWC, [run_row(6, workload="lstm")])
    assert found.text == "lstm and cnn10 are different workloads, so their speeds are not compared."
    assert found.decision == "different workloads"
    twice = said(NHWC, [run_row(6, workload="lstm")], [run_row(7, workload="lstm", units=32)])
    assert twice.text == found.text


def test_one_variant_alone_has_nothing_beside_it() -> None:
    found = said(NHWC)
    assert (found.decision, found.text) == (
        "nothing to compare",
        "All chosen runs are of one variant: there is nothing to compare it with.",
    )


def test_of_five_and_more_others_the_best_the_worst_and_how_many_lie_between() -> None:
    rates = [1100.0, 1300.0, 900.0, 1001.0]
    others = [
        variant(10 * n, [rate, rate * 1.001, rate * 0.999], batch_size=2**n, layout="NHWC")
        for n, rate in enumerate(rates, 1)
    ]
    found = said(NHWC, *others, ended(60, "out_of_memory", batch_size=64, layout="NHWC"))
    best, worst = "Batch size 4 is 30.0\xa0% faster than batch size 1024", "Batch size 8 is 10.0\xa0% slower than"
    assert found.text.startswith(f"The fastest of 4 other variants: {best} (95\xa0% CI 2")
    assert f"The slowest: {worst} the baseline (" in found.text
    assert found.text.endswith(
        "In between: 1 faster, 1 without a significant difference. "
        "1 cannot be compared with batch size 1024 (out of memory)."
    )
    assert found.decision == "several variants"
    alone = said(NHWC, others[0], *(ended(60 + n, "failed", batch_size=2**n, layout="NHWC") for n in range(6, 11)))
    assert alone.text.startswith("Batch size 2 is 10.0\xa0% faster than batch size 1024 (")


def working(rows: list[RunRow], flops: int) -> list[RunRow]:
    """The same runs, each of whose examples takes so many operations."""
    return [
        replace(row, summary=replace(row.summary, flops_per_step=flops * int(row.spec.variant["batch_size"])))
        for row in rows
    ]


def test_what_does_other_work_is_no_alternative_and_only_counted_beside_those_that_are() -> None:
    base = working(NHWC, 1000)
    nchw = working(variant(6, [1100.0, 1101.0, 1099.0], batch_size=64), 1000)
    deeper = [working(variant(n, [9000.0 / n], layout="NHWC", depth=n), 1000 * n) for n in range(10, 60, 10)]
    found = said(base, *deeper, nchw)
    assert found.text.startswith("NCHW · batch size 64 differs from NHWC · batch size 1024 in 2 settings (layout and ")
    assert ": it is 10.0\xa0% faster (" in found.text
    assert found.text.endswith(
        "). 5 more variants are not directly comparable: they do 10.0–50.0× the operations per image; "
        "their ratios are in the table."
    )
    assert len(found.results) == len(found.names) == 7
    many = [working(variant(100 + n, [1000.0 + n], layout="NHWC", batch_size=2**n), 1000) for n in range(6)]
    assert said(base, *many, deeper[0]).text.startswith("The fastest of 6 comparable variants: Batch size 32")
    assert said(base, nchw, deeper[0]).text.endswith(
        "1 more variant is not directly comparable: it does 10.0× the operations per image; its ratio is in the table."
    )


def test_where_nothing_does_the_same_work_the_ratios_are_told_with_what_they_are_not() -> None:
    base, deeper = (working(variant(n, [1000.0 / n], depth=n), 1000 * n) for n in (1, 2))
    assert said(base, deeper).text == (
        "Depth 2 took 2.00× as long as depth 1. "
        f"It is not directly comparable, though: it does 2.00× the operations per image. {FEW_RUNS_NOTE}"
    )
    assert "an alternative" not in said(base, variant(2, [500.0], depth=2)).text, "its work is not known"
    both = said(base, deeper, working(variant(3, [100.0], depth=3), 500)).text
    assert "None is directly comparable, though: they do 0.500–2.00× the operations per image." in both


def test_what_has_no_ratio_does_not_hide_those_that_have_one() -> None:
    base, deeper = (working(variant(n, [1000.0 / n], depth=n), 1000 * n) for n in (1, 2))
    found = said(base, deeper, [run_row(3, workload="lstm")], ended(4, "refused", depth=3))
    assert found.text.startswith("Depth 2 took 2.00× as long as depth 1. ")
    assert "no run of depth 3 measured anything (refused). " in found.text
    assert "lstm and cnn10 are different workloads" in found.text
    assert "It is not directly comparable, though: it does 2.00× the operations per image." in found.text


def test_variants_of_other_workloads_are_counted_among_many_and_stay_out_of_names() -> None:
    others = [variant(n, [1000.0 * n], batch_size=2**n, layout="NHWC") for n in range(2, 7)]
    found = said(ONE, *others, [run_row(9, workload="lstm")])
    assert found.text.startswith("The fastest of 5 other variants: Batch size 64 ran 6.00× as fast as batch size 1024.")
    assert "1 variant of another workload (lstm) is not compared." in found.text


def test_of_many_with_one_run_each_only_how_many_lie_between_is_said() -> None:
    found = said(ONE, *(variant(n, [1000.0 * n], batch_size=2**n, layout="NHWC") for n in range(2, 8)))
    assert found.text.startswith(
        "The fastest of 6 other variants: Batch size 128 ran 7.00× as fast as batch size 1024."
    )
    assert found.text.endswith(f" 4 fall in between. {FEW_RUNS_NOTE}")
    assert describe_method(found.results) == NO_METHOD


def test_four_others_have_a_sentence_each_and_the_method_names_its_correction() -> None:
    others = [variant(10 * n, [1100.0, 1101.0, 1099.0], batch_size=2**n, layout="NHWC") for n in range(1, 5)]
    found = said(NHWC, *others)
    assert found.text.count("faster than") == 4
    assert describe_method(found.results) == f"{METHOD}, with Šidák's correction for 4 comparisons with one baseline"
    assert describe_method(said(NHWC, others[0]).results) == METHOD


def test_the_method_says_how_often_runs_that_were_added_one_by_one_may_have_been_judged() -> None:
    by_hand = [replace(row, planned=None) for row in variant(6, [1100.0, 1101.0, 1099.0, 1100.0])]
    assert describe_method(said(NHWC, by_hand).results) == f"{METHOD} (as for look 2 at them)"
    assert describe_method(said(NHWC, by_hand[:3]).results) == METHOD


def test_energy_that_may_differ_by_far_is_given_as_a_range() -> None:
    found = said(NHWC, variant(6, [(1100.0, 10.0), (1101.0, 40.0), (1099.0, 20.0)]))
    assert "; not known yet which uses more energy per image (95\xa0% CI 0." in found.text
    assert found.text.endswith("×).")


def test_what_did_not_run_as_asked_comes_first() -> None:
    wrong = [run_row(6, workload="cnn10", throughput=1064.0, found=MISLABELLED)]
    found = said(ONE, wrong)
    assert found.text.startswith(
        f"Run 6 did not run what was requested. {MISLABELLED.reason} "
        "So this is about what ran, not what was requested. NCHW ran 6.4\xa0% faster than NHWC"
    )
