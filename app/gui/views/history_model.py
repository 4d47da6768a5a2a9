"""The lines of the table of runs; their rows come page by page, for the lines near those in view."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from PySide6.QtCore import QModelIndex, Qt

from app.gui.views.cell_delegate import CELL_ROLE, AnyIndex
from app.gui.views.cell_table import CellModel
from app.queries import RunQuery
from app.viewmodels.cells import Cell
from app.viewmodels.history import COLUMNS, ORDERS, HistoryRow
from app.viewmodels.history_lines import Group, Line

FOLDED_ROLE = CELL_ROLE + 1
"""Whether a group is folded; None on the line of a run."""

_MOST_KEPT = 4_000
_NO_PARENT = QModelIndex()
_BLANKS = (Cell(text=""),) * (len(COLUMNS) - 1)


class HistoryModel(CellModel):
    """Lines in their order. A run whose row has not been read yet shows its number alone."""

    def __init__(self) -> None:
        super().__init__(COLUMNS)
        self.lines: Sequence[Line] = ()
        self._places: dict[Line, int] = {}
        self._group_places: dict[int, int] = {}
        self._stretches: Sequence[tuple[int, int]] = ()
        self._rows: dict[int, HistoryRow] = {}
        self._up_to_date: set[int] = set()
        self._query = RunQuery()

    def set_lines(self, lines: Sequence[Line], query: RunQuery) -> None:
        """Show these lines, and in the heads what ordered them."""
        self.beginResetModel()
        self.lines, self._query = lines, query
        self._places = dict(zip(lines, itertools.count(), strict=False))
        self._group_places = {line.experiment: n for n, line in enumerate(lines) if isinstance(line, Group)}
        tops = [*self._group_places.values(), len(lines)]
        self._stretches = [(top, following - 1) for top, following in itertools.pairwise(tops)]
        self.endResetModel()

    def outdate(self) -> None:
        """From now on every row is asked for once more; until it comes it is shown as it was."""
        self._up_to_date.clear()

    def fill(self, asked: Iterable[int], rows: Mapping[int, HistoryRow]) -> None:
        """Take rows that were read; runs that were asked for and not found stay blank."""
        for run, row in rows.items():
            self._rows.pop(run, None)
            self._rows[run] = row
        self._up_to_date.update(asked)
        self._forget_oldest()
        places = [self._places[run] for run in rows if run in self._places]
        if places:
            self.dataChanged.emit(self.index(min(places), 0), self.index(max(places), len(COLUMNS) - 1))

    def missing(self, first: int, last: int) -> tuple[int, ...]:
        """Those runs of the lines from `first` to before `last` that are to be read."""
        return tuple(line for line in self.lines[first:last] if isinstance(line, int) and line not in self._up_to_date)

    def place_of(self, line: Line) -> int | None:
        """Where a run or a group stands now; None where it is folded away or was not found."""
        return self._places.get(line) if isinstance(line, int) else self._group_places.get(line.experiment)

    def group_stretches(self) -> Sequence[tuple[int, int]]:
        """For each group its own line and the last line of its runs."""
        return self._stretches

    def group_above(self, row: int) -> int | None:
        """The line of the group that a line belongs to; None where there are no groups."""
        return next((top for top, end in self._stretches if top <= row <= end), None)

    def folded_runs(self, group: Group) -> tuple[int, ...]:
        """The runs of a group that is folded, none of one that is not: they have lines of their own."""
        return () if group.runs[0] in self._places else group.runs

    def is_chosen(self, line: Line, runs: AbstractSet[int]) -> bool:
        """Whether a line is chosen where these runs are: a group's when all of its are."""
        return line in runs if isinstance(line, int) else runs >= set(line.runs)

    def rowCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        """One row a line."""
        return 0 if parent.isValid() else len(self.lines)

    def cells_of(self, row: int) -> Sequence[Cell]:
        """The cells of a run; of a group one cell with all its words."""
        line = self.lines[row]
        if isinstance(line, Group):
            return (Cell(text=line.title, unit=line.beside, tooltip=line.title), *_BLANKS)
        known = self._rows.get(line)
        return known.cells if known else (Cell(text=str(line)), *_BLANKS)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        """Whether a group is folded; the rest as in every table."""
        if role == FOLDED_ROLE:
            line = self.lines[index.row()]
            return bool(self.folded_runs(line)) if isinstance(line, Group) else None
        return super().data(index, role)

    def title(self, column: int) -> str:
        """The title, with an arrow where the rows are ordered by it: Qt's own would lie on right-aligned words."""
        title = super().title(column)
        if ORDERS[column] != self._query.order:
            return title
        return f"{title} {'↓' if self._query.descending else '↑'}"

    def _forget_oldest(self) -> None:
        """Thousands of rows that nobody looks at would only take memory."""
        for run in list(self._rows)[:-_MOST_KEPT]:
            del self._rows[run]
            self._up_to_date.discard(run)
