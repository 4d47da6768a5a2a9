"""A screen with a database and a thread that reads it, for tests of one screen without the window around it."""

from pathlib import Path
from typing import Generic, TypeVar

from PySide6.QtCore import QCoreApplication, QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.errors import DatabaseLockedError
from app.gui.plot.canvas import PlotCanvas
from app.gui.plot.curves import PanelCurve
from app.gui.plot.time_panel import TimePanel
from app.gui.threads import close_jobs
from app.storage.store import Store
from app.values.records import Floats
from app.viewmodels.plot.model import Points

View = TypeVar("View", bound=QWidget)


class Screen(Generic[View]):
    """A view that is shown, and what a test reads from it."""

    def __init__(self, qtbot: QtBot, view: View, width: int, height: int) -> None:
        self.qtbot = qtbot
        self.view = view
        view.resize(width, height)
        with qtbot.waitExposed(view):
            view.show()

    def destroy(self) -> None:
        """Delete the view now, on this thread."""
        close_jobs(self.view)
        self.view.close()
        self.view.deleteLater()
        QCoreApplication.sendPostedEvents(self.view, QEvent.Type.DeferredDelete.value)

    def visible_text(self) -> str:
        return visible_text(self.view)

    def button(self, label: str) -> QPushButton:
        return button(self.view, label)

    def wait_for_text(self, text: str) -> None:
        """Wait until a label shows the text: it is read on another thread."""
        self.qtbot.waitUntil(lambda: text in self.visible_text())


def expose(qtbot: QtBot, widget: QWidget, width: int, height: int) -> None:
    """Show a widget in this size, and have it closed at the test's end."""
    qtbot.addWidget(widget)
    widget.resize(width, height)
    with qtbot.waitExposed(widget):
        widget.show()


def locked(path: Path) -> Store:
    """What `Store.open` does while another program writes."""
    raise DatabaseLockedError(f"{path} is locked by another program.")


def button(parent: QWidget, label: str) -> QPushButton:
    """Return the button whose text begins so, keys apart; but none that is hidden."""
    buttons = (each for each in parent.findChildren(QPushButton) if not each.isHidden())
    return next(each for each in buttons if each.text().replace("&", "").startswith(label))


def visible_text(shown: QWidget) -> str:
    """Return the text of all visible labels of a widget, one per line."""
    return "\n".join(label.text() for label in shown.findChildren(QLabel) if label.isVisible())


def muted_colours(page: QWidget) -> set[str]:
    """Return the colours of a page's quiet labels, but for those that are hidden in it."""
    labels = [label for label in page.findChildren(QLabel) if label.property("role") in ("muted", "caption")]
    return {label.palette().windowText().color().name() for label in labels if label.isVisibleTo(page)}


def set_curve(panel: TimePanel, key: str, x: Floats, y: Floats, *, colour: int, label: str) -> None:
    """Give a plot the data of one curve; NaN in `y` is a gap."""
    panel.give(key, PanelCurve(colour, label, Points(x, y)))


def turn_wheel(
    canvas: PlotCanvas, at: QPointF, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    """Turn the wheel by one notch over a position of a plot."""
    held, phase = Qt.MouseButton.NoButton, Qt.ScrollPhase.NoScrollPhase
    on_screen = QPointF(canvas.mapToGlobal(at.toPoint()))
    event = QWheelEvent(at, on_screen, QPoint(), QPoint(0, 120), held, modifiers, phase, False)
    QCoreApplication.sendEvent(canvas.viewport(), event)
