"""What Ctrl+Z undoes: every change of stored things, by its name, one after the other."""

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QWidget

from app import units
from app.errors import UserError
from app.gui.theme import GRID, Theme
from app.gui.threads import Background
from app.gui.widgets.basic import button, plain_tooltip, text_label

if TYPE_CHECKING:
    from app.runs.undo import Reversal

    _Step = tuple[str, Reversal]

_MAX_STEPS = 100
_NAME_WIDTH = 26 * GRID
_NARROW = 110 * GRID
"""In a narrower window the button does not say what it undoes, so that every tab of the window is in sight."""
_TOAST_MS = 8_000


class UndoStack(QObject):
    """The changes that can be undone, and those that can be made again, each with its name.

    Thread: GUI only; reversals are called on `background`, in the order in which they are asked for.
    """

    changed = Signal()
    """There is something else to undo or to make again."""
    undone = Signal()
    """The database has changed."""
    said = Signal(str)
    """A sentence on what was undone, or why it was not."""

    def __init__(self, background: Background, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._background = background
        self._done: list[_Step] = []
        self._undone: list[_Step] = []

    @property
    def undo_name(self) -> str:
        """What Ctrl+Z undoes, as `Undo: delete run 3`; "" for nothing."""
        return f"Undo: {self._done[-1][0]}" if self._done else ""

    @property
    def redo_name(self) -> str:
        """What Ctrl+Shift+Z makes again; "" for nothing."""
        return f"Redo: {self._undone[-1][0]}" if self._undone else ""

    def push(self, name: str, reversal: "Reversal | None") -> None:
        """Take what undoes a change that was just made; None where it changed nothing.

        Args:
            name: The change, in the imperative: `delete run 3`.
            reversal: Undoes it.
        """
        if reversal is not None:
            self._done.append((name, reversal))
            del self._done[:-_MAX_STEPS]
            self._undone.clear()
            self.changed.emit()

    def drop_stale(self) -> None:
        """Offer no last change that cannot be undone any more, as a queue resumed that has ended since."""
        steps = list(self._done)

        def count() -> int:
            from app.runs.undo import drop_stale

            return drop_stale([reversal for _, reversal in steps])

        def keep(left: int) -> None:
            if left < len(steps) and self._done == steps:
                del self._done[left:]
                self.changed.emit()

        if steps:
            self._background.run(count, keep, lambda _: None)  # a database that cannot be read says so elsewhere

    def undo(self) -> None:
        """Undo the last change."""
        self._turn(self._done, self._undone, "Undone: {}. Ctrl+Shift+Z redoes it.", "Nothing to undo.")

    def redo(self) -> None:
        """Make the change again that was undone last."""
        self._turn(self._undone, self._done, "Redone: {}. Ctrl+Z undoes it.", "Nothing to redo.")

    def _turn(self, source: "list[_Step]", target: "list[_Step]", sentence: str, nothing: str) -> None:
        def turn(_: None) -> None:
            if not source:
                self.said.emit(nothing)
                return
            name, reversal = source.pop()
            self.changed.emit()
            self._background.run(reversal, partial(show, name), partial(self._fail, name))

        def show(name: str, again: "Reversal") -> None:
            target.append((name, again))
            self.changed.emit()
            self.undone.emit()
            self.said.emit(sentence.format(name))

        # Changes that are still being written come first: the last of them is what the user means.
        self._background.run(lambda: None, turn, partial(self._fail, ""))

    def _fail(self, name: str, error: UserError) -> None:
        self.said.emit(" ".join(filter(None, (units.sentence(name), str(error)))))


class UndoView(QObject):
    """The button in the window's head that says what Ctrl+Z undoes, and the line at the bottom that says what it did.

    Thread: GUI only.
    """

    def __init__(self, window: QWidget, theme: Theme, stack: UndoStack) -> None:
        super().__init__(window)
        self._window = window
        self._theme = theme
        self._stack = stack
        self.button: QPushButton = button("", flat=True)
        self.button.hide()
        self.button.clicked.connect(stack.undo)
        self._toast: QLabel | None = None
        self._timer = QTimer(self, interval=_TOAST_MS, singleShot=True)
        stack.changed.connect(self._show_name)
        window.installEventFilter(self)
        stack.said.connect(self.say)

    def say(self, text: str) -> None:
        """Show a sentence over the bottom of the window for a while."""
        if self._toast is None:
            self._toast = text_label("", "toast", wrap=True)
            self._toast.setParent(self._window)
            self._toast.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            self._timer.timeout.connect(self._toast.hide)
        self._theme.apply_style_sheet(self._toast)
        self._toast.setText(text)
        room = self._window.size()
        width = min(self._toast.fontMetrics().horizontalAdvance(text) + 5 * GRID, room.width() - 4 * GRID)
        self._toast.setFixedSize(width, self._toast.heightForWidth(width))
        self._toast.move((room.width() - width) // 2, room.height() - self._toast.height() - 3 * GRID)
        self._toast.show()
        self._toast.raise_()
        self._timer.start()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Fit the button to the width of the window."""
        if event.type() == QEvent.Type.Resize:
            self._show_name()
        return super().eventFilter(watched, event)

    def _show_name(self) -> None:
        name = self._stack.undo_name
        is_narrow = self._window.width() < _NARROW
        shown = (
            name.partition(":")[0]
            if is_narrow
            else self.button.fontMetrics().elidedText(name, Qt.TextElideMode.ElideRight, _NAME_WIDTH)
        )
        self.button.setText(shown.replace("&", "&&"))
        self.button.setToolTip(plain_tooltip(f"{name} (Ctrl+Z)"))
        self.button.setAccessibleName(name)
        self.button.setVisible(bool(name))
