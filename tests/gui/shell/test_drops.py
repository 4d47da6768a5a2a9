"""Files dropped on the real window."""

from pathlib import Path

from PySide6.QtCore import QCoreApplication, QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QLineEdit
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.storage.store import Store
from tests.unit.viewmodels.stored import keep_all, run_row, stored_run

PRESET = '[gpu]\nquestion = "?"\nrepeats = 1\nmatrix = [{workload = "dummy", settings = {batch_size = [8, 16]}}]\n'
_LEFT, _NONE = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
_COPY = Qt.DropAction.CopyAction


class Drag:
    """Drags files over the middle of a window, as the desktop reports it: to the window's own handle."""

    def __init__(self, workbench: Workbench, *paths: Path) -> None:
        self._handle = workbench.window.windowHandle()
        self._at = workbench.run_view.form.mapTo(workbench.window, QPoint(200, 160))
        self._data = QMimeData()
        self._data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
        self.send(QDragEnterEvent(self._at, _COPY, self._data, _LEFT, _NONE))

    def send(self, event: QDragEnterEvent | QDragMoveEvent | QDropEvent) -> bool:
        QCoreApplication.sendEvent(self._handle, event)
        return event.isAccepted()

    def move(self) -> bool:
        """Return whether the files could be dropped."""
        return self.send(QDragMoveEvent(self._at, _COPY, self._data, _LEFT, _NONE))

    def drop(self) -> None:
        self.send(QDropEvent(QPointF(self._at), _COPY, self._data, _LEFT, _NONE))


def test_a_database_is_added_where_it_is_dropped_and_undone_by_its_name(
    qtbot: QtBot, workbench: Workbench, tmp_path: Path
) -> None:
    keep_all(tmp_path / "theirs.vscope", [stored_run(run_row(1), measured=False)])
    drag = Drag(workbench, tmp_path / "theirs.vscope")
    assert drag.move()
    drag.drop()
    qtbot.waitUntil(lambda: workbench.undo.undo_name == "Undo: import theirs.vscope")
    with Store.open(workbench.database) as store:
        assert len(store.list_runs()) == 1
        workbench.undo.undo()
        qtbot.waitUntil(lambda: store.list_runs() == [])
    qtbot.waitUntil(lambda: workbench.undo.redo_name != "")


def test_a_preset_is_listed_and_what_cannot_be_taken_says_why(
    qtbot: QtBot, workbench: Workbench, tmp_path: Path
) -> None:
    (tmp_path / "letter.txt").write_text("Dear all")
    (tmp_path / "mine.toml").write_text(PRESET)
    with qtbot.waitSignal(workbench.drops.message) as said:
        Drag(workbench, tmp_path / "letter.txt", tmp_path / "mine.toml").drop()
    assert said.args[0].startswith("letter.txt: This is not a file of this program.")
    assert workbench.run_view.gallery.isVisible()
    qtbot.waitUntil(lambda: workbench.undo.undo_name == "Undo: list the preset mine.toml")
    assert all(not field.text().startswith("file:") for field in workbench.window.findChildren(QLineEdit))
