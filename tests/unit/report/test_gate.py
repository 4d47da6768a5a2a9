"""A gate on made-up runs: what passes, what fails, and what it cannot tell."""

from collections.abc import Sequence

import pytest

from app.report.gate import Gate, judge_gate
from app.report.render import gate_markdown
from app.values.records import StoredRun
from app.viewmodels.compare.comparison import Comparison, compare, prepare_comparison
from tests.fakes.experiments import result
from workloads.catalog import Machine, complete

CPU = Machine(cpu_count=4)
BASE, OTHER, THIRD = (complete("cnn10", {"gpus": 0, "batch_size": size}, CPU) for size in (8, 16, 32))
STEADY = (1000.0, 1001.0, 999.0)


def gate(margin_pct: float, *runs: StoredRun, unfinished: str = "") -> Gate:
    return judge_gate(compare(prepare_comparison(runs), 1, margin_pct=margin_pct), margin_pct, unfinished)


def runs(*rates: Sequence[float], match: bool = True) -> list[StoredRun]:
    """Runs of the baseline, then of the others."""
    specs = (BASE, OTHER, THIRD)
    return [
        result(100 * place + number, spec, rate, match=match or spec is BASE)
        for place, (spec, found) in enumerate(zip(specs, rates, strict=False))
        for number, rate in enumerate(found, 1)
    ]


def scaled(factor: float, spread: float = 1.0) -> list[float]:
    return [1000 * factor + spread * (rate - 1000) for rate in STEADY]


@pytest.mark.parametrize(
    ("factor", "spread", "outcome", "status"),
    [
        (1.0, 1.0, "passed", 0),
        (1.2, 1.0, "passed", 0),
        (0.985, 1.0, "passed", 0),
        (0.9, 1.0, "slower", 3),
        (1.0, 30.0, "cannot tell", 4),
        (0.979, 1.0, "cannot tell", 4),
        (0.9, 100.0, "cannot tell", 4),
    ],
)
def test_only_what_is_certain_passes_or_fails(factor: float, spread: float, outcome: str, status: int) -> None:
    verdict = gate(2.0, *runs(STEADY, scaled(factor, spread)))
    assert (verdict.outcome, verdict.exit_status) == (outcome, status)
    assert bool(verdict.reasons) == (outcome != "passed")


def test_each_outcome_is_a_sentence() -> None:
    assert gate(2.0, *runs(STEADY, STEADY)).sentence == "Passed: not slower by more than 2\xa0%."
    assert gate(2.0, *runs(STEADY, scaled(0.9), scaled(0.8))).sentence == (
        "Failed: slower by more than 2\xa0%. "
        "Batch size 16 and Batch size 32 are slower than the baseline by more than 2\xa0%."
    )
    assert gate(0.5, *runs(STEADY, scaled(1.0, 30.0))).sentence == (
        "Cannot tell whether slower by more than 0.5\xa0%. "
        "Whether Batch size 16 is slower than the baseline by more than 0.5\xa0% is undecided."
    )


def test_one_that_is_slower_fails_whatever_else_is_missing() -> None:
    half = runs(STEADY, scaled(0.9), [1000.0])
    assert gate(2.0, *half, unfinished="Stopped: 7 of 9 runs done.").outcome == "slower"
    missing = gate(2.0, *runs(STEADY, STEADY), unfinished="Stopped: 7 of 9 runs done.")
    assert (missing.outcome, missing.reasons) == ("cannot tell", ("Stopped: 7 of 9 runs done.",))


def test_runs_that_did_not_run_as_requested_tell_nothing() -> None:
    verdict = gate(2.0, *runs(STEADY, scaled(0.5), match=False))
    assert (verdict.outcome, verdict.exit_status) == ("cannot tell", 4)
    assert "did not run what was requested" in verdict.sentence


def test_a_gate_that_measured_nothing_fails() -> None:
    one = gate(2.0, *runs(STEADY))
    assert (one.outcome, one.reasons) == ("cannot tell", ("Nothing was compared: no two variants have runs.",))
    assert judge_gate(Comparison(), 2.0).exit_status == 4
    failed = [result(number, OTHER, outcome="failed") for number in (101, 102)]
    assert gate(2.0, *runs(STEADY), *failed).exit_status == 4
    assert gate(90.0, *runs([1000.0], [1000.0])).exit_status == 4, "one run each has no interval"


def test_the_summary_is_markdown_with_a_row_per_variant() -> None:
    text = gate_markdown(gate(2.0, *runs(STEADY, scaled(0.9), scaled(1.3))))
    lines = text.splitlines()
    assert lines[0] == "## Failed: slower by more than 2\xa0%"
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert [(row[0], row[-1]) for row in rows if not row[0].startswith("---")] == [
        ("Variant", "Against the baseline"),
        ("Batch size 8", "the baseline"),
        ("Batch size 16", "slower by more than 2\xa0%"),
        ("Batch size 32", "faster by more than 2\xa0%"),
    ]
    assert rows[2][2:4] == ["1,000.0", "1×"]
    assert rows[3][2:4] == ["900.0", "−10.0\xa0%"]
    assert "> Batch size 32 is the fastest of 3" in text
