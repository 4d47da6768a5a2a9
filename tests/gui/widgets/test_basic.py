"""Widgets in lines, pages of HTML, and what Qt must not keep."""

from collections.abc import Callable

import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QIcon, QPixmap, QPixmapCache, QTextDocument
from PySide6.QtWidgets import QLayout, QPushButton, QVBoxLayout, QWidget, QWidgetItem
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.gui.widgets.basic import HtmlPage, clear_layout
from app.gui.widgets.panes import FlowLayout


class CountedItem(QWidgetItem):
    """Counts how often its size is asked for."""

    size_hints = 0

    def sizeHint(self) -> QSize:
        self.size_hints += 1
        return super().sizeHint()


def add(flow: FlowLayout, text: str) -> tuple[QPushButton, CountedItem]:
    button = QPushButton(text)
    flow.addChildWidget(button)
    item = CountedItem(button)
    flow.addItem(item)
    return button, item


def test_lines_are_found_once_for_a_width_and_anew_when_a_part_changes(qtbot: QtBot) -> None:
    around = QWidget()
    qtbot.addWidget(around)
    flow = FlowLayout(around, 4, 4)
    buttons, items = zip(*(add(flow, text) for text in ("one", "two", "three")), strict=True)
    around.resize(400, 100)
    around.show()
    qtbot.waitUntil(lambda: buttons[2].x() > buttons[1].x() > 0)
    flow.heightForWidth(90)
    count = items[0].size_hints
    assert [flow.heightForWidth(90) for _ in range(3)] == [flow.heightForWidth(90)] * 3
    assert items[0].size_hints == count, "Qt asks for the height a dozen times in a layout"

    before = buttons[1].x()
    buttons[0].setText("one that is longer now")
    qtbot.waitUntil(lambda: buttons[1].x() > before)
    buttons[0].hide()
    qtbot.waitUntil(lambda: buttons[1].x() < before)
    flow.takeAt(0)
    qtbot.waitUntil(lambda: flow.heightForWidth(400) == buttons[1].height())
    flow.addWidget(QPushButton("four"))
    assert flow.heightForWidth(1) > flow.heightForWidth(1000)


def test_a_page_keeps_its_place_and_one_document(qtbot: QtBot) -> None:
    page = HtmlPage(12)
    qtbot.addWidget(page)
    page.resize(300, 100)
    page.show()
    for text in ("first", "second", "third"):
        page.show_html(f"<p class='name'>{text}</p>" * 40, ".name { color: #ff0000; }")
    qtbot.waitUntil(lambda: page.toPlainText().startswith("third\nthird"))
    page.verticalScrollBar().setValue(120)
    page.show_html("<p class='name'>last</p>" * 40, ".name { color: #00ff00; }")
    qtbot.waitUntil(lambda: page.toPlainText().startswith("last\nlast"))
    assert page.verticalScrollBar().value() == 120
    assert page.document().documentMargin() == 12
    assert page.document().begin().begin().fragment().charFormat().foreground().color().name() == "#00ff00"
    qtbot.waitUntil(lambda: len(page.findChildren(QTextDocument)) == 1)


@pytest.mark.parametrize("make", [QVBoxLayout, lambda parent: FlowLayout(parent, 4, 4)], ids=["column", "flow"])
def test_of_a_layout_that_is_cleared_nothing_is_left(qtbot: QtBot, make: Callable[[QWidget], QLayout]) -> None:
    around = QWidget()
    qtbot.addWidget(around)
    layout = make(around)
    layout.addWidget(QPushButton("one"))
    item = layout.itemAt(0)
    clear_layout(layout)
    assert not layout.count()
    assert not isValid(item), "Qt leaves it to the caller"


@pytest.mark.usefixtures("theme")
def test_pictures_of_icons_that_are_gone_give_way() -> None:
    size = QSize(64, 36)
    key = QPixmapCache.insert(QPixmap(size))
    for _ in range(300):  # as of twenty comparisons: 2.7 MB
        QIcon(QPixmap(size)).pixmap(size)
    assert not key.isValid()
