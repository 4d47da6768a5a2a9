"""Somebody at a real screen: finds what is shown, and moves the mouse and types through the X server.

A story is a generator inside the program's own event loop. It yields what the user waits to see; between two steps the
program is alone, so that menus and modal dialogs work as ever.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Generator
from typing import TypeVar

from PySide6.QtCore import QModelIndex, QObject, QPoint, QRect, QTimer
from PySide6.QtWidgets import QAbstractItemView, QApplication, QTabBar, QWidget

from app.gui.window import MainWindow

LIMIT_S = 120.0
"""A busy machine may need so long for what a user sees at once."""
_LOOK_MS = 50

Shown = TypeVar("Shown")
Story = Generator[Callable[[], object], None, None]
Widget = TypeVar("Widget", bound=QWidget)


class User(QObject):
    """Goes through a story; what does not come to be seen ends the program with status 3 and a picture."""

    def __init__(self, story: Story, picture: str) -> None:
        super().__init__()
        self._story = story
        self._picture = picture
        self._awaited: Callable[[], object] = lambda: True
        self._since_s = time.monotonic()
        self._timer = QTimer(self, interval=_LOOK_MS)
        self._timer.timeout.connect(self._look)
        self._timer.start()

    def _look(self) -> None:
        try:
            if not self._awaited():
                if time.monotonic() - self._since_s > LIMIT_S:
                    self._fail(f"not seen within {LIMIT_S:.0f} s: line {self._line()} of {self._awaited.__qualname__}")
                return
            self._awaited = next(self._story)
        except StopIteration:
            self._timer.stop()
        except Exception as error:  # noqa: BLE001 (Qt would print it and go on)
            self._fail(f"line {self._line()}: {error!r}")
        self._since_s = time.monotonic()

    def _line(self) -> int:
        frame = getattr(self._story, "gi_frame", None)
        return frame.f_lineno if frame else 0

    def _fail(self, reason: str) -> None:
        self._timer.stop()
        QApplication.primaryScreen().grabWindow(0).save(self._picture)
        print(f"{reason}; {self._picture}", file=sys.stderr, flush=True)
        QApplication.exit(3)


def until(seen: Callable[[], Shown | None]) -> Generator[Callable[[], object], None, Shown]:
    yield seen
    found = seen()
    assert found
    return found


def shown(kind: type[Widget], says: str = "") -> Widget | None:
    """Return the first visible widget of a kind whose text, title or accessible name has these words."""
    for each in QApplication.allWidgets():
        if isinstance(each, kind) and each.isVisible() and each.isEnabled():
            texts = [getattr(each, name, str)() for name in ("text", "windowTitle", "accessibleName")]
            if any(says in str(text).replace("&", "") for text in texts):
                return each
    return None


def active_window() -> MainWindow | None:
    """Return the main window once it has the keyboard."""
    window = shown(MainWindow)
    return window if window and window.isActiveWindow() else None


def click(widget: QWidget, at: QRect | None = None, *held: str) -> None:
    """Click with the mouse into the middle of a widget, or of a part of it, while keys are held."""
    part = at or widget.rect()
    point = widget.mapToGlobal(part.center() if at else QPoint(part.width() // 2, part.height() // 2))
    keys = [word for key in held for word in ("keydown", key)], [word for key in held for word in ("keyup", key)]
    _do("mousemove", str(point.x()), str(point.y()), *keys[0], "click", "1", *keys[1])


def click_tab(bar: QTabBar, says: str) -> None:
    (index,) = (index for index in range(bar.count()) if bar.tabText(index) == says)
    click(bar, bar.tabRect(index))


def click_row(view: QAbstractItemView, index: QModelIndex, *held: str) -> None:
    """Click on a row of a table or list, while keys are held."""
    click(view.viewport(), view.visualRect(index), *held)


def drag(widget: QWidget, start: QPoint, by: QPoint) -> None:
    first = widget.mapToGlobal(start)
    last = first + by
    to = ("mousemove", "--sync", str(last.x()), str(last.y()))
    _do("mousemove", "--sync", str(first.x()), str(first.y()), "mousedown", "1", *to, "mouseup", "1")


def press(*keys: str) -> None:
    """Press keys or combinations, one after the other, by their X names: `ctrl+k`, `Return`."""
    _do("key", "--clearmodifiers", *keys)


def write(text: str) -> None:
    _do("type", "--delay", "4", text)


def fill(field: QWidget, text: str) -> Story:
    """Type a text in place of what a field has, and leave it."""
    click(field)
    yield field.hasFocus
    press("ctrl+a")
    write(f"{text}\t")


def _do(*words: str) -> None:
    subprocess.run(["xdotool", *words], check=True, timeout=LIMIT_S)
