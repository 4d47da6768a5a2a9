"""Somebody arranges every screen with mouse and keyboard, and finds all of it as it was at the next start."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLabel, QLineEdit, QSplitter, QTabBar, QTableView, QWidget

from app.gui.window import MainWindow
from tests.desktop.user import Story, active_window, click, click_tab, drag, fill, press, shown, until, write


def _listed() -> object:
    table = shown(QTableView, "Stored runs")
    return table and table.model().rowCount()


def _ready_to_run() -> object:
    """Return whether the form is there, and beside it the questions or the plots."""
    right = shown(QAbstractButton, "Live plots") or shown(QAbstractButton, "30 s")
    return right and shown(QLabel, "Runs use the CPU")


SEEN: dict[str, Callable[[], object]] = {
    "Run": _ready_to_run,
    "Monitor": lambda: shown(QAbstractButton, "10 min"),
    "History": _listed,
    "Compare": lambda: shown(QLabel, "Nothing to compare"),
}
"""The screens, and what is seen on each when it is there."""


def _named(window: MainWindow) -> Iterator[tuple[str, object]]:
    """Yield what is chosen, typed and moved on the screen in sight, with a name for each."""
    for widget in window.findChildren(QWidget):
        if not widget.isVisible():
            continue
        name = widget.accessibleName()
        if isinstance(widget, QAbstractButton) and widget.isCheckable():
            yield f"button {widget.text()} {name}", widget.isChecked()
        elif isinstance(widget, QComboBox):
            yield f"choice {name}", widget.currentText()
        elif isinstance(widget, QLineEdit) and not isinstance(widget.parent(), QComboBox):
            yield f"text {name}", widget.text()
        elif isinstance(widget, QSplitter):
            yield f"parts of {type(widget.parent()).__name__}", widget.sizes()
        elif isinstance(widget, QTableView) and name:
            header = widget.horizontalHeader()
            titles = [
                # Also of a column whose title has no room beside the rows that were in sight.
                str(widget.model().headerData(n, header.orientation(), Qt.ItemDataRole.AccessibleTextRole))
                for n in range(header.count())
                if not header.isSectionHidden(n)
            ]
            yield f"columns of {name}", titles  # the title of the one that is sorted by has an arrow
            # Others share what is left by what stands in them.
            yield f"width of the dragged column of {name}", header.sectionSize(0)


def _go_round(window: MainWindow) -> Story:
    """Print what is on every screen, and close the window on History."""
    tabs = yield from until(lambda: shown(QTabBar, "Screens"))
    found = {}
    for screen in (*SEEN, "History"):
        click_tab(tabs, screen)
        yield SEEN[screen]
        if plots := shown(QAbstractButton, "Live plots"):
            click(plots)
            yield lambda: shown(QAbstractButton, "30 s")
        found[screen] = dict(_named(window))
    print(json.dumps({"place": window.geometry().getRect(), **found}), flush=True)
    press("alt+F4")
    yield lambda: True


def arrange(_folder: Path) -> Story:
    """Change the form, ranges of time, a splitter, a column's width and the search; then go round."""
    window = yield from until(active_window)
    tabs = yield from until(lambda: shown(QTabBar, "Screens"))
    yield SEEN["Run"]
    batch = yield from until(lambda: shown(QLineEdit, "Batch size"))
    click((yield from until(lambda: shown(QAbstractButton, "Every setting"))))
    yield lambda: shown(QComboBox, "Memory growth")
    yield from fill(batch, "24")
    yield lambda: batch.text() == "24"
    click((yield from until(lambda: shown(QAbstractButton, "Live plots"))))
    click((yield from until(lambda: shown(QAbstractButton, "30 s"))))
    click_tab(tabs, "Monitor")
    click((yield from until(lambda: shown(QAbstractButton, "10 min"))))
    parts = yield from until(lambda: shown(QSplitter))
    sizes = parts.sizes()
    drag(parts, parts.handle(1).geometry().center(), QPoint(0, 60))
    yield lambda: parts.sizes() != sizes
    click_tab(tabs, "History")
    table = yield from until(lambda: shown(QTableView, "Stored runs"))
    yield _listed
    header = table.horizontalHeader()
    width = header.sectionSize(0)
    drag(header.viewport(), QPoint(header.sectionViewportPosition(0) + width - 1, header.height() // 2), QPoint(24, 0))
    yield lambda: header.sectionSize(0) != width
    press("ctrl+f")
    write("nchw")
    yield lambda: table.model().rowCount() in range(1, 300)
    yield from _go_round(window)


def look(_folder: Path) -> Story:
    """Go round a window that was just opened."""
    window = yield from until(active_window)
    tabs = yield from until(lambda: shown(QTabBar, "Screens"))
    yield lambda: tabs.tabText(tabs.currentIndex()) == "History"
    yield from _go_round(window)
