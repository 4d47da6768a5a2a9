"""The keyboard alone, on every screen and dialog: Tab reaches all in the order of reading, and focus is seen."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QApplication, QMenu, QWidget
from pytestqt.qtbot import QtBot

from app.gui.shell.palette import Palette
from app.gui.theme import Theme
from app.gui.widgets.panes import splitter
from tests.gui.history_page import TITLES, HistoryPage
from tests.gui.screens import expose
from tests.gui.test_pictures import turned
from tests.unit.viewmodels.stored import keep_all, run_row, stored_run

PARTS = np.arange(256) / 255
LINEAR = np.where(PARTS <= 0.04045, PARTS / 12.92, ((PARTS + 0.055) / 1.055) ** 2.4)
RED, GREEN, BLUE = LINEAR * 0.2126, LINEAR * 0.7152, LINEAR * 0.0722
"""What each value of a pixel adds to its relative luminance."""
CONTRAST = 3.0
SEEN_PX = 20
"""Pixels that focus changes at least by that contrast: one line under a short word."""
MOST_STOPS = 150


def name_of(widget: QWidget) -> str:
    text = widget.text() if isinstance(widget, QAbstractButton) else ""
    return f"{type(widget).__name__} {text or widget.accessibleName()}"


def press_tab(key: Qt.Key = Qt.Key.Key_Tab) -> QWidget:
    focused = QApplication.focusWidget()
    assert focused is not None
    QTest.keyClick(focused, key)
    reached = QApplication.focusWidget()
    assert reached is not None
    return reached


def chain(shown: QWidget, key: Qt.Key) -> list[QWidget]:
    """Return what Tab reaches until it is where it began."""
    reached = [press_tab(key)]
    while (stop := press_tab(key)) is not reached[0]:
        assert stop not in reached, f"a trap at {name_of(stop)} of {shown.windowTitle()}"
        reached.append(stop)
        assert len(reached) < MOST_STOPS
    return reached


def unreached(shown: QWidget, reached: list[QWidget]) -> list[str]:
    """Return what can take the keyboard and is not reached by Tab."""
    return [
        name_of(widget)
        for widget in shown.findChildren(QWidget)
        if widget.isVisible()
        and widget.isEnabled()
        and (widget.focusPolicy() & Qt.FocusPolicy.TabFocus) == Qt.FocusPolicy.TabFocus
        and widget.focusProxy() is None
        and widget not in reached
    ]


def backwards(shown: QWidget, reached: list[QWidget]) -> list[str]:
    """Return the steps that go up, but to a column further right; what is scrolled out of sight is nowhere."""
    first = min(reached, key=lambda widget: reading(shown, widget))
    turned = reached[reached.index(first) :] + reached[: reached.index(first)]
    turned = [widget for widget in turned if not widget.visibleRegion().isEmpty()]
    areas = [QRect(widget.mapTo(shown, QPoint()), widget.size()) for widget in turned]
    return [
        f"{name_of(turned[n])} to {name_of(turned[n + 1])}"
        for n, (one, other) in enumerate(itertools.pairwise(areas))
        if other.bottom() < one.top() and other.left() <= one.right()
    ]


def reading(shown: QWidget, widget: QWidget) -> tuple[int, int]:
    at = widget.mapTo(shown, QPoint())
    return at.y(), at.x()


def luminance(widget: QWidget) -> NDArray[np.float64]:
    """Return the relative luminance of its pixels, as WCAG defines it."""
    image = widget.grab().toImage().convertToFormat(QImage.Format.Format_RGBX8888)
    pixels = np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), -1, 4)[:, : image.width()]
    found: NDArray[np.float64] = RED[pixels[..., 0]] + GREEN[pixels[..., 1]] + BLUE[pixels[..., 2]] + 0.05
    return found


def changed_px(widget: QWidget) -> int:
    """Return how many pixels the focus of a widget changes visibly."""
    widget.clearFocus()
    without = luminance(widget)
    widget.setFocus(Qt.FocusReason.TabFocusReason)
    focused = luminance(widget)
    ratio = np.maximum(without, focused) / np.minimum(without, focused)
    return int((ratio >= CONTRAST).sum())


def keyboard_faults(qtbot: QtBot, theme: Theme, shown: QWidget, looked_at: list[QWidget]) -> list[str]:
    """Return what Tab does not reach, or out of order, and where focus is not seen; widgets are looked at once."""
    if isinstance(shown, Palette):  # its arrows choose, and Tab does too
        return []
    with qtbot.waitActive(shown):
        shown.activateWindow()
    if QApplication.focusWidget() is None:
        shown.setFocus()
    reached = chain(shown, Qt.Key.Key_Tab)
    assert set(chain(shown, Qt.Key.Key_Backtab)) == set(reached)
    fresh = [widget for widget in reached if widget not in looked_at]
    looked_at += fresh
    dim = []
    for scheme in turned(theme) if fresh else ():
        QApplication.processEvents()
        dim += [f"{name_of(widget)} in {scheme}" for widget in fresh if changed_px(widget) < SEEN_PX]
    return [*unreached(shown, reached), *backwards(shown, reached), *dim]


def test_arrows_move_the_line_between_two_parts(qtbot: QtBot) -> None:
    for orientation, key in ((Qt.Orientation.Horizontal, Qt.Key.Key_Left), (Qt.Orientation.Vertical, Qt.Key.Key_Up)):
        made = splitter(orientation, QWidget(), QWidget(), (1, 1))
        expose(qtbot, made, 400, 400)
        before = made.sizes()[0]
        with qtbot.waitSignal(made.splitterMoved):
            QTest.keyClick(made.handle(1), key)
        assert made.sizes()[0] == before - 16
        QTest.keyClick(made.handle(1), Qt.Key.Key_Home)
        assert made.sizes()[0] == before - 16


def test_the_row_that_space_would_check_has_a_frame_checked_or_not(
    history_on: Callable[[Path], HistoryPage], database_path: Path
) -> None:
    keep_all(database_path, (stored_run(run_row(number), measured=False) for number in (1, 2, 3)))
    page = history_on(database_path).refresh()
    table = page.view.table

    def frames() -> list[bool]:
        picture, colour = table.viewport().grab().toImage(), QGuiApplication.palette().highlight().color()
        tops = [table.visualRect(table.model().index(row, 0)).top() for row in range(3)]
        return [all(picture.pixelColor(x, top) == colour for x in (0, picture.width() - 1)) for top in tops]

    page.key(Qt.Key.Key_Home, Qt.KeyboardModifier.ControlModifier)
    assert frames() == [True, False, False]
    page.key(Qt.Key.Key_Space)
    assert frames() == [True, False, False]
    page.key(Qt.Key.Key_Down)
    assert frames() == [False, True, False]


def test_s_offers_what_a_click_on_a_title_does(history_on: Callable[[Path], HistoryPage], database_path: Path) -> None:
    keep_all(database_path, (stored_run(run_row(number), measured=False) for number in (1, 2, 3)))
    page = history_on(database_path).refresh()
    page.key(Qt.Key.Key_S)
    menu = next(each for each in page.view.table.findChildren(QMenu) if each.isVisible())
    titles = [entry.text() for entry in menu.actions()]
    assert titles == [title for n, title in enumerate(TITLES) if not page.view.table.isColumnHidden(n)]
    menu.actions()[1].trigger()
    page.wait_for("Run", "1", "2", "3")
    menu.close()
