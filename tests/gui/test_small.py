"""Small screens and large text: nothing is cut at 1024 x 700; at 200 % of 1280 x 800 what does not fit scrolls."""

from collections.abc import Iterator

from PySide6.QtCore import QPoint, QRect, QSize
from PySide6.QtWidgets import QDialog, QLabel, QPushButton, QScrollArea, QStackedWidget, QWidget
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.widgets.basic import ElidedLabel
from app.gui.window import MainWindow
from tests.gui.windows import choose, click_run, wait_for_status
from tests.pictures import settle

SMALL, DOUBLED = (1024, 700), (640, 400)


def cut(shown: QWidget) -> Iterator[str]:
    """Yield the labels and buttons that have less room than their text, or lie where nothing scrolls to them."""
    for widget in shown.findChildren(QWidget):
        if widget.isVisible() and isinstance(widget, QLabel | QPushButton) and not isinstance(widget, ElidedLabel):
            wraps = isinstance(widget, QLabel) and widget.wordWrap()
            least = widget.minimumSizeHint()
            needed = widget.heightForWidth(widget.width()) if wraps else widget.sizeHint().height() - 1
            if widget.height() < needed or widget.width() < (least if wraps else widget.sizeHint()).width():
                yield f"“{widget.text()}” in {widget.width()} x {widget.height()}"
            elif not all(each.rect().contains(_area_in(widget, each)) for each in _around(widget, shown)):
                yield f"“{widget.text()}” outside"


def _around(widget: QWidget, shown: QWidget) -> Iterator[QWidget]:
    """Yield what a widget is in, up to what scrolls, which may be larger than its room."""
    around = widget.parentWidget()
    while around is not None:
        yield around
        above = around.parentWidget()
        if around is shown or (above is not None and isinstance(above.parentWidget(), QScrollArea)):
            return
        around = above


def _area_in(widget: QWidget, holder: QWidget) -> QRect:
    return QRect(widget.mapTo(holder, QPoint()), widget.size())


def scrolled(window: MainWindow, size: tuple[int, int]) -> Iterator[str]:
    """Yield the page in sight if it is larger than its room, in a doubled one if it has to be moved sideways."""
    (page,) = (each for each in window.findChildren(QStackedWidget) if each.parentWidget() is window.centralWidget())
    shown = page.currentWidget()
    assert isinstance(shown, QScrollArea)
    name = type(shown.widget()).__name__
    across, upright = shown.horizontalScrollBar().maximum(), shown.verticalScrollBar().maximum()
    if across or (upright and size == SMALL):
        yield name


def small_faults(workbench: Workbench, shown: QWidget) -> list[str]:
    """Return what is cut, or larger than its room, in small windows."""
    window, found = workbench.window, list[str]()
    for size in (SMALL, DOUBLED):
        window.resize(*size)
        if isinstance(shown, QDialog):
            shown.resize(shown.size().boundedTo(window.size()))
        settle(workbench)
        if window.size().toTuple() != size or not QRect(QPoint(), window.size()).contains(shown.rect()):
            found.append(f"{shown.rect()} in a window of {size}")
        found += [*cut(shown), *scrolled(window, size)]
    return found


def in_sight(workbench: Workbench, widget: QWidget) -> bool:
    """Return whether the page shows all of a widget's first 100 rows of pixels."""
    page = workbench.run_view.parentWidget()
    assert isinstance(page, QWidget)
    return page.rect().contains(QRect(widget.mapTo(page, QPoint()), QSize(widget.width(), 100)))


def test_a_narrow_window_has_the_form_above_the_plots_and_scrolls_to_what_begins(
    qtbot: QtBot, workbench: Workbench
) -> None:
    view = workbench.run_view
    workbench.window.resize(*DOUBLED)
    qtbot.waitUntil(lambda: view.form.width() == view.width())
    assert not in_sight(workbench, view.gallery)
    view.show_gallery()
    qtbot.waitUntil(lambda: in_sight(workbench, view.gallery))
    choose(workbench)
    click_run(view.form)
    qtbot.waitUntil(lambda: in_sight(workbench, view.live))
    qtbot.waitUntil(lambda: not workbench.run.running)
    workbench.window.resize(*SMALL)
    qtbot.waitUntil(lambda: view.live.mapTo(view, QPoint()).y() == 0)
    assert view.form.width() < view.live.width()
    choose(workbench, behaviour="fail")
    click_run(view.form)
    wait_for_status(qtbot, workbench, "Failed")
    workbench.window.resize(*DOUBLED)
    qtbot.waitUntil(lambda: view.form.width() == view.width())  # also where a run has little to show


def test_the_plots_of_a_run_that_was_stopped_fit_a_small_screen(qtbot: QtBot, workbench: Workbench) -> None:
    workbench.window.resize(*SMALL)
    live, form = workbench.run_view.live, workbench.run_view.form
    form.workload_chosen.emit("cnn10")
    for name, value in {"batch_size": 16, "seconds": 60.0}.items():
        form.edited.emit(name, (value,))
    click_run(form)
    wait_for_status(qtbot, workbench, "Measuring")
    click_run(form)
    wait_for_status(qtbot, workbench, "Stopped")
    room = live.stack.parentWidget()
    assert isinstance(room, QWidget)
    qtbot.waitUntil(lambda: len(live.stack.visible_plots) > 3 and live.badge.isVisible())
    qtbot.waitUntil(lambda: live.stack.height() == room.height())
