"""The whole window with the real sampler, the real store and the real dummy worker."""

import gc
import weakref
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog, QLabel, QMessageBox, QPushButton, QTabBar, QWidget
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.compare.screen import CompareView
from app.gui.history.screen import HistoryView
from app.gui.monitor.screen import MonitorView
from app.gui.theme import DARK, GRID, Theme
from app.gui.widgets.basic import plain_tooltip
from app.gui.window import HISTORY, MONITOR, RUN, MainWindow, Page
from app.runs.undo import Reversal
from app.storage.store import Store
from tests.fakes.sessions import kill_sampler
from tests.gui.screens import muted_colours
from tests.gui.texts import displayed_text
from tests.gui.windows import choose, click_run, press, wait_for_outcomes, window_on


def test_a_click_on_run_fills_the_plots_and_ends_in_words(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench)
    with qtbot.waitSignal(workbench.run.ended):
        click_run(workbench.run_view.form)
        assert workbench.run.running
    view = workbench.run_view.live
    assert "Completed" in displayed_text(view)
    assert "examples/s" in displayed_text(view)
    assert len(view.stack.panel("throughput").curves["run"].source.points()[0]) > 0
    assert len(view.stack.panel("loss").curves["run"].source.points()[0]) > 0
    assert len(view.stack.panel("load_pct").curves["host"].source.points()[0]) > 0
    wait_for_outcomes(qtbot, workbench, ["completed"])


def test_a_window_opens_no_larger_than_its_screen(qtbot: QtBot, theme: Theme) -> None:
    window = MainWindow((Page("Run", QWidget),), theme)
    qtbot.addWidget(window)
    screen = window.screen().availableSize()
    assert screen.width() < 160 * GRID
    assert window.width() < screen.width()
    assert window.height() < screen.height()


def test_every_tab_is_in_sight_in_a_narrow_window_that_has_something_to_undo(workbench: Workbench) -> None:
    window = workbench.window

    def nothing() -> Reversal:
        return nothing

    workbench.actions.record_change("add “quick” to the queue", nothing)
    (undo,) = [each for each in window.findChildren(QPushButton) if each.text().startswith("Undo")]
    assert "quick" in undo.text()
    window.resize(720, 600)
    (tabs,) = [each for each in window.findChildren(QTabBar) if each.accessibleName() == "Screens"]
    assert undo.text() == "Undo"
    assert window.rect().contains(undo.geometry())
    assert tabs.rect().contains(tabs.tabRect(tabs.count() - 1))
    window.close()
    assert not window.isVisible(), "without a run nothing is asked"


def _field(workbench: Workbench, name: str) -> object:
    state = workbench.run_view.form.state
    return None if state is None else next(field.value for field in state.fields if field.name == name)


