"""The Run screen: the form on the left, the live view and the queue on the right."""

from typing import TYPE_CHECKING

from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QDialogButtonBox,
    QFrame,
    QHBoxLayout,
    QPlainTextEdit,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.gui.run.form import FormView
from app.gui.run.live import LiveView
from app.gui.run.replay import ReplayView
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import button
from app.gui.widgets.dialogs import resize_within_screen

if TYPE_CHECKING:
    from app.gui.experiment.matrix import MatrixView
    from app.gui.experiment.queue import QueueView
    from app.gui.run.first_start import FirstStartView


class RunView(QWidget):
    """Lays out the form, the live view or what replaces it, and the queue."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.form = FormView(theme)
        self.live = LiveView(theme)
        self.replay: ReplayView | None = None
        self.queue: QueueView | None = None
        self.matrix: MatrixView | None = None
        self.first_start: FirstStartView | None = None
        self._theme = theme
        self._right = QStackedWidget()
        self._right.addWidget(self.live)
        line = QFrame()
        line.setProperty("role", "rule")
        line.setFixedWidth(1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.form)
        layout.addWidget(line)
        self._column = QVBoxLayout()
        self._column.setSpacing(0)
        self._column.addWidget(self._right, 1)
        layout.addLayout(self._column, 1)

    def queue_view(self) -> "QueueView":
        """Return the queue, made when first needed."""
        if self.queue is None:
            from app.gui.experiment.queue import QueueView

            self.queue = QueueView(self._theme)
            self._column.addWidget(self.queue)
        return self.queue

    @property
    def shows_live(self) -> bool:
        """Whether the live view is shown, and nothing in its place."""
        return self._right.currentWidget() is self.live

    def show_replay(self) -> ReplayView:
        """Show the replay in place of the live view, made when first needed; the form is disabled meanwhile."""
        if self.replay is None:
            self.replay = ReplayView(self._theme)
            self._right.addWidget(self.replay)
        self._right.setCurrentWidget(self.replay)
        self.replay.live.stack.setFocus()  # else Qt takes it from the form to any button
        self.form.setEnabled(False)
        return self.replay

    def matrix_view(self) -> "MatrixView":
        """Return the experiment matrix, made when first needed."""
        if self.matrix is None:
            from app.gui.experiment.matrix import MatrixView

            self.matrix = MatrixView()
            self._right.addWidget(self.matrix)
        return self.matrix

    def show_matrix(self) -> None:
        """Show the experiment matrix in place of the plots; the form stays usable."""
        self._right.setCurrentWidget(self.matrix_view())

    def first_start_view(self) -> "FirstStartView":
        """Return the choice of a place for runs, made when first needed."""
        if self.first_start is None:
            from app.gui.run.first_start import FirstStartView

            self.first_start = FirstStartView()
            self._right.addWidget(self.first_start)
        return self.first_start

    def show_first_start(self) -> None:
        """Show the choice of a place for runs in place of the plots; the form stays usable."""
        self._right.setCurrentWidget(self.first_start_view())

    def show_live(self) -> None:
        """Show the live view again; where what it replaces had the keyboard, its plots have it."""
        had_keyboard = self._right.isAncestorOf(QApplication.focusWidget() or self)
        is_there = self.shows_live
        self._right.setCurrentWidget(self.live)
        if had_keyboard and not is_there:
            self.live.stack.setFocus()
        self.form.setEnabled(True)

    def show_log(self, text: str) -> None:
        """Show the worker's log in a dialog, at its newest lines."""
        dialog = LogDialog(text, self)
        dialog.open()


class LogDialog(QDialog):
    """A log to read and copy."""

    def __init__(self, text: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle("Log of the run")
        resize_within_screen(self, 112 * GRID, 72 * GRID)
        self.text = QPlainTextEdit(text)
        self.text.setReadOnly(True)
        self.text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.text.setAccessibleName("Log of the run")
        buttons = QDialogButtonBox()
        buttons.addButton(button("&Close", "Close this window (Escape)"), QDialogButtonBox.ButtonRole.RejectRole)
        buttons.rejected.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        layout.addWidget(self.text)
        layout.addWidget(buttons)
        self.finished.connect(self.deleteLater)
