"""Replay of a stored run in the whole window."""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QLabel, QMessageBox
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.history.screen import HistoryView
from app.gui.monitor.screen import MonitorView
from app.gui.run.replay import ReplayController, ReplayView
from app.gui.run.screen import RunView
from app.gui.theme import Theme
from app.gui.window import HISTORY, MONITOR, RUN
from app.records import Phase
from app.storage.store import Store
from app.telemetry.replay import run_recording
from tests.gui.texts import displayed_text
from tests.gui.windows import press
from tests.unit.runs.test_recording_import import ENDED, EVENTS, STARTED, lines
from tests.unit.telemetry.test_trace import INVENTORY, TELEMETRY, by_watch
from tests.unit.viewmodels.stored import keep, run_row, stored_run

LIMIT_MS = 120_000
RUN_ON_GPUS = stored_run(run_row(1, workload="cnn10", gpus=2, gpu_names=("NVIDIA H200", "NVIDIA H200")))


def click(button: object) -> None:
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)  # type: ignore[call-overload]


@pytest.fixture
def played(qtbot: QtBot, workbench: Workbench) -> ReplayView:
    """A run of two GPUs, opened from the history and played from its page."""
    with Store.open(workbench.database) as store:
        keep(store, RUN_ON_GPUS)
    workbench.window.show_page(HISTORY)
    history = workbench.window.findChild(HistoryView)
    assert isinstance(history, HistoryView)
    history.table.opened.emit(1)
    qtbot.waitUntil(lambda: history.shows_run, timeout=LIMIT_MS)
    click(history.detail.replay_button)
    qtbot.waitUntil(lambda: workbench.replay.playing, timeout=LIMIT_MS)
    assert isinstance(workbench.run_view.replay, ReplayView)
    return workbench.run_view.replay


def test_a_replay_is_marked_and_shows_the_cards_of_then(qtbot: QtBot, workbench: Workbench, played: ReplayView) -> None:
    assert played.isVisible()
    assert played.chip.text().startswith("Replay of run 1 · 2× H200 · 2025-10-09")
    assert not workbench.run_view.form.isEnabled()
    assert workbench.run_view.form.rests.isVisible()
    assert workbench.window.focusWidget() is played.live.stack
    chips = [label for label in workbench.window.findChildren(QLabel) if label.text() == played.chip.text()]
    assert [played.isAncestorOf(chip) for chip in chips] == [True], "said once, over the replay alone"
    click(played.speed_buttons[16.0])
    qtbot.waitUntil(lambda: "Completed" in displayed_text(played.live), timeout=LIMIT_MS)
    assert len(played.live.stack.panel("power_mw").curves["GPU-1"].source.points()[0]) == 120
    assert len(played.live.stack.panel("throughput").curves["run"].source.points()[0]) == 40


@pytest.mark.parametrize("by_key", [True, False])
def test_a_key_and_a_button_jump_to_the_measured_part(played: ReplayView, by_key: bool) -> None:
    click(played.pause_button)
    if by_key:
        QTest.keyClick(played.live.stack, Qt.Key.Key_M)
    else:
        click(played.measured_button)
    assert "Measuring" in displayed_text(played.live)


def test_the_bar_breaks_its_line_where_the_window_is_narrow(
    qtbot: QtBot, workbench: Workbench, played: ReplayView
) -> None:
    def below_the_chip() -> bool:
        words = played.findChildren(QLabel)
        chip = next(label for label in words if label.accessibleName() == "Replayed recording")
        return played.pause_button.mapToGlobal(QPoint()).y() > chip.mapToGlobal(QPoint(0, chip.height())).y() - 1

    workbench.window.resize(2400, 700)
    qtbot.waitUntil(lambda: not below_the_chip())
    workbench.window.resize(workbench.window.minimumSizeHint())
    qtbot.waitUntil(below_the_chip)


def test_a_trace_is_opened_from_the_monitor_and_played_without_a_run(
    qtbot: QtBot, workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = by_watch(tmp_path / "night.jsonl", INVENTORY, *TELEMETRY)
    monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_: (str(trace), ""))
    workbench.window.show_page(MONITOR)
    monitor = workbench.window.findChild(MonitorView)
    assert isinstance(monitor, MonitorView)
    click(monitor.trace_button)
    qtbot.waitUntil(lambda: workbench.replay.playing, timeout=LIMIT_MS)
    played = workbench.run_view.replay
    assert isinstance(played, ReplayView)
    assert played.isVisible()
    qtbot.waitUntil(
        lambda: played.chip.text().startswith("Replay of night.jsonl · 1× H200 · 2025-10-09"), timeout=LIMIT_MS
    )
    click(played.speed_buttons[16.0])
    qtbot.waitUntil(lambda: not played.pause_button.isEnabled(), timeout=LIMIT_MS)
    assert "Recorded telemetry" in displayed_text(played.live)
    assert "GPU 0 stopped answering" in displayed_text(played.live)
    assert not played.measured_button.isVisible(), "there is no run in it"
    assert played.live.stack.panel("power_mw").curves["GPU-a"].source.points()[1][0] == 600.0
    assert not workbench.run_view.form.isEnabled()


