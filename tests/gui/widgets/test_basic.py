"""Widgets in lines, pages of HTML, and what Qt must not keep."""

from collections.abc import Callable

import pytest
from PySide6.QtCore import QSize
from PySide6.QtGui import QIcon, QPixmap, QPixmapCache, QTextDocument
from PySide6.QtWidgets import QLayout, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from app.gui.widgets.basic import HtmlPage, clear_layout
from app.gui.widgets.panes import FlowLayout


def test_parts_move_when_one_of_them_changes(qtbot: QtBot) -> None:
    around = QWidget()
    qtbot.addWidget(around)
    flow = FlowLayout(around, 4, 4)
    buttons = [QPushButton(text) for text in ("one", "two", "three")]
    for button in buttons:
        flow.addWidget(button)
    around.resize(400, 100)
    around.show()
    qtbot.waitUntil(lambda: buttons[2].x() > buttons[1].x() > 0)
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
