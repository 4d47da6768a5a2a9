"""The standby worker in the window."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.settings.dialog import ChoiceBox, SettingsDialog
from app.gui.theme import Theme
from app.runs.standby_setting import STANDBY_VARIABLE
from app.storage.database import load_setting
from app.storage.known_settings import STANDBY
from app.storage.store import Store
from tests.fakes.standby import empty_libraries, standing_by
from tests.gui.screens import visible_text
from tests.gui.windows import choose, click_run, window_on


@pytest.fixture
def window_with_standby(
    qtbot: QtBot, theme: Theme, database_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workbench]:
    """A window on a machine where somebody wants a worker to stand by."""
    monkeypatch.setenv("PYTHONPATH", str(empty_libraries(tmp_path)))
    monkeypatch.setenv(STANDBY_VARIABLE, "on")
    with window_on(qtbot, database_path, theme) as made:
        yield made
    assert standing_by() == [], "it goes with the window"


def test_one_stands_by_from_the_start_and_after_every_run(qtbot: QtBot, window_with_standby: Workbench) -> None:
    workbench = window_with_standby
    qtbot.waitUntil(lambda: len(standing_by()) == 1)
    choose(workbench, steps=20, step_ms=1.0)
    for _ in range(2):
        with qtbot.waitSignal(workbench.run.ended):
            click_run(workbench.run_view.form)
        qtbot.waitUntil(lambda: len(standing_by()) == 1)
    with Store.open(workbench.database) as store:
        assert store.load(2).environment["standby"] == "yes"


def standby_box(workbench: Workbench) -> ChoiceBox:
    workbench.window.settings_requested.emit()
    (dialog,) = workbench.window.findChildren(SettingsDialog)
    return dialog.standby_box


def test_switching_it_on_and_off_takes_effect_at_once_and_is_kept(
    qtbot: QtBot, theme: Theme, database_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(empty_libraries(tmp_path)))
    monkeypatch.delenv(STANDBY_VARIABLE)
    with window_on(qtbot, database_path, theme) as workbench:
        box = standby_box(workbench)
        assert box.currentText().startswith(("Automatic: on here", "Automatic: off here, "))
        box.chosen.emit("on")
        qtbot.waitUntil(lambda: len(standing_by()) == 1)
        box.chosen.emit("off")
        qtbot.waitUntil(lambda: standing_by() == [])
        assert load_setting(database_path, STANDBY) == "off"
    with window_on(qtbot, database_path, theme) as workbench:
        box = standby_box(workbench)
        qtbot.waitUntil(lambda: box.currentText() == "Off")


def test_the_variable_decides_and_the_dialog_says_so(window_with_standby: Workbench) -> None:
    box = standby_box(window_with_standby)
    assert (box.currentText(), box.isEnabled()) == ("On", False)
    assert "The environment variable VARIANTSCOPE_STANDBY decides." in visible_text(box.window())
