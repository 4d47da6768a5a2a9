"""The queue's list by itself: entries dragged to another place, and what its line counts."""

from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, Qt
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDragMoveEvent, QDropEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.gui.experiment.queue import QueueView
from app.gui.theme import Theme
from app.gui.widgets.cell_table import ROW_HEIGHT
from app.queries import ExperimentProgress
from app.viewmodels.experiment.queue import QueueModel

MOVE, LEFT, NO_KEY = Qt.DropAction.MoveAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier


def unfolded(qtbot: QtBot, theme: Theme, waiting: int) -> QueueView:
    """The list of entries 1, 2, 3 …, below which one more is complete."""
    board = QueueModel()
    ended = ExperimentProgress(entry=99, name="ended", state="complete", done=6, planned=6)
    board.update(
        [ExperimentProgress(entry=n + 1, name=f"{n}", state="waiting", done=0, planned=6) for n in range(waiting)]
    )
    board.handle(ended, 0.0)
    view = QueueView(theme)
    qtbot.addWidget(view)
    view.resize(800, 400)
    view.show_model(board.state(0.0))
    view.unfold()
    view.show()
    return view


def dragged(view: QueueView, row: int) -> QMimeData:
    model = view.table.model()
    return model.mimeData([model.index(row, 0)])


def drop(view: QueueView, data: QMimeData, at: QPoint) -> bool:
    """Lets it go there, and whether it was taken on the way."""
    target = view.table.viewport()
    enters = QDragEnterEvent(at, MOVE, data, LEFT, NO_KEY)
    moves = QDragMoveEvent(at, MOVE, data, LEFT, NO_KEY)
    for event in (enters, moves):
        QApplication.sendEvent(target, event)
    drops = QDropEvent(QPointF(at), MOVE, data, LEFT, NO_KEY, QEvent.Type.Drop)
    QApplication.sendEvent(target, drops)
    return enters.isAccepted() and moves.isAccepted()


def test_an_entry_is_dragged_to_another_place(qtbot: QtBot, theme: Theme) -> None:
    view = unfolded(qtbot, theme, waiting=4)
    moves: list[tuple[int, int]] = []
    view.move_requested.connect(lambda entry, by: moves.append((entry, by)))
    for row, to_y in ((0, 2 * ROW_HEIGHT), (3, 3), (1, 400)):
        assert drop(view, dragged(view, row), QPoint(100, to_y))
    assert moves == [(1, 1), (4, -3), (2, 2)], "below what ended nothing waits"
    for row, to_y in ((0, ROW_HEIGHT + 5), (2, 2 * ROW_HEIGHT + 5)):
        drop(view, dragged(view, row), QPoint(100, to_y))
    assert len(moves) == 3, "it is there already"


def test_what_ended_is_not_dragged_and_nothing_else_is_taken(qtbot: QtBot, theme: Theme) -> None:
    view = unfolded(qtbot, theme, waiting=2)
    moves: list[tuple[int, int]] = []
    view.move_requested.connect(lambda entry, by: moves.append((entry, by)))
    model = view.table.model()
    can = [bool(model.flags(model.index(row, 0)) & Qt.ItemFlag.ItemIsDragEnabled) for row in range(3)]
    assert can == [True, True, False]
    text = QMimeData()
    text.setText("1")
    enters = QDragEnterEvent(QPoint(100, 3), MOVE, text, LEFT, NO_KEY)
    QApplication.sendEvent(view.table.viewport(), enters)
    assert not enters.isAccepted()
    going = dragged(view, 1)
    view.show_model(QueueModel().state(0.0))
    drop(view, going, QPoint(100, 3))
    assert moves == [], "it has ended meanwhile"


def test_a_line_shows_where_it_would_come_to(qtbot: QtBot, theme: Theme) -> None:
    view = unfolded(qtbot, theme, waiting=4)
    target, at = view.table.viewport(), QPoint(100, 2 * ROW_HEIGHT)
    rests = target.grab().toImage()
    data = dragged(view, 0)
    QApplication.sendEvent(target, QDragEnterEvent(at, MOVE, data, LEFT, NO_KEY))
    QApplication.sendEvent(target, QDragMoveEvent(at, MOVE, data, LEFT, NO_KEY))
    assert target.grab().toImage().pixelColor(at).name() == theme.colours.accent
    QApplication.sendEvent(target, QDragLeaveEvent())
    assert target.grab().toImage() == rests


def test_its_line_counts_what_is_in_it(qtbot: QtBot, theme: Theme) -> None:
    assert unfolded(qtbot, theme, waiting=4).fold.text() == "Queue (4)  ▾"
    one = unfolded(qtbot, theme, waiting=1)
    one.fold.click()
    assert one.fold.text() == "Queue  ▸"