def test_a_file_that_is_no_trace_is_said(qtbot: QtBot, workbench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("to do\n", encoding="utf-8")
    workbench.opener.open_file(tmp_path / "notes.txt")
    button = workbench.run_view.form.run_button
    qtbot.waitUntil(lambda: "Line 1 of notes.txt" in button.accessibleDescription(), timeout=LIMIT_MS)
    assert not workbench.replay.playing


def write_database(path: Path) -> None:
    with Store.open(path) as there:
        keep(there, RUN_ON_GPUS)


def write_recording(path: Path) -> None:
    path.write_bytes(gzip.compress(lines(STARTED, *EVENTS, ENDED)))


@pytest.mark.parametrize("write", [write_database, write_recording])
def test_runs_that_are_opened_as_a_file_are_added_when_the_user_agrees(
    qtbot: QtBot, workbench: Workbench, tmp_path: Path, write: Callable[[Path], None]
) -> None:
    write(tmp_path / "night.vscope")
    workbench.opener.open_file(tmp_path / "night.vscope")
    qtbot.waitUntil(lambda: workbench.window.findChild(QMessageBox) is not None, timeout=LIMIT_MS)
    press(workbench, "&Add them")
    history = workbench.window.findChild(HistoryView)
    assert isinstance(history, HistoryView)
    qtbot.waitUntil(lambda: list(history.overview.listing.runs) == [1], timeout=LIMIT_MS)


def test_this_machine_never_has_the_cards_of_a_replay(qtbot: QtBot, workbench: Workbench, played: ReplayView) -> None:
    click(played.stop_button)
    assert workbench.run_view.live.isVisible()
    assert workbench.run_view.form.isEnabled()
    assert not workbench.run_view.form.rests.isVisible()
    assert not workbench.replay.playing
    assert "H200" not in displayed_text(workbench.run_view.live)


def test_ctrl_r_starts_no_run_under_a_replay(workbench: Workbench, played: ReplayView) -> None:
    QTest.keyClick(workbench.window, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    assert not workbench.run.running


def test_while_a_run_goes_another_is_not_played(qtbot: QtBot, workbench: Workbench) -> None:
    form = workbench.run_view.form
    form.workload_chosen.emit("dummy")
    for name, value in {"gpus": 0, "steps": 0, "seconds": 600.0}.items():
        form.edited.emit(name, (value,))
    click(form.run_button)
    workbench.opener.play(1)
    assert not workbench.replay.playing
    with qtbot.waitSignal(workbench.run.ended, timeout=LIMIT_MS):
        workbench.run.stop()


def test_a_run_that_is_not_there_is_said(qtbot: QtBot, workbench: Workbench) -> None:
    workbench.window.show_page(RUN)
    workbench.opener.play(77)
    refusal = workbench.run_view.form
    qtbot.waitUntil(lambda: "There is no run 77" in refusal.run_button.accessibleDescription(), timeout=LIMIT_MS)


def test_the_warm_up_is_played_four_times_as_fast_and_the_measured_part_as_it_was(qtbot: QtBot, theme: Theme) -> None:
    view = RunView(theme)
    qtbot.addWidget(view)
    view.show()
    controller = ReplayController(view)
    start, compiling, measured = RUN_ON_GPUS.phases
    warmup = Phase("warmup", measured.start_ns - 2_000_000_000, measured.start_ns)
    phases = (start, replace(compiling, end_ns=warmup.start_ns), warmup, measured)
    controller.play(run_recording(replace(RUN_ON_GPUS, phases=phases)))
    replay = view.replay
    assert replay is not None
    qtbot.waitUntil(lambda: "Warming up" in displayed_text(replay.live), timeout=LIMIT_MS)
    assert replay.speed_buttons[4.0].isChecked()
    qtbot.waitUntil(lambda: "Measuring" in displayed_text(replay.live), timeout=LIMIT_MS)
    qtbot.waitUntil(replay.speed_buttons[1.0].isChecked, timeout=LIMIT_MS)
    replay.restart_button.click()
    assert replay.speed_buttons[1.0].isChecked(), "from the beginning as it was"
    controller.stop()


def test_pause_holds_and_restart_begins_again(qtbot: QtBot, theme: Theme) -> None:
    view = RunView(theme)
    qtbot.addWidget(view)
    view.show()
    controller = ReplayController(view)
    controller.play(run_recording(RUN_ON_GPUS), speed=1000.0)
    replay = view.replay
    assert replay is not None
    qtbot.waitUntil(lambda: "Completed" in displayed_text(replay.live), timeout=LIMIT_MS)
    assert not replay.pause_button.isEnabled()
    click(replay.speed_buttons[1.0])
    replay.restart_button.click()
    assert "Completed" not in displayed_text(replay.live)
    click(replay.pause_button)
    assert replay.pause_button.text() == "&Resume replay"
    controller.stop()
    assert not controller.playing
