"""What a row of the History table shows where there is no room for all of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QApplication

from app.gui.history.table_model import elide_note
from app.gui.widgets.cell_table import elide_name
from app.storage.store import Store
from app.viewmodels.history.table import ANNOTATIONS_COLUMN, VARIANT_COLUMN
from tests.gui.history_page import HistoryPage
from tests.unit.viewmodels.stored import keep, run_row, stored_run

NOTE = "The first night after the driver was updated; the fans were loud"


@pytest.fixture
def metrics(qapp: QApplication) -> QFontMetrics:
    return QFontMetrics(qapp.font())


def test_a_name_in_parts_keeps_its_first_ones_and_the_last(metrics: QFontMetrics) -> None:
    name = "cuDNN · batch 64 · TF32 · layers 4 · bidirectional true"
    whole = metrics.horizontalAdvance(name)
    assert elide_name(name, metrics, whole) == name
    assert elide_name(name, metrics, whole - 1) == "cuDNN · batch 64 · TF32 · … · bidirectional true"
    some = metrics.horizontalAdvance("cuDNN · batch 64 · … · bidirectional true")
    assert elide_name(name, metrics, some) == "cuDNN · batch 64 · … · bidirectional true"
    one_word = elide_name("a/very/long/path.py:model", metrics, metrics.horizontalAdvance("a/very/long"))
    assert one_word.startswith("a/")
    assert one_word.endswith("l")


def test_of_a_note_a_few_letters_are_not_shown(metrics: QFontMetrics) -> None:
    assert elide_note("ok", metrics, metrics.horizontalAdvance("ok")) == "ok"
    assert elide_note(NOTE, metrics, metrics.horizontalAdvance("The fi…")) == "…"
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
