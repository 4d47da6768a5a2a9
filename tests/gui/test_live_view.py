from pytestqt.qtbot import QtBot

from app.gui.theme import Theme
from app.gui.views.live import LiveView
from app.gui.views.monitor import MonitorView
from app.gui.views.run import LogDialog, RunView
from app.records import Outcome
from app.viewmodels.live import LiveModel
from app.viewmodels.monitor import MonitorModel
from tests.unit.viewmodels.events import GPU_INVENTORY, ended, samples, started, tell, training


def show(view: LiveView, model: LiveModel) -> None:
    """As the ticks of a window do: each call makes two new plots at most."""
    for _ in model.state().panels:
        view.show_model(model.state())


def test_the_live_view_fills_from_events(qtbot: QtBot, theme: Theme) -> None:
    model, view = LiveModel(), LiveView(theme)
    qtbot.addWidget(view)
    view.show()
    tell(model, (GPU_INVENTORY, *samples(-5, 0)))
    show(view, model)
    assert "Ready to run" in view.words()
    assert len(view.stack.panel("power").points("GPU-1")[0]) == 50
    tell(model, (started(GPU_INVENTORY), *samples(0, 16), *training()))
    show(view, model)
    assert "Measuring" in view.words()
    assert "1,000 images/s" in view.words()
    for key, curve, count in (("power", "GPU-0", 160), ("memory", "allocator", 40), ("throughput", "run", 40)):
        assert len(view.stack.panel(key).points(curve)[0]) == count
    model.handle(ended(Outcome(name="stopped", reason="Stopped by the user.")))
    view.show_model(model.state())
    assert "Stopped Stopped by the user." in view.words()


def test_a_second_run_replaces_the_first_in_the_plots(qtbot: QtBot, theme: Theme) -> None:
    model, view = LiveModel(), LiveView(theme)
    qtbot.addWidget(view)
    tell(model, (GPU_INVENTORY, started(GPU_INVENTORY), *training(), ended(Outcome(name="completed"))))
    show(view, model)
    model.handle(started(GPU_INVENTORY))
    show(view, model)
    assert len(view.stack.panel("throughput").points("run")[0]) == 0


def test_the_log_can_be_read(qtbot: QtBot, theme: Theme) -> None:
    view = RunView(theme)
    qtbot.addWidget(view)
    view.show()
    view.show_log("Traceback (most recent call last): …")
    dialog = view.findChild(LogDialog)
    assert isinstance(dialog, LogDialog)
    assert dialog.text.toPlainText().startswith("Traceback")
    dialog.reject()


def test_the_monitor_has_a_row_a_device(qtbot: QtBot, theme: Theme) -> None:
    model, view = MonitorModel(), MonitorView(theme)
    qtbot.addWidget(view)
    view.show()
    view.show_model(model.state())
    tell(model, (GPU_INVENTORY, *samples(0, 5)))
    for _ in GPU_INVENTORY.devices:  # one new row a call
        view.show_model(model.state())
    words = view.row("GPU-1").words()
    assert "601" in words
    assert "not supported" in words
    assert "40" in view.row("host").words()
