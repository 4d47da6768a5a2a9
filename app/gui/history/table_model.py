"""Model and painting of the table of stored runs; a row is created when it comes near the view."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from PySide6.QtCore import QModelIndex, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QStyle, QStyleOptionViewItem

from app.gui.theme import GRID, Theme, tabular_font
from app.gui.widgets.cell_delegate import BOX_LEFT, CHECK_BOX_PX, AnyIndex, CellDelegate, CellModel
from app.gui.widgets.text_widths import SMALL_PX, Face
from app.queries import RunQuery
from app.values.records import RunRow
from app.viewmodels.format.cells import Cell
from app.viewmodels.format.naming import Name, leave_out
from app.viewmodels.history.table import (
    ANNOTATIONS_COLUMN,
    COLUMNS,
    ORDERS,
    VARIANT_COLUMN,
    Group,
    Line,
    RowView,
    history_cells,
    with_sparks,
)
from app.viewmodels.plot.panels import NO_SPARKS, Sparks

_MIN_NOTE_CHARS = 10
_PEN = "✎"
"""Replaces a note without room."""


def chips_that_fit(chips: Sequence[str], width_of: Callable[[str], int], width: int, gap: int) -> list[str]:
    """Return the chips to paint: as many as fit, then `+2` for the others; if the first does not fit, `3 tags`."""
    for count in range(len(chips), 0, -1):
        more = [f"+{len(chips) - count}"] if count < len(chips) else []
        visible_chips = [*chips[:count], *more]
        if sum(map(width_of, visible_chips)) + gap * (len(visible_chips) - 1) <= width:
            return visible_chips
    return [f"{len(chips)} tags"] if len(chips) > 1 else list(chips)


def elide_note(note: str, face: Face, width: int) -> str:
    """Return what fits of a note; a pen instead of a few letters; nothing if the pen does not fit."""
    excerpt = face.elided(note, Qt.TextElideMode.ElideRight, width)
    if excerpt == note or len(excerpt) >= _MIN_NOTE_CHARS:
        return excerpt
    return _PEN if face.width(_PEN) <= width else ""


_NO_PARENT = QModelIndex()
_BLANKS = (Cell(text=""),) * (len(COLUMNS) - 1)


class HistoryModel(CellModel):
    """Lines of existing runs, in order; `checks_changed` is emitted when checks change.

    Runs that leave the lines and come back stay checked.
    """

    checks_changed = Signal()

    marks_px = BOX_LEFT + CHECK_BOX_PX

    def __init__(self) -> None:
        super().__init__(COLUMNS)
        self.lines: Sequence[Line] = ()
        self.checked: frozenset[int] = frozenset()
        self.listed: frozenset[int] = frozenset()
        """The runs of all lines, including those of folded groups."""
        self._run_rows: dict[Line, int] = {}
        self._group_rows: dict[int, int] = {}
        self.group_ranges: Sequence[tuple[int, int]] = ()
        """First and last line of each group."""
        self._runs: Mapping[int, RunRow] = {}
        self._view = RowView(zone=None)
        self._rows: dict[int, tuple[Cell, ...]] = {}
        self._query = RunQuery()
        self._shared: dict[str, frozenset[str]] = {}
        self.searched: Collection[str] = ()
        """Lower-case words that are never left out of a variant's name."""
        self._differences: set[Name] = set()
        self._sparks: dict[int, Sparks] = {}

    def set_lines(self, lines: Sequence[Line], query: RunQuery) -> None:
        if (lines, query) == (self.lines, self._query):
            return
        self.beginResetModel()
        self.lines, self._query = lines, query
        self.order = ORDERS.index(query.order) if query.order in ORDERS else -1, query.descending
        self.listed = frozenset(itertools.chain.from_iterable(map(line_runs, lines)))
        self._run_rows = dict(zip(lines, itertools.count(), strict=False))
        self._group_rows = {line.experiment: n for n, line in enumerate(lines) if isinstance(line, Group)}
        tops = [*self._group_rows.values(), len(lines)]
        self.group_ranges = [(top, following - 1) for top, following in itertools.pairwise(tops)]
        self.endResetModel()

    def take_runs(self, runs: Mapping[int, RunRow], view: RowView) -> None:
        self._runs, self._view = runs, view
        self._shared = {}
        self._differences.clear()
        self._rows.clear()
        if self.lines:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.lines) - 1, len(COLUMNS) - 1))

    def make(self, first: int, last: int) -> Collection[Sequence[Cell]]:
        """Create the missing rows of lines `first` to before `last`; return them."""
        lines = [line for line in self.lines[first:last] if isinstance(line, int) and line not in self._rows]
        rows = {run: self._made_cells(run) for run in lines if run in self._runs}
        self._rows |= rows
        former, shared = self._shared, dict(self._shared)
        for run, cells in rows.items():
            settings = cells[VARIANT_COLUMN].name[1:]
            parts = frozenset(part for part in settings if not any(word in part.lower() for word in self.searched))
            workload = self._runs[run].spec.workload
            shared[workload] = parts & shared.get(workload, parts)
        self._shared = shared
        named = rows if shared == former else self._rows
        self._differences |= {
            leave_out(cells[VARIANT_COLUMN].name, shared[self._runs[run].spec.workload], lambda _: False)
            for run, cells in named.items()
        }
        self._emit_changed(named)
        return rows.values()

    def _made_cells(self, run: int) -> tuple[Cell, ...]:
        return with_sparks(history_cells(self._runs[run], self._view), self._sparks.get(run, NO_SPARKS))

    def add_sparks(self, sparks: Mapping[int, Sparks]) -> None:
        self._sparks.update(sparks)
        runs = [run for run in sparks if run in self._rows]
        self._rows.update((run, with_sparks(self._rows[run], sparks[run])) for run in runs)
        self._emit_changed(runs)

    def without_sparks(self, first: int, last: int) -> tuple[int, ...]:
        """Return the finished runs of lines `first` to before `last` whose curves are still to be read."""
        lines = (line for line in self.lines[first:last] if isinstance(line, int) and line in self._rows)
        return tuple(run for run in lines if run not in self._sparks and self._runs[run].summary.blocks)

    def names(self) -> Collection[Name]:
        """Return the names of variants without the parts that all runs of their workload share."""
        return self._differences

    def _emit_changed(self, runs: Iterable[int]) -> None:
        lines = [self._run_rows[run] for run in runs if run in self._run_rows]
        if lines:
            self.dataChanged.emit(self.index(min(lines), 0), self.index(max(lines), len(COLUMNS) - 1))

    def shared_parts(self, row: int) -> frozenset[str]:
        """Return the parts of a variant's name that all created runs of its workload share."""
        line = self.lines[row]
        if isinstance(line, Group) or line not in self._rows:
            return frozenset()
        return self._shared[self._runs[line].spec.workload]

    def line_row(self, line: Line) -> int | None:
        """Return the row of a run or group, None if folded away or not found."""
        return self._run_rows.get(line) if isinstance(line, int) else self._group_rows.get(line.experiment)

    def head_above(self, row: int) -> int | None:
        return next((top for top, end in self.group_ranges if top <= row <= end), None)

    def rowCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self.lines)

    def row_cells(self, row: int) -> Sequence[Cell]:
        line = self.lines[row]
        if isinstance(line, Group):
            return (Cell(text=line.title, unit=line.details, tooltip=line.title), *_BLANKS)
        if line not in self._runs:
            return (Cell(text=str(line)), *_BLANKS)
        return self._rows.get(line) or self._made_cells(line)

    def is_folded(self, row: int) -> bool | None:
        line = self.lines[row]
        return line.runs[0] not in self._run_rows if isinstance(line, Group) else None

    def is_head(self, row: int) -> bool:
        return isinstance(self.lines[row], Group)

    def check_state(self, row: int) -> Qt.CheckState:
        return self._check_state(line_runs(self.lines[row]))

    def check_state_of_all(self) -> Qt.CheckState:
        return self._check_state(self.listed)

    def _check_state(self, runs: Collection[int]) -> Qt.CheckState:
        count = sum(run in self.checked for run in runs)
        if not count:
            return Qt.CheckState.Unchecked
        return Qt.CheckState.Checked if count == len(runs) else Qt.CheckState.PartiallyChecked

    def check(self, runs: Iterable[int], *, checked: bool) -> None:
        """Check or uncheck these runs; the others do not change."""
        self.checked = self.checked.union(runs) if checked else self.checked.difference(runs)
        self.checks_changed.emit()


