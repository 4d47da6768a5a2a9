"""A screen with a database and a thread that reads it, for tests of one screen without the window around it."""

from typing import Generic, TypeVar

from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.gui.threads import close_jobs

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
        """Delete the view here and now: the garbage collector might do it on a reading thread."""
        close_jobs(self.view)
        self.view.close()
        self.view.deleteLater()
        QCoreApplication.sendPostedEvents(self.view, QEvent.Type.DeferredDelete.value)

    def visible_text(self) -> str:
        """All labels one can see."""
        return visible_text(self.view)

    def wait_for_text(self, text: str) -> None:
        """Until a label says so: what is asked for is read on another thread."""
        self.qtbot.waitUntil(lambda: text in self.visible_text())


def visible_text(shown: QWidget) -> str:
    """All labels in a widget that one can see, a line each."""
    return "\n".join(label.text() for label in shown.findChildren(QLabel) if label.isVisible())
