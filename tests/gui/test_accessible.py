"""What a screen reader says of every screen and dialog."""

from collections.abc import Iterator

from PySide6.QtCore import QAbstractAnimation, Qt
from PySide6.QtGui import QAccessible, QAccessibleInterface
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QProgressBar, QTableView, QTreeView, QWidget

from app.gui.app import Workbench
from app.gui.widgets.cell_delegate import CellModel
from app.gui.widgets.cell_table import CellTable
from app.gui.window import COMPARE, HISTORY, MONITOR, RUN

NAME = QAccessible.Text.Name
NAMED = {QAccessible.Role.Button, QAccessible.Role.ButtonMenu, QAccessible.Role.Graphic}
CELLS_READ = 150
FADE_MS = 250


def named(spoken: QAccessibleInterface | None) -> bool:
    return spoken is not None and bool(spoken.text(NAME).strip())


def nameless(parent: QWidget) -> list[str]:
    """Return the visible widgets that take the keyboard or a click and have no name for a screen reader."""
    found = []
    for widget in parent.findChildren(QWidget):
        spoken = QAccessible.queryAccessibleInterface(widget)
        if not widget.isVisible() or spoken is None or widget.focusProxy() is not None:
            continue
        takes_keys = widget.focusPolicy() != Qt.FocusPolicy.NoFocus
        if (takes_keys or spoken.role() in NAMED) and not named(spoken):
            found.append(f"{type(widget).__name__} in {type(widget.parent()).__name__}")
    return found


def unread(parent: QWidget) -> list[str]:
    """Return the headers without a title, and cells whose text is painted but not read, of all tables in sight."""
    return [
        f"{type(table).__name__}: {what}"
        for table in parent.findChildren(QAbstractItemView)
        if table.isVisible() and not isinstance(table, QHeaderView)
        for what in (*_headers(table), *_cells(table))
    ]


def _headers(table: QAbstractItemView) -> Iterator[str]:
    if isinstance(table, QTableView | QTreeView):
        model, across = table.model(), Qt.Orientation.Horizontal
        for column in range(model.columnCount()):
            roles = Qt.ItemDataRole.AccessibleTextRole, Qt.ItemDataRole.DisplayRole
            title = next(filter(None, (model.headerData(column, across, role) for role in roles)), "")
            if not str(title).strip() or str(title).isdigit():  # Qt's own are numbers
                yield f"column {column}"


def _cells(table: QAbstractItemView) -> Iterator[str]:
    """Compare what is painted in the first cells with what is read."""
    if not isinstance(table, CellTable):
        return
    spoken, model = QAccessible.queryAccessibleInterface(table), table.model()
    read = [spoken.child(number) for number in range(min(spoken.childCount(), CELLS_READ))]
    heard = "\n".join(each.text(NAME) for each in read if each is not None)
    assert isinstance(model, CellModel)
    for row in range(min(model.rowCount(), CELLS_READ // (model.columnCount() + 1) - 1)):
        folded = {None: "", True: ", folded", False: ", unfolded"}[model.is_folded(row)]
        if folded not in heard:
            yield folded
        for column in range(model.columnCount()):
            cell = model.row_cells(row)[column]
            yield from (f"“{text}”" for text in (*cell.chips, cell.text, cell.unit) if text not in heard)


def moving(window: QWidget) -> list[str]:
    """Return what moves by itself in a window without being data, but for Qt's short fades: a field's clear button."""
    trees = (f"tree {tree.accessibleName()}" for tree in window.findChildren(QTreeView) if tree.isAnimated())
    bars = (f"bar {bar.accessibleName()}" for bar in window.findChildren(QProgressBar) if not bar.maximum())
    lasting = (each for each in window.findChildren(QAbstractAnimation) if not 0 <= each.totalDuration() <= FADE_MS)
    animations = (f"{type(each).__name__} of {each.totalDuration()} ms" for each in lasting)
    return [*trees, *bars, *animations]


def test_every_screen_of_a_new_database_has_a_name_for_all_that_takes_the_keyboard(workbench: Workbench) -> None:
    window = workbench.window
    found = {}
    for number in (RUN, MONITOR, HISTORY, COMPARE):
        window.show_page(number)
        found[number] = nameless(window)
    assert found == {RUN: [], MONITOR: [], HISTORY: [], COMPARE: []}
