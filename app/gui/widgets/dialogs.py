"""Dialogs: their size, confirmation before losses, consent to what was not typed, and file choosers."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from PySide6.QtCore import QObject, QPoint, QRect, QSize, Qt, QUrl, Signal
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QLabel, QMainWindow, QMessageBox, QWidget

from app.grants import Grant
from app.gui.theme import GRID, Theme
from app.values.plain import plain_text

_LOOK_S = 0.2
_FRAME = QSize(4 * GRID, 8 * GRID)
"""The most that a window manager adds around a window."""


def resize_within_screen(window: QWidget, width: int, height: int) -> None:
    window.resize(QSize(width, height).boundedTo(window.screen().availableSize() - _FRAME))


def centre_on_screen(dialog: QWidget, window: QWidget) -> None:
    """Centre a newly sized dialog in a window, but completely on the screen, with its frame."""
    room = dialog.screen().availableGeometry()
    frame = QRect(QPoint(), dialog.size() + _FRAME)
    frame.moveCenter(window.frameGeometry().center())
    frame.moveRight(min(frame.right(), room.right()))
    frame.moveBottom(min(frame.bottom(), room.bottom()))
    dialog.move(max(frame.left(), room.left()), max(frame.top(), room.top()))


def ask_confirmation(
    parent: QWidget, theme: Theme, title: str, question: str, consequence: str, yes: str, no: str
) -> QMessageBox:
    """Ask before something is lost; Enter means no.

    Returns:
        The open box; its signals `accepted` and `rejected` are the answer.
    """
    box = message_box(parent, theme, QMessageBox.Icon.Question, title, question)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setInformativeText(plain_text(consequence))
    box.addButton(yes, QMessageBox.ButtonRole.AcceptRole)
    box.setDefaultButton(box.addButton(no, QMessageBox.ButtonRole.RejectRole))
    box.open()
    return box


class ConsentQuestion(QObject):
    """Asks whether to allow what a file, a database or a stored run names (`app.grants`), while other threads wait.

    Thread: `ask` any but the GUI's; the others GUI only.
    """

    _requested = Signal(object, object)

    def __init__(self, window: QMainWindow, theme: Theme) -> None:
        super().__init__(window)
        self._window = window
        self._theme = theme
        # One reference, read by the waiting threads: no lock is needed.
        self._closed = False
        self._requested.connect(self._show, Qt.ConnectionType.QueuedConnection)

    def ask(self, grants: Sequence[Grant]) -> bool:
        """Return whether the user allows all of these; False once the window closes."""
        answer: Future[bool] = Future()
        self._requested.emit(grants, answer)
        while not self._closed:
            try:
                return answer.result(_LOOK_S)
            except TimeoutError:
                continue
        return False

    def close(self) -> None:
        """Allow nothing more, so that nobody waits."""
        self._closed = True

    def _show(self, grants: Sequence[Grant], answer: "Future[bool]") -> None:
        requests = "\n\n".join(grant.request for grant in grants)
        box = ask_confirmation(
            self._window,
            self._theme,
            "Allow this?",
            "This was not typed here. Allow it, now and from now on, to",
            requests,
            "Allow",  # without a mnemonic, which a plain letter would trigger: the box opens while the user types
            "Do not allow",
        )
        box.accepted.connect(lambda: answer.set_result(True))
        box.rejected.connect(lambda: answer.set_result(False))


def ask_to_close(window: QMainWindow, theme: Theme, on_accept: Callable[[], None], *, queue: bool) -> None:
    """Ask whether to stop the current run and close. With `queue` the run belongs to the queue."""
    question = "A run is in progress. Stop it and close?"
    consequence = "What was measured so far stays in History as a stopped run."
    if queue:
        consequence += " The queue is kept; the next start offers to resume it."
    box = ask_confirmation(window, theme, "Run in progress", question, consequence, "&Stop and close", "&Keep running")
    box.accepted.connect(on_accept)


def ask_for_database(parent: QWidget, folder: Path, on_answer: Callable[[Path | None], None]) -> None:
    """Ask for a database, which need not exist yet.

    Args:
        parent: The dialog's parent widget.
        folder: The folder to start in, or its nearest existing parent, because Qt would propose a missing folder's
            name.
        on_answer: Gets the path, None if the user cancels.
    """
    existing = next((ancestor for ancestor in (folder, *folder.parents) if ancestor.is_dir()), Path.home())
    dialog = _file_dialog(parent, "Database", existing, "Databases (*.db)")
    dialog.setFileMode(QFileDialog.FileMode.AnyFile)
    dialog.setDefaultSuffix("db")
    dialog.finished.connect(lambda result: on_answer(Path(dialog.selectedFiles()[0]) if result else None))
    dialog.open()


def ask_for_file(
    parent: QWidget, title: str, folder: Path, name_filter: str, on_chosen: Callable[[str], object]
) -> None:
    dialog = _file_dialog(parent, title, folder, name_filter)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.fileSelected.connect(on_chosen)
    dialog.open()


def ask_for_new_file(
    parent: QWidget, title: str, default_path: Path, name_filter: str, on_chosen: Callable[[str], object]
) -> None:
    """Ask where to write a new file; the writer refuses to replace an existing one.

    Every name gets the suffix of the proposed path.
    """
    dialog = _file_dialog(parent, title, default_path.parent, name_filter)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setOption(QFileDialog.Option.DontConfirmOverwrite)
    dialog.setDefaultSuffix(default_path.suffix.removeprefix("."))
    dialog.selectFile(default_path.name)
    dialog.fileSelected.connect(on_chosen)
    dialog.open()


def _file_dialog(parent: QWidget, title: str, folder: Path, name_filter: str) -> QFileDialog:
    dialog = QFileDialog(parent, title, str(folder), name_filter)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return dialog


def ask_save_path(parent: QWidget, title: str, default_path: Path, file_types: Mapping[str, str]) -> Path | None:
    """Ask where to write a file that may replace an existing one.

    Qt would ask about replacing the typed name, so this asks about the name with its suffix.

    A name without a suffix of `file_types`, which are given by label, gets that of the chosen type.

    Returns:
        The path, None if the user cancels.
    """
    name, chosen_type = QFileDialog.getSaveFileName(
        parent, title, str(default_path), ";;".join(file_types), options=QFileDialog.Option.DontConfirmOverwrite
    )
    if not name:
        return None
    path = Path(name)
    if path.suffix.lower() not in file_types.values():
        path = path.with_name(path.name + file_types.get(chosen_type, default_path.suffix))
    if not path.exists():
        return path
    box = _plain_box(parent, QMessageBox.Icon.Question, title, f"{path.name} already exists. Replace it?")
    yes, no = QMessageBox.StandardButton.Yes, QMessageBox.StandardButton.No
    box.setStandardButtons(yes | no)
    box.setDefaultButton(no)
    return path if box.exec() == yes else None


def open_on_desktop(path: Path) -> None:
    """Show a folder in the desktop's file manager, or a file in its default program."""
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))


def message_box(parent: QWidget, theme: Theme, icon: QMessageBox.Icon, title: str, text: str) -> QMessageBox:
    """Return a box in the window's style, to which the caller adds buttons."""
    box = _plain_box(parent, icon, title, text)
    theme.apply_style_sheet(box)
    return box


def warn(parent: QWidget, title: str, text: str) -> None:
    """Show what went wrong, and wait until it is read."""
    _plain_box(parent, QMessageBox.Icon.Warning, title, text).exec()


def _plain_box(parent: QWidget, icon: QMessageBox.Icon, title: str, text: str) -> QMessageBox:
    box = QMessageBox(icon, title, plain_text(text), parent=parent)
    box.setTextFormat(Qt.TextFormat.PlainText)
    picture = box.findChild(QLabel, "qt_msgboxex_icon_label")
    assert isinstance(picture, QLabel), "Qt made it for the icon"
    picture.setAccessibleName(icon.name)
    return box
