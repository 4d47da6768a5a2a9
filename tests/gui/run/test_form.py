"""The form of the Run screen, and the search for the largest batch."""

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QGridLayout,
    QInputDialog,
    QLabel,
    QMenu,
    QPushButton,
    QStyle,
    QStyleOptionViewItem,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.errors import UserError
from app.gui.app import Workbench
from app.gui.run.form import FormView
from app.gui.run.form_controls import FieldRow
from app.gui.theme import Theme
from app.gui.widgets.basic import BreakingLabel, text_label
from app.storage.store import Store
from app.viewmodels.run.fields import EXPERIMENT, Option
from app.viewmodels.run.form import VariantForm
from tests.gui.screens import button, locked, visible_text
from tests.gui.test_keyboard import chain
from tests.gui.windows import choose, selected_line
from tests.unit.viewmodels.events import CPU_INVENTORY, GPU_INVENTORY
from workloads.catalog import Machine
from workloads.protocol import Value


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
        assert widget.isVisible() == field.essential


def test_a_search_brings_a_parameter_into_sight_and_a_changed_one_stays(view: FormView, form: VariantForm) -> None:
    view.edited.connect(lambda name, values: form.edit(name, *values))
    rate, seed = control(view, "recurrent_dropout"), control(view, "seed")
    QTest.keyClicks(view.search, "recurrent")
    assert (rate.isVisible(), seed.isVisible()) == (True, False)
    form.edit("recurrent_dropout", 0.5)
    view.search.clear()
    view.show_model(form.state())
    row = view.rows["recurrent_dropout"]
    assert rate.isVisible()
    assert row.label.property("role") == "heading", "it is marked"
    QTest.mouseClick(row.back, Qt.MouseButton.LeftButton)
    view.show_model(form.state())
    assert form.selection.spec.variant["recurrent_dropout"] == 0
    assert not rate.isVisible()
    QTest.keyClicks(view.search, "nothing like it")
    assert "No setting of this workload is called “nothing like it”." in visible_text(view)


def test_every_parameter_is_in_sight_on_demand(view: FormView, form: VariantForm) -> None:
    QTest.mouseClick(button(view, "All"), Qt.MouseButton.LeftButton)
    assert all(control(view, field.name).isVisible() for field in form.state().fields)


def test_a_choice_that_cannot_run_here_says_why_beside_it_only(view: FormView) -> None:
    box = control(view, "implementation")
    assert isinstance(box, QComboBox)
    index = box.findData("cudnn")
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
        option.state = QStyle.StateFlag.State_Enabled
        painter = QPainter(picture)
        box.itemDelegate().paint(painter, option, index)
        painter.end()
        darkest[value] = min(picture.pixelColor(x, y).lightness() for x in range(80) for y in range(24))
    assert darkest["cudnn"] > 2 * darkest["block_fused"]


def test_the_note_of_the_option_under_the_pointer_has_the_colour_of_its_name(theme: Theme, view: FormView) -> None:
    theme.apply(Qt.ColorScheme.Dark)
    box = control(view, "implementation")
    assert isinstance(box, QComboBox)
    box.showPopup()
    picture = box.view().viewport().grab().toImage()
    name, note = (
        min(picture.pixelColor(x, y).lightness() for x in range(cell.left(), cell.right()) for y in range(20))
        for cell in (box.view().visualRect(box.model().index(0, column)) for column in (0, 1))
    )
    assert note <= name + 12


def test_a_number_out_of_range_is_said_beside_it_and_not_changed(view: FormView, form: VariantForm) -> None:
    view.typed.connect(form.type)
    line = selected_line(view, "layers")
    QTest.keyClicks(line, "99999999")
    view.show_model(form.state())
    QTest.keyClick(line, Qt.Key.Key_Tab)
    assert line.text() == "99999999"
    assert "Layers must be from 1 to 16, not 99,999,999." in visible_text(view)
    assert "Correct Layers above." in visible_text(view)
    assert not view.run_button.isEnabled()


def test_a_field_left_empty_has_its_default_again(view: FormView, form: VariantForm) -> None:
    view.typed.connect(form.type)
    view.activateWindow()
    line = selected_line(view, "layers")
    QTest.keyClick(line, Qt.Key.Key_Delete)
    view.show_model(form.state())
    assert line.text() == "", "somebody types in it"
    view.search.setFocus()
    assert line.text() == "1"


