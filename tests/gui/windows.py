"""The whole window as the program opens it, with helpers that drive it."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QMessageBox
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.run.form import FormView
from app.gui.theme import Theme
from app.storage.database import save_setting
from app.storage.known_settings import ANSWERED, FIRST_START
from app.storage.store import Store
from app.viewmodels.format.cells import OUTCOMES
from tests.gui.screens import button
from tests.gui.texts import displayed_text

LIMIT_MS = 240_000
ENDS = frozenset(outcome.word.capitalize() for outcome in OUTCOMES.values())
"""What the Run screen says of a run that has ended."""
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

    What is frozen in `conftest.py` stays so: at its end the window thaws all modules, and whatever looks for what is
    left behind would go through them.

    Args:
        qtbot: Waits.
        database: Its database, made where there is none.
        theme: Its theme.
        at_once: Called at its first paint.
        new_user: Leave a new database without the answer that a user gives at the first start.
    """
    if not new_user and not database.exists():
        save_setting(database, FIRST_START, ANSWERED)
    with mock.patch.multiple(gc, freeze=lambda: None, unfreeze=lambda: None):
        yield from _opened(qtbot, Workbench(database, theme, hidden_workloads=True), at_once)


def _opened(qtbot: QtBot, workbench: Workbench, at_once: Callable[[Workbench], object]) -> Iterator[Workbench]:
    workbench.window.resize(*SIZE)
    qtbot.addWidget(workbench.window)
    workbench.window.painted.connect(lambda: at_once(workbench), Qt.ConnectionType.QueuedConnection)
    workbench.start()
    qtbot.waitUntil(workbench.run_view.form.run_button.isEnabled)
    try:
        yield workbench
    finally:
        workbench.window.allow_close()
        workbench.window.close()
        workbench.close()


def choose(workbench: Workbench, **values: bool | float | str) -> None:
    form = workbench.run_view.form
    form.workload_chosen.emit("dummy")
    for name, value in {"gpus": 0, "steps": 0, "seconds": 0.5, **values}.items():
        form.edited.emit(name, (value,))


def click_run(form: FormView) -> None:
    QTest.mouseClick(form.run_button, Qt.MouseButton.LeftButton)


def selected_line(form: FormView, name: str) -> QLineEdit:
    """Return the line of a field with its text selected, so that what is typed next replaces it."""
    line = form.rows[name].control
    assert isinstance(line, QLineEdit)
    line.setFocus()
    line.selectAll()
    return line


def press(workbench: Workbench, label: str) -> None:
    (box,) = workbench.window.findChildren(QMessageBox)
    button(box, label).click()


def wait_for_status(qtbot: QtBot, workbench: Workbench, title: str) -> None:
    """Wait until the Run screen says this of its run; fail at once, with what it says, when the run ended otherwise."""
    live = workbench.run_view.live

    def is_reached() -> bool:
        status = live.status
        if status.title in ENDS - {title} and not workbench.run.running:
            pytest.fail(f"waited for {title!r}, and the run ended: {displayed_text(live)}")
        return status.title == title

    qtbot.waitUntil(is_reached)


def wait_for_outcomes(qtbot: QtBot, workbench: Workbench, expected: Sequence[str]) -> None:
    """Wait until runs have ended like this, in their order; fail at once when one ended otherwise."""

    def is_reached() -> bool:
        with Store.open(workbench.database) as store:
            outcomes = [row.outcome for row in reversed(store.list_runs()) if row.outcome is not None]
        names = [outcome.name for outcome in outcomes]
        if names != list(expected[: len(names)]):
            pytest.fail(f"waited for {expected}, and the runs ended: {outcomes}")
        return len(names) == len(expected)

    qtbot.waitUntil(is_reached)
