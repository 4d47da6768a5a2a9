"""`compare --scaling` and what `compare` says of it, on a database with made-up runs on one GPU and on two."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.viewmodels.history.evidence import ABOUT_WHAT_RAN
from tests.fakes.command_line import Run
from tests.fakes.evidence import MISLABELLED
from tests.fakes.scaling import LAUNCHING, ONE, TALKING
from tests.unit.viewmodels.stored import keep_all


@pytest.fixture
def stored(run: Run, database_path: Path) -> Run:
    """A command on runs 1 and 2 on one GPU, and 3 to 6 on two."""
    keep_all(database_path, (*ONE, *TALKING, *LAUNCHING))
    return run


@pytest.fixture
def scaling(stored: Run) -> Run:
    return partial(stored, "compare", "--scaling")


def test_it_says_how_well_and_why_not_better(scaling: Run) -> None:
    words = scaling("1", "2", "3", "4")
    assert "1 to 2 GPUs, the same batch per GPU (weak scaling)" in words
    assert "Efficiency 79.2 % (no interval: each side needs 3 runs or more), " in words
    assert "Most likely communication: a step takes 5.50 ms too long, 5.00 ms of that" in words
    assert "Imbalance" in words


def test_as_json_it_is_one_document(scaling: Run) -> None:
    (found,) = json.loads(scaling("1", "2", "5", "6", "--json"))["scaling"]
    assert (found["kind"], found["cause"], found["many"]["runs"]) == ("strong", "launching", [5, 6])
    assert found["many"]["kernels_per_step"] == 900
    assert found["lost_ms"]["idle_ms"] == pytest.approx(8.5, rel=1e-2)


def test_what_did_not_run_as_requested_is_said_first(run: Run, database_path: Path, tmp_path: Path) -> None:
    wrong = replace(TALKING[0], evidence=MISLABELLED)
    numbers = [*map(str, keep_all(database_path, (*ONE, wrong, TALKING[1])))]
    page = tmp_path / "page.md"
    out = run("compare", "--scaling", *numbers, "--report", str(page))
    first = "1 of 2 runs of 2 GPUs · batch size 2048 did not run what was requested."
    assert out.startswith(first)
    assert ABOUT_WHAT_RAN in out.split("\n\n")[0].replace("\n", " ")
    assert first in page.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    document = json.loads(run("compare", "--scaling", *numbers, "--json"))
    assert document["mismatch"].replace("\N{NO-BREAK SPACE}", " ").startswith(first)
    assert json.loads(run("compare", "--scaling", *numbers[:2], numbers[3], "--json"))["mismatch"] is None


@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_report_has_its_pictures(scaling: Run, tmp_path: Path, ending: str) -> None:
    page = tmp_path / f"scaling.{ending}"
    scaling("1", "2", "3", "4", "5", "6", "--report", str(page))
    text = page.read_text(encoding="utf-8")
    if ending == "md":
        assert "![1 to 2 GPUs, the same batch per GPU (weak scaling)](<scaling-scaling-1.svg>)" in text
        text = (tmp_path / "scaling-scaling-1.svg").read_text(encoding="utf-8")
    assert text.count("<svg") == (1 if ending == "md" else 2)
    picture = ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    bars = [
        float(part.get("width", "0")) for part in picture if part.tag.endswith("rect") and part.get("height") == "26.0"
    ]
    assert bars[3] + bars[4] + bars[5] == pytest.approx(300, rel=1e-2), "the longest step fills the room"
    assert bars[4] / bars[3] == pytest.approx(5 / 20, rel=1e-2)


def test_show_has_a_row_for_each_device(stored: Run) -> None:
    (row,) = [line.split() for line in stored("show", "3").splitlines() if line.startswith("  GPU:1")]
    assert row == ["GPU:1", "26.5", "ms", "20.0", "ms", "5.00", "ms", "1.47", "ms", "100"], (
        "1.50 ms by the slower trace"
    )
    evidence = json.loads(stored("show", "3", "--json"))["evidence"]
    assert (evidence["imbalance"], evidence["devices"][1]["compute_ns"]) == (0.0, 80_000_000)


def test_wrong_use_is_said(scaling: Run, tmp_path: Path) -> None:
    scaling("1", status=2)
    assert "No two of these runs differ in their GPUs alone" in scaling("1", "2", status=1)
    scaling("1", "3", "--report", "x.pdf", status=2)
    assert "cannot be written" in scaling("1", "3", "--report", str(tmp_path / "nowhere" / "x.md"), status=1)


def test_compare_points_at_it(stored: Run) -> None:
    assert "`python -m app compare --scaling 1 3`" in stored("compare", "1", "3")
    document = json.loads(stored("compare", "1", "3", "--json"))
    assert [found["kind"] for found in document["scaling"]] == ["weak"]
    assert "--scaling" not in stored("compare", "1", "2")
