"""Finding the largest batch from the form: how far to go, each try in the live view, the answer above the button."""

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.gui.application import Workbench
from app.gui.theme import Theme
from app.gui.views.form import FormView
from app.gui.views.largest_batch import LimitDialog
from app.storage.store import Store
from app.viewmodels.form import VariantForm
from tests.gui.screens import visible_words
from tests.unit.viewmodels.events import CPU_INVENTORY, GPU_INVENTORY

LIMIT_MS = 120_000


def choose(workbench: Workbench, **values: bool | float | str) -> None:
    form = workbench.run_view.form
    form.workload_chosen.emit("dummy")
    for name, value in {"gpus": 0, "step_ms": 1.0, **values}.items():
        form.edited.emit(name, value)


def test_the_answer_stands_above_the_run_button(qtbot: QtBot, workbench: Workbench) -> None:
    form = workbench.run_view.form
    choose(workbench, behaviour="out_of_memory", batch_size=8, fitting_batch_size=13)
    shown: list[str] = []
    workbench.run.form_shown.connect(lambda _: shown.append(visible_words(form)))
    with qtbot.waitSignal(workbench.run.ended, timeout=LIMIT_MS):
        form.largest_batch_asked.emit(64)
        assert form.run_button.text() == "&Stop"
    assert any("trying 16 …" in words for words in shown)
    assert "The largest batch that fits is 13; 14 does not fit (5 tries)." in visible_words(form)
    with Store.open(workbench.database) as store:
        assert {row.purpose for row in store.list_runs()} == {"a try for the largest batch"}
    form.edited.emit("batch_size", 13)
    assert "The largest batch" not in visible_words(form), "what it was about has changed"


def test_the_answer_stays_where_the_window_had_no_time_to_show_a_try(qtbot: QtBot, workbench: Workbench) -> None:
    form = workbench.run_view.form
    choose(workbench, behaviour="out_of_memory", batch_size=8, fitting_batch_size=8)
    workbench.bridge._timer.setInterval(3_600_000)  # all that the tries tell comes with the search's end
    with qtbot.waitSignal(workbench.run.ended, timeout=LIMIT_MS):
        form.largest_batch_asked.emit(9)
    assert "The largest batch that fits is 8; 9 does not fit (2 tries)." in visible_words(form)


def test_stop_ends_the_search(qtbot: QtBot, workbench: Workbench) -> None:
    form = workbench.run_view.form
    choose(workbench, step_ms=60_000)
    form.largest_batch_asked.emit(64)
    qtbot.waitUntil(lambda: "trying 8 …" in visible_words(form), timeout=LIMIT_MS)
    with qtbot.waitSignal(workbench.run.ended, timeout=LIMIT_MS):
        QTest.mouseClick(form.run_button, Qt.MouseButton.LeftButton)
    assert "The search was stopped." in visible_words(form)


def test_a_limit_below_the_batch_is_said(workbench: Workbench) -> None:
    choose(workbench, batch_size=100)
    workbench.run_view.form.largest_batch_asked.emit(64)
    assert not workbench.run.running
    assert "The limit, 64, is below the batch size to begin with, 100: " in visible_words(workbench.run_view.form)


def test_the_button_asks_how_far_to_go(qtbot: QtBot, theme: Theme) -> None:
    view, form = FormView(theme), VariantForm("cnn10")
    qtbot.addWidget(view)
    view.show()
    asked: list[int] = []
    view.largest_batch_asked.connect(asked.append)
    for inventory, shown, says in ((CPU_INVENTORY, 32 * 16, True), (GPU_INVENTORY, 1_048_576, False)):
        form.set_machine(inventory.machine)
        view.show_model(form.state())
        button = next(one for one in view.findChildren(QPushButton) if "largest" in one.text())
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
        dialog = view.findChildren(LimitDialog)[-1]
        assert dialog.intValue() == shown
        assert ("makes the whole machine swap" in dialog.labelText()) is says
        dialog.accept()
        assert asked[-1] == shown
