"""Notifications at the end of a long run while another window is active."""

import os
import time
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QSystemTrayIcon, QWidget
from pytestqt.qtbot import QtBot

from app.errors import UserError
from app.gui.app import Workbench
from app.gui.settings import settings
from app.gui.settings.settings import RunEndNotifier, SettingsStore
from app.gui.theme import Theme
from app.gui.threads import Background
from app.gui.window import MainWindow
from app.storage.database import load_setting
from app.storage.known_settings import NOTICE
from app.values.events import Outcome, RunEnded, RunStarted, Summary
from tests.gui.windows import choose, click_run
from workloads.catalog import Machine, complete


@pytest.fixture
def notices(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what reaches a desktop without a tray, as Qt's offscreen platform is."""
    found: list[str] = []

    def alert(window: QWidget) -> None:
        found.append("alert")

    monkeypatch.setattr(QApplication, "alert", alert)
    monkeypatch.setattr(QApplication, "beep", lambda: found.append("beep"))
    return found


def fail(error: UserError) -> None:
    raise error


@pytest.fixture
def notifier(
    qtbot: QtBot, theme: Theme, database_path: Path, background: Background, monkeypatch: pytest.MonkeyPatch
) -> RunEndNotifier:
    """The notifier of a window behind another one."""
    window = MainWindow((), theme)
    qtbot.addWidget(window)
    monkeypatch.setattr(window, "isActiveWindow", lambda: False)
    return RunEndNotifier(window, SettingsStore(database_path, background, fail))


def use_tray(monkeypatch: pytest.MonkeyPatch, notices: list[str]) -> None:
    monkeypatch.setattr(QSystemTrayIcon, "isSystemTrayAvailable", lambda: True)
    monkeypatch.setattr(QSystemTrayIcon, "show", lambda _tray: notices.append("shown"))
    monkeypatch.setattr(QSystemTrayIcon, "showMessage", lambda _tray, *words: notices.extend(words))


def end_of_a_run(notice: RunEndNotifier, lasted_s: float) -> None:
    ended_ns = time.monotonic_ns()
    began_ns = ended_ns - int(lasted_s * 1e9)
    spec = complete("dummy", {"gpus": 0}, Machine())
    notice.handle(RunStarted(run=7, spec=spec, t_ns=began_ns, utc_ns=0, devices=()))
    notice.handle(RunEnded(run=7, t_ns=ended_ns, outcome=Outcome(name="out_of_memory"), summary=Summary()))
    notice.notify()


@pytest.mark.parametrize(
    ("choice", "lasted_s", "active", "expected"),
    [
        ("message", 61.0, False, ["alert"]),
        ("sound", 61.0, False, ["alert", "beep"]),
        ("sound", 59.0, False, []),
        ("sound", 61.0, True, []),
        ("off", 61.0, False, []),
    ],
)
def test_a_long_run_is_told_of_when_another_window_is_in_front(
    qtbot: QtBot,
    notifier: RunEndNotifier,
    notices: list[str],
    monkeypatch: pytest.MonkeyPatch,
    choice: str,
    lasted_s: float,
    active: bool,
    expected: list[str],
) -> None:
    monkeypatch.setattr(notifier._window, "isActiveWindow", lambda: active)
    with qtbot.waitSignal(notifier.choice.saved):
        notifier.choice.choose(choice)
    end_of_a_run(notifier, lasted_s)
    assert notices == expected


def test_a_tray_shows_which_run_ended_and_how(
    notifier: RunEndNotifier, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_tray(monkeypatch, notices)
    end_of_a_run(notifier, 75.0)
    assert notices == ["shown", "Run 7: out of memory", "dummy TensorFlow train · CPU · batch 8, after 1:15"]


def test_a_desktop_without_a_tray_is_told_by_its_own_program(
    qtbot: QtBot, notifier: RunEndNotifier, notices: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, message = tmp_path / "notify-send", tmp_path / "message"
    program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/part && mv {tmp_path}/part {message}\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(settings, "has_desktop", lambda: True)
    end_of_a_run(notifier, 75.0)
    qtbot.waitUntil(message.exists)
    assert message.read_text().splitlines()[-3:] == [
        "--",
        "Run 7: out of memory",
        "dummy TensorFlow train · CPU · batch 8, after 1:15",
    ]
    assert notices == []


def test_a_run_of_the_window_is_told_of_and_of_an_experiment_the_verdict(
    qtbot: QtBot, workbench: Workbench, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "LONG_RUN_S", 0.2)
    monkeypatch.setattr(workbench.window, "isActiveWindow", lambda: False)
    choose(workbench)
    with qtbot.waitSignal(workbench.run.ended):
        click_run(workbench.run_view.form)
    assert notices == ["alert"]
    use_tray(monkeypatch, notices)
    monkeypatch.setattr(settings, "LONG_RUN_S", 0.0)
    workbench.queue.entry_ended.emit("B is 2.00× as fast as A", "B ran 100 % faster than A. “two” is complete.")
    assert notices[1:] == [
        "shown",
        "B is 2.00× as fast as A",
        "B ran 100 % faster than A. “two” is complete. It took 0:00.",
    ]


def test_the_choice_is_kept_in_the_database(
    qtbot: QtBot, theme: Theme, notifier: RunEndNotifier, database_path: Path, background: Background
) -> None:
    window = MainWindow((), theme)
    qtbot.addWidget(window)
    later = RunEndNotifier(window, SettingsStore(database_path, background, fail))
    notifier.choice.choose("off")
    later.choice.start()
    qtbot.waitUntil(lambda: later.choice.value == "off")
    assert load_setting(database_path, NOTICE) == "off"
