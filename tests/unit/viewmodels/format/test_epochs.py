"""Epochs and waiting for data: in the table, the totals, the page of a run, `show`, the document."""

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from app.analysis.summary import epoch_totals
from app.cli.main import main
from app.report.documents import run_document
from app.storage.store import Store
from app.values.records import StoredRun
from app.viewmodels.format import derived
from app.viewmodels.history.run_detail import run_detail
from app.viewmodels.run.timeline import Phases
from tests.fakes.runs import SPEC, S, keep
from workloads.protocol import PhaseStarted, RunSpec

NBSP = "\N{NO-BREAK SPACE}"
TOTAL = "3 epochs in 2.7 s of training and 0.3 s of testing; accuracy 70.00 %, best 75.00 % after epoch 2"


@pytest.fixture
def run(database_path: Path) -> StoredRun:
    with Store.open(database_path) as store:
        return store.load(keep(store))


def test_each_epoch_has_its_row_with_what_it_waited(run: StoredRun) -> None:
    first, *_, last = [[cell.replace(NBSP, " ") for cell in row] for row in derived.epoch_rows(run)]
    assert first == ["1", "50.00 %", "2.00", "0.90", "0.10", "20.0 %"], "4 steps of 180 ms are 0.72 of 0.9 s"
    assert last[:3] == ["3", "70.00 %", "0.667"]
    assert len(first) == len(derived.EPOCH_COLUMNS)
    assert derived.describe_epochs(run).replace(NBSP, " ") == TOTAL


def test_a_run_without_epochs_says_nothing_of_them(run: StoredRun) -> None:
    none = replace(run, epochs=())
    assert (derived.epoch_rows(none), epoch_totals(none.epochs), derived.describe_epochs(none)) == ((), None, "")
    document = run_document(none)
    assert (document["epochs"], document["training"]) == ([], None)
    detail = run_detail(none, UTC)
    assert "Epochs" not in [group.title for group in detail.groups]
    assert "accuracy" not in [panel.key for panel in detail.plots.panels]


def test_the_page_has_a_table_a_figure_and_a_curve(run: StoredRun) -> None:
    detail = run_detail(run, UTC)
    (table,) = [group for group in detail.groups if group.title == "Epochs"]
    assert [row[0] for row in table.rows] == ["1", "2", "3"]
    assert dict(detail.figures)["Accuracy"].text == "70.00"
    (panel,) = [panel for panel in detail.plots.panels if panel.key == "accuracy"]
    assert panel.curves[0].y.tolist() == [50.0, 75.0, 70.0]
    assert panel.curves[0].x.tolist() == pytest.approx([3.4, 4.4, 5.4]), "where training for it ended"
    facts = {fact.name: fact.value.replace(NBSP, " ") for group in detail.groups[:1] for fact in group.items}
    assert (facts["Waiting for data"], facts["Epochs"]) == ("52.0 %", TOTAL)


def test_the_document_has_every_epoch_and_the_totals(run: StoredRun) -> None:
    document = run_document(run)
    assert document["data"] == {"waiting_pct": 52.0, "ready_step_ms": 180.0}
    assert [epoch["accuracy"] for epoch in document["epochs"]] == [0.5, 0.75, 0.7]
    first = document["epochs"][0]
    assert (first["seconds"], first["testing_seconds"], first["examples"]) == (pytest.approx(0.9), 0.1, 32)
    assert first["waiting_pct"] == pytest.approx(20.0)
    assert document["training"]["seconds"] == pytest.approx(2.7)
    assert (document["training"]["accuracy"], document["training"]["best_epoch"]) == (0.7, 2)


def test_show_prints_them(run: StoredRun, database_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(run.row.run), "--db", str(database_path)]) == 0
    said = capsys.readouterr().out.replace(NBSP, " ")
    assert TOTAL in said
    assert "waiting for data 52.0 %" in [" ".join(line.split()) for line in said.splitlines()]
    (row,) = [line.split() for line in said.splitlines() if line.split()[:3] == ["2", "75.00", "%"]]
    assert row == ["2", "75.00", "%", "1.00", "0.90", "0.10", "20.0", "%"]


def test_the_import_is_of_whichever_framework_the_run_uses() -> None:
    phases = Phases()
    phases.begin(PhaseStarted(phase="import", t_ns=S))
    assert phases.title == "Importing the framework"


def test_before_the_measured_part_it_says_how_many_epochs_that_will_be() -> None:
    phases = Phases()
    phases.begin(PhaseStarted(phase="build", t_ns=S))
    spec = RunSpec(workload="cnn10", variant={**SPEC.variant, "epochs": 30})
    assert phases.time_left_text(spec) == "then 30 measured epochs"
