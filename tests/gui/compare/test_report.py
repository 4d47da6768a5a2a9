"""A report of what the Compare screen shows, saved from there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QMessageBox
from pytestqt.qtbot import QtBot

from app.gui.threads import Background
from tests.fakes.scaling import ONE, TALKING
from tests.gui.compare.test_compare import ComparePage
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.stored import keep_all


@pytest.fixture
def screen(qtbot: QtBot, database_path: Path, background: Background) -> Iterator[ComparePage]:
    """One GPU against two, compared."""
    keep_all(database_path, (*ONE, *TALKING))
    page = ComparePage(qtbot, database_path, background)
    page.compare(1, 2, 3, 4)
    yield page
    page.destroy()


def save(screen: ComparePage, monkeypatch: pytest.MonkeyPatch, name: str, chosen: str = "") -> None:
    monkeypatch.setattr(QFileDialog, "getSaveFileName", lambda *_, **_options: (name, chosen))
    QTest.mouseClick(screen.button("Save report"), Qt.MouseButton.LeftButton)


def test_the_report_says_what_the_screen_says(
    screen: ComparePage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(screen, monkeypatch, str(tmp_path / "found.html"))
    screen.wait_for_text("Written to")
    opened: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", opened.append)
    screen.button("Open it").click()
    assert opened == [QUrl.fromLocalFile(str(tmp_path / "found.html"))]
    text = (tmp_path / "found.html").read_text(encoding="utf-8").replace("\xa0", " ")
    answer = displayed_text(screen.view).splitlines()[0]
    assert "58.5 % faster" in answer
    assert f"<title>{answer}</title>" in text
    assert f"<h1>{answer}</h1>" in text


def test_a_name_without_an_ending_has_that_of_the_kind(
    screen: ComparePage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(screen, monkeypatch, str(tmp_path / "found"), "Markdown (*.md)")
    screen.wait_for_text("Written to")
    assert (tmp_path / "found.md").exists()
    assert (tmp_path / "found-speed-up.svg").exists()


@pytest.mark.parametrize("answer", [QMessageBox.StandardButton.Yes, QMessageBox.StandardButton.No])
def test_what_is_there_is_written_over_only_when_asked(
    screen: ComparePage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: QMessageBox.StandardButton,
) -> None:
    """Also where the ending was left out: the dialog would have asked about a name that is not there."""
    there = tmp_path / "found.html"
    there.write_text("mine", encoding="utf-8")
    questions: list[str] = []

    def execute(box: QMessageBox) -> QMessageBox.StandardButton:
        questions.append(box.text())
        return answer

    monkeypatch.setattr(QMessageBox, "exec", execute)
    save(screen, monkeypatch, str(tmp_path / "found"), "HTML (*.html)")
    assert questions == ["found.html already exists. Replace it?"]
    if answer == QMessageBox.StandardButton.Yes:
        screen.wait_for_text("Written to")
    assert (there.read_text(encoding="utf-8") == "mine") == (answer == QMessageBox.StandardButton.No)


def test_a_report_that_cannot_be_written_is_said(
    screen: ComparePage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(screen, monkeypatch, str(tmp_path / "nowhere" / "found.html"))
    screen.wait_for_text("cannot be written")
    save(screen, monkeypatch, "")