def test_a_choice_tells_what_was_set(view: FormView) -> None:
    edits: list[tuple[str, object]] = []
    view.edited.connect(lambda name, values: edits.append((name, values)))
    mode = control(view, "xla")
    assert isinstance(mode, QComboBox)
    QTest.keyClick(mode, Qt.Key.Key_Down)
    assert edits == [("xla", (True,))]


def test_several_values_are_ticked_and_left_out_by_their_chips(view: FormView, form: VariantForm) -> None:
    view.edited.connect(lambda name, values: form.edit(name, *values))
    row = view.rows["implementation"]
    entries = {entry.text().partition("\t")[0]: entry for entry in menu_of(row).actions()}
    entries["Block-fused"].trigger()
    entries["cuDNN"].trigger()
    view.show_model(form.state())
    assert chosen(form, "implementation") == ("standard", "cudnn"), "the first was what it still showed"
    entries = {entry.text().partition("\t")[0]: entry for entry in menu_of(row).actions()}
    assert entries["cuDNN"].font().strikeOut()
    assert entries["cuDNN"].text().endswith("cuDNN needs an NVIDIA GPU, and this run is on the CPU.")
    entries["All that can run here"].trigger()
    view.show_model(form.state())
    assert "cudnn" not in chosen(form, "implementation")
    chips = row.chip_buttons
    assert len(chips) == len(chosen(form, "implementation")) > 3
    assert chips[0].accessibleName() == "Leave out Implementation Standard"
    form.edit("implementation", "standard", "block_fused")
    view.show_model(form.state())
    view.activateWindow()
    row.chip_buttons[-1].setFocus()
    QTest.keyClick(row.chip_buttons[-1], Qt.Key.Key_Space)
    view.show_model(form.state())
    assert chosen(form, "implementation") == ("standard",)
    assert control(view, "implementation").isVisible()


def chosen(form: VariantForm, name: str) -> tuple[Value, ...]:
    return form.selection.chosen[name]


def menu_of(row: FieldRow) -> QMenu:
    """Return the menu of several values, as it is when it opens."""
    assert row.side is not None
    (menu,) = row.side.findChildren(QMenu)
    menu.aboutToShow.emit()
    return menu


def test_a_form_opened_on_several_values_has_their_chips(
    qtbot: QtBot, theme: Theme, view: FormView, form: VariantForm
) -> None:
    """As after a start, and after another workload: rows are made with values that are never a change."""
    form.edit("implementation", "standard", "auto")
    form.type("batch_size", "8, 16, 32")
    again = FormView(theme)
    qtbot.addWidget(again)
    show(view, form, CPU_INVENTORY.machine)
    form.choose("dummy")
    view.show_model(form.state())
    form.choose("lstm")
    for shown in (view, again):
        show(shown, form, CPU_INVENTORY.machine)
        shown.show()
        for name in ("implementation", "batch_size"):
            chips, labels = shown.rows[name].chip_buttons, [option.label for option in chosen_options(form, name)]
            assert [chip.text() for chip in chips] == [f"{label} ✕" for label in labels]
            assert all(chip.isVisible() for chip in chips)


def chosen_options(form: VariantForm, name: str) -> tuple[Option, ...]:
    return next(field.chosen for field in form.state().fields if field.name == name)


def test_what_cannot_run_is_struck_through_on_its_chip_with_its_cure(view: FormView, form: VariantForm) -> None:
    form.edit("implementation", "standard", "cudnn", "block_fused")
    view.edited.connect(lambda name, values: form.edit(name, *values))
    view.show_model(form.state())
    struck = [chip for chip in view.rows["implementation"].chip_buttons if chip.font().strikeOut()]
    assert [chip.text() for chip in struck] == ["cuDNN ✕"]
    assert "cuDNN needs an NVIDIA GPU" in struck[0].toolTip()
    assert view.cure_buttons[0].text() == "Leave out Implementation cuDNN"
    QTest.mouseClick(view.cure_buttons[0], Qt.MouseButton.LeftButton)
    view.show_model(form.state())
    assert chosen(form, "implementation") == ("standard", "block_fused")
    assert not view.cure_buttons[0].isVisible()


def test_many_values_are_counted_beside_the_first_chips(view: FormView, form: VariantForm) -> None:
    form.type("batch_size", "1..100 +1")
    view.show_model(form.state())
    row = view.rows["batch_size"]
    assert len(row.chip_buttons) == 24
    assert "and 76 more" in visible_text(view)


