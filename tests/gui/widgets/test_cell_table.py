"""What a row of the History table shows where there is no room for all of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontMetrics
from PySide6.QtWidgets import QApplication

from app.gui.history.table_model import HistoryDelegate, HistoryModel, chips_that_fit, elide_note
from app.gui.theme import GRID
from app.gui.widgets.text_widths import (
    MORE_PX,
    PAIR_GAP,
    SPARK_PX,
    SYMBOL_ONLY,
    ColumnNeeds,
    Face,
    divide_width,
    elide_name,
    two_lines,
)
from app.storage.store import Store
from app.viewmodels.format.cells import Column, Shrink
from app.viewmodels.format.naming import SEPARATOR
from app.viewmodels.history.table import ANNOTATIONS_COLUMN, OUTCOME_COLUMN, VARIANT_COLUMN
from tests.gui.history_page import TITLES, HistoryPage
from tests.unit.viewmodels.stored import keep, keep_all, run_row, stored_run
from workloads.protocol import OutcomeName

NOTE = "The first night after the driver was updated; the fans were loud"


@pytest.fixture
def face(qapp: QApplication) -> Face:
    return Face(qapp.font())


def test_a_name_in_parts_keeps_its_first_ones_and_the_last(face: Face) -> None:
    name = ("cuDNN", "batch 64", "TF32", "layers 4", "bidirectional")
    whole = face.width(SEPARATOR.join(name))
    assert elide_name(name, face, whole) == SEPARATOR.join(name)
    assert elide_name(name, face, whole - 1) == "cuDNN · batch 64 · TF32 · … · bidirectional"
    some = face.width("cuDNN · batch 64 · … · bidirectional")
    assert elide_name(name, face, some) == "cuDNN · batch 64 · … · bidirectional"
    one_word = elide_name(("a/very/long/path.py:model",), face, face.width("a/very/long"))
    assert one_word.startswith("a/")
    assert one_word.endswith("l")


def test_of_a_variant_only_what_its_neighbours_share_is_left_out(
    history_on: Callable[[Path], HistoryPage], database_path: Path
) -> None:
    with Store.open(database_path) as store:
        for number, layers in enumerate((1, 2, 3), 1):
            outcome: OutcomeName = "failed" if number == 1 else "completed"
            stored = run_row(
                number, outcome=outcome, batch_size=640, layers=layers, bidirectional=layers > 1, input_size=48 * layers
            )
            keep(store, stored_run(stored, measured=False))
    page = history_on(database_path)
    page.view.resize(560, 700)
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
    assert page.model.headerData(OUTCOME_COLUMN, Qt.Orientation.Horizontal) == "", "its words give way first"
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
    (run,) = keep_all(database_path, [stored_run(replace(run_row(1), note=""))])
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


def test_in_a_narrow_table_figures_are_in_view_without_their_curves(long_name: HistoryPage) -> None:
    table, column = long_name.view.table, TITLES.index("Throughput, 1/s")
    long_name.view.resize(2400, 700)
    long_name.refresh()
    wide = table.columnWidth(column)
    long_name.view.resize(720, 700)
    assert table.columnWidth(column) == wide - SPARK_PX - PAIR_GAP
    assert table.columnViewportPosition(column) + table.columnWidth(column) <= table.viewport().width()


def test_one_very_long_name_takes_two_lines_and_no_room_from_other_columns(long_name: HistoryPage) -> None:
    table, face = long_name.view.table, Face(long_name.view.table.font())
    long_name.view.resize(900, 700)
    long_name.refresh()
    name = long_name.column("Variant")[0]
    assert "memory growth off" in name
    assert table.columnWidth(VARIANT_COLUMN) < min(face.width(name), 0.5 * table.width())
    first, second = two_lines(tuple(name.split(SEPARATOR)), len)
    assert f"{first} · {second}" == name
    assert abs(len(first) - len(second)) < len(name) / 4


def test_a_name_of_one_part_stays_in_a_line() -> None:
    assert two_lines(("a/very/long/path.py:model",), len) == ("a/very/long/path.py:model", "")


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


SHRINKS: dict[str, Shrink] = {"name": "name", "words": "symbol", "figure": "plot", "fixed": "", "note": "text"}
BARE_PX = 180 - SPARK_PX - PAIR_GAP


def widths(view: int, *, chosen: str = "") -> dict[str, int]:
    """The widths of five columns that need 340, 120, 180, 100 and 160 pixels."""
    needs = {
        n: ColumnNeeds(
            Column(title, "", shrink=shrink, least=60, most=160 if title == "note" else 0),
            content,
            title=70,
            names=[(340, 200)] if shrink == "name" else (),
            is_chosen=title == chosen,
        )
        for n, ((title, shrink), content) in enumerate(zip(SHRINKS.items(), (340, 120, 180, 100, 160), strict=True))
    }
    return dict(zip(SHRINKS, divide_width(needs, view).values(), strict=True))


def test_columns_give_way_one_after_the_other_as_they_say_and_the_last_text_takes_the_rest() -> None:
    whole = {"name": 320, "words": 120, "figure": 180, "fixed": 100, "note": 160}
    assert widths(880 + 120) == {**whole, "name": 340, "note": 160 + 100}
    assert widths(880) == whole
    assert widths(879) == {**whole, "name": 340, "note": 139}, "it is cut and takes what names leave"
    assert widths(779)["words"] == 70, "only its symbol and its title are left"
    assert widths(780)["words"] == 120
    assert widths(729)["name"] < 320
    assert widths(600)["figure"] == BARE_PX
    name = 300 - MORE_PX - SYMBOL_ONLY
    assert widths(300) == {"name": name, "words": SYMBOL_ONLY, "figure": BARE_PX, "fixed": 100, "note": 60}, (
        "what does not fit begins where its sign does"
    )


def test_a_name_too_long_for_two_lines_is_cut_before_it_takes_the_whole_view() -> None:
    """In 900 pixels one long name hid every figure of a comparison."""
    column = Column("name", "", shrink="name")

    def least(view: int) -> int:
        return ColumnNeeds(column, 600, title=70, names=[(600, 330)]).steps(view)[-1]

    assert least(2000) == 330
    assert ColumnNeeds(column, 600, title=70, names=[(600, 330)]).first == 330, "in a wide view it is not cut"
    assert least(900) == 315
    assert least(300) == 192, "less shows nothing of it"


def test_a_width_that_the_user_chose_stays_in_the_narrowest_view() -> None:
    assert widths(300, chosen="figure")["figure"] == 180
