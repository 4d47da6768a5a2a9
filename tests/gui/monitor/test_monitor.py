"""The Monitor screen on made-up machines: one host, lost cards, many GPUs, many hosts."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QSize, Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from app.gui.monitor.screen import MonitorTable, MonitorView
from app.gui.theme import GRID, Theme, tabular_font
from app.gui.widgets.basic import ElidedLabel
from app.gui.widgets.text_widths import SYMBOL_WIDTH
from app.gui.window_state import write_states
from app.values.samples import HOST, DeviceLost, FieldInfo, GpuProcess, Processes
from app.viewmodels.format.cells import Cell
from app.viewmodels.hosts import HostState
from app.viewmodels.monitor.cells import TABLE_COLUMNS
from app.viewmodels.monitor.model import MonitorModel, RowKey
from benchmarks.hosts import ManyHosts
from tests.gui.actions import RecordedActions
from tests.gui.texts import displayed_text
from tests.unit.viewmodels.events import CPU_INVENTORY, GPU_INVENTORY, HOST_DEVICE, ns, samples
from tests.unit.viewmodels.monitor.test_model import POWER_CAP, fleet, machine, sample
from tests.unit.viewmodels.monitor.test_readings import Clock, model_of

Opened = Callable[..., MonitorView]
SIZE = QSize(1280, 800)
LEFT, NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


@pytest.fixture
def opened(qtbot: QtBot, theme: Theme, recorded: RecordedActions) -> Opened:

    def show(model: MonitorModel, size: QSize = SIZE) -> MonitorView:
        made = MonitorView(model, theme, recorded.actions)
        qtbot.addWidget(made)
        theme.apply_style_sheet(made)
        made.resize(size)
        with qtbot.waitExposed(made):
            made.show()
        made.show_table()
        qtbot.waitUntil(lambda: made.details.isVisible() and made.details.width() > 500)
        for _ in range(4):  # two new plots a call
            made.show_table()
        return made

    return show


def shown_columns(table: MonitorTable) -> int:
    """How wide all columns are."""
    return table.horizontalHeader().length()


def at(table: MonitorTable, row: int, column: int) -> QPoint:
    return table.visualRect(table.model().index(row, column)).center()


def test_a_host_says_what_a_gpu_would_show_until_it_has_one(opened: Opened) -> None:
    model, _ = model_of(CPU_INVENTORY, *samples(0, 5, gpus=0))
    view = opened(model)
    assert "No NVIDIA driver is installed." in displayed_text(view.details.no_gpu)
    assert view.details.no_gpu.isVisible()
    model.handle(GPU_INVENTORY)
    view.show_table()
    assert view.table.chosen == RowKey("", "GPU-0"), "what the user has not chosen is the first GPU"
    assert not view.details.no_gpu.isVisible()


def test_columns_are_as_wide_after_others_are_gone(qtbot: QtBot, theme: Theme) -> None:
    model, _ = model_of()
    late, widths = MonitorTable(model, theme), list[object]()
    host = replace(HOST_DEVICE, fields={name: FieldInfo(unit="") for name in ("load_pct", "memory_bytes")})
    model.handle(replace(CPU_INVENTORY, devices=(host,)))
    model.read()
    late.refresh()
    for table in (late, MonitorTable(model, theme)):
        qtbot.addWidget(table)
        columns = [table.columnWidth(column) for column in range(table.model().columnCount())]
        widths.append((columns, table._delegate.unit_widths))
    assert widths[0] == widths[1]


@pytest.mark.parametrize("width", [1280, 1024])
def test_the_bold_sum_of_eight_gpus_is_not_cut(opened: Opened, width: int) -> None:
    readings = (sample(f"GPU-{index}", power_mw=679_500, power_limit_mw=700_000) for index in range(8))
    model, _ = model_of(machine(8), *readings)
    table = opened(model, QSize(width, 800)).table
    column = table._rows.keys.index("power_mw")
    cell, delegate = table._rows.row_cells(0)[column], table._delegate
    assert cell.text.split() == ["5,436", "of", "5,600", "W"]
    room = table.columnWidth(column) - delegate.unit_widths.get(column, 0) - 2 * GRID
    assert delegate.faces[True].width(cell.text) <= room


def test_a_window_that_becomes_narrow_has_its_figures_in_one_column_at_once(qtbot: QtBot, opened: Opened) -> None:
    model, _ = model_of(machine(2), sample("GPU-0", power_mw=600_000))
    view = opened(model, QSize(1400, 400))
    wide = view.minimumSizeHint().width()
    assert wide > 640, "two columns"
    view.resize(640, 400)  # and no reading comes
    qtbot.waitUntil(lambda: view.minimumSizeHint().width() <= 640)


def test_a_lost_card_keeps_its_place_with_the_reason_over_its_columns(opened: Opened) -> None:
    model, _ = model_of(machine(2), sample("GPU-0", power_mw=600_000), sample("GPU-1", power_mw=601_000))
    model.handle(Processes(t_ns=ns(5), device="GPU-0", processes=(GpuProcess(pid=4242, name="python3"),)))
    view = opened(model)
    assert view.table.chosen == RowKey("", "GPU-0"), "the first GPU at first"
    assert "python3 (4242)" in displayed_text(view.details)
    absent = {label.toolTip() for label in view.details.findChildren(QLabel) if label.text() == "–"}
    assert "The system hides this from this user or container" in " ".join(absent)
    model.handle(DeviceLost(t_ns=ns(5), device="GPU-0", reason="It fell off the bus."))
    view.show_table()
    assert "GPU 0 · H200 · Lost 0\u00a0s ago. It fell off the bus." in displayed_text(view.table).splitlines()
    words = displayed_text(view.details)
    assert "Lost 0\u00a0s ago. It fell off the bus." in words
    assert "python3" not in words
    assert "600" not in words
    assert view.table.columnSpan(1, 1) == 5, "the sentence has the room of the figures"
    assert view.table.columnSpan(2, 1) == 1


def test_names_and_users_of_processes_share_the_room_by_what_they_need(opened: Opened) -> None:
    model, _ = model_of(machine(1), sample("GPU-0", power_mw=600_000))
    hidden, known = GpuProcess(pid=4217125), GpuProcess(pid=7, name="py", user="a-long-user-name")
    for process in (hidden, known):
        model.handle(Processes(t_ns=ns(5), device="GPU-0", processes=(process,)))
        view = opened(model)
        QApplication.processEvents()
        shown = [
            each for each in view.details.findChildren(ElidedLabel) if each.text() in (process.title, process.user)
        ]
        assert shown
        assert all(each.width() >= each.fontMetrics().horizontalAdvance(each.text()) for each in shown)


def test_numbers_that_are_not_of_now_are_grey_and_say_their_age(opened: Opened, theme: Theme) -> None:
    model, clock = model_of(machine(1), sample("GPU-0", power_mw=600_000, power_limit_mw=700_000))
    view = opened(model)
    assert ">600\u00a0W of 700\u00a0W" in (current := view.details.figures.text())
    clock.now_s += 7
    view.show_table()
    assert "No reading for 7\u00a0s" in displayed_text(view.details)
    muted, aged = theme.colours.muted, view.details.figures.text()
    assert "600\u00a0W of 700\u00a0W" in displayed_text(view.details)
    assert aged.count(muted) == 2 * current.count(muted)
    model.handle(sample("GPU-0", power_mw=600_000, power_limit_mw=700_000))
    view.show_table()
    assert "No reading" not in displayed_text(view.details)
    assert view.details.figures.text() == current


def test_the_chosen_row_stays_chosen_while_rows_change_places(opened: Opened) -> None:
    model, _ = model_of(machine(4), *(sample(f"GPU-{n}", 10.0 * n + 5) for n in range(4)))
    view = opened(model)
    view.table.choose(RowKey("", "GPU-2"))
    QTest.mouseClick(view.table.horizontalHeader().viewport(), LEFT, NONE, QPoint(at(view.table, 0, 2).x(), 10))
    assert [line[:5] for line in displayed_text(view.table).splitlines()[1:5]] == [f"GPU {n}" for n in (3, 2, 1, 0)]
    assert view.table.chosen == RowKey("", "GPU-2")
    assert view.table.currentIndex().row() == 2
    model.handle(machine(2))
    view.show_table()
    assert view.table.chosen == RowKey("", "GPU-0"), "what took its place"
    model.handle(CPU_INVENTORY)
    view.show_table()
    assert view.table.chosen == RowKey("", HOST)


def test_eight_gpus_and_their_details_are_in_sight_at_once_on_a_small_and_on_a_huge_screen(opened: Opened) -> None:
    model, _ = model_of(machine(8), *(sample(f"GPU-{n}", power_mw=600_000) for n in range(8)))
    for size in (QSize(1024, 660), QSize(2560, 1400)):
        view = opened(model, size)
        table, details = view.table, view.details
        assert shown_columns(table) <= table.viewport().width(), "no column is out of sight"
        assert table.wanted_height <= table.height() + (110 if size.height() < 700 else 0)
        plots = details.stack.visible_plots
        assert len(plots) == 4
        covered = sum(plot.width() * plot.height() for plot in plots) + table.width() * table.height()
        assert covered > 0.6 * view.width() * view.height() or size.height() < 700


def test_the_range_is_there_at_the_next_start(opened: Opened, window_state: object) -> None:
    model, _ = model_of(GPU_INVENTORY, *samples(0, 1))
    view = opened(model)
    QTest.mouseClick(view.details.time_bar.range_buttons["1 h"], LEFT)
    write_states(view)
    later, _ = model_of(GPU_INVENTORY, *samples(0, 1))
    again = opened(later)
    assert later.settings == model.settings
    assert again.details.time_bar.range_buttons["1 h"].isChecked()
    assert again.details.stack.span == (-3600.0, 0.0)


def test_the_plots_zoom_pan_pause_and_follow_again_as_those_of_a_run(qtbot: QtBot, opened: Opened) -> None:
    model, clock = model_of(machine(1), sample("GPU-0"))
    view = opened(model)
    stack, bar = view.details.stack, view.details.time_bar
    assert stack.span == (-60.0, 0.0)
    stack.setFocus()
    QTest.keyClick(stack, Qt.Key.Key_Plus)
    held = stack.span
    assert held[1] - held[0] == pytest.approx(40.0)
    assert (bar.chip.text(), bar.range_buttons["1 min"].isChecked()) == ("Paused", False)
    clock.now_s += 5
    view.show_chosen(words=False)
    assert stack.span == held, "data arrive, the view stands still"
    QTest.keyClick(stack, Qt.Key.Key_Left, Qt.KeyboardModifier.ShiftModifier)
    assert stack.span[0] < held[0]
    bar.follow_button.click()
    assert (stack.span, bar.chip.text()) == ((-60.0, 0.0), "")
    QTest.keyClick(stack, Qt.Key.Key_Space)
    assert model.view.is_paused
    QTest.keyClick(stack, Qt.Key.Key_2)
    assert (stack.span, model.settings.range) == ((-600.0, 0.0), "10 min")
    QTest.keyClick(view.table, Qt.Key.Key_3)
    assert model.settings.range == "1 h"


def test_hosts_are_folded_connected_searched_and_opened_by_mouse_and_keyboard(qtbot: QtBot, opened: Opened) -> None:
    model, _ = fleet("connected", "lost")
    model.handle(sample("GPU-0"), "gpu0")
    view = opened(model)
    table = view.table
    assert [line.split(" · ")[0] for line in displayed_text(table).splitlines()] == [
        "This machine",
        "CPU",
        "gpu0",
        "GPU 0",
        "GPU 1",
        "CPU",
        "gpu1",
    ]
    with qtbot.waitSignal(table.connect_requested) as asked:
        QTest.mouseClick(table.viewport(), LEFT, NONE, at(table, 6, len(TABLE_COLUMNS) - 1))
    assert asked.args == ["gpu1"]
    QTest.mouseClick(table.viewport(), LEFT, NONE, QPoint(12, at(table, 2, 0).y()))
    assert len(displayed_text(table).splitlines()) == 4, "folded"
    table.setFocus()
    QTest.keyClick(table, Qt.Key.Key_Right)
    assert len(displayed_text(table).splitlines()) == 7
    with qtbot.waitSignal(table.opened) as shown:
        QTest.keyClick(table, Qt.Key.Key_Return)
    assert shown.args == ["gpu0"]
    assert view.minimumSizeHint().width() <= 720, "1440 pixels at 200 %"
    view.search.setText("gpu 1")
    assert displayed_text(table).splitlines()[1].startswith("GPU 1")
    view.search.setText("nobody")
    assert displayed_text(table) == ""
    assert view.search.isVisible(), "or nobody could take the word back"
    view.search.setFocus()
    QTest.keyClick(view.search, Qt.Key.Key_Escape)
    assert len(displayed_text(table).splitlines()) == 7


def test_a_host_that_is_not_reached_says_so_with_a_way_on_in_place_of_empty_plots(qtbot: QtBot, opened: Opened) -> None:
    model, clock = fleet("connected", "failed")
    model.handle(sample("GPU-0"), "gpu0")
    view = opened(model)
    details, stack = view.details, view.details.stack
    view.table.choose(RowKey("gpu0"))
    assert stack.isVisible()
    view.table.choose(RowKey("gpu1"))
    clock.now_s += 65.0
    view.show_table()
    assert not stack.isVisible()
    assert "gpu1 cannot be reached" in displayed_text(details)
    assert "Last tried 1\u00a0min ago." in displayed_text(details)
    with qtbot.waitSignal(view.table.connect_requested) as retried:
        QTest.mouseClick(details.connect_button, LEFT)
    assert retried.args == ["gpu1"]
    assert view.table.hasFocus()
    lost = HostState(name="gpu0", stage="lost", text="It fell.")
    model.update([lost, HostState(name="gpu1", stage="connecting")])
    view.show_table()
    assert "Begun 0\u00a0s ago" in displayed_text(details)
    assert not details.connect_button.isVisible()
    view.table.choose(RowKey("gpu0", "GPU-1"))
    assert "No data from gpu0\nIt fell. Its last reading came 1\u00a0min ago." in displayed_text(details)
    view.details.time_bar.range_buttons["10 min"].click()
    assert stack.isVisible(), "of this range there is something to draw"


def test_of_many_hosts_only_what_is_in_sight_is_made(
    qtbot: QtBot, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = ManyHosts(200, theme)
    qtbot.addWidget(many.table)
    many.table.resize(1200, 600)
    many.table.show()
    made_keys: list[RowKey] = []
    cells = many.model.cells

    def counted(key: RowKey) -> tuple[Cell, ...]:
        made_keys.append(key)
        return cells(key)

    monkeypatch.setattr(many.model, "cells", counted)
    many.frame(0)
    assert len(many.model.layout()) == 1601
    assert 0 < len(set(made_keys)) <= 600 // 28 + 1
    many.table.verticalScrollBar().setValue(1590)
    made_keys.clear()
    many.table.viewport().repaint()
    assert {key.host for key in made_keys} <= {key.host for key in many.model.layout()[-30:]}


def test_a_host_of_two_kinds_of_cards_is_named_whole_where_there_is_room(opened: Opened) -> None:
    model, _ = model_of(machine(2))
    view = opened(model)
    view.resize(2560, 1300)
    QApplication.processEvents()
    name = "This machine · 4× H100 80GB HBM3, 4× H200"
    bold = QFontMetrics(tabular_font(bold=True))
    assert view.table.columnWidth(0) >= bold.horizontalAdvance(name) + SYMBOL_WIDTH + 2 * GRID


def eight_gpus() -> tuple[MonitorModel, Clock]:
    return model_of(machine(8), *(sample(f"GPU-{n}", 10.0 * n + 5, power_mw=100_000 + 1_000 * n) for n in range(8)))


def chosen_numbers(view: MonitorView) -> list[str]:
    return [(place.device or "").removeprefix("GPU-") for place in view.table.selected]


def test_rows_that_are_chosen_by_mouse_and_keyboard_lay_their_curves_over_each_other(opened: Opened) -> None:
    model, _ = eight_gpus()
    view = opened(model)
    table, details = view.table, view.details

    def click(row: int, keys: Qt.KeyboardModifier) -> list[str]:
        QTest.mouseClick(table.viewport(), LEFT, keys, at(table, row, 0))
        return chosen_numbers(view)

    assert click(1, NONE) == ["0"]
    assert click(3, CTRL) == ["0", "2"]
    assert displayed_text(details).startswith("2 GPUs\nGPU 0, GPU 2")
    power = details.stack.panel("power_mw")
    assert power.shown_keys() == ("GPU-0", "GPU-2")
    assert power.legend.text() == "GPU 0 100\u00a0W, GPU 2 102\u00a0W"
    assert click(3, NONE) == ["2"]
    assert click(5, SHIFT) == ["2", "3", "4"]
    QTest.keyClick(table, Qt.Key.Key_Down, SHIFT)
    assert chosen_numbers(view) == ["2", "3", "4", "5"]
    assert "4 GPUs" in displayed_text(details)
    QTest.keyClick(table, Qt.Key.Key_Escape)
    assert chosen_numbers(view) == ["5"]
    assert details.stack.panel("power_mw").shown_keys() == ("GPU-5",)
    assert click(6, CTRL) == ["5"], "the last one stays"
    QTest.keyClick(table, Qt.Key.Key_Up, SHIFT)
    assert chosen_numbers(view) == ["4", "5"]
    assert click(2, NONE) == ["1"]


def test_escape_in_the_plots_ends_what_is_shown_there_before_the_choice_of_several(opened: Opened) -> None:
    model, _ = eight_gpus()
    view = opened(model)
    QTest.mouseClick(view.table.viewport(), LEFT, CTRL, at(view.table, 3, 0))
    stack = view.details.stack
    stack.setFocus()
    stack.set_crosshair(-1.0)
    QTest.keyClick(stack, Qt.Key.Key_Escape)
    assert (stack.crosshair, chosen_numbers(view)) == (None, ["0", "2"])
    QTest.keyClick(stack, Qt.Key.Key_Escape)
    assert chosen_numbers(view) == ["2"]


def test_several_rows_stay_chosen_while_rows_change_places_and_one_goes(opened: Opened) -> None:
    model, _ = eight_gpus()
    view = opened(model)
    for row, keys in ((2, NONE), (4, CTRL), (8, CTRL)):
        QTest.mouseClick(view.table.viewport(), LEFT, keys, at(view.table, row, 0))
    model.sort_by("load_pct")
    view.show_table()
    assert chosen_numbers(view) == ["7", "3", "1"]
    assert sorted(index.row() for index in view.table.selectionModel().selectedRows()) == [1, 5, 7]
    assert view.table.chosen == RowKey("", "GPU-7"), "the one that was clicked last"
    model.handle(machine(7))
    view.show_table()
    assert chosen_numbers(view) == ["3", "1"]
    assert view.table.chosen == RowKey("", "GPU-3")
    model.handle(machine(1))
    view.show_table()
    assert len(view.table.selected) == 1


@pytest.mark.parametrize("is_heard_first", [True, False])
def test_what_is_heard_between_a_reading_and_its_painting_waits_for_the_next(
    opened: Opened, is_heard_first: bool
) -> None:
    model, clock = eight_gpus()
    view = opened(model)
    view.table.choose(RowKey("", "GPU-6"))
    clock.now_s += 1
    news = sample("GPU-6", 41.0, power_mw=332_000, power_limit_mw=700_000, throttle_reasons=POWER_CAP)
    if is_heard_first:
        model.handle(news)
    view.show_table()
    if not is_heard_first:
        model.handle(news)
    view.show_chosen(words=False)
    view.table.viewport().repaint()
    power = view.details.stack.panel("power_mw")
    header = view.findChildren(ElidedLabel)[0].text()
    row = displayed_text(view.table).splitlines()[7]
    words = displayed_text(view.details)
    is_of_news = [
        header == "8 GPUs · 1 throttled",
        "Throttled" in row,
        "332 of 700" in row,
        "Throttled" in words,
        "332\u00a0W of 700" in words,
        power.legend.text() == "GPU 6 332\u00a0W",
    ]
    assert is_of_news == [is_heard_first] * 6


def test_plots_get_no_higher_than_is_of_use_and_the_table_takes_the_room(opened: Opened) -> None:
    plain, _ = model_of(CPU_INVENTORY, *samples(0, 5, gpus=0))
    view = opened(plain, QSize(1440, 860))
    assert {plot.height() <= 28 * GRID for plot in view.details.stack.visible_plots} == {True}
    many, _ = model_of(machine(40), *(sample(f"GPU-{n}", power_mw=600_000) for n in range(40)))
    view = opened(many, QSize(1440, 1400))
    assert view.table.height() > 0.5 * view.height(), "more than its share"
    stack = view.details.stack
    QApplication.processEvents()
    assert max(plot.height() for plot in stack.visible_plots) <= 28 * GRID
    stack.maximise(stack.visible_plots[0])
    view.show_table()
    QApplication.processEvents()
    assert stack.visible_plots[0].height() > 28 * GRID, "one that is shown alone has all the room"
