"""The form of the Run screen, and the search for the largest batch."""

import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QGridLayout,
    QLabel,
    QPushButton,
    QSpinBox,
    QStyle,
    QStyleOptionViewItem,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.errors import DatabaseLockedError, UserError
from app.gui.app import Workbench
from app.gui.run.form import BatchLimitDialog, FormView
from app.gui.theme import Theme
from app.gui.widgets.basic import BreakingLabel, text_label
from app.storage.store import Store
from app.viewmodels.run.form import VariantForm
from tests.gui.screens import visible_text
from tests.unit.viewmodels.events import CPU_INVENTORY, GPU_INVENTORY
from workloads.catalog import ENVIRONMENT_STAMP, Machine, environments_folder, installed_framework
from workloads.processor import CACHE_VARIABLE, ProcessorSupport, store_support


@pytest.fixture
def form() -> VariantForm:
    return VariantForm("lstm")


@pytest.fixture
def view(qtbot: QtBot, theme: Theme, form: VariantForm) -> FormView:
    made = FormView(theme)
    qtbot.addWidget(made)
    show(made, form, CPU_INVENTORY.machine)
    made.show()
    return made


def show(view: FormView, form: VariantForm, machine: Machine) -> None:
    form.set_machine(machine, None if machine.gpus else "no NVIDIA driver is installed")
    view.show_model(form.state())


def control(view: FormView, name: str) -> QWidget:
    found = view.findChild(QWidget, f"field.{name}")
    assert isinstance(found, QWidget)
    return found


def test_every_parameter_has_a_named_control_with_help(view: FormView, form: VariantForm) -> None:
    for field in form.state().fields:
        widget = control(view, field.name)
        assert widget.accessibleName() == field.label
        assert field.help in widget.toolTip()
        assert widget.isVisible() != field.advanced


def test_a_choice_that_cannot_run_here_is_disabled_and_its_reason_is_beside_it_only(view: FormView) -> None:
    box = control(view, "implementation")
    assert isinstance(box, QComboBox)
    index = box.findData("cudnn")
    assert not box.model().flags(box.model().index(index, 0)) & Qt.ItemFlag.ItemIsEnabled
    assert "cuDNN needs an NVIDIA GPU" in box.itemData(index, Qt.ItemDataRole.ToolTipRole)
    assert "cuDNN needs an NVIDIA GPU" not in visible_text(view)
    assert "Runs use the CPU: no NVIDIA driver is installed." in visible_text(view)


def test_no_field_moves_when_the_machine_becomes_known(qtbot: QtBot, theme: Theme, form: VariantForm) -> None:
    made = FormView(theme)
    qtbot.addWidget(made)
    made.resize(made.width(), 900)
    made.show_model(form.state())
    made.show()
    before = tops(made)
    show(made, form, CPU_INVENTORY.machine)
    assert len(before) > 3
    assert tops(made) == before


def tops(view: FormView) -> dict[str, int]:
    """Return where the fields in sight begin, once they are laid out."""
    QApplication.processEvents()
    fields = [
        each for each in view.findChildren(QWidget) if each.objectName().startswith("field.") and each.isVisible()
    ]
    return {each.objectName(): each.mapTo(view, QPoint()).y() for each in fields}


def test_the_list_of_a_choice_tells_what_each_option_is_and_greys_what_cannot_run(view: FormView) -> None:
    box = control(view, "implementation")
    assert isinstance(box, QComboBox)
    assert box.view().minimumWidth() > 2 * box.width(), "room for the words beside the options"
    darkest = {}
    for value in ("cudnn", "block_fused"):
        index = box.model().index(box.findData(value), 0)
        picture = QImage(120, 24, QImage.Format.Format_RGB32)
        picture.fill(Qt.GlobalColor.white)
        option = QStyleOptionViewItem()
        option.rect = picture.rect()
        if index.flags() & Qt.ItemFlag.ItemIsEnabled:
            option.state = QStyle.StateFlag.State_Enabled
        painter = QPainter(picture)
        box.itemDelegate().paint(painter, option, index)
        painter.end()
        darkest[value] = min(picture.pixelColor(x, y).lightness() for x in range(80) for y in range(24))
    assert darkest["cudnn"] > 2 * darkest["block_fused"]


def test_typing_a_number_tells_once_when_it_is_done(qtbot: QtBot, view: FormView) -> None:
    layers = control(view, "layers")
    assert isinstance(layers, QSpinBox)
    edits: list[tuple[str, object]] = []
    view.edited.connect(lambda name, value: edits.append((name, value)))
    layers.setFocus()
    layers.selectAll()
    QTest.keyClicks(layers, "12")
    assert edits == []
    QTest.keyClick(layers, Qt.Key.Key_Return)
    assert edits == [("layers", 12)]


