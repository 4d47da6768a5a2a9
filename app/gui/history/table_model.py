"""Model, group selection and painting of the table of stored runs; rows are loaded page by page."""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QStyleOptionViewItem

from app.gui.theme import GRID, Theme
from app.gui.widgets.cell_table import AnyIndex, CellDelegate, CellModel
from app.gui.widgets.text_widths import SYMBOL_ONLY, DerivedFace, Face, give_way, tabular
from app.queries import RunQuery
from app.viewmodels.format.cells import Cell
from app.viewmodels.format.naming import SEPARATOR, leave_out
from app.viewmodels.history.search import from_word
from app.viewmodels.history.table import (
    ANNOTATIONS_COLUMN,
    BARE_TITLES,
    COLUMNS,
    EVIDENCE_COLUMN,
    MATCH_COLUMN,
    ORDERS,
    OUTCOME_COLUMN,
    VARIANT_COLUMN,
    Group,
    HistoryRow,
    Line,
)

MARKS = (OUTCOME_COLUMN, EVIDENCE_COLUMN)
"""Columns of symbols; the first gives way before the second, which says less without its title."""
VARIANT_MIN = 24 * GRID

_VARIANT_PCT = 40
"""Names that take more of the view are set in two lines."""
_MATCH_MIN = 18 * GRID
_ANNOTATIONS_MIN, _ANNOTATIONS_NARROW = 17 * GRID, 11 * GRID
_MIN_NOTE_CHARS = 10
_PEN = "✎"
"""In place of a note that has no room."""
_FIRST_SHARE = 40 * GRID
"""Pixels of spare width: first for variants, then for notes, before variants get more."""
_SQUEEZED_PCT = 80
"""What is left of the column of variants where a little narrower is enough for all columns to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNeeds:
    """What the columns need, in pixels.

    Attributes:
        content: The width of each shown column with everything in it; that of variants has their whole names.
        titles: The columns of marks with the width of their titles alone.
        bare: The columns of figures with their width where the unit is in the title.
        names: The widths of each variant's name in one line and in two, without what all share.
        chosen: Columns whose width the user chose.
    """

    content: Mapping[int, int]
    titles: Mapping[int, int]
    bare: Mapping[int, int]
    names: Collection[tuple[int, int]]
    chosen: Collection[int] = ()

    def variant(self, view: int) -> int:
        """Return the least width of variants: long names are set in two lines, which nobody likes to read."""
        most = view * _VARIANT_PCT // 100
        return max([VARIANT_MIN, *(one if one <= most else two for one, two in self.names)])

    @property
    def squeezed_variant(self) -> int:
        """The width of variants with all names in two lines."""
        return max([VARIANT_MIN, *(two for _, two in self.names)])


def divide_width(needs: ColumnNeeds, view: int) -> dict[int, int]:
    """Return the width of each column in a view of so many pixels.

    A variant needs what tells it from the others. Before the table gets wider than its view, outcome and evidence are
    symbols, whose words are in their tooltips; then units are in the titles; at last the symbols have no titles. What
    does not fit even then is scrolled to, the last columns first.
    """
    least = needs.variant(view)
    whole, notes = (needs.content.get(column, 0) for column in (VARIANT_COLUMN, ANNOTATIONS_COLUMN))
    first = min(whole, max(_FIRST_SHARE, least))
    widths = dict(needs.content)
    _set(widths, needs, {VARIANT_COLUMN: first, ANNOTATIONS_COLUMN: min(notes, _ANNOTATIONS_MIN)})
    widths = give_way(widths, _steps(needs, least), needs.chosen, view)
    missing = sum(widths.values()) - view
    if 0 < missing <= least - max(needs.squeezed_variant, least * _SQUEEZED_PCT // 100):
        _set(widths, needs, {VARIANT_COLUMN: least - missing})
    for column, wanted in _grants(needs, first):
        spare = view - sum(widths.values())
        if spare > 0 and column in widths and column not in needs.chosen:
            widths[column] = max(widths[column], min(wanted, widths[column] + spare))
    return widths


def _steps(needs: ColumnNeeds, variant: int) -> list[Mapping[int, int]]:
    """Return columns with their next smaller width, in the order in which they give way."""
    return [
        {MATCH_COLUMN: _MATCH_MIN},
        *({column: needs.titles[column]} for column in MARKS if column in needs.titles),
        {VARIANT_COLUMN: variant},
        {ANNOTATIONS_COLUMN: _ANNOTATIONS_NARROW},
        needs.bare,
        *({column: SYMBOL_ONLY} for column in MARKS),
    ]


def _grants(needs: ColumnNeeds, variant: int) -> list[tuple[int, int]]:
    """Return who gets spare width up to what: notes as much as they need before variants have all of theirs."""
    last = ANNOTATIONS_COLUMN if ANNOTATIONS_COLUMN in needs.content else VARIANT_COLUMN
    return [
        (MATCH_COLUMN, needs.content.get(MATCH_COLUMN, 0)),
        (VARIANT_COLUMN, variant),
        (ANNOTATIONS_COLUMN, min(needs.content.get(ANNOTATIONS_COLUMN, 0), _FIRST_SHARE)),
        (VARIANT_COLUMN, needs.content.get(VARIANT_COLUMN, 0)),
        (last, 1 << 20),
    ]


def _set(widths: dict[int, int], needs: ColumnNeeds, wanted: Mapping[int, int]) -> None:
    """Set the widths of those of these columns that are shown and that the user has not chosen a width for."""
    widths.update({c: width for c, width in wanted.items() if c in widths and c not in needs.chosen})


def chips_that_fit(chips: Sequence[str], width_of: Callable[[str], int], width: int, gap: int) -> list[str]:
    """Return the chips to paint: as many as fit, then `+2` for the others; if not even the first fits, `3 tags`."""
    for count in range(len(chips), 0, -1):
        more = [f"+{len(chips) - count}"] if count < len(chips) else []
        shown = [*chips[:count], *more]
        if sum(map(width_of, shown)) + gap * (len(shown) - 1) <= width:
            return shown
    return [f"{len(chips)} tags"] if len(chips) > 1 else list(chips)


def elide_note(note: str, face: Face, width: int) -> str:
    """Return what fits of a note, a pen where that is a few letters, nothing where not even the pen fits."""
    shown = face.elided(note, Qt.TextElideMode.ElideRight, width)
    if shown == note or len(shown) >= _MIN_NOTE_CHARS:
        return shown
    return _PEN if face.width(_PEN) <= width else ""


_MAX_CACHED_ROWS = 4_000
_NO_PARENT = QModelIndex()
_BLANKS = (Cell(text=""),) * (len(COLUMNS) - 1)


class HistoryModel(CellModel):
    """Lines in order; a run without its row yet shows its number alone."""

    def __init__(self) -> None:
        super().__init__(COLUMNS)
        self.lines: Sequence[Line] = ()
        self._run_rows: dict[Line, int] = {}
        self._group_rows: dict[int, int] = {}
        self._group_ranges: Sequence[tuple[int, int]] = ()
        self._rows: dict[int, HistoryRow] = {}
        self._up_to_date: set[int] = set()
        self._query = RunQuery()
        self._shared: dict[str, frozenset[str]] = {}
        self.searched: Collection[str] = ()
        """Words in lower case that are never left out of a variant's name."""
        self.bare: Collection[int] = ()
        """Columns of figures whose unit is in the title."""
        self.differences: set[str] = set()
        """Names of variants without the parts that all runs of their workload share."""

    def set_lines(self, lines: Sequence[Line], query: RunQuery) -> None:
        """Show these lines, and in the header what orders them."""
        if (lines, query) == (self.lines, self._query):
            return
        self.beginResetModel()
        self.lines, self._query = lines, query
        self._run_rows = dict(zip(lines, itertools.count(), strict=False))
        self._group_rows = {line.experiment: n for n, line in enumerate(lines) if isinstance(line, Group)}
        tops = [*self._group_rows.values(), len(lines)]
        self._group_ranges = [(top, following - 1) for top, following in itertools.pairwise(tops)]
        self.endResetModel()

    def mark_outdated(self) -> None:
        """Have every row read again; until then it is shown as it was."""
        self._up_to_date.clear()
        self.differences.clear()

    def fill(self, requested: Iterable[int], rows: Mapping[int, HistoryRow]) -> None:
        """Take rows that were read; requested runs that were not found stay blank."""
        before, shared = self._shared, dict(self._shared) if self._up_to_date else {}
        changed = set()
        for run, row in rows.items():
            if self._rows.pop(run, None) != row:
                changed.add(run)
            self._rows[run] = row
            _, *others = row.cells[VARIANT_COLUMN].text.split(SEPARATOR)
            parts = frozenset(filter(self._may_be_left_out, others))
            shared[row.workload] = parts & shared.get(row.workload, parts)
        self._shared = shared
        self._up_to_date.update(requested)
        fresh = rows if shared == before else self._rows.keys() & self._up_to_date
        self.differences.update(self._difference(self._rows[run]) for run in fresh)
        self._evict_oldest()
        self._emit_changed(changed if shared == before else self._rows)

    def _emit_changed(self, runs: Iterable[int]) -> None:
        lines = [self._run_rows[run] for run in runs if run in self._run_rows]
        if lines:
            self.dataChanged.emit(self.index(min(lines), 0), self.index(max(lines), len(COLUMNS) - 1))

    def shared_parts(self, row: int) -> frozenset[str]:
        """Return the parts of a variant's name that all runs of its workload have, among those read."""
        line = self.lines[row]
        known = self._rows.get(line) if isinstance(line, int) else None
        return self._shared.get(known.workload, frozenset()) if known else frozenset()

    def _may_be_left_out(self, part: str) -> bool:
        return not any(word in part.lower() for word in self.searched)

    def _difference(self, row: HistoryRow) -> str:
        """Return the name of a variant without the parts that all runs of its workload share."""
        return leave_out(row.cells[VARIANT_COLUMN].text, self._shared[row.workload], lambda _: False)

    def missing(self, first: int, last: int) -> tuple[int, ...]:
        """Return the runs of lines `first` to before `last` whose rows are to be read."""
        return tuple(line for line in self.lines[first:last] if isinstance(line, int) and line not in self._up_to_date)

    def line_row(self, line: Line) -> int | None:
        """Return the row of a run or group, None where it is folded away or not found."""
        return self._run_rows.get(line) if isinstance(line, int) else self._group_rows.get(line.experiment)

    def group_ranges(self) -> Sequence[tuple[int, int]]:
        """Return the first and last line of each group."""
        return self._group_ranges

    def group_above(self, row: int) -> int | None:
        """Return the line of the group that a line belongs to, None without groups."""
        return next((top for top, end in self._group_ranges if top <= row <= end), None)

    def folded_runs(self, group: Group) -> tuple[int, ...]:
        """Return the runs of a folded group; an unfolded one has none, its runs have lines."""
        return () if group.runs[0] in self._run_rows else group.runs

    def is_chosen(self, line: Line, runs: AbstractSet[int]) -> bool:
        """Return whether a line is selected when these runs are: a group's when all of its are."""
        return line in runs if isinstance(line, int) else runs >= set(line.runs)

    def rowCount(self, parent: AnyIndex = _NO_PARENT) -> int:
        """Return the number of lines."""
        return 0 if parent.isValid() else len(self.lines)

    def row_cells(self, row: int) -> Sequence[Cell]:
        """Return the cells of a run, or a group's one cell."""
        line = self.lines[row]
        if isinstance(line, Group):
            return (Cell(text=line.title, unit=line.details, tooltip=line.title), *_BLANKS)
        known = self._rows.get(line)
        return known.cells if known else (Cell(text=str(line)), *_BLANKS)

    def is_folded(self, row: int) -> bool | None:
        """Return whether the runs of a group are folded away; None for a run."""
        line = self.lines[row]
        return bool(self.folded_runs(line)) if isinstance(line, Group) else None

    def title(self, column: int) -> str:
        """Return the title, with an arrow where the rows are ordered by it: Qt's own would cover right-aligned text."""
        title = BARE_TITLES[column] if column in self.bare else super().title(column)
        if ORDERS[column] != self._query.order:
            return title
        return f"{title} {'↓' if self._query.descending else '↑'}"

    def _evict_oldest(self) -> None:
        """Drop the oldest rows, to limit memory."""
        for run in list(self._rows)[:-_MAX_CACHED_ROWS]:
            del self._rows[run]
            self._up_to_date.discard(run)


