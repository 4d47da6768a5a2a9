"""What the window asks in a box of its own: whether something may be lost, and for files."""

from collections.abc import Callable, Mapping
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QMainWindow, QMessageBox, QWidget

from app.errors import UserError
from app.gui.theme import Theme


def ask(parent: QWidget, theme: Theme, title: str, question: str, what_follows: str, yes: str, no: str) -> QMessageBox:
    """Ask before something is lost: `no` is what Enter means. `accepted` and `rejected` of the box tell the answer."""
    box = _box(parent, theme, QMessageBox.Icon.Question, title, question)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setInformativeText(what_follows)
    box.addButton(yes, QMessageBox.ButtonRole.AcceptRole)
    box.setDefaultButton(box.addButton(no, QMessageBox.ButtonRole.RejectRole))
    box.open()
    return box


def ask_to_close(window: QMainWindow, theme: Theme, what_follows: str, leave: Callable[[], None]) -> None:
    """Ask whether to stop the run that goes on; `what_follows` says what becomes of it, and of those after it."""
    question = "A run is going. Stop it and close?"
    box = ask(window, theme, "A run is going", question, what_follows, "&Stop and close", "&Keep running")
    box.accepted.connect(leave)


def ask_for_another_database(
    window: QMainWindow, theme: Theme, error: UserError, answered: Callable[[Path | None], None]
) -> None:
    """Say why the database cannot be used; `answered` gets another one, or None where the user wants none."""
    box = _box(window, theme, QMessageBox.Icon.Warning, "The database cannot be used", str(error))
    other = box.addButton("Choose &another file …", QMessageBox.ButtonRole.AcceptRole)
    box.addButton("&Close", QMessageBox.ButtonRole.RejectRole)
    box.finished.connect(lambda _: answered(_chosen(window) if box.clickedButton() is other else None))
    box.open()


def ask_for_file(parent: QWidget, title: str, folder: Path, endings: str, chosen: Callable[[str], object]) -> None:
    """Ask for a file that is there; `chosen` gets its path."""
    dialog = QFileDialog(parent, title, str(folder), endings)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
    dialog.fileSelected.connect(chosen)
    dialog.open()


def ask_for_new_file(parent: QWidget, title: str, at: Path, endings: str, chosen: Callable[[str], object]) -> None:
    """Ask where to write, `at` unless told otherwise, whose ending every name gets; `chosen` gets the path.

    What is there already is never written over: whoever writes says so.
    """
    dialog = QFileDialog(parent, title, str(at.parent), endings)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setOption(QFileDialog.Option.DontConfirmOverwrite)
    dialog.setDefaultSuffix(at.suffix.removeprefix("."))
    dialog.selectFile(at.name)
    dialog.fileSelected.connect(chosen)
    dialog.open()


def ask_where_to_save(parent: QWidget, title: str, at: Path, kinds: Mapping[str, str]) -> Path | None:
    """Ask where to write, `at` unless told otherwise, a file of these kinds (words and ending); None where nowhere.

    A name without one of the endings gets that of the kind chosen. Qt would ask about the name as it was typed, so
    whether what is there may be written over is asked here, about the whole one.
    """
    name, chosen = QFileDialog.getSaveFileName(
        parent, title, str(at), ";;".join(kinds), options=QFileDialog.Option.DontConfirmOverwrite
    )
    if not name:
        return None
    path = Path(name)
    if path.suffix.lower() not in kinds.values():
        path = path.with_name(path.name + kinds.get(chosen, at.suffix))
    if not path.exists():
        return path
    yes, no = QMessageBox.StandardButton.Yes, QMessageBox.StandardButton.No
    question = f"{path.name} is there already. Write over it?"
    return path if QMessageBox.question(parent, title, question, yes | no, no) == yes else None


def _box(parent: QWidget, theme: Theme, icon: QMessageBox.Icon, title: str, words: str) -> QMessageBox:
    box = QMessageBox(icon, title, words)
    box.setParent(parent, box.windowFlags())
    theme.dress(box)
    return box


def _chosen(window: QMainWindow) -> Path | None:
    name, _ = QFileDialog.getSaveFileName(
        window,
        "Database",
        str(Path.home()),
        "Databases (*.db)",
        options=QFileDialog.Option.DontConfirmOverwrite,
    )
    return Path(name) if name else None
