"""The first start: the choice of a place for runs, asked once, and the framework that runs there get."""

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.environments import packages
from app.gui.app import Workbench
from app.gui.experiment.gallery import QuestionCard
from app.gui.hosts.hosts_dialog import HostsDialog
from app.gui.run import first_start
from app.gui.run.first_start import FirstStartView
from app.gui.settings.dialog import SettingsDialog
from app.gui.theme import Theme
from app.storage.database import load_setting
from app.storage.known_settings import ANSWERED, FIRST_START
from app.storage.store import Store
from app.viewmodels.format.naming import short_name
from tests.fakes.runs import keep
from tests.fakes.wheels import use_wheels, write_wheel
from tests.gui.screens import visible_text
from tests.gui.texts import displayed_text
from tests.gui.windows import choose, click_run, window_on
from workloads import interpreter


def shown(workbench: Workbench, qtbot: QtBot) -> FirstStartView:
    qtbot.waitUntil(lambda: is_shown(workbench))
    view = workbench.run_view.first_start
    assert view is not None
    return view


def is_shown(workbench: Workbench) -> bool:
    view = workbench.run_view.first_start
    return view is not None and view.isVisible()


def click(button: QPushButton) -> None:
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def read_to_the_end(workbench: Workbench, qtbot: QtBot) -> None:
    """Wait until all that was to be read before is read."""
    done: list[None] = []
    workbench.reads.run(lambda: None, done.append, lambda _: None)
    qtbot.waitUntil(lambda: bool(done))


def test_it_is_asked_once_and_found_again_in_the_settings(qtbot: QtBot, database_path: Path, theme: Theme) -> None:
    with window_on(qtbot, database_path, theme, new_user=True) as workbench:
        view = shown(workbench, qtbot)
        assert not workbench.run_view.gallery.findChildren(QuestionCard), "no questions before this one"
        assert "TensorFlow" in displayed_text(view.cards[1])
        click(view.cards[2].button)
        (dialog,) = workbench.window.findChildren(HostsDialog)
        dialog.reject()
        assert view.isVisible(), "who adds no host chooses again"
        click(view.later_button)
        assert workbench.run_view.gallery.isVisible()
        read_to_the_end(workbench, qtbot)
        assert load_setting(database_path, FIRST_START) == ANSWERED
    with window_on(qtbot, database_path, theme) as workbench:
        read_to_the_end(workbench, qtbot)
        assert not is_shown(workbench)
        workbench.window.settings_requested.emit()
        (settings,) = workbench.window.findChildren(SettingsDialog)
        click(settings.place_button)
        view = shown(workbench, qtbot)
        choose(workbench)
        click_run(workbench.run_view.form)
        assert not is_shown(workbench), "a run has the plots"
        qtbot.waitUntil(lambda: not workbench.run.running)


def test_after_the_start_of_the_quick_comparison_the_questions_are_not_seen(
    qtbot: QtBot, database_path: Path, theme: Theme
) -> None:
    with window_on(qtbot, database_path, theme, new_user=True) as workbench:
        shown(workbench, qtbot).chosen.emit("cpu", "compare")
        assert not workbench.run_view.gallery.isVisible()
        assert workbench.run_view.live.isVisible()
        qtbot.waitUntil(lambda: workbench.queue.running)
        assert not workbench.run_view.gallery.isVisible()
        workbench.queue.stop()
        qtbot.waitUntil(lambda: not workbench.queue.running)


def test_who_has_runs_is_not_asked(database_path: Path) -> None:
    assert first_start.is_unanswered(database_path)
    with Store.open(database_path) as store:
        keep(store)
    assert not first_start.is_unanswered(database_path)


def test_who_wants_tensorflow_gets_a_form_whose_run_installs_it(
    qtbot: QtBot, database_path: Path, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_start, "installed_framework", lambda _: None)
    with window_on(qtbot, database_path, theme, new_user=True) as workbench:
        card = shown(workbench, qtbot).cards[1]
        qtbot.waitUntil(lambda: "Runs need TensorFlow" in displayed_text(card))
        click(card.button)
        assert not is_shown(workbench)
        assert workbench.form.form.selection.chosen["packages"] == ("tensorflow",)
        read_to_the_end(workbench, qtbot)
        assert load_setting(database_path, FIRST_START) == ANSWERED


def test_who_chooses_pytorch_and_has_none_gets_it_with_one_click(
    qtbot: QtBot, database_path: Path, theme: Theme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(use_wheels(monkeypatch, tmp_path), "torch", "9.0")
    monkeypatch.setattr(interpreter, "_package_folders", lambda _: [])
    monkeypatch.setenv("UV_TORCH_BACKEND", "auto")
    monkeypatch.setattr(packages, "nvidia_driver", lambda: True)
    with window_on(qtbot, database_path, theme) as workbench:
        form = workbench.run_view.form
        form.workload_chosen.emit("lstm")
        form.edited.emit("framework", ("pytorch",))
        qtbot.waitUntil(lambda: "PyTorch is not installed" in visible_text(form))
        assert not form.run_button.isEnabled()
        assert form.cure_buttons[0].text() == "Get PyTorch …"
        click(form.cure_buttons[0])
        assert workbench.form.form.selection.chosen["packages"] == ("torch",)
        qtbot.waitUntil(form.run_button.isEnabled)
        assert not form.cure_buttons[0].isVisible()
        click_run(form)
        qtbot.waitUntil(lambda: not workbench.run.running)
    with Store.open(database_path) as store:
        (run,) = store.list_runs()
    assert run.outcome is not None
    assert "'pytorch'" not in (run.outcome.reason or ""), "it is there, and has no code in this test"
    assert short_name(run.spec).endswith("packages torch")