EXPANDER_WIDTH = 3 * GRID
"""Width of a group's arrow, which a click folds."""

_CHIP_HEIGHT = 18
_CHIP_PX = 12


class HistoryDelegate(CellDelegate):
    """Adds groups and chips to the cells of all tables."""

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, names=VARIANT_COLUMN)
        self._bold = DerivedFace(_bold)
        self._chips = DerivedFace(_smaller)

    def shortened(self, cell: Cell, index: AnyIndex, face: Face, width: int) -> str:
        """Return what fits of a text that is too long; of a match the word that was found, of an outcome nothing."""
        if index.column() in (OUTCOME_COLUMN, EVIDENCE_COLUMN):
            return ""
        if index.column() == MATCH_COLUMN:
            words = itertools.chain.from_iterable(self.marked.values())
            return face.elided(from_word(cell.text, words), Qt.TextElideMode.ElideRight, width)
        return super().shortened(cell, index, face, width)

    def optional_parts(self, index: AnyIndex) -> Collection[str]:
        """Return the parts of a variant's name that all runs of its workload have."""
        model = index.model()
        assert isinstance(model, HistoryModel)
        return model.shared_parts(index.row())

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """Paint a group's line, a cell with chips, or a plain cell."""
        model, row, column = index.model(), index.row(), index.column()
        assert isinstance(model, HistoryModel)
        folded = model.is_folded(row) if column == 0 else None
        cell = model.row_cells(row)[column]
        if folded is None and column != ANNOTATIONS_COLUMN:
            self.paint_cell(painter, option, index, cell)
            return
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if folded is None:
            self.paint_background(painter, option)
            self._paint_annotations(painter, option, self.content_area(option, index), cell)
        else:
            self._paint_group(painter, option, cell, folded=folded)
        painter.restore()

    def _paint_group(self, painter: QPainter, option: QStyleOptionViewItem, cell: Cell, *, folded: bool) -> None:
        colours = self._theme.colours
        area = QRect(option.rect)
        painter.fillRect(area, QColor(colours.window))
        self.paint_background(painter, option)
        _paint_arrow(
            painter, QPointF(area.left() + EXPANDER_WIDTH / 2 + 2, area.center().y() + 0.5), colours.muted, folded
        )
        painter.setPen(QColor(colours.text))
        room = area.adjusted(EXPANDER_WIDTH + GRID // 2, 0, -GRID, 0)
        bold, plain = self._bold.of(option.font), self.tabular.of(option.font)
        title_width = room.width() - plain.width(cell.unit) - 2 * GRID
        title = bold.elided(cell.text, Qt.TextElideMode.ElideMiddle, title_width)
        bold.write(painter, room, title)
        painter.setPen(QColor(colours.muted))
        plain.write(painter, room.adjusted(bold.width(title) + 2 * GRID, 0, 0, 0), cell.unit)

    def _paint_annotations(self, painter: QPainter, option: QStyleOptionViewItem, area: QRect, cell: Cell) -> None:
        """Paint the chips that fit, then the note."""
        colours = self._theme.colours
        face, small = self.tabular.of(option.font), self._chips.of(option.font)
        for chip in chips_that_fit(cell.chips, partial(_chip_width, small), area.width(), GRID // 2):
            area.setLeft(self._paint_chip(painter, area, chip, small))
        painter.setPen(QColor(colours.muted))
        area.setLeft(area.left() + (GRID // 2 if cell.chips else 0))
        shown = elide_note(cell.text, face, area.width())
        self.paint_marks(painter, area, shown, ANNOTATIONS_COLUMN, face)
        face.write(painter, area, shown)

    def _paint_chip(self, painter: QPainter, area: QRect, text: str, face: Face) -> int:
        """Paint one chip at the left of an area and return where the next begins."""
        colours = self._theme.colours
        width = min(_chip_width(face, text), area.width() - 1)
        chip = QRect(area.left(), area.y() + (area.height() - _CHIP_HEIGHT) // 2, width, _CHIP_HEIGHT)
        painter.setPen(QPen(QColor(colours.line), 1))
        painter.setBrush(QColor(colours.raised))
        painter.drawRoundedRect(QRectF(chip).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        painter.setPen(QColor(colours.text))
        inner = chip.adjusted(GRID - 2, 0, 2 - GRID, 0)
        shown = face.elided(text, Qt.TextElideMode.ElideRight, inner.width())
        inner.setLeft(inner.left() + (inner.width() - face.width(shown)) // 2)
        self.paint_marks(painter, inner, shown, ANNOTATIONS_COLUMN, face)
        face.write(painter, inner, shown)
        return chip.left() + width + GRID // 2


def _chip_width(face: Face, text: str) -> int:
    return face.width(text) + 2 * (GRID - 2) + 2


def _smaller(font: QFont) -> QFont:
    made = QFont(font)
    made.setPixelSize(_CHIP_PX)
    return made


def _bold(font: QFont) -> QFont:
    made = tabular(font)
    made.setBold(True)
    return made


def _paint_arrow(painter: QPainter, middle: QPointF, colour: str, folded: bool) -> None:
    """Paint a group's arrow: right where folded, else down."""
    corners = ((-2, -4), (2, 0), (-2, 4)) if folded else ((-4, -2), (0, 2), (4, -2))
    painter.setPen(QPen(QColor(colour), 1.5))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPolyline(QPolygonF([middle + QPointF(x, y) for x, y in corners]))


class GroupSelection(QItemSelectionModel):
    """Selection in which a group's line selects the lines of its runs too."""

    def __init__(self, model: HistoryModel) -> None:
        super().__init__(model)
        self._rows = model

    def select(  # type: ignore[override]  # one function for both of Qt's
        self, chosen: QItemSelection | QModelIndex, command: QItemSelectionModel.SelectionFlag
    ) -> None:
        """Extend a change of the selection to the runs of selected groups."""
        selection = QItemSelection(chosen, chosen) if isinstance(chosen, QModelIndex) else chosen
        super().select(self._with_group_runs(selection), command)

    def _with_group_runs(self, selection: QItemSelection) -> QItemSelection:
        parts = [(part.top(), part.bottom()) for part in selection.toList()]
        last = self._rows.columnCount() - 1
        for top, bottom in self._rows.group_ranges():
            if any(first <= top <= end < bottom for first, end in parts):
                whole = QItemSelection(self._rows.index(top, 0), self._rows.index(bottom, last))
                selection.merge(whole, QItemSelectionModel.SelectionFlag.Select)
        return selection
