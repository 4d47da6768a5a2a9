"""The whole window as the program opens it, with helpers that drive it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox, QPushButton
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.run.form import FormView
from app.gui.theme import Theme
from app.storage.database import save_setting
from app.storage.known_settings import ANSWERED, FIRST_START

RUN_LIMIT_MS = 240_000
READ_LIMIT_MS = 120_000
SIZE = 1280, 736
"""Of the window: the screen of a test is narrower than a user's."""


@contextmanager
def window_on(
    qtbot: QtBot,
    database: Path,
    theme: Theme,
    at_once: Callable[[Workbench], object] = lambda _: None,
    *,
    new_user: bool = False,
) -> Iterator[Workbench]:
    """Open the window and close it at the end.

    Args:
        qtbot: Waits.
        database: Its database, made where there is none.
        theme: Its theme.
        at_once: Called at its first paint.
        new_user: Leave a new database without the answer that a user gives at the first start.
    """
    if not new_user and not database.exists():
        save_setting(database, FIRST_START, ANSWERED)
    made = Workbench(database, theme, hidden_workloads=True)
    made.window.resize(*SIZE)
    qtbot.addWidget(made.window)
    made.window.painted.connect(lambda: at_once(made), Qt.ConnectionType.QueuedConnection)
    made.start()
    qtbot.waitUntil(made.run_view.form.run_button.isEnabled, timeout=RUN_LIMIT_MS)
    try:
        yield made
    finally:
        made.window.allow_close()
        made.window.close()
        made.close()


def choose(workbench: Workbench, **values: bool | float | str) -> None:
    form = workbench.run_view.form
    form.workload_chosen.emit("dummy")
    for name, value in {"gpus": 0, "steps": 0, "seconds": 0.5, **values}.items():
        form.edited.emit(name, value)


def click_run(form: FormView) -> None:
    QTest.mouseClick(form.run_button, Qt.MouseButton.LeftButton)


def press(workbench: Workbench, label: str) -> None:
    box = workbench.window.findChild(QMessageBox)
    assert isinstance(box, QMessageBox)
    next(button for button in box.findChildren(QPushButton) if button.text() == label).click()
