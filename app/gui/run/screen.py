"""The Run screen: the form, and beside it, or below it in a narrow window, the live view and the queue."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QShortcut
from PySide6.QtWidgets import (
    QApplication,
    QBoxLayout,
    QDialog,
    QDialogButtonBox,
    QFrame,
    QScrollArea,
    QSizePolicy,
    QStackedWidget,
    QWidget,
)

from app.gui.experiment.gallery import GalleryView
from app.gui.run.form import FormView
from app.gui.run.live import LiveView
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import button, make_column
from app.gui.widgets.dialogs import resize_within_screen

if TYPE_CHECKING:
    from app.gui.experiment.queue import QueueView
    from app.gui.run.first_start import FirstStartView

_FORM_WIDTH = 45 * GRID
_LEAST_PLOTS_WIDTH = 56 * GRID
"""More than any content beside the form needs: its place must not change when a run starts or ends."""


_GALLERY, _LIVE = 0, 1
"""Indices of the right part's first pages."""


class RunView(QWidget):
    """Lays out the form, the live view or what replaces it, and the queue."""

    gallery_shown = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.form = FormView(theme)
        self.live = LiveView(theme)
        self.gallery = GalleryView()
        self.form.questions_button.clicked.connect(self.show_gallery)
        self.form.changed.connect(self._leave_script)
        self.queue: QueueView | None = None
        self.first_start: FirstStartView | None = None
        self._theme = theme
        self._right = QStackedWidget()
        self._right.addWidget(self.gallery)
        self._right.addWidget(self.live)
        line = QFrame()
        line.setProperty("role", "rule")
        line.setMinimumSize(1, 1)
        self._layout = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(0)
        self._layout.addWidget(self.form)
        self._layout.addWidget(line)
        self._column = make_column((self._right, 1), spacing=0)
        self._script: QWidget | None = None
        self._right.currentChanged.connect(lambda _: self.form.show_script(self._right.currentWidget() is self._script))
        self._right.currentChanged.connect(self._reveal)
        QShortcut("Ctrl+L", self, self._focus_plots)
        self._layout.addLayout(self._column, 1)
        self._arrange()

    def minimumSizeHint(self) -> QSize:
        """Return the width of the wider part, because the other fits above or below it, and the current height."""
        width = max(self.form.minimumSizeHint().width(), self._column.minimumSize().width())
        return QSize(width, super().minimumSizeHint().height())

    def event(self, event: QEvent) -> bool:
        """Arrange the parts beside or above each other, as the width and their content allow."""
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest):
            self._arrange()
        return super().event(event)

    def _arrange(self) -> None:
        side_by_side = self.width() > _FORM_WIDTH + max(_LEAST_PLOTS_WIDTH, self._column.minimumSize().width())
        direction, policy = QBoxLayout.Direction, QSizePolicy.Policy
        self._layout.setDirection(direction.LeftToRight if side_by_side else direction.TopToBottom)
        self.form.setMinimumWidth(_FORM_WIDTH if side_by_side else 0)
        self.form.setMaximumWidth(_FORM_WIDTH if side_by_side else self.width())
        self.form.setSizePolicy(policy.Preferred, policy.Preferred if side_by_side else policy.Minimum)

    def _reveal(self) -> None:
        """Scroll to the right part's content if it is below the form."""
        viewport = self.parentWidget()
        page = None if viewport is None else viewport.parentWidget()
        if isinstance(page, QScrollArea) and self.isVisible():
            QTimer.singleShot(0, self, lambda: page.verticalScrollBar().setValue(self._right.y()))

    def queue_view(self) -> "QueueView":
        """Return the queue, created when first needed."""
        if self.queue is None:
            from app.gui.experiment.queue import QueueView

            self.queue = QueueView(self._theme)
            self._column.addWidget(self.queue)
        return self.queue

    def show_gallery(self) -> None:
        """Show the prepared questions, and scroll to them; the form stays usable."""
        self._right.setCurrentIndex(_GALLERY)
        self._reveal()
        self.gallery_shown.emit()

    def leave_questions(self) -> None:
        """Show the live view instead of the questions or a script."""
        if self._right.currentIndex() == _GALLERY or self.form.is_script:
            self.show_live()

    def _leave_script(self) -> None:
        if self.form.is_script:
            self.show_live()

    def first_start_view(self) -> "FirstStartView":
        """Return the choice of where to run, created when first needed."""
        if self.first_start is None:
            from app.gui.run.first_start import FirstStartView

            self.first_start = FirstStartView()
            self._right.addWidget(self.first_start)
        return self.first_start

    def show_first_start(self) -> None:
        """Show the choice of a place for runs instead of the plots; the form stays usable."""
        self._right.setCurrentWidget(self.first_start_view())

    def show_script(self, page: QWidget) -> None:
        """Show the page of a user's script instead of the plots; the form keeps its workloads."""
        self._script = page
        self._right.addWidget(page)
        self._right.setCurrentWidget(page)

    def show_live(self) -> None:
        """Show the live view again, and scroll to it; its plots take the focus from what they replace."""
        had_keyboard = self._right.isAncestorOf(QApplication.focusWidget() or self)
        is_there = self._right.currentIndex() == _LIVE
        self._right.setCurrentIndex(_LIVE)
        if is_there:
            self._reveal()
        elif had_keyboard:
            self.live.stack.setFocus()

    def _focus_plots(self) -> None:
        self.show_live()
        self.live.stack.setFocus()

    def show_log(self, text: str) -> None:
        """Show the worker's log in a dialog, to read and copy."""
        from app.gui.history.page import LogView  # here: most logs are never read

        dialog = QDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowTitle("Log of the run")
        resize_within_screen(dialog, 112 * GRID, 72 * GRID)
        log = LogView(self._theme)
        log.show_log("Log", text)
        buttons = QDialogButtonBox()
        buttons.addButton(button("&Close", "Close this window (Escape)"), QDialogButtonBox.ButtonRole.RejectRole)
        buttons.rejected.connect(dialog.reject)
        make_column((log, 1), buttons, parent=dialog, margins=2 * GRID)
        dialog.open()
