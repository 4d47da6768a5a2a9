"""Numbers read alike on every screen."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QHeaderView, QLabel, QWidget
from pytestqt.qtbot import QtBot

from app.gui.theme import Theme
from app.gui.widgets.cell_table import CellModel
from tests.gui.tour import SCREENS, tour, toured
from tests.number_style import faults


def texts(shown: QWidget) -> Iterator[str]:
    """Yield what is in sight, and what appears under the pointer."""
    for widget in shown.findChildren(QWidget):
        if not widget.isVisible():
            continue
        yield from (widget.toolTip(), widget.accessibleName(), widget.accessibleDescription())
        if isinstance(widget, QLabel | QAbstractButton):
            yield widget.text()
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


@pytest.mark.qt_log_ignore("does not support", extend=True)
def test_numbers_read_alike_on_every_screen(
    qtbot: QtBot, theme: Theme, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with toured(qtbot, tmp_path, theme, monkeypatch) as workbench:
        found = {name: faults(texts(shown)) for name, shown in tour(workbench)}
    assert found == {name: [] for name in SCREENS}
