"""Another question, and its effect at each value of two others: made when it is opened, anew for each choice."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QGuiApplication, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QComboBox
from pytestqt.qtbot import QtBot

from app.cli.main import main
from app.gui.compare.tabs import PivotView
from app.gui.threads import Background
from app.runs.experiment.presets import load_preset
from app.storage.store import Store
from tests.fakes.experiments import result
from tests.gui.compare.test_compare import ComparePage
from tests.unit.viewmodels.stored import keep, run_row, stored_run


class PivotPage(ComparePage):
    """The Compare screen on a database with some runs of an article's experiment."""

    @property
    def pivot(self) -> PivotView:
        return self.view.tabs.pivot

    def open(self) -> list[list[str]]:
        self.view.tabs.open_tab("Pivot")
        self.qtbot.waitUntil(self.pivot.table.isVisible)
        return self.cells()

    def cells(self) -> list[list[str]]:
        table = self.pivot.table
        rows = [table.headerItem(), *map(table.topLevelItem, range(table.topLevelItemCount()))]
        return [[row.text(column) for column in range(table.columnCount())] for row in rows if row]

    def choose(self, choice: QComboBox, text: str) -> None:
        choice.setCurrentText(text)
        choice.activated.emit(choice.currentIndex())


@pytest.fixture
def database(database_path: Path) -> Path:
    """Runs 1 to 8 are article C's at two batches on one and two GPUs; 9 and 10 differ in two settings."""
    variants = load_preset("article-c").all_plans()[0].variants[:8]
    with Store.open(database_path) as store:
        for number, spec in enumerate(variants, 1):
            keep(store, result(number, spec, 1000.0 + 100 * (spec.variant["layout"] == "NCHW")))
        keep(store, stored_run(run_row(9, units=64)))
        keep(store, stored_run(run_row(10, units=128, batch_size=3)))
    return database_path


@pytest.fixture
def screen(qtbot: QtBot, database: Path, background: Background) -> Iterator[PivotPage]:
    page = PivotPage(qtbot, database, background)
    yield page
    page.destroy()


def test_it_is_made_when_it_is_opened_and_stands_beside_the_article(screen: PivotPage) -> None:
    screen.compare(*range(1, 9))
    assert screen.pivot.table.topLevelItemCount() == 0
    head, first, _ = screen.open()
    assert (head[0], head[-1], first[-1]) == ("Batch size", "Article", "just under 10 % faster")
    assert [choice.currentText() for choice in (screen.pivot.rows, screen.pivot.columns)] == ["Batch size", "GPUs"]
    screen.wait_for_text("The article: channels_first makes GPU training a little faster")


def test_each_choice_makes_it_anew_and_rows_and_columns_change_places(screen: PivotPage) -> None:
    screen.compare(*range(1, 9))
    screen.open()
    screen.choose(screen.pivot.rows, "GPUs")
    screen.qtbot.waitUntil(lambda: screen.cells()[0][0] == "GPUs")
    assert screen.pivot.columns.currentText() == "Batch size"
    screen.choose(screen.pivot.columns, "GPUs")
    screen.qtbot.waitUntil(lambda: screen.cells()[0][0] == "Batch size")
    assert screen.pivot.columns.currentText() == "GPUs"


def test_other_runs_have_another_and_another_baseline_too(screen: PivotPage) -> None:
    screen.compare(*range(1, 9))
    screen.open()
    screen.compare(1, 2)
    assert len(screen.open()) == 2, "one cell"
    assert not screen.pivot.rows.isVisible(), "nothing to choose"
    with screen.qtbot.waitSignal(screen.view.tabs.pivot_requested):
        screen.controller.make_baseline(2)


def test_another_question_is_answered_as_in_the_terminal(
    screen: PivotPage, database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def chosen() -> list[str]:
        return [action.text() for action in screen.view.questions.actions() if action.isChecked()]

    screen.compare(*range(1, 9))
    assert chosen() == ["Layout"]
    choices = {action.text(): action for action in screen.view.questions.actions()}
    assert set(choices) == {"Layout", "Batch size", "GPUs"}
    screen.open()
    screen.wait_for_text("Layout NHWC → NCHW")
    choices["Batch size"].trigger()
    screen.qtbot.waitUntil(lambda: chosen() == ["Batch size"])
    screen.wait_for_text("Batch size 128 → 256: how throughput changes")
    assert "Layout NHWC → NCHW" not in screen.visible_text(), "the pivot follows the question"
    capsys.readouterr()
    assert main(["compare", *map(str, range(1, 9)), "--asked", "batch_size", "--json", "--db", str(database)]) == 0
    statement = json.loads(capsys.readouterr().out)["verdict"]["statements"][0]
    assert statement["facts"]["parameter"] == "batch_size"
    assert statement["text"] in screen.visible_text()
    screen.controller.make_baseline(2)
    assert "Comparing with run 2 …" in screen.visible_text()
    screen.qtbot.waitUntil(lambda: "Comparing with run 2 …" not in screen.visible_text())
    assert chosen() == ["Batch size"], "it stays with another baseline"
    screen.compare(1, 2)
    assert not screen.view.questions.isEnabled(), "one setting varies"


def test_variants_without_a_pair_are_told_so(screen: PivotPage) -> None:
    screen.compare(9, 10)
    screen.view.tabs.open_tab("Pivot")
    screen.wait_for_text("No two of these variants differ in one setting alone.")
    assert not screen.pivot.table.isVisible()
    screen.compare(1)
    assert "Pivot" not in screen.view.tabs.titles


def test_selected_rows_are_copied_with_their_heads(screen: PivotPage) -> None:
    screen.compare(*range(1, 9))
    head, first, _ = screen.open()
    table = screen.pivot.table
    table.setFocus()
    item = table.topLevelItem(0)
    assert item is not None
    table.setCurrentItem(item)
    QTest.keySequence(table, QKeySequence(QKeySequence.StandardKey.Copy))
    lines = [line.split("\t") for line in QGuiApplication.clipboard().text().splitlines()]
    assert lines == [head, [text.replace("\N{NO-BREAK SPACE}", " ") for text in first]]


def test_a_report_has_it_too(screen: PivotPage, tmp_path: Path) -> None:
    screen.compare(*range(1, 9))
    file = tmp_path / "report.html"
    screen.controller.save_report(file)
    screen.wait_for_text(str(file))
    words = file.read_text(encoding="utf-8")
    assert "just under 10 % faster" in words
    assert "measured on 2x RTX 2080 Ti" in words
