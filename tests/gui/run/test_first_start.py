"""The first start: the choice of a place for runs, asked once, and an environment made from it."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.environments.records import (
    Action,
    Environment,
    EnvironmentAnswer,
    EnvironmentOffer,
    EnvironmentRequest,
    Report,
)
from app.environments.steps import InstallError
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
from tests.fakes.runs import keep
from tests.fakes.wheels import use_wheels
from tests.gui.screens import visible_text
from tests.gui.texts import displayed_text
from tests.gui.windows import READ_LIMIT_MS, RUN_LIMIT_MS, choose, click_run, window_on
from workloads import interpreter

OFFER = EnvironmentOffer(
    name="tf221",
    folder="/envs/tf221",
    python="3.11.7",
    packages=3,
    download_bytes=1 << 20,
    free_bytes=9 << 30,
)


def shown(workbench: Workbench, qtbot: QtBot) -> FirstStartView:
    qtbot.waitUntil(lambda: is_shown(workbench), timeout=READ_LIMIT_MS)
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
    qtbot.waitUntil(lambda: bool(done), timeout=READ_LIMIT_MS)


def test_it_is_asked_once_and_found_again_in_the_settings(qtbot: QtBot, database_path: Path, theme: Theme) -> None:
    with window_on(qtbot, database_path, theme, new_user=True) as workbench:
        view = shown(workbench, qtbot)
        assert not workbench.run_view.gallery.findChildren(QuestionCard), "no questions before this one"
        assert "TensorFlow" in displayed_text(view.cards[1])
        click(view.cards[2].action_buttons[0])
        dialog = workbench.window.findChild(HostsDialog)
        assert isinstance(dialog, HostsDialog)
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
        settings = workbench.window.findChild(SettingsDialog)
        assert isinstance(settings, SettingsDialog)
        click(settings.place_button)
        view = shown(workbench, qtbot)
        choose(workbench)
        click_run(workbench.run_view.form)
        assert not is_shown(workbench), "a run has the plots"
        qtbot.waitUntil(lambda: not workbench.run.running, timeout=READ_LIMIT_MS)


def test_after_the_start_of_the_quick_comparison_the_questions_are_not_seen(
    qtbot: QtBot, database_path: Path, theme: Theme
) -> None:
    with window_on(qtbot, database_path, theme, new_user=True) as workbench:
        shown(workbench, qtbot).chosen.emit("cpu", "compare")
        assert not workbench.run_view.gallery.isVisible()
        assert workbench.run_view.live.isVisible()
        qtbot.waitUntil(lambda: workbench.queue.running, timeout=READ_LIMIT_MS)
        assert not workbench.run_view.gallery.isVisible()
        workbench.queue.stop()
        qtbot.waitUntil(lambda: not workbench.queue.running, timeout=RUN_LIMIT_MS)


def test_who_has_runs_is_not_asked(database_path: Path) -> None:
    assert first_start.is_unanswered(database_path)
    with Store.open(database_path) as store:
        keep(store)
    assert not first_start.is_unanswered(database_path)


class Install:
    """Makes an environment as a test says, on the thread of the window's job."""

    def __init__(self) -> None:
        self.end: InstallError | None = None
        self.is_confirmed = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, action: Action, request: EnvironmentRequest, report: Report) -> EnvironmentAnswer:
        if action == "offer":
            return EnvironmentAnswer(offer=OFFER)
        self.is_confirmed.set()
        report("Downloading tensorflow")
        assert self.may_end.wait(READ_LIMIT_MS / 1000)
        if self.end is not None:
            raise self.end
        return EnvironmentAnswer(environments=(Environment(name="tf221", folder=OFFER.folder, state="complete"),))


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """No environment has TensorFlow until one is made."""
    made = Install()
    found = iter([None, None, None, "2.21.0"])
    monkeypatch.setattr(first_start, "installed_framework", lambda _: next(found))
    monkeypatch.setattr("app.environments.managed.manage_environments", made)
    yield made
    made.may_end.set()


def test_tensorflow_is_fetched_when_its_size_is_accepted(
    qtbot: QtBot, database_path: Path, theme: Theme, install: Install
) -> None:
    with window_on(qtbot, database_path, theme, new_user=True) as workbench:
        view = shown(workbench, qtbot)
        card, maker = view.cards[1], view.maker

        def says(text: str) -> None:
            qtbot.waitUntil(lambda: text in f"{displayed_text(card)} {maker.text.text()}", timeout=READ_LIMIT_MS)

        def begin() -> None:
            qtbot.waitUntil(lambda: bool(card.action_buttons), timeout=READ_LIMIT_MS)
            click(card.action_buttons[0])
            assert not card.action_buttons, "one at a time"
            says(OFFER.sentence)

        says("Runs need TensorFlow")
        begin()
        qtbot.waitUntil(maker.cancel_button.isEnabled, timeout=READ_LIMIT_MS)
        click(maker.cancel_button)
        says("was not made")
        assert not install.is_confirmed.is_set(), "what was not accepted is not fetched"
        begin()
        install.end = InstallError("Installing failed: no network.")
        click(maker.accept_button)
        says("Downloading")
        install.may_end.set()
        says("no network")
        install.end = None
        begin()
        click(maker.accept_button)
        says("TensorFlow 2.21.0 is installed.")
        assert [each.text() for each in card.action_buttons] == ["Start the &quick comparison"]


def test_who_chooses_pytorch_and_has_none_gets_it_with_one_click(
    qtbot: QtBot, database_path: Path, theme: Theme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_wheels(monkeypatch, tmp_path)
    folders = interpreter._package_folders
    monkeypatch.setattr(interpreter, "_package_folders", lambda name: folders(name) if name else [])
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    with window_on(qtbot, database_path, theme) as workbench:
        form = workbench.run_view.form
        form.workload_chosen.emit("lstm")
        form.edited.emit("framework", ("pytorch",))
        qtbot.waitUntil(lambda: "PyTorch is not installed" in visible_text(form), timeout=READ_LIMIT_MS)
        assert not form.run_button.isEnabled()
        assert form.cure_buttons[0].text() == "Get PyTorch …"
        click(form.cure_buttons[0])
        accept = form.environment_maker().accept_button
        qtbot.waitUntil(accept.isVisible, timeout=READ_LIMIT_MS)
        click(accept)
        qtbot.waitUntil(form.run_button.isEnabled, timeout=RUN_LIMIT_MS)
        assert "has the environment torch215" in visible_text(form)
        assert not form.cure_buttons[0].isVisible()
        form.edited.emit("framework", ("tensorflow",))
        assert "torch215" not in visible_text(form), "that was about another framework"