def test_a_number_has_no_needless_zeros(qtbot: QtBot, view: FormView) -> None:
    measured = control(view, "seconds")
    assert isinstance(measured, QDoubleSpinBox)
    assert measured.text() == "10 s"
    for value, shown in ((0.5, "0.5 s"), (100.0, "100 s"), (1200.25, "1,200.25 s")):
        measured.setValue(value)
        assert measured.text().replace(",", "") == shown.replace(",", "")


def test_none_of_what_is_counted_says_what_ends_the_run_instead(qtbot: QtBot, theme: Theme, view: FormView) -> None:
    show(view, VariantForm("cnn10"), CPU_INVENTORY.machine)
    epochs = control(view, "epochs")
    assert isinstance(epochs, QSpinBox)
    assert epochs.text() == "off"
    edits: list[tuple[str, object]] = []
    view.edited.connect(lambda name, value: edits.append((name, value)))
    epochs.setFocus()
    epochs.selectAll()
    QTest.keyClicks(epochs, "3")
    QTest.keyClick(epochs, Qt.Key.Key_Return)
    assert (epochs.text(), edits) == ("3", [("epochs", 3)])


def test_a_switch_and_a_choice_tell_what_was_set(qtbot: QtBot, view: FormView) -> None:
    edits: list[tuple[str, object]] = []
    view.edited.connect(lambda name, value: edits.append((name, value)))
    both = control(view, "bidirectional")
    assert isinstance(both, QCheckBox)
    QTest.keyClick(both, Qt.Key.Key_Space)
    mode = control(view, "mode")
    assert isinstance(mode, QComboBox)
    QTest.keyClick(mode, Qt.Key.Key_Down)
    assert edits == [("bidirectional", True), ("mode", "inference")]


def test_a_refusal_stands_beside_a_run_button_that_cannot_be_pressed(view: FormView, form: VariantForm) -> None:
    show(view, form, GPU_INVENTORY.machine)
    assert view.run_button.isEnabled()
    form.edit("gpus", 2)
    form.edit("batch_size", 33)
    view.show_model(form.state())
    assert not view.run_button.isEnabled()
    assert visible_text(view).count("A global batch of 33 does not divide evenly among 2 GPUs.") == 3


