"""The window's log in its Help menu, and what it offers of crashes before it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QApplication, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from app import crash, log
from app.gui.diagnostics import Diagnostics
from app.gui.theme import Theme
from app.gui.window import MainWindow, Page


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """What the desktop was asked to open; log and reports are in a folder of the test's own."""
    found: list[Path] = []

    def open_url(url: QUrl) -> bool:
        found.append(Path(url.toLocalFile()))
        return True

    monkeypatch.setattr(QDesktopServices, "openUrl", open_url)
    monkeypatch.setattr(crash, "watch_faults", lambda: None)
    monkeypatch.setenv("VARIANTSCOPE_LOG_DIR", str(tmp_path))
    program = logging.getLogger("variantscope")
    handlers, level = program.handlers[:], program.level
    program.handlers.clear()
    yield found
    for handler in program.handlers:
        handler.close()
    program.handlers[:] = handlers
    program.setLevel(level)


@pytest.fixture
def window(qtbot: QtBot, qapp: QApplication, opened: list[Path]) -> Iterator[MainWindow]:
    theme = Theme(qapp)
    made = MainWindow([Page("Run", QWidget)], theme)
    made.allow_close()
    qtbot.addWidget(made)
    diagnostics = Diagnostics(theme)
    diagnostics.attach(made)
    yield made
    diagnostics.deleteLater()


def show(qtbot: QtBot, window: MainWindow) -> None:
    with qtbot.waitSignal(window.painted):
        window.show()


def test_help_shows_the_log_which_is_there_once_the_window_is(
    qtbot: QtBot, window: MainWindow, opened: list[Path]
) -> None:
    assert log.log_file() is None, "nothing before the first paint"
    show(qtbot, window)
    next(action for action in window.help_menu.actions() if action.text() == "Show &log").trigger()
    assert opened == [log.log_file()]
    assert opened[0].read_text(encoding="utf-8").endswith("variantscope.gui: window opened\n")
    assert window.findChildren(QMessageBox) == []


@pytest.mark.parametrize(("label", "opens"), [("&Open folder", True), ("&Dismiss", False)])
def test_a_crash_is_offered_once(
    qtbot: QtBot, window: MainWindow, opened: list[Path], tmp_path: Path, label: str, opens: bool
) -> None:
    crash.write_report("Run 3 crashed: it died", "its log")
    show(qtbot, window)
    (box,) = window.findChildren(QMessageBox)
    assert "crashed since you last looked" in box.text()
    assert "Nothing was sent" in box.informativeText()
    with qtbot.waitSignal(box.finished):
        next(each for each in box.buttons() if each.text() == label).click()
    assert opened == ([tmp_path] if opens else [])
    assert crash.new_reports() == []