def line_runs(line: Line) -> Sequence[int]:
    return (line,) if isinstance(line, int) else line.runs


_GROUP_MIN = 12 * GRID
_CHIP_HEIGHT = 18


class HistoryDelegate(CellDelegate):
    """Adds groups and chips to the cells of all tables."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme)
        self._chips = Face(tabular_font(SMALL_PX))

    def optional_parts(self, index: AnyIndex) -> Collection[str]:
        """Return the parts of a variant's name that all runs of its workload share."""
        model = index.model()
        assert isinstance(model, HistoryModel)
        return model.shared_parts(index.row())

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        model = index.model()
        assert isinstance(model, HistoryModel)
        if model.check_state(index.row()) == Qt.CheckState.Checked:
            option.state |= QStyle.StateFlag.State_Selected
        super().paint(painter, option, index)

    def paint_cell(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex, cell: Cell) -> None:
        """Paint a group's line, a cell with chips, or a plain cell."""
        model, column = index.model(), index.column()
        assert isinstance(model, HistoryModel)
        if not column and model.is_head(index.row()):
            self._paint_group(painter, self.content_area(option, index), cell)
        elif column == ANNOTATIONS_COLUMN:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._paint_annotations(painter, self.content_area(option, index), cell)
        else:
            super().paint_cell(painter, option, index, cell)

    def _paint_group(self, painter: QPainter, room: QRect, cell: Cell) -> None:
        plain, bold = self.faces
        if room.width() < _GROUP_MIN:  # the first column over the scrolled table, whose line has the title
            return
        painter.setPen(QColor(self._theme.colours.text))
        title_width = room.width() - plain.width(cell.unit) - 2 * GRID
        title = bold.elided(cell.text, Qt.TextElideMode.ElideMiddle, title_width)
        bold.write(painter, room, title)
        painter.setPen(QColor(self._theme.colours.muted))
        plain.write(painter, room.adjusted(bold.width(title) + 2 * GRID, 0, 0, 0), cell.unit)

    def _paint_annotations(self, painter: QPainter, area: QRect, cell: Cell) -> None:
        colours = self._theme.colours
        face, small = self.faces[0], self._chips
        for chip in chips_that_fit(cell.chips, partial(_chip_width, small), area.width(), GRID // 2):
            area.setLeft(self._paint_chip(painter, area, chip, small))
        painter.setPen(QColor(colours.muted))
        area.setLeft(area.left() + (GRID // 2 if cell.chips else 0))
        text = elide_note(cell.text, face, area.width())
        self.paint_marks(painter, area, text, ANNOTATIONS_COLUMN, face)
        face.write(painter, area, text)

    def _paint_chip(self, painter: QPainter, area: QRect, text: str, face: Face) -> int:
        """Paint a chip at the left of an area and return where the next one begins."""
        colours = self._theme.colours
        width = min(_chip_width(face, text), area.width() - 1)
        chip = QRect(area.left(), area.y() + (area.height() - _CHIP_HEIGHT) // 2, width, _CHIP_HEIGHT)
        painter.setPen(QPen(QColor(colours.line), 1))
        painter.setBrush(QColor(colours.raised))
        painter.drawRoundedRect(QRectF(chip).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        painter.setPen(QColor(colours.text))
        inner = chip.adjusted(GRID - 2, 0, 2 - GRID, 0)
        excerpt = face.elided(text, Qt.TextElideMode.ElideRight, inner.width())
        inner.setLeft(inner.left() + (inner.width() - face.width(excerpt)) // 2)
        self.paint_marks(painter, inner, excerpt, ANNOTATIONS_COLUMN, face)
        face.write(painter, inner, excerpt)
        return chip.left() + width + GRID // 2


def _chip_width(face: Face, text: str) -> int:
    return face.width(text) + 2 * (GRID - 2) + 2
