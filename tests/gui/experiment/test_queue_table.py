"""The queue's list by itself: what its line counts."""

from dataclasses import replace

from pytestqt.qtbot import QtBot

from app.gui.experiment.queue import QueueView
from app.gui.theme import Theme
from app.queries import ExperimentProgress
from app.viewmodels.experiment.queue import QueueModel


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


def test_the_sentence_of_a_wait_is_seen_whole(qtbot: QtBot, theme: Theme) -> None:
    board, wait = QueueModel(), "Waiting for another run, or the import for one, to free this device. " * 2
    running = ExperimentProgress(
        entry=1, name="one", state="running", done=0, planned=6, message=wait, waits_for_device=True
    )
    board.update([running])
    board.handle(running, 0.0)
    view = QueueView(theme)
    qtbot.addWidget(view)
    view.resize(500, 400)
    view.show_model(board.state(0.0))
    view.show()
    label = view._wait
    assert label.isVisible()
    assert label.height() >= label.heightForWidth(label.width()) > 1.5 * label.fontMetrics().height()
    board.handle(replace(running, waits_for_device=False), 0.0)
    view.show_model(board.state(0.0))
    assert (label.isVisible(), view._now.text()) == (False, "one")


def test_its_line_counts_what_is_in_it(qtbot: QtBot, theme: Theme) -> None:
    assert unfolded(qtbot, theme, waiting=4).fold.text() == "Queue (4)  ▾"
    one = unfolded(qtbot, theme, waiting=1)
    one.fold.click()
    assert one.fold.text() == "Queue  ▸"