def test_long_values_do_not_widen_the_form(view: FormView, form: VariantForm) -> None:
    gpus = ["GPU-a8783007-632b-2333-dd2c-dba8d380e579", "GPU-5a72b055-0f05-7d32-2c91-52558e85877d"]
    form.edit("devices", *gpus)
    view.show_model(form.state())
    row = view.rows["devices"]
    assert len(row.chip_buttons) == 2
    assert row.chip_buttons[0].accessibleName().endswith(gpus[0])
    assert 0 < row.chips.minimumSizeHint().width() < control(view, "batch_size").width()
    assert row.line is not None
    assert row.line.cursorPosition() == 0, "it shows where its text begins"


def test_a_refusal_stands_beside_a_run_button_that_cannot_be_pressed(view: FormView, form: VariantForm) -> None:
    show(view, form, GPU_INVENTORY.machine)
    assert view.run_button.isEnabled()
    form.edit("gpus", 2)
    form.edit("batch_size", 33)
    view.show_model(form.state())
    assert not view.run_button.isEnabled()
    assert visible_text(view).count("A global batch of 33 does not divide evenly among 2 GPUs.") == 1
    assert control(view, "batch_size").font().strikeOut()
    assert not control(view, "layers").font().strikeOut()


def test_showing_a_model_tells_of_no_edit(qtbot: QtBot, view: FormView, form: VariantForm) -> None:
    with qtbot.assertNotEmitted(view.edited), qtbot.assertNotEmitted(view.typed):
        show(view, form, GPU_INVENTORY.machine)
        form.choose("cnn10")
        view.show_model(form.state())


def test_a_second_press_of_the_button_that_stops_queues_nothing(
    qtbot: QtBot, view: FormView, form: VariantForm
) -> None:
    view.show_model(form.state(), busy=True)
    assert view.run_button.text() == "&Stop"
    view.run_button.setFocus()
    qtbot.waitUntil(view.run_button.hasFocus)
    view.show_model(form.state(), busy=True, stopping=True)
    assert not view.run_button.isEnabled()
    focus = view.window().focusWidget()
    assert focus is view, "neither Add to queue nor the choice of the host"
    with qtbot.assertNotEmitted(view.queue_button.clicked):
        QTest.keyClick(focus, Qt.Key.Key_Space)
    view.show_model(form.state())
    assert (view.run_button.text(), view.run_button.hasFocus()) == ("&Run", True), "it runs again with one key"
    view.show_model(form.state(), busy=True)
    view.queue_button.setFocus()
    view.show_model(form.state())
    assert view.run_button.hasFocus(), "Add to queue has gone"


def test_while_something_goes_on_the_form_stays_usable_and_adds_to_the_queue(
    qtbot: QtBot, view: FormView, form: VariantForm
) -> None:
    assert not view.queue_button.isVisible()
    view.show_model(form.state(), busy=True)
    assert control(view, "layers").isEnabled()
    assert "This form is for the next run." in visible_text(view), "another variant may run, or an entry waits"
    with qtbot.waitSignal(view.queue_button.clicked):
        QTest.mouseClick(view.queue_button, Qt.MouseButton.LeftButton)
    form.edit("units", 32, 64)
    view.show_model(form.state(), busy=True)
    assert view.queue_button.text() == "Add 6 to queue"
    form.edit("units", 32)
    form.edit("gpus", 2)
    view.show_model(form.state(), busy=True)
    assert not view.queue_button.isEnabled()
    assert "no NVIDIA GPU" in visible_text(view)


def test_after_another_workload_and_with_chips_tab_still_goes_in_the_order_seen(workbench: Workbench) -> None:
    form = workbench.run_view.form
    for name in ("cnn10", "lstm"):
        form.workload_chosen.emit(name)
    form.typed.emit("units", "32, 64")
    assert form.state is not None
    form.host.row.control.setFocus()
    stops = [each for each in chain(workbench.window, Qt.Key.Key_Tab) if form.isAncestorOf(each)]
    names = [each.text() if isinstance(each, QPushButton) else each.objectName() for each in stops]
    reached = [each for each in names if each.startswith(("field.", "&", "32", "64"))]
    fields = [f"field.{field.name}" for field in form.state.fields if field.essential]
    extent = [each for each in fields if EXPERIMENT in each]
    plain = [each for each in fields if EXPERIMENT not in each]
    at = plain.index("field.units") + 1
    assert reached == ["&Questions", *plain[:at], "32 ✕", "64 ✕", *plain[at:], *extent, "&Run 6", "field.host"]


