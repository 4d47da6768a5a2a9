"""The queue's list as a table."""

from app.queries import QueueProgress
from app.viewmodels.queue import QueueBoard
from app.viewmodels.queue_cells import BAR_COLUMN, NAME_COLUMN, QUEUE_COLUMNS, WIDEST, queue_cells


def test_an_entry_has_a_cell_a_column_and_that_of_its_bar_has_no_words() -> None:
    board = QueueBoard()
    board.read([QueueProgress(entry=1, name="layouts", state="waiting", done=2, planned=6, left_s=100.0)])
    (row,) = board.state(0.0).rows
    cells = queue_cells(row)
    assert len(cells) == len(QUEUE_COLUMNS) == len(WIDEST)
    assert [cell.text for cell in cells] == ["layouts", "waiting", "", "2/6", "1:40"]
    assert (QUEUE_COLUMNS[NAME_COLUMN].title, QUEUE_COLUMNS[BAR_COLUMN].title) == ("Experiment", "Progress")
    assert cells[BAR_COLUMN].tooltip == row.tooltip