def test_a_refusal_has_its_cures_as_buttons(
    qtbot: QtBot, theme: Theme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    store_support(ProcessorSupport(framework=installed_framework() or "", onednn=False, image_layouts={}))
    form = VariantForm("cnn10")
    form.edit("layout", "NCHW")
    made = FormView(theme)
    qtbot.addWidget(made)
    show(made, form, CPU_INVENTORY.machine)
    made.show()
    assert [each.text() for each in made.cure_buttons if each.isVisible()] == ["Use NHWC", "Turn XLA on"]
    made.edited.connect(form.edit)
    QTest.mouseClick(made.cure_buttons[0], Qt.MouseButton.LeftButton)
    made.show_model(form.state())
    assert form.spec().variant["layout"] == "NHWC"
    assert made.run_button.isEnabled()
    assert not any(each.isVisible() for each in made.cure_buttons)


def test_showing_a_model_tells_of_no_edit(qtbot: QtBot, view: FormView, form: VariantForm) -> None:
    with qtbot.assertNotEmitted(view.edited):
        show(view, form, GPU_INVENTORY.machine)
        form.choose("cnn10")
        view.show_model(form.state())


def test_one_button_runs_and_stops(view: FormView, form: VariantForm) -> None:
    view.show_model(form.state(), busy=True)
    assert view.run_button.text() == "&Stop"
    view.show_model(form.state(), busy=True, stopping=True)
    assert not view.run_button.isEnabled()
    view.show_model(form.state())
    assert view.run_button.text() == "&Run"


def test_while_something_goes_on_the_form_stays_usable_and_adds_to_the_queue(
    qtbot: QtBot, view: FormView, form: VariantForm
) -> None:
    assert not view.queue_button.isVisible()
    view.show_model(form.state(), busy=True)
    assert control(view, "layers").isEnabled()
    assert "This form is for the next run" in visible_text(view), "another variant may run"
    with qtbot.waitSignal(view.queue_requested):
        QTest.mouseClick(view.queue_button, Qt.MouseButton.LeftButton)
    form.edit("gpus", 2)
    view.show_model(form.state(), busy=True)
    assert not view.queue_button.isEnabled()
    assert "no NVIDIA GPU" in visible_text(view)


def test_compare_values_has_a_button(qtbot: QtBot, view: FormView) -> None:
    with qtbot.waitSignal(view.compare_requested):
        QTest.mouseClick(view.compare_button, Qt.MouseButton.LeftButton)


def test_every_control_is_reached_by_tab_in_the_order_seen(qtbot: QtBot, view: FormView, form: VariantForm) -> None:
    control(view, "layers").setFocus()
    qtbot.waitUntil(control(view, "layers").hasFocus)
    view.focusNextChild()
    assert control(view, "units").hasFocus()


def test_after_another_workload_tab_still_goes_in_the_order_seen(view: FormView, form: VariantForm) -> None:
    for name in ("cnn10", "lstm"):
        form.choose(name)
        view.show_model(form.state())
    fields = [f"field.{field.name}" for field in form.state().fields if not field.advanced]
    reached = [found for found in focus_chain(view) if found.startswith(("field.", "&"))]
    assert reached == ["field.host", *fields, "&Advanced  ▸", "&Run", "&Compare values …"]


def focus_chain(view: FormView) -> list[str]:
    """Return names of controls and texts of buttons in the order in which Tab reaches them."""
    found: list[str] = []
    widget: QWidget | None = view
    while (widget := widget and widget.nextInFocusChain()) is not view and widget:
        if widget.isVisible():
            found.append(widget.text() if isinstance(widget, QPushButton) else widget.objectName())
    return found


def test_a_row_that_two_workloads_have_is_used_again_at_its_new_place(view: FormView, form: VariantForm) -> None:
    batch, layers = control(view, "batch_size"), control(view, "layers")
    form.choose("cnn10")
    view.show_model(form.state())
    assert control(view, "batch_size") is batch
    assert layers.isHidden()
    shown = [control(view, field.name) for field in form.state().fields if not field.advanced]
    QApplication.processEvents()
    heights = [widget.mapTo(view, QPoint(0, 0)).y() for widget in shown]
    assert heights == sorted(set(heights))


def test_to_change_between_workloads_does_not_add_lines_to_the_form(view: FormView, form: VariantForm) -> None:
    for workload in ("cnn10", "lstm"):
        form.choose(workload)
        view.show_model(form.state())
    before = [grid.rowCount() for grid in view.findChildren(QGridLayout)]
    for workload in ("cnn10", "lstm") * 3:
        form.choose(workload)
        view.show_model(form.state())
    assert [grid.rowCount() for grid in view.findChildren(QGridLayout)] == before


def test_a_warning_stands_above_the_run_button_and_holds_nothing_up(view: FormView, form: VariantForm) -> None:
    view.show_model(form.state(), warning="Only 150 MB is free.")
    assert "Only 150 MB is free." in visible_text(view)
    assert view.run_button.isEnabled()
    view.show_model(form.state())
    assert "Only 150 MB" not in visible_text(view)


def test_a_long_name_breaks_within_it_and_is_given_back_whole(qtbot: QtBot, theme: Theme) -> None:
    path = "/data/experiments_of_november/my_transformer_attention_variants_version_2.py"
    narrow, plain = BreakingLabel("caption"), text_label(path, "caption", wrap=True)
    qtbot.addWidget(narrow)
    qtbot.addWidget(plain)
    narrow.setText(path)
    assert narrow.text() == path
    assert narrow.minimumSizeHint().width() < plain.minimumSizeHint().width() / 3
    assert narrow.heightForWidth(150) >= 3 * narrow.fontMetrics().height()
    for width in (150, 600):
        narrow.resize(width, 10)
        assert narrow.minimumSizeHint().height() == narrow.heightForWidth(width), "room for all lines"
    assert narrow.heightForWidth(600) < 2 * narrow.fontMetrics().height(), "and no more once they are fewer"
    narrow.setText("XLA cannot compile it; use xla=false, dropout=0.5 or recurrent_dropout.")
    assert QLabel.text(narrow) == narrow.text(), "short words stay whole"


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
    workbench.run.form_shown.connect(lambda _: shown.append(visible_text(form)))
    with qtbot.waitSignal(workbench.run.ended, timeout=LIMIT_MS):
        form.largest_batch_requested.emit(64)
        assert form.run_button.text() == "&Stop"
    assert any("trying 16 …" in words for words in shown)
    assert "The largest batch that fits is 13; 14 does not fit (5 tries)." in visible_text(form)
    with Store.open(workbench.database) as store:
        assert {row.purpose for row in store.list_runs()} == {"a try for the largest batch"}
    form.edited.emit("batch_size", 13)
    assert "The largest batch" not in visible_text(form), "what it was about has changed"


def test_the_answer_stays_where_the_window_had_no_time_to_show_a_try(qtbot: QtBot, workbench: Workbench) -> None:
    form = workbench.run_view.form
    choose(workbench, behaviour="out_of_memory", batch_size=8, fitting_batch_size=8)
    workbench.bridge._timer.setInterval(3_600_000)  # all that the tries tell comes with the search's end
    with qtbot.waitSignal(workbench.run.ended, timeout=LIMIT_MS):
        form.largest_batch_requested.emit(9)
    assert "The largest batch that fits is 8; 9 does not fit (2 tries)." in visible_text(form)


def test_stop_ends_the_search(qtbot: QtBot, workbench: Workbench) -> None:
    form = workbench.run_view.form
    choose(workbench, step_ms=60_000)
    form.largest_batch_requested.emit(64)
    qtbot.waitUntil(lambda: "trying 8 …" in visible_text(form), timeout=LIMIT_MS)
    with qtbot.waitSignal(workbench.run.ended, timeout=LIMIT_MS):
        QTest.mouseClick(form.run_button, Qt.MouseButton.LeftButton)
    assert "The search was stopped." in visible_text(form)
    workbench.run.show_queue(running=True)
    workbench.run.show_queue(running=False)
    assert "The search was stopped." not in visible_text(form), "something else has begun"


def test_what_could_not_be_read_is_read_again_at_a_click(
    qtbot: QtBot, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = workbench.run_view.form
    with monkeypatch.context() as locked:
        locked.setattr(Store, "open", _locked)
        workbench.actions.replay(7)
        qtbot.waitUntil(lambda: "is locked" in visible_text(form), timeout=LIMIT_MS)
    assert not form.retry_button.isHidden()
    QTest.mouseClick(form.retry_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "no run 7" in visible_text(form), timeout=LIMIT_MS)
    assert form.retry_button.isHidden(), "a run that is gone stays so"


def _locked(path: Path) -> Store:
    raise DatabaseLockedError(f"{path} is locked by another program.")


def test_a_limit_below_the_batch_is_said(workbench: Workbench) -> None:
    choose(workbench, batch_size=100)
    workbench.run_view.form.largest_batch_requested.emit(64)
    assert not workbench.run.running
    assert "The limit, 64, is below the batch size to begin with, 100: " in visible_text(workbench.run_view.form)


def test_a_warning_makes_room_for_an_error_and_comes_back(workbench: Workbench) -> None:
    choose(workbench)
    workbench.run.warn("Only 1 MB is free.")
    workbench.run.show_error(UserError("The disk has only 1 MB free; free some space, then run again."))
    assert "Only 1 MB" not in visible_text(workbench.run_view.form)
    choose(workbench)
    assert "Only 1 MB" in visible_text(workbench.run_view.form)


def test_the_button_asks_how_far_to_go(qtbot: QtBot, theme: Theme) -> None:
    view, form = FormView(theme), VariantForm("cnn10")
    qtbot.addWidget(view)
    view.show()
    requests: list[int] = []
    view.largest_batch_requested.connect(requests.append)
    for inventory, shown, says in ((CPU_INVENTORY, 32 * 16, True), (GPU_INVENTORY, 1_048_576, False)):
        form.set_machine(inventory.machine)
        view.show_model(form.state())
        button = next(one for one in view.findChildren(QPushButton) if "largest" in one.text())
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
        dialog = view.findChildren(BatchLimitDialog)[-1]
        assert dialog.intValue() == shown
        assert ("makes the whole machine swap" in dialog.labelText()) is says
        dialog.accept()
        assert requests[-1] == shown


def test_environments_are_offered_for_python_next_to_any_path(
    view: FormView, form: VariantForm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in ("tf221", "tf219"):
        python = environments_folder() / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        (environments_folder() / name / ENVIRONMENT_STAMP).touch()
    show(view, form, Machine())
    box = control(view, "interpreter")
    assert isinstance(box, QComboBox)
    line = box.lineEdit()
    assert line is not None
    edits: list[tuple[str, object]] = []
    view.edited.connect(lambda name, value: edits.append((name, value)))
    assert [box.itemText(index) for index in range(box.count())] == ["this program's own", "tf219", "tf221"]
    assert (line.text(), line.placeholderText()) == ("", "this program's own")
    box.setCurrentIndex(2)
    box.activated.emit(2)
    line.selectAll()
    QTest.keyClicks(line, "/opt/tf")
    QTest.keyClick(line, Qt.Key.Key_Return)
    box.setCurrentIndex(0)
    box.activated.emit(0)
    assert edits == [("interpreter", "tf221"), ("interpreter", "/opt/tf"), ("interpreter", "")]
    assert line.text() == ""
    show(view, form, Machine(local=False, environments=("tf220",)))
    assert [box.itemText(index) for index in range(box.count())] == ["this program's own", "tf220"]
