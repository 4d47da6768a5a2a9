"""`compare --scaling` and what `compare` says of it, on a database with made-up runs on one GPU and on two."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.cli.main import main
from app.storage.store import Store
from app.viewmodels.history.evidence import ABOUT_WHAT_RAN
from tests.fakes.evidence import MISLABELLED
from tests.fakes.scaling import LAUNCHING, ONE, TALKING
from tests.unit.viewmodels.stored import keep


@pytest.fixture
def database(database_path: Path) -> Path:
    with Store.open(database_path) as store:
        for run in (*ONE, *TALKING, *LAUNCHING):
            keep(store, run)
    return database_path


def scaling(database: Path, *words: str) -> int:
    return main(["compare", "--scaling", *words, "--db", str(database)])


def test_it_says_how_well_and_why_not_better(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scaling(database, "1", "2", "3", "4") == 0
    words = capsys.readouterr().out
    assert "1 to 2 GPUs, the same batch per GPU (weak scaling)" in words
    assert "Efficiency 79.2 % (no interval: each side needs 3 runs or more), " in words
    assert "Most likely communication: a step takes 5.50 ms too long, 5.00 ms of that" in words
    assert "Imbalance" in words


def test_as_json_it_is_one_document(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scaling(database, "1", "2", "5", "6", "--json") == 0
    (found,) = json.loads(capsys.readouterr().out)["scaling"]
    assert (found["kind"], found["cause"], found["many"]["runs"]) == ("strong", "launching", [5, 6])
    assert found["many"]["kernels_per_step"] == 900
    assert found["lost_ms"]["idle_ms"] == pytest.approx(8.5, rel=1e-2)


def test_what_did_not_run_as_requested_is_said_first(
    database_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = replace(TALKING[0], evidence=MISLABELLED)
    with Store.open(database_path) as store:
        numbers = [str(keep(store, run)) for run in (*ONE, wrong, TALKING[1])]
    page = tmp_path / "page.md"
    assert scaling(database_path, *numbers, "--report", str(page)) == 0
    out = capsys.readouterr().out
    first = "1 of 2 runs of 2 GPUs · batch size 2048 did not run what was requested."
    assert out.startswith(first)
    assert ABOUT_WHAT_RAN in out.split("\n\n")[0].replace("\n", " ")
    assert first in page.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    assert scaling(database_path, *numbers, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["mismatch"].replace("\N{NO-BREAK SPACE}", " ").startswith(first)
    assert scaling(database_path, *numbers[:2], numbers[3], "--json") == 0
    assert json.loads(capsys.readouterr().out)["mismatch"] is None


@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_report_has_its_pictures(database: Path, tmp_path: Path, ending: str) -> None:
    page = tmp_path / f"scaling.{ending}"
    assert scaling(database, "1", "2", "3", "4", "5", "6", "--report", str(page)) == 0
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


def test_show_has_a_row_for_each_device(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "3", "--db", str(database)])
    words = capsys.readouterr().out
    (row,) = [line.split() for line in words.splitlines() if line.startswith("  GPU:1")]
    assert row == ["GPU:1", "26.5", "ms", "20.0", "ms", "5.00", "ms", "1.47", "ms", "100"], (
        "1.50 ms by the slower trace"
    )
    main(["show", "3", "--db", str(database), "--json"])
    evidence = json.loads(capsys.readouterr().out)["evidence"]
    assert (evidence["imbalance"], evidence["devices"][1]["compute_ns"]) == (0.0, 80_000_000)


def test_wrong_use_is_said(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert scaling(database, "1") == 2
    assert scaling(database, "1", "2") == 1
    assert "No two of these runs differ in their GPUs alone" in capsys.readouterr().err
    assert scaling(database, "1", "3", "--report", "x.pdf") == 2
    assert scaling(database, "1", "3", "--report", str(tmp_path / "nowhere" / "x.md")) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_compare_points_at_it(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", "1", "3", "--db", str(database)])
    assert "`python -m app compare --scaling 1 3`" in capsys.readouterr().out
    main(["compare", "1", "3", "--json", "--db", str(database)])
    assert [found["kind"] for found in json.loads(capsys.readouterr().out)["scaling"]] == ["weak"]
    main(["compare", "1", "2", "--db", str(database)])
    assert "--scaling" not in capsys.readouterr().out
