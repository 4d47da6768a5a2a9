"""No screen reads a string from outside as mark-up, whatever it is the name of."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QAbstractItemModel, QAbstractListModel, QRect, Qt
from PySide6.QtGui import QFont, QImage, QPainter
from PySide6.QtWidgets import QAbstractItemView, QComboBox, QLabel, QMessageBox, QPlainTextEdit, QTextEdit, QWidget
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.compare.screen import CompareView
from app.gui.history.screen import HistoryView
from app.gui.theme import Theme
from app.gui.widgets.basic import plain_tooltip, text_label
from app.gui.widgets.dialogs import message_box
from app.gui.widgets.text_widths import Face
from app.gui.window import COMPARE, HISTORY, MONITOR, RUN
from app.viewmodels.format.naming import experiment_name, path_name, shared_settings, short_name, variant_names
from tests.fakes.hostile import HOSTILE, MARKUP, make_hostile_library
from tests.gui.windows import window_on
from workloads.protocol import RunSpec

_CELLS = 200
"""Cells of a model that are looked at."""


def texts_of(model: QAbstractItemModel | None, role: Qt.ItemDataRole) -> Iterator[str]:
    """The texts of the first cells of a model, and of its head."""
    if model is None:
        return
    for column in range(1 if isinstance(model, QAbstractListModel) else model.columnCount()):
        yield str(model.headerData(column, Qt.Orientation.Horizontal, role) or "")
        for row in range(min(model.rowCount(), _CELLS)):
            yield str(model.index(row, column).data(role) or "")


def markup_in(shown: QWidget) -> list[str]:
    """What of a widget and its children Qt would read as mark-up of the hostile library's."""
    widgets = [shown, *shown.findChildren(QWidget)]
    found = [f"tooltip of {each}: {each.toolTip()}" for each in widgets if MARKUP in each.toolTip()]
    labels = [each for each in widgets if isinstance(each, QLabel) and each.textFormat() != Qt.TextFormat.PlainText]
    found += [f"label {label.text()}" for label in labels if MARKUP in label.text()]
    for view in (each for each in widgets if isinstance(each, QAbstractItemView | QComboBox)):
        tips = texts_of(view.model(), Qt.ItemDataRole.ToolTipRole)
        found += [f"tooltip in {view}: {tip}" for tip in tips if MARKUP in tip]
    found += [f"text in {each}" for each in widgets if isinstance(each, QTextEdit) and "<img" in each.toHtml()]
    return found


def commands_in(shown: QWidget) -> list[str]:
    """What of a widget and its children turns the text around it, or commands a terminal."""
    widgets = shown.findChildren(QWidget)
    texts = [QLabel.text(each) for each in widgets if isinstance(each, QLabel)]
    texts += [each.toPlainText() for each in widgets if isinstance(each, QTextEdit | QPlainTextEdit)]
    texts += [each.itemText(n) for each in widgets if isinstance(each, QComboBox) for n in range(each.count())]
    return [text for text in texts if "\u202e" in text or "\x1b" in text]


def text_in(shown: QWidget) -> str:
    widgets = shown.findChildren(QWidget)
    texts = [each.text() for each in widgets if isinstance(each, QLabel)]
    texts += [each.toPlainText() for each in widgets if isinstance(each, QTextEdit | QPlainTextEdit)]
    for view in (each for each in widgets if isinstance(each, QAbstractItemView | QComboBox)):
        texts += texts_of(view.model(), Qt.ItemDataRole.DisplayRole)
    return "\n".join(texts)


@pytest.fixture
def hostile(qtbot: QtBot, theme: Theme, database_path: Path) -> Iterator[Workbench]:
    make_hostile_library(database_path)
    with window_on(qtbot, database_path, theme) as made:
        yield made


