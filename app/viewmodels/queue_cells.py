"""The queue's list as a table: its columns, and the cells of an entry."""

from app.viewmodels.cells import Cell, Column
from app.viewmodels.queue import QueueRow

QUEUE_COLUMNS = (
    Column("Experiment", "What is compared", numeric=False),
    Column("State", "Where it stands", numeric=False),
    Column("Progress", "How much of it is done", numeric=False),
    Column("Runs", "Runs with a result, of those planned"),
    Column("Left", "How long the others are expected to take"),
)
NAME_COLUMN, BAR_COLUMN = 0, 2
WIDEST = (
    Cell(text=""),
    Cell(text="running elsewhere"),
    Cell(text="▮" * 8),
    Cell(text="000/000"),
    Cell(text="10:00:00"),
)
"""For each column a cell as wide as it is expected to need."""


def queue_cells(row: QueueRow) -> tuple[Cell, ...]:
    """What is shown of an entry, a cell a column; that of its bar has no words."""
    return (
        Cell(text=row.name, symbol=row.symbol, tooltip=row.tooltip),
        Cell(text=row.state, tone=row.tone, tooltip=row.tooltip),
        Cell(text="", tooltip=row.tooltip),
        Cell(text=row.done, key=row.fraction),
        Cell(text=row.left, key=0),
    )
