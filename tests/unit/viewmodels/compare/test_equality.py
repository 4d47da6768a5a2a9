"""What a comparison says of checks that variants compute the same."""

from dataclasses import replace

import pytest

from app.report.comparison import compare_document
from app.values.records import EqualityCheck, StoredRun
from app.viewmodels.compare.comparison import Comparison, compare, prepare_comparison
from app.viewmodels.history.evidence import stored_evidence_view
from tests.fakes.experiments import result
from workloads.catalog import Machine, complete
from workloads.protocol import RunSpec


def spec(implementation: str) -> RunSpec:
    return complete("lstm", {"gpus": 0, "implementation": implementation}, Machine())


BASE = spec("standard")


def stored(
    number: int, implementation: str, loss: float | None, difference: float | None, reason: str | None = None
) -> StoredRun:
    check = EqualityCheck(
        utc_ns=number,
        baseline=BASE.variant,
        loss_difference=loss,
        difference=difference,
        tensor="head/bias" if difference else None,
        reason=reason,
    )
    return replace(result(number, spec(implementation)), equality=(check,))


SAME = stored(2, "fused", 3e-7, 2.1e-6), stored(3, "gemm2", 4e-7, 1e-7)
WRONG = stored(4, "gemm8", 0.02, 0.25)
UNKNOWN = stored(5, "wavefront", None, None, "it took longer than 10 minutes")


def comparison(*runs: StoredRun) -> Comparison:
    return compare(prepare_comparison([result(1, BASE), *runs]), 1)


def sentences(*runs: StoredRun) -> list[tuple[str, str]]:
    found = comparison(*runs).warnings
    return [(each.severity, each.sentence.replace("\xa0", " ")) for each in found if each.key.startswith("equality")]


def test_variants_that_compute_the_same_are_a_note_with_the_largest_difference() -> None:
    assert sentences(*SAME) == [
        (
            "note",
            (
                "The baseline computes the same as Fused gates and 2 GEMMs: loss within 4.0e-07, gradients within "
                "2.1e-06 (head/bias)."
            ),
        )
    ]


def test_one_that_does_not_is_the_first_warning_and_one_that_was_not_compared_a_note() -> None:
    found = sentences(UNKNOWN, WRONG, SAME[0])
    assert found == [
        (
            "warning",
            (
                "The baseline does not compute the same as 8 separate GEMMs: loss off by 2.0 % and gradients off by "
                "25 % (head/bias). Rounding explains 1.0e-05 and 1.0e-04."
            ),
        ),
        (
            "note",
            "The baseline computes the same as Fused gates: loss within 3.0e-07, gradients within 2.1e-06 (head/bias).",
        ),
        ("note", "Not checked whether the baseline computes the same as Wavefront. It took longer than 10 minutes."),
    ]
    assert comparison(WRONG).warnings[0].runs == {4: "not the same"}


def test_nothing_is_said_of_what_was_not_checked() -> None:
    assert sentences(replace(SAME[0], equality=())) == []


def test_the_document_has_every_check() -> None:
    document = compare_document(comparison(SAME[0], UNKNOWN))
    assert document["equality"] == [
        {
            "label": "Fused gates", "runs": [2], "state": "same", "loss_difference": 3e-7, "difference": 2.1e-6,
            "tensor": "head/bias", "loss_tolerance": 1e-5, "tolerance": 1e-4, "reason": None,
        },
        {
            "label": "Wavefront", "runs": [5], "state": "not_comparable", "loss_difference": None, "difference": None,
            "tensor": None, "loss_tolerance": 1e-5, "tolerance": 1e-4, "reason": "it took longer than 10 minutes",
        },
    ]  # fmt: skip


def test_a_run_says_it_itself() -> None:
    shown = [stored_evidence_view(run).equality[0].replace("\xa0", " ") for run in (SAME[0], WRONG, UNKNOWN)]
    assert shown == [
        "Computes the same as Standard: loss within 3.0e-07, gradients within 2.1e-06 (head/bias).",
        (
            "Does not compute the same as Standard: loss off by 2.0 % and gradients off by 25 % (head/bias). Rounding "
            "explains 1.0e-05 and 1.0e-04."
        ),
        "Not checked whether it computes the same as Standard. It took longer than 10 minutes.",
    ]


@pytest.mark.parametrize(("count", "words"), [(3, " as Fused gates, 2 GEMMs and "), (4, " as 4 variants:")])
def test_as_many_variants_as_a_sentence_carries_are_named_and_more_are_counted(count: int, words: str) -> None:
    names = ("fused", "gemm2", "gemm8", "wavefront", "gemm_batched")[:count]
    ((_, sentence),) = sentences(*(stored(2 + n, name, 3e-7, 2e-6) for n, name in enumerate(names)))
    assert words in sentence


def test_the_page_of_a_run_has_the_newest_check_against_a_variant() -> None:
    (older,), (newer,) = (stored(number, "fused", 3e-7, value).equality for number, value in ((2, 2.1e-6), (3, 4e-6)))
    view = stored_evidence_view(replace(SAME[0], equality=(newer, older)))
    assert view.equality == (
        "Computes the same as Standard: loss within 3.0e-07, gradients within 4.0e-06 (head/bias).",
    )