def test_names_in_a_library_are_no_markup_on_any_screen(qtbot: QtBot, hostile: Workbench) -> None:
    window = hostile.window
    for page in (RUN, MONITOR, HISTORY):
        window.show_page(page)
    (history,) = window.findChildren(HistoryView)
    qtbot.waitUntil(lambda: history.table.model().rowCount() > 3)
    assert MARKUP in text_in(history)
    assert [*markup_in(window), *commands_in(window)] == []
    hostile.actions.open_run(4)
    qtbot.waitUntil(lambda: history.shows_run and text_in(history).count(MARKUP) > 10)
    assert [*markup_in(window), *commands_in(window)] == []
    window.show_page(COMPARE)
    (compare,) = window.findChildren(CompareView)
    qtbot.waitUntil(lambda: MARKUP in text_in(compare))
    assert [*markup_in(window), *commands_in(window)] == []
    hostile.actions.compare([1, 2, 3])
    qtbot.waitUntil(lambda: compare.table.model().rowCount() == 3)
    assert MARKUP in text_in(compare)
    assert [*markup_in(window), *commands_in(window)] == []
    queue = hostile.run_view.queue_view()
    qtbot.waitUntil(lambda: MARKUP in text_in(queue))
    hostile.actions.run_again(1)
    qtbot.waitUntil(lambda: MARKUP in text_in(hostile.run_view.form))
    assert [*markup_in(window), *commands_in(window)] == []


def test_boxes_labels_and_tooltips_are_plain(qtbot: QtBot, theme: Theme) -> None:
    parent = QWidget()
    qtbot.addWidget(parent)
    box = message_box(parent, theme, QMessageBox.Icon.Question, "a title", HOSTILE)
    box.setInformativeText(HOSTILE)
    label = text_label(HOSTILE)
    label.setToolTip(plain_tooltip(HOSTILE))
    label.setParent(parent)
    assert len([each for each in parent.findChildren(QLabel) if MARKUP in each.text()]) == 3
    assert markup_in(parent) == []
    assert commands_in(parent)[1:] == [], "a caller's own text of a box"
    assert plain_tooltip("") == ""
    assert r"\u001b]0;x\u0007\u202e" in label.toolTip()
    rich = QLabel(HOSTILE, parent)
    assert len(markup_in(parent)) == 1, "the search finds what is not plain"
    rich.setToolTip(HOSTILE)
    assert len(markup_in(parent)) == 2


def test_what_is_painted_is_one_line_that_no_name_turns(theme: Theme) -> None:
    face = Face(QFont())
    area = QRect(0, 0, 600, 40)

    def painted(text: str) -> QImage:
        picture = QImage(area.size(), QImage.Format.Format_RGB32)
        picture.fill(Qt.GlobalColor.white)
        painter = QPainter(picture)
        face.write(painter, area, face.elided(text, Qt.TextElideMode.ElideRight, area.width()))
        painter.end()
        return picture

    name, plain = "one\u202etwo\nthree\u2028four", "one\\u202etwo three four"
    assert face.width(name) == face.width(plain)
    assert painted(name) == painted(plain) != painted("one two three four")
    assert face.elided(name, Qt.TextElideMode.ElideRight, 50) == face.elided(plain, Qt.TextElideMode.ElideRight, 50)


def test_names_of_variants_are_plain_lines_wherever_they_stand() -> None:
    value, plain = "one\u202etwo\nthree", "one\\u202etwo three"
    specs = [RunSpec(workload=f"{value}.py:{n}", variant={"gpus": 0, "mode": f"{value}{n}"}) for n in range(2)]
    assert variant_names(specs) == [f"{plain}.py:{n} · Mode {plain}{n}" for n in range(2)]
    shared = shared_settings([specs[0], RunSpec(workload=specs[0].workload, variant={**specs[0].variant, "gpus": 1})])
    texts = (short_name(specs[0]), experiment_name(specs), path_name(f"/envs/{value}"), shared)
    assert [text for text in texts if plain not in text or set(text) & set("\u202e\n")] == []
