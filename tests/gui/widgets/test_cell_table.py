"""What a row of the History table shows where there is no room for all of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QApplication

from app.gui.history.table_model import HistoryDelegate, elide_note
from app.gui.theme import GRID
from app.gui.widgets.cell_table import CELL_ROLE, elide_name
from app.storage.store import Store
from app.viewmodels.history.table import ANNOTATIONS_COLUMN, EVIDENCE_COLUMN, OUTCOME_COLUMN, VARIANT_COLUMN
from tests.gui.history_page import HistoryPage
from tests.unit.viewmodels.stored import keep, run_row, stored_run

NOTE = "The first night after the driver was updated; the fans were loud"


@pytest.fixture
def metrics(qapp: QApplication) -> QFontMetrics:
    return QFontMetrics(qapp.font())


def test_a_name_in_parts_keeps_its_first_ones_and_the_last(metrics: QFontMetrics) -> None:
    name = "cuDNN · batch 64 · TF32 · layers 4 · bidirectional"
    whole = metrics.horizontalAdvance(name)
    assert elide_name(name, metrics, whole) == name
    assert elide_name(name, metrics, whole - 1) == "cuDNN · batch 64 · TF32 · … · bidirectional"
    some = metrics.horizontalAdvance("cuDNN · batch 64 · … · bidirectional")
    assert elide_name(name, metrics, some) == "cuDNN · batch 64 · … · bidirectional"
    one_word = elide_name("a/very/long/path.py:model", metrics, metrics.horizontalAdvance("a/very/long"))
    assert one_word.startswith("a/")
    assert one_word.endswith("l")


def test_of_a_variant_only_what_its_neighbours_share_is_left_out(
    history_on: Callable[[Path], HistoryPage], database_path: Path
) -> None:
    with Store.open(database_path) as store:
        for number, layers in enumerate((1, 2, 3), 1):
            stored = run_row(number, batch_size=640, layers=layers, bidirectional=layers > 1, input_size=48 * layers)
            keep(store, stored_run(stored, measured=False))
    page = history_on(database_path)
    page.view.resize(700, 700)
    page.refresh()
    table = page.view.table
    delegate, metrics = table.itemDelegate(), QFontMetrics(table.font())
    assert isinstance(delegate, HistoryDelegate)
    width = table.columnWidth(VARIANT_COLUMN) - 2 * GRID
    shown = []
    for row in range(3):
        index = page.model.index(row, VARIANT_COLUMN)
        shown.append(delegate.shown_text(index.data(CELL_ROLE), index, metrics, width))
    assert "layers 3 · bidirectional · input size 144" in shown[0]
    assert "batch 640" not in shown[0]
    assert len(set(shown)) == 3
    symbols = [page.model.headerData(n, Qt.Orientation.Horizontal) for n in (OUTCOME_COLUMN, EVIDENCE_COLUMN)]
    assert symbols == ["", ""], "their words give way first"
    page.view.resize(1800, 700)
    assert page.model.headerData(OUTCOME_COLUMN, Qt.Orientation.Horizontal) == "Outcome"


def test_of_a_note_a_few_letters_are_not_shown(metrics: QFontMetrics) -> None:
    assert elide_note("ok", metrics, metrics.horizontalAdvance("ok")) == "ok"
    assert elide_note(NOTE, metrics, metrics.horizontalAdvance("The fi…")) == "✎"
    assert elide_note(NOTE, metrics, metrics.horizontalAdvance("✎") - 1) == ""
    assert elide_note(NOTE, metrics, metrics.horizontalAdvance("The first night …")).startswith("The first ni")


def test_notes_have_the_room_that_they_need_where_there_is_some(
    history_on: Callable[[Path], HistoryPage], database_path: Path
) -> None:
    with Store.open(database_path) as store:
        run = keep(store, stored_run(replace(run_row(1), note="")))
    page = history_on(database_path)
    page.view.resize(2000, 700)
    page.refresh()
    table = page.view.table
    wanted = QFontMetrics(table.font()).horizontalAdvance(NOTE)
    variant = table.columnWidth(VARIANT_COLUMN)
    with Store.open(database_path) as store:
        store.library.set_note(run, NOTE)
    page.view.resize(1000, 700)
    page.refresh()
    assert table.columnWidth(ANNOTATIONS_COLUMN) < wanted
    page.view.resize(2000, 700)
    assert table.columnWidth(ANNOTATIONS_COLUMN) > wanted
    assert table.columnWidth(VARIANT_COLUMN) == variant, "as wide as its own words"
