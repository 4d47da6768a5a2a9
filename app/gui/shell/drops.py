"""Files dragged over the window: a layer over all screens says what a drop would do, and takes it."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDragMoveEvent,
    QDropEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.errors import UserError
from app.gui.theme import GRID, Theme
from app.gui.threads import CancellableJob
from app.gui.widgets.basic import clear_layout, text_label
from app.gui.window import MainWindow

if TYPE_CHECKING:
    from app.runs.dropped_files import DropKind, DroppedFile

_VEIL_ALPHA = 235
_EDGE = 2 * GRID
_TEXT_WIDTH = 80 * GRID
_NOT_LOCAL = "Only files on this computer can be dropped here."


class DropLayer(QWidget):
    """A veil over the window while files are dragged over it; it takes them in place of whatever is below.

    The window shows it before Qt looks for what is under the pointer: else a text field would take a file as text.

    Thread: GUI only; files are looked into on a thread of its own, for a disk may be slow.
    """

    said = Signal(str)
    """Why nothing was taken."""

    def __init__(
        self,
        window: MainWindow,
        theme: Theme,
        database: Path,
        is_busy: Callable[[], bool],
        takers: "Mapping[DropKind, Callable[[Path], object]]",
    ) -> None:
        """Make the layer of a window; it is there from the window's first paint on."""
        super().__init__(window)
        self._window = window
        self._theme = theme
        self._database = database
        self._is_busy = is_busy
        self._takers = takers
        self._files: tuple[DroppedFile, ...] | None = None
        self._is_dropped = False
        self._drag_count = 0
        self._job = CancellableJob(self)
        self._column = QVBoxLayout(self)
        self._column.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._column.setSpacing(GRID // 2)
        self.setAcceptDrops(True)
        self.setAccessibleName("Dropped files")
        self.hide()
        window.painted.connect(self._watch)

    @property
    def displayed_text(self) -> str:
        """Return what it says, a line per file."""
        found = () if self._files is None else self._files
        return "\n".join(f"{file.path.name}: {file.text}" for file in found)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Cover the window before Qt gives files that enter it to what is below."""
        if isinstance(event, QDragEnterEvent) and event.mimeData().hasUrls():
            self._begin(event.mimeData())
        return super().eventFilter(watched, event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Accept files, as a copy."""
        self._answer(event)

    def dragMoveEvent(self, event: QDragMoveEvent) -> None:
        """Accept files of which one or more can be taken."""
        self._answer(event)

    def dragLeaveEvent(self, _event: QDragLeaveEvent) -> None:
        """Uncover the window."""
        self.hide()

    def dropEvent(self, event: QDropEvent) -> None:
        """Take the files, when it is known what they are."""
        self._answer(event)
        self._is_dropped = True
        self._take()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint the veil and its frame."""
        colours = self._theme.colours
        veil = QColor(colours.window)
        veil.setAlpha(_VEIL_ALPHA)
        painter = QPainter(self)
        painter.fillRect(self.rect(), veil)
        takes = self._files is None or any(file.kind for file in self._files)
        painter.setPen(QPen(QColor(colours.accent if takes else colours.bad), 2, Qt.PenStyle.DashLine))
        painter.drawRoundedRect(self.rect().adjusted(_EDGE, _EDGE, -_EDGE, -_EDGE), GRID, GRID)
        painter.end()

    def _watch(self) -> None:
        """Hear of drags before Qt does: its own window is there with the first paint."""
        if (handle := self._window.windowHandle()) is not None:
            handle.installEventFilter(self)

    def _begin(self, dragged: QMimeData) -> None:
        """Cover the window, and look into the files."""
        from app.runs.dropped_files import describe_files

        paths = [Path(url.toLocalFile()) for url in dragged.urls() if url.isLocalFile()]
        self._files, self._is_dropped = None, False
        self._theme.apply_style_sheet(self)
        self.setGeometry(self._window.rect())
        self._show_lines([(path.name, "Looking into it …", "muted") for path in paths] or [(_NOT_LOCAL, "", "")])
        self.show()
        self.raise_()
        self._drag_count += 1
        drag, busy = self._drag_count, self._is_busy()

        def show(files: "tuple[DroppedFile, ...]") -> None:
            if drag == self._drag_count:
                self._show_files(files)

        if paths:
            self._job.run(lambda _: describe_files(paths, self._database, busy=busy), show, self._fail)
        else:
            self._files = ()

    def _show_files(self, files: "tuple[DroppedFile, ...]") -> None:
        self._files = files
        self._show_lines(
            [
                (file.path.name, f"→  {file.text}", "") if file.kind else (file.path.name, f"✖  {file.text}", "bad")
                for file in files
            ]
        )
        self.update()
        if self._is_dropped:
            self._take()

    def _show_lines(self, lines: Sequence[tuple[str, str, str]]) -> None:
        clear_layout(self._column)
        width = min(_TEXT_WIDTH, self._window.width() - 4 * _EDGE)
        for name, text, role in lines:
            for label in (text_label(name, "title", wrap=True), text_label(text, role, wrap=True)):
                label.setAlignment(Qt.AlignmentFlag.AlignCenter)
                label.setFixedWidth(width)
                self._column.addWidget(label)
            label.setContentsMargins(0, 0, 0, 2 * GRID)

    def _answer(self, event: QDropEvent) -> None:
        """Accept files while it is not known what they are, and where one of them can be taken."""
        event.setDropAction(Qt.DropAction.CopyAction)
        event.setAccepted(self._files is None or any(file.kind for file in self._files))

    def _take(self) -> None:
        """Take what was dropped, or say why not."""
        if self._files is None:
            return
        self.hide()
        refused = [file for file in self._files if file.kind is None]
        for file in self._files:
            if file.kind is not None:
                self._takers[file.kind](file.path)
        if refused:
            self.said.emit(" ".join(f"{file.path.name}: {file.text}" for file in refused))

    def _fail(self, error: UserError) -> None:
        self.hide()
        self.said.emit(str(error))
