"""Every screen and dialog in one tour: pictures, the keyboard, a screen reader, numbers, small screens."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QHeaderView, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.gui.theme import Theme
from app.gui.widgets.cell_delegate import CellModel
from tests.gui.test_accessible import moving, nameless, unread
from tests.gui.test_keyboard import keyboard_faults
from tests.gui.test_pictures import picture_faults
from tests.gui.test_small import small_faults
from tests.gui.tour import tour, toured
from tests.number_style import faults
from tests.pictures import SIZE


def texts(shown: QWidget) -> Iterator[str]:
    """Yield what is in sight, and what appears under the pointer."""
    for widget in shown.findChildren(QWidget):
        if not widget.isVisible():
            continue
        yield from (widget.toolTip(), widget.accessibleName(), widget.accessibleDescription())
        if isinstance(widget, QLabel | QAbstractButton):
            yield re.sub("<[^>]+>", " ", widget.text())  # of a table, its words
        elif isinstance(widget, QAbstractItemView) and not isinstance(widget, QHeaderView):
            yield from _cells(widget)


def _cells(table: QAbstractItemView) -> Iterator[str]:
    model = table.model()
    if not isinstance(model, CellModel):
        return
    for column in range(model.columnCount()):
        yield str(model.headerData(column, Qt.Orientation.Horizontal) or "")
        for row in range(model.rowCount()):
            cell = model.row_cells(row)[column]
            yield from (*cell.chips, cell.text, cell.tooltip)


def test_every_screen_is_right_for_everybody(
    qtbot: QtBot, theme: Theme, tmp_path: Path, reference_database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tour for all: a window on the reference runs takes half a minute to go through."""
    found, tabbed = dict[str, list[str]](), list[QWidget]()
    QAccessible.setActive(True)  # or Qt does not say that tables change
    with toured(qtbot, tmp_path, theme, monkeypatch, reference_database) as workbench:
        workbench.window.resize(*SIZE)
        for name, shown in tour(workbench):
            found |= {
                f"pictures of {name}": picture_faults(workbench, theme, name, shown, tmp_path),
                f"text of {name}": faults(texts(shown)),
                f"without a name on {name}": nameless(shown),
                f"not read on {name}": unread(shown),
                f"moving on {name}": moving(workbench.window),
                f"keyboard on {name}": keyboard_faults(qtbot, theme, shown, tabbed),
                f"small {name}": small_faults(workbench, shown),
            }
            workbench.window.resize(*SIZE)
    assert {look: wrong for look, wrong in found.items() if wrong} == {}
