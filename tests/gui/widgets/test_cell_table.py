"""What a row of the History table shows where there is no room for all of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QFontMetrics
from PySide6.QtWidgets import QApplication

from app.gui.history.table_model import HistoryDelegate, HistoryModel, chips_that_fit, elide_note
from app.gui.theme import GRID
from app.gui.widgets.text_widths import DerivedFace, Face, elide_name, tabular, two_lines
from app.storage.store import Store
from app.viewmodels.history.search import from_word
from app.viewmodels.history.table import ANNOTATIONS_COLUMN, EVIDENCE_COLUMN, OUTCOME_COLUMN, VARIANT_COLUMN
from tests.gui.history_page import TITLES, HistoryPage
from tests.unit.viewmodels.stored import keep, run_row, stored_run

NOTE = "The first night after the driver was updated; the fans were loud"


@pytest.fixture
def face(qapp: QApplication) -> Face:
    return Face(qapp.font())


def test_a_name_in_parts_keeps_its_first_ones_and_the_last(face: Face) -> None:
    name = "cuDNN · batch 64 · TF32 · layers 4 · bidirectional"
    whole = face.width(name)
    assert elide_name(name, face, whole) == name
    assert elide_name(name, face, whole - 1) == "cuDNN · batch 64 · TF32 · … · bidirectional"
    some = face.width("cuDNN · batch 64 · … · bidirectional")
    assert elide_name(name, face, some) == "cuDNN · batch 64 · … · bidirectional"
    one_word = elide_name("a/very/long/path.py:model", face, face.width("a/very/long"))
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
    delegate, face = table.itemDelegate(), Face(table.font())
    assert isinstance(delegate, HistoryDelegate)
    assert isinstance(page.model, HistoryModel)
    width = table.columnWidth(VARIANT_COLUMN) - 2 * GRID
    shown = []
    for row in range(3):
        index = page.model.index(row, VARIANT_COLUMN)
        shown.append(delegate.shortened(page.model.row_cells(row)[VARIANT_COLUMN], index, face, width))
    assert "layers 3 · bidirectional · input size 144" in shown[0]
    assert "batch 640" not in shown[0]
    assert len(set(shown)) == 3
    symbols = [page.model.headerData(n, Qt.Orientation.Horizontal) for n in (OUTCOME_COLUMN, EVIDENCE_COLUMN)]
    assert symbols == ["", ""], "their words give way first"
    page.view.resize(1800, 700)
    assert page.model.headerData(OUTCOME_COLUMN, Qt.Orientation.Horizontal) == "Outcome"


def test_of_a_note_a_few_letters_are_not_shown(face: Face) -> None:
    assert elide_note("ok", face, face.width("ok")) == "ok"
    assert elide_note(NOTE, face, face.width("The fi…")) == "✎"
    assert elide_note(NOTE, face, face.width("✎") - 1) == ""
    assert elide_note(NOTE, face, face.width("The first night …")).startswith("The first ni")


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


@pytest.fixture
def long_name(history_on: Callable[[Path], HistoryPage], database_path: Path) -> HistoryPage:
    """Two runs, of which one has a name as wide as a window."""
    long = run_row(
        2, xla=True, layers=8, units=2048, timesteps=1000, features=1024, memory_growth=False, mode="inference"
    )
    with Store.open(database_path) as store:
        for row in (run_row(1), long):
            summary = replace(row.summary, energy_mj_per_example=20.0)
            keep(store, stored_run(replace(row, summary=summary), measured=False))
    return history_on(database_path)


def test_in_a_narrow_table_figures_are_in_view_and_their_units_in_the_titles(long_name: HistoryPage) -> None:
    table, column = long_name.view.table, TITLES.index("Throughput")
    long_name.view.resize(1024, 700)
    long_name.refresh()
    assert table.columnViewportPosition(column) + table.columnWidth(column) <= table.viewport().width()
    titles = [long_name.model.headerData(n, Qt.Orientation.Horizontal) for n in (column, TITLES.index("Energy"))]
    assert titles == ["Examples/s", "mJ/example"]
    assert long_name.column("Throughput") == ["1,000 sequences/s"] * 2, "also copied and read with their unit"
    long_name.view.resize(2400, 700)
    assert long_name.model.headerData(column, Qt.Orientation.Horizontal) == "Throughput"


def test_one_very_long_name_takes_two_lines_and_no_room_from_other_columns(long_name: HistoryPage) -> None:
    table, face = long_name.view.table, Face(long_name.view.table.font())
    long_name.view.resize(1280, 700)
    long_name.refresh()
    name = long_name.column("Variant")[0]
    assert "memory growth off" in name
    assert table.columnWidth(VARIANT_COLUMN) < min(face.width(name), 0.5 * table.width())
    first, second = two_lines(name, len)
    assert f"{first} · {second}" == name
    assert abs(len(first) - len(second)) < len(name) / 4


def test_a_name_of_one_part_stays_in_a_line() -> None:
    assert two_lines("a/very/long/path.py:model", len) == ("a/very/long/path.py:model", "")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (12, ["night", "paper"]),
        (9, ["night", "+1"]),
        (7, ["2 tags"]),
    ],
)
def test_of_tags_as_many_are_shown_as_fit_whole(width: int, shown: list[str]) -> None:
    assert chips_that_fit(["night", "paper"], len, width, 1) == shown


def test_a_match_without_room_begins_with_the_word() -> None:
    assert from_word("note: … driver 580.159.04, warm", ["580"]) == "note: …580.159.04, warm"
    assert from_word("note: warm", ["580"]) == "note: warm"
    assert from_word("variant", ["variant"]) == "variant"


def test_a_font_is_made_once_for_all_cells_and_again_for_another_one(qapp: QApplication) -> None:
    plain, faces = qapp.font(), DerivedFace(tabular)
    first = faces.of(plain)
    assert first.font == tabular(plain)
    assert faces.of(QFont(plain)) is first
    bold = QFont(plain)
    bold.setBold(True)
    assert faces.of(bold).font == tabular(bold) != first.font
    assert faces.of(plain) is first, "rows of both stand in one table"
    plain.setPixelSize(30)
    assert faces.of(plain).font == tabular(plain) != first.font