def test_two_runs_are_found_in_the_history_and_overlaid_in_compare(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench)
    for step_ms in (5.0, 8.0):
        workbench.run_view.form.edited.emit("step_ms", (step_ms,))
        with qtbot.waitSignal(workbench.run.ended):
            click_run(workbench.run_view.form)
    workbench.window.show_page(HISTORY)
    (history,) = workbench.window.findChildren(HistoryView)
    qtbot.waitUntil(lambda: history.table.model().rowCount() == 2)
    history.table.check_all(checked=True)
    QTest.keyClick(history.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    (compare,) = workbench.window.findChildren(CompareView)
    qtbot.waitUntil(lambda: compare.table.model().rowCount() == 2)
    compare.tabs.open_tab("Curves")
    panels = compare.tabs.curves.panels
    qtbot.waitUntil(lambda: bool(panels.visible_plots) and not panels.busy)
    assert compare.isVisible()
    assert {len(plot.shown_keys()) for plot in panels.visible_plots} == {2}
    workbench.actions.open_run(1)
    assert history.isVisible()
    qtbot.waitUntil(lambda: history.shows_run)
    workbench.run_view.form.edited.emit("step_ms", (99.0,))
    workbench.actions.run_again(2)
    assert workbench.run_view.isVisible()
    qtbot.waitUntil(lambda: _field(workbench, "step_ms") == 8.0)
    workbench.run_view.form.copy_button.clicked.emit()
    assert "step_ms=8" in QGuiApplication.clipboard().text()


def test_the_keyboard_runs_stops_and_turns_pages(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench, seconds=600.0)
    window = workbench.window
    form = workbench.run_view.form
    QTest.keyClick(window, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    assert workbench.run.running
    assert (form.run_button.text(), form.queue_button.isVisible()) == ("&Stop", True)
    qtbot.waitUntil(lambda: "Measuring" in displayed_text(workbench.run_view.live))
    QTest.keyClick(window, Qt.Key.Key_L, Qt.KeyboardModifier.ControlModifier)
    assert workbench.run_view.live.stack.hasFocus()
    for key, page in ((Qt.Key.Key_2, MONITOR), (Qt.Key.Key_3, HISTORY), (Qt.Key.Key_1, RUN)):
        with qtbot.waitSignal(window.page_shown, check_params_cb=lambda index, page=page: index == page):
            QTest.keyClick(window, key, Qt.KeyboardModifier.ControlModifier)
    with qtbot.waitSignal(workbench.run.ended):
        QTest.keyClick(window, Qt.Key.Key_Period, Qt.KeyboardModifier.ControlModifier)
    assert (form.run_button.text(), form.queue_button.isVisible()) == ("&Run", False)
    assert "Stopped" in displayed_text(workbench.run_view.live)


def test_closing_during_a_run_asks_and_stops_it_first(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench, seconds=600.0)
    click_run(workbench.run_view.form)
    qtbot.waitUntil(lambda: "Measuring" in displayed_text(workbench.run_view.live))
    workbench.window.close()
    assert workbench.window.isVisible()
    press(workbench, "Keep running")
    assert workbench.run.running
    qtbot.waitUntil(lambda: workbench.window.findChild(QMessageBox) is None)
    workbench.window.close()
    with qtbot.waitSignal(workbench.run.ended):
        press(workbench, "Stop and close")
    qtbot.waitUntil(lambda: not workbench.window.isVisible())
    wait_for_outcomes(qtbot, workbench, ["stopped"])


def test_the_monitor_of_a_host_alone_offers_the_reference_runs(
    qtbot: QtBot, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.storage.reference._FILES", "scaling.db.gz")
    workbench.window.show_page(MONITOR)
    (monitor,) = workbench.window.findChildren(MonitorView)
    monitor.details.no_gpu.reference_button.click()
    (history,) = workbench.window.findChildren(HistoryView)
    assert history.isVisible()
    qtbot.waitUntil(lambda: history.table.model().rowCount() > 10)


def test_nothing_is_left_of_a_closed_window(qtbot: QtBot, theme: Theme, database_path: Path) -> None:
    """The window may be opened on another database, and each change of theme recolours every widget there is."""
    before = QApplication.topLevelWidgets()  # of other tests
    with window_on(qtbot, database_path, theme) as workbench:
        reference = weakref.ref(workbench)
        workbench.window.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    del workbench
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)

    def is_gone() -> bool:
        gc.collect()
        return reference() is None

    qtbot.waitUntil(is_gone)  # what a thread posted last is delivered first
    assert [widget for widget in QApplication.topLevelWidgets() if widget not in before] == []


def test_a_file_that_is_no_database_is_said_in_a_dialog(qtbot: QtBot, theme: Theme, tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("these are notes, not a database, and they are long enough to be no header either" * 20)
    workbench = Workbench(path, theme)
    qtbot.addWidget(workbench.window)
    workbench.start()
    qtbot.waitUntil(lambda: workbench.window.findChild(QMessageBox) is not None)
    (box,) = workbench.window.findChildren(QMessageBox)
    assert box.text() == f"{path} is not an SQLite database; choose another file."
    assert not [each for each in workbench.run_view.findChildren(QLabel) if "notes.db" in each.text()], "said once"
    press(workbench, "Choose another file …")
    qtbot.waitUntil(lambda: workbench.window.findChild(QFileDialog) is not None)
    (file_dialog,) = workbench.window.findChildren(QFileDialog)
    file_dialog.reject()
    qtbot.waitUntil(lambda: any(each.isVisible() for each in workbench.window.findChildren(QMessageBox)))
    assert workbench.window.isVisible(), "asked again, not closed"
    (again,) = (each for each in workbench.window.findChildren(QMessageBox) if each.isVisible())
    next(each for each in again.buttons() if each.text() == "&Quit").click()
    qtbot.waitUntil(lambda: not workbench.window.isVisible())
    assert workbench.next_database is None
    workbench.close()


class Restyles(QObject):
    def __init__(self, watched: list[QWidget]) -> None:
        super().__init__()
        self.counts = dict.fromkeys(map(id, watched), 0)
        for widget in watched:
            widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.StyleChange:
            self.counts[id(watched)] += 1
        return False


def test_a_switch_to_dark_colours_all_pages_and_lays_none_out(workbench: Workbench, theme: Theme) -> None:
    run, window = workbench.run_view, workbench.window
    window.show_page(MONITOR)
    (monitor,) = window.findChildren(MonitorView)
    restyles = Restyles([*monitor.findChildren(QWidget), *run.findChildren(QWidget)])
    theme.apply(Qt.ColorScheme.Dark)
    assert muted_colours(monitor) == muted_colours(run) == {DARK.muted}
    assert set(restyles.counts.values()) == {0}, "a new style sheet would have all laid out again"


def test_when_the_sampler_is_given_up_the_window_says_so_and_runs_nothing(
    qtbot: QtBot, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.telemetry.feed._RESTART_PAUSES_S", ())
    choose(workbench)
    kill_sampler(workbench.feed)
    words = "The telemetry process does not answer; start the program again."

    def said() -> dict[str, str]:
        return {label.text(): label.toolTip() for label in workbench.window.findChildren(QLabel)}

    qtbot.waitUntil(lambda: said().get("This machine: No telemetry") == plain_tooltip(words))
    click_run(workbench.run_view.form)
    qtbot.waitUntil(lambda: words in said())
    with Store.open(workbench.database) as store:
        assert store.list_runs() == []
