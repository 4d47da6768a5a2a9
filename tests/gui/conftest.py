"""Real widgets on Qt's offscreen platform; the window takes a real database and a real sampler."""

import gc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.theme import Theme
from app.gui.threads import Background
from app.gui.window_state import FILE_PROPERTY, remember_windows
from app.hosts.book import FILE_VARIABLE
from tests.gui.actions import RecordedActions
from tests.gui.history_page import HistoryPage
from tests.gui.windows import LIMIT_MS, window_on


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore what Qt says of the offscreen platform itself; all other messages fail a test."""
    own = Path(__file__).parent
    for item in items:
        if own in item.path.parents:
            item.add_marker(pytest.mark.qt_log_ignore("This plugin does not support", extend=True))


@pytest.fixture(autouse=True)
def garbage_on_this_thread() -> Iterator[None]:
    """Collect garbage on the GUI thread alone, as the program does: Qt objects must be destroyed there.

    `nothing_left_behind` collects what is left.
    """
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def no_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give the window a book of hosts of the test's own, which is empty at first."""
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "hosts.json"))


@pytest.fixture
def qtbot(qtbot: QtBot) -> QtBot:
    """Wait as long as a busy machine may need."""
    for wait in (qtbot.waitUntil, qtbot.waitSignal, qtbot.waitActive, qtbot.waitExposed):
        setattr(qtbot, wait.__name__, partial(wait, timeout=LIMIT_MS))
    return qtbot


@pytest.fixture
def theme(qtbot: QtBot) -> Iterator[Theme]:
    made = Theme()
    made.start()
    yield made
    # Some themes live on for a while; they do not follow the system in a later test.
    QGuiApplication.styleHints().colorSchemeChanged.disconnect(made.apply)
    for timer in made.findChildren(QTimer):
        timer.stop()  # hidden widgets take their colours a little later


@pytest.fixture
def window_state(qapp: QApplication, tmp_path: Path) -> Iterator[Path]:
    """Let the test's windows remember their state, in this file."""
    path = tmp_path / "state" / "window.ini"
    remember_windows(qapp, path)
    yield path
    qapp.setProperty(FILE_PROPERTY, None)


@pytest.fixture
def recorded() -> RecordedActions:
    return RecordedActions()


@pytest.fixture
def workbench(qtbot: QtBot, theme: Theme, database_path: Path) -> Iterator[Workbench]:
    """Open the whole window and wait until the machine is known."""
    with window_on(qtbot, database_path, theme) as made:
        yield made


@pytest.fixture
def background(qtbot: QtBot) -> Iterator[Background]:
    made = Background()
    yield made
    made.close()


@pytest.fixture
def history_on(qtbot: QtBot, background: Background) -> Iterator[Callable[[Path], HistoryPage]]:
    made: list[HistoryPage] = []

    def open_screen(path: Path) -> HistoryPage:
        made.append(HistoryPage(qtbot, path, background))
        return made[-1]

    yield open_screen
    for screen in made:
        screen.destroy()
