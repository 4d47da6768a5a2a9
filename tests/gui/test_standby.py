"""The worker that stands by for the next click."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.gui.application import Workbench
from app.gui.theme import Theme
from app.runs.standby_setting import VARIABLE
from app.storage.store import Store
from tests.fakes.standby import empty_libraries, standing_by

LIMIT_MS = 30_000


@pytest.fixture
def window_with_standby(
    qtbot: QtBot, theme: Theme, database_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workbench]:
    """A window with leases of its own, on a machine where somebody wants a worker to stand by."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(empty_libraries(tmp_path)))
    monkeypatch.setenv(VARIABLE, "on")
    made = Workbench(database_path, theme, hidden_workloads=True)
    qtbot.addWidget(made.window)
    made.start()
    yield made
    made.window.allow_close()
    made.window.close()
    made.close()
    assert standing_by() == [], "it goes with the window"


def test_one_stands_by_from_the_start_and_after_every_run(qtbot: QtBot, window_with_standby: Workbench) -> None:
    workbench = window_with_standby
    qtbot.waitUntil(lambda: len(standing_by()) == 1, timeout=LIMIT_MS)
    form = workbench.run_view.form
    qtbot.waitUntil(form.run_button.isEnabled, timeout=LIMIT_MS)
    form.workload_chosen.emit("dummy")
    for name, value in {"gpus": 0, "steps": 20, "step_ms": 1.0}.items():
        form.edited.emit(name, value)
    for _ in range(2):
        with qtbot.waitSignal(workbench.run.ended, timeout=LIMIT_MS):
            QTest.mouseClick(form.run_button, Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda: len(standing_by()) == 1, timeout=LIMIT_MS)
    with Store.open(workbench.database) as store:
        assert store.load(2).environment["standby"] == "yes"
