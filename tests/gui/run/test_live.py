import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialog, QLabel, QPlainTextEdit
from pytestqt.qtbot import QtBot

from app.gui.run.live import LiveView
from app.gui.run.screen import RunView
from app.gui.theme import Theme
from app.values.events import Outcome
from app.viewmodels.run.live import LiveModel
from tests.gui.screens import turn_wheel
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.events import GPU_INVENTORY, ended, handle_all, samples, started, training


def show(view: LiveView, model: LiveModel) -> None:
    """As the ticks of a window do: each call makes two new plots at most."""
    for _ in model.state().plots.panels:
        view.show_model(model.state())


def test_where_a_run_stands_is_said_in_place_of_a_number_while_there_is_none(qtbot: QtBot, theme: Theme) -> None:
    model, view = LiveModel(), LiveView(theme)
    qtbot.addWidget(view)
    handle_all(model, (GPU_INVENTORY, started(GPU_INVENTORY)))
    view.show_model(model.state())
    assert displayed_text(view) == "Starting"
    handle_all(model, (*training(),))
    view.show_model(model.state())
    assert displayed_text(view).startswith("Measuring 1,000 images/s")
    handle_all(model, (started(GPU_INVENTORY), ended(Outcome(name="failed", reason="It failed."), throughput=None)))
    view.show_model(model.state())
    assert displayed_text(view).startswith("Failed It failed. step")
    (facts,) = [label.text() for label in view.findChildren(QLabel) if label.text().startswith("step")]
    assert " " not in facts.replace("  ·  ", ""), "a line never ends within a fact"


def test_a_second_run_replaces_the_first_in_the_plots(qtbot: QtBot, theme: Theme) -> None:
    model, view = LiveModel(), LiveView(theme)
    qtbot.addWidget(view)
    handle_all(model, (GPU_INVENTORY, started(GPU_INVENTORY), *training(), ended(Outcome(name="completed"))))
    show(view, model)
    model.handle(started(GPU_INVENTORY))
    show(view, model)
    assert len(view.stack.panel("throughput").curves["run"].source.points()[0]) == 0


def shown_run(qtbot: QtBot, theme: Theme) -> tuple[RunView, LiveModel]:
    """The Run screen 16 s into a run, with its controller's share of the wiring to the model."""
    view, model = RunView(theme), LiveModel()
    qtbot.addWidget(view)
    view.resize(1200, 800)
    with qtbot.waitActive(view):
        view.show()
        view.activateWindow()
    view.show_live()
    handle_all(model, (GPU_INVENTORY, started(GPU_INVENTORY), *samples(0, 16), *training()))
    model.follow("30 s")
    show(view.live, model)
    return view, model


def test_the_crosshair_stands_in_all_panels_with_the_values_of_its_time(qtbot: QtBot, theme: Theme) -> None:
    view, _ = shown_run(qtbot, theme)
    stack, bar = view.live.stack, view.live.time_bar
    stack.panel("load_pct").plot.hovered.emit(3.5, -1e9)
    assert stack.crosshair == 3.5
    assert bar.reading.text() == "0:03.5  ·  compile"
    assert "601" in stack.panel("power_mw").legend.text()
    assert stack.panel("throughput").legend.text() == "Block –"  # before the first block
    stack.panel("load_pct").plot.left.emit()
    assert bar.reading.text() == ""
    assert "images/s" in stack.panel("throughput").legend.text()


def test_the_wheel_zooms_about_the_pointer_and_a_drag_moves(qtbot: QtBot, theme: Theme) -> None:
    view, _ = shown_run(qtbot, theme)
    stack = view.live.stack
    canvas = stack.panel("power_mw").plot
    middle = canvas.view.sceneBoundingRect().center()
    start_s, end_s = stack.span
    with qtbot.waitSignal(stack.range_requested) as zoomed:
        turn_wheel(canvas, middle)
    assert zoomed.args is not None
    assert zoomed.args[1] - zoomed.args[0] == pytest.approx(0.8 * (end_s - start_s))
    assert (15.0 - zoomed.args[0]) / (15.0 - start_s) == pytest.approx(0.8, abs=0.01), "it keeps its place"
    viewport, start = canvas.viewport(), middle.toPoint()
    with qtbot.waitSignal(stack.range_requested) as panned:
        QTest.mousePress(viewport, Qt.MouseButton.LeftButton, pos=start)
        QTest.mouseMove(viewport, start + QPoint(100, 0))
    assert panned.args is not None
    assert panned.args[0] < start_s - 1.0
    assert panned.args[1] - panned.args[0] == pytest.approx(end_s - start_s)
    assert stack.hasFocus()


def test_keys_of_the_plots(qtbot: QtBot, theme: Theme) -> None:
    view, _ = shown_run(qtbot, theme)
    stack, bar = view.live.stack, view.live.time_bar
    stack.setFocus()
    QTest.keyClick(stack, Qt.Key.Key_Right)
    assert stack.crosshair == pytest.approx(15.3)
    QTest.keyClick(stack, Qt.Key.Key_Escape)
    assert stack.crosshair is None
    for key, signal in (
        (Qt.Key.Key_Space, bar.pause_requested),
        (Qt.Key.Key_F, bar.follow_button.clicked),
        (Qt.Key.Key_End, bar.follow_button.clicked),
        (Qt.Key.Key_1, bar.range_requested),
        (Qt.Key.Key_G, bar.per_gpu_button.clicked),
        (Qt.Key.Key_Plus, stack.range_requested),
    ):
        with qtbot.waitSignal(signal):
            QTest.keyClick(stack, key)


def test_a_held_view_says_so_and_each_gpu_can_have_its_panel(qtbot: QtBot, theme: Theme) -> None:
    view, model = shown_run(qtbot, theme)
    model.toggle_pause()
    model.split_by_gpu(True)
    show(view.live, model)
    assert view.live.time_bar.chip.text() == "Paused"
    assert view.live.time_bar.per_gpu_button.isChecked()
    assert view.live.stack.panel("power_mw GPU-1").shown_keys() == ("GPU-1",)
    model.handle(ended(Outcome(name="completed")))
    view.live.show_model(model.state())
    assert view.live.time_bar.chip.text() == "Part of the run"


def test_the_log_can_be_read(qtbot: QtBot, theme: Theme) -> None:
    view = RunView(theme)
    qtbot.addWidget(view)
    view.show()
    view.show_log("Traceback (most recent call last): …")
    (dialog,) = view.findChildren(QDialog)
    (log,) = dialog.findChildren(QPlainTextEdit)
    assert log.toPlainText().startswith("Traceback")
    dialog.reject()
