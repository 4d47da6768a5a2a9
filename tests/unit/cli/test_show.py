"""Evidence as `list`, `show` and `compare` print it, from a real database."""

from pathlib import Path

import pytest

from tests.fakes.command_line import Run
from tests.fakes.evidence import AS_REQUESTED, IN_PART, MISLABELLED, PORTABLE, UNKNOWN
from tests.unit.viewmodels.stored import keep_all, run_row, stored_run


@pytest.fixture
def run(run: Run, database_path: Path) -> Run:
    """A command on runs 1 to 5: verified, a mismatch, not verifiable, without evidence, and verified in part."""
    for number, found in enumerate((AS_REQUESTED, MISLABELLED, UNKNOWN, None, IN_PART), 1):
        row = run_row(number, gpus=1, layers=number, found=found, gflops=13_375.0 if found else None)
        keep_all(database_path, [stored_run(row, evidence=found, portability=PORTABLE if number == 1 else ())])
    return run


def test_list_has_a_badge_a_run(run: Run) -> None:
    head, *rows = run("list").splitlines()
    place = head.index("evidence")
    assert [row[place] for row in rows] == ["◐", " ", "?", "✘", "✔"]


def test_show_prints_requested_actual_kernels_gaps_and_weights_elsewhere(run: Run) -> None:
    said = run("show", "1")
    assert "✔ Verified: cuDNN · TF32 products on tensor cores · XLA off · 1 GPU" in said
    metrics = [" ".join(line.split()) for line in said.splitlines()]
    assert "computed 13.4 TFLOPS 334 billion operations per step, by formula" in metrics
    assert "MFU 3.3 % Of 400 TFLOPS, measured with a large matrix product" in metrics
    assert "In 87.7 % of the measured step no kernel runs." in said
    assert "Of kernel time: GEMM 61.1 %, RNN 31.7 %" in said
    first, second = (line for line in said.splitlines() if "sm90_xmma_gemm_f32f32_" in line)
    assert first.split()[:3] == ["47.4", "%", "█" * 20]
    assert first.split()[-1] != second.split()[-1], "both ends tell kernels apart"
    assert len(first) <= 120, "long names give way"
    assert "13 more kernels" in said
    assert "Standard on Intel Xeon Platinum 8481C, float32  2.4e-04" in said


def test_show_says_why_a_run_is_not_what_was_requested(run: Run) -> None:
    said = run("show", "2")
    assert f"✘ Mismatch: {MISLABELLED.reason}" in said
    marked = [line.split() for line in said.splitlines() if line.endswith("✘")]
    assert marked == [["Implementation", "cuDNN", "Standard", "✘"]]


def test_show_says_that_there_is_none(run: Run) -> None:
    assert "No evidence was stored: The run is from a version" in run("show", "4")


def test_a_verdict_over_a_mislabelled_run_warns_once(run: Run) -> None:
    said = run("compare", "1", "2")
    assert (
        f" did not run what was requested. {MISLABELLED.reason} So the verdict is about what ran"
        in said.splitlines()[0]
    )
    assert said.count(str(MISLABELLED.reason)) == 1
    assert [line[-1] for line in said.splitlines() if line[-1:] in ("✔", "✘")] == ["✔", "✘"]
