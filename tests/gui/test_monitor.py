"""The Monitor screen on made-up machines: one host, lost cards, many GPUs."""

import msgspec
import pytest
from PySide6.QtWidgets import QLabel, QScrollArea
from pytestqt.qtbot import QtBot

from app.fields import SlowSample
from app.gui.monitor import DeviceRowView, MonitorView
from app.gui.theme import Theme
from app.samples import DeviceLost, GpuProcess, Inventory, Processes
from app.viewmodels.monitor import MonitorModel
from tests.gui.actions import RecordedActions
from tests.unit.viewmodels.events import CPU_INVENTORY, DEVICES, GPU_INVENTORY, HOST_DEVICE, handle_all, ns, samples


def many(count: int) -> Inventory:
    """Return a machine with so many GPUs."""
    cards = [msgspec.structs.replace(DEVICES[0], device=f"GPU-{n}", index=n) for n in range(count)]
    return msgspec.structs.replace(GPU_INVENTORY, devices=(*cards, HOST_DEVICE))


@pytest.fixture
def view(qtbot: QtBot, theme: Theme, recorded: RecordedActions) -> MonitorView:
    made = MonitorView(theme, recorded.actions)
    qtbot.addWidget(made)
    made.resize(1280, 800)
    with qtbot.waitExposed(made):
        made.show()
    return made


def shown(qtbot: QtBot, view: MonitorView, model: MonitorModel) -> None:
    """Wait until every row is made and laid out."""
    for _ in range(10):
        view.show_model(model.state())
    qtbot.waitUntil(lambda: all(row.isVisible() and row.width() > 1000 for row in view.findChildren(DeviceRowView)))


def test_a_host_without_a_gpu_has_the_page_and_says_what_one_would_show(qtbot: QtBot, view: MonitorView) -> None:
    model = MonitorModel()
    handle_all(model, (CPU_INVENTORY, *samples(0, 5, gpus=0)))
    shown(qtbot, view, model)
    row = view.row("host")
    plots = [row.plot(key) for key in ("power_mw", "load_pct", "memory_bytes")]
    qtbot.waitUntil(lambda: sum(plot.height() for plot in plots) > 0.8 * view.height())
    assert plots[0].y() <= 24
    assert [plot.x() for plot in plots] == [plots[0].x()] * 3
    assert view.no_gpu.isVisible()
    assert "No NVIDIA driver is installed." in view.no_gpu.displayed_text()
    assert "With an NVIDIA GPU" in view.no_gpu.displayed_text()


def test_with_a_gpu_nothing_is_said_of_one(qtbot: QtBot, view: MonitorView) -> None:
    model = MonitorModel()
    handle_all(model, (many(1), *samples(0, 5)))
    shown(qtbot, view, model)
    assert not view.no_gpu.isVisible()


def test_a_lost_card_keeps_its_place_with_the_reason(qtbot: QtBot, view: MonitorView) -> None:
    model = MonitorModel()
    handle_all(model, (many(2), *samples(0, 5)))
    model.handle(Processes(t_ns=ns(5), device="GPU-0", processes=(GpuProcess(pid=4242, name="python3"),)))
    shown(qtbot, view, model)
    assert "python3 (4242) · unknown user" in view.row("GPU-0").displayed_text()
    before = view.row("GPU-0").y()
    model.handle(DeviceLost(t_ns=ns(5), device="GPU-0", reason="It fell off the bus."))
    view.show_model(model.state())
    words = view.row("GPU-0").displayed_text()
    assert "Lost 0\u00a0s ago. It fell off the bus." in words
    assert "python3" not in words
    assert "600" not in words
    assert view.row("GPU-0").y() == before
    assert "Power 601" in view.row("GPU-1").displayed_text()


def test_numbers_that_are_not_of_now_are_grey_and_say_their_age(qtbot: QtBot, view: MonitorView) -> None:
    model = MonitorModel()
    handle_all(model, (many(1), *samples(0, 5)))
    shown(qtbot, view, model)
    view.show_model(model.state(ns(12)))
    row = view.row("GPU-0")
    assert "No reading for 7\u00a0s." in row.displayed_text()
    power = next(label for label in row.findChildren(QLabel) if label.accessibleName() == "Power")
    assert (power.text(), power.property("role")) == ("600\u00a0W of 700\u00a0W", "muted")
    handle_all(model, list(samples(12, 13)))
    view.show_model(model.state(ns(13)))
    assert "No reading" not in row.displayed_text()
    assert power.property("role") == ""


def test_devices_that_appear_and_go_change_the_page(qtbot: QtBot, view: MonitorView) -> None:
    model = MonitorModel()
    handle_all(model, (CPU_INVENTORY, *samples(0, 1, gpus=0)))
    shown(qtbot, view, model)
    assert view.no_gpu.isVisible()
    handle_all(model, (many(2), *samples(1, 2)))
    shown(qtbot, view, model)
    qtbot.waitUntil(lambda: len(view.findChildren(DeviceRowView)) == 3)
    assert view.row("GPU-0").y() < view.row("GPU-1").y() < view.row("host").y()
    assert not view.no_gpu.isVisible()
    model.handle(CPU_INVENTORY)
    shown(qtbot, view, model)
    qtbot.waitUntil(lambda: len(view.findChildren(DeviceRowView)) == 1)
    assert view.no_gpu.isVisible()


def test_new_figures_find_their_place(qtbot: QtBot, view: MonitorView) -> None:
    model = MonitorModel()
    handle_all(model, (many(1), *samples(0, 5)))
    shown(qtbot, view, model)
    assert "Tensor cores" not in view.row("GPU-0").displayed_text()
    slow = SlowSample(t_ns=ns(5), device="GPU-0", tensor_active_pct=93.5, sm_active_pct=96.0, memory_temperature_c=62)
    model.handle(slow)
    view.show_model(model.state())
    assert "Tensor cores active 93.5" in view.row("GPU-0").displayed_text()


def test_cards_out_of_sight_cost_nothing(qtbot: QtBot, view: MonitorView) -> None:
    model = MonitorModel()
    handle_all(model, (many(8), *samples(0, 5, gpus=8)))
    shown(qtbot, view, model)
    assert len(view.findChildren(DeviceRowView)) == 9
    handle_all(model, list(samples(5, 6, gpus=8)))
    model.handle(SlowSample(t_ns=ns(6), device="GPU-0", memory_temperature_c=62))
    model.handle(SlowSample(t_ns=ns(6), device="GPU-7", memory_temperature_c=63))
    view.show_model(model.state())
    assert "62" in view.row("GPU-0").displayed_text()
    assert "Memory temperature" not in view.row("GPU-7").displayed_text(), "it is below the fold"
    (scroll,) = view.findChildren(QScrollArea)
    scroll.ensureWidgetVisible(view.row("GPU-7"))
    view.show_model(model.state())
    assert "Memory temperature 63" in view.row("GPU-7").displayed_text()