def test_a_row_that_two_workloads_have_is_used_again_at_its_new_place(view: FormView, form: VariantForm) -> None:
    batch, layers = control(view, "batch_size"), control(view, "layers")
    form.choose("cnn10")
    view.show_model(form.state())
    assert control(view, "batch_size") is batch
    assert layers.isHidden()
    shown = [control(view, field.name) for field in form.state().fields if field.essential]
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


def test_the_answer_stands_above_the_run_button(qtbot: QtBot, workbench: Workbench) -> None:
    form = workbench.run_view.form
    choose(workbench, behaviour="out_of_memory", batch_size=8, fitting_batch_size=13)
    shown: list[str] = []
    workbench.form.updated.connect(lambda _: shown.append(visible_text(form)))
    with qtbot.waitSignal(workbench.run.ended):
        form.largest_batch_requested.emit(64)
        assert form.run_button.text() == "&Stop"
    assert any("trying 16 …" in words for words in shown)
    assert "The largest batch that fits is 13; 14 does not fit (5 tries)." in visible_text(form)
    with Store.open(workbench.database) as store:
        assert {row.purpose for row in store.list_runs()} == {"a try for the largest batch"}
    form.edited.emit("batch_size", (13,))
    assert "The largest batch" not in visible_text(form), "what it was about has changed"
    form.largest_batch_requested.emit(4)
    assert not workbench.run.running
    assert "The limit, 4, is below the batch size to begin with, 13: " in visible_text(form)


def test_the_answer_stays_where_the_window_had_no_time_to_show_a_try(qtbot: QtBot, workbench: Workbench) -> None:
    form = workbench.run_view.form
    choose(workbench, behaviour="out_of_memory", batch_size=8, fitting_batch_size=8)
    workbench.bridge._timer.setInterval(3_600_000)  # all that the tries tell comes with the search's end
    with qtbot.waitSignal(workbench.run.ended):
        form.largest_batch_requested.emit(9)
    assert "The largest batch that fits is 8; 9 does not fit (2 tries)." in visible_text(form)


def test_lists_and_buttons_across_the_form_end_in_one_line(workbench: Workbench) -> None:
    form = workbench.run_view.form
    QApplication.processEvents()
    workload = next(each for each in form.findChildren(QComboBox) if each.accessibleName() == "Workload")
    controls = form.host.row.control, workload, form.run_button
    assert len({each.mapTo(form, each.rect().topRight()).x() for each in controls}) == 1


def test_stop_ends_the_search(qtbot: QtBot, workbench: Workbench) -> None:
    form = workbench.run_view.form
    choose(workbench, step_ms=60_000)
    form.largest_batch_requested.emit(64)
    qtbot.waitUntil(lambda: "trying 8 …" in visible_text(form))
    with qtbot.waitSignal(workbench.run.ended):
        QTest.mouseClick(form.run_button, Qt.MouseButton.LeftButton)
    assert "The search was stopped." in visible_text(form)
    workbench.run.show_queue(running=True)
    workbench.run.show_queue(running=False)
    assert "The search was stopped." not in visible_text(form), "something else has begun"


def test_what_could_not_be_read_is_read_again_at_a_click(
    qtbot: QtBot, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = workbench.run_view.form
    with monkeypatch.context() as patch:
        patch.setattr(Store, "open", locked)
        workbench.actions.run_again(7)
        qtbot.waitUntil(lambda: not form.retry_button.isHidden())
        assert "is locked" in visible_text(form)
    QTest.mouseClick(form.retry_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "no run 7" in visible_text(form))
    assert form.retry_button.isHidden(), "a run that is gone stays so"


def test_a_warning_makes_room_for_an_error_and_comes_back(workbench: Workbench) -> None:
    choose(workbench)
    workbench.form.warn("Only 1 MB is free.")
    assert workbench.run_view.form.run_button.isEnabled()
    workbench.form.show_error(UserError("The disk has only 1 MB free; free some space, then run again."))
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
        dialog = view.findChildren(QInputDialog)[-1]
        assert dialog.intValue() == shown
        assert ("makes the whole machine swap" in dialog.labelText()) is says
        dialog.accept()
        assert requests[-1] == shown
