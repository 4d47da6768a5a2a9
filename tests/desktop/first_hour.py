"""The real window in somebody's first hour: `python -m tests.desktop.first_hour STORY DATABASE FOLDER`.

`first` runs a workload, brings in the reference runs, compares two of them, saves a report and resizes the window;
`again` finds it as it was. Each prints the window's place when it ends.
`arrange` and `look` are those of `tests.desktop.arranged`.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QFileDialog, QLabel, QLineEdit, QTabBar, QTableView

from app.__main__ import main
from app.gui.shell.palette import Palette
from app.gui.window import MainWindow
from app.storage.reference import reference_files
from tests.desktop.arranged import arrange, look
from tests.desktop.user import Story, User, active_window, click, click_row, click_tab, fill, press, shown, until, write

RUNS = 1 + sum(len(file.uids) for file in reference_files())
"""The run that is made, and those of the reference."""
SEARCH = "block-fused"


def _end(window: MainWindow) -> Story:
    frame = window.frameGeometry()
    assert frame != window.geometry(), "a window manager frames it"
    print(json.dumps({"place": window.geometry().getRect(), "title": window.windowTitle()}), flush=True)
    press("alt+F4")
    yield lambda: True


def has_completed() -> object:
    """Return whether the run has; nothing else is worth waiting for once it has ended otherwise."""
    ended = next((word for word in ("Refused", "Failed", "Crashed", "Out of memory") if shown(QLabel, word)), None)
    assert ended is None, f"the run ended: {ended}"
    return shown(QLabel, "Completed")


def first(folder: Path) -> Story:
    """Go from the first start to a report."""
    window = yield from until(active_window)
    yield lambda: shown(QLabel, "Where do you want to run?")  # the machine is known
    seconds = yield from until(lambda: shown(QLineEdit, "Measure for"))
    yield from fill(seconds, "1")
    yield lambda: seconds.text() == "1"
    click((yield from until(lambda: shown(QAbstractButton, "Run"))))
    yield has_completed
    press("ctrl+k")
    palette = yield from until(lambda: shown(Palette))
    write("reference")
    (found,) = palette.findChildren(QAbstractItemView)
    yield lambda: found.model().rowCount() == 1
    press("Return")
    tabs = yield from until(lambda: shown(QTabBar, "Screens"))
    click_tab(tabs, "History")
    yield lambda: shown(QLabel, f"{RUNS} runs")
    press("ctrl+f")
    write(SEARCH)
    table = yield from until(lambda: shown(QTableView, "Stored runs"))
    yield lambda: table.model().rowCount() in range(2, 40)
    for row in (0, 1):
        click_row(table, table.model().index(row, 1), "ctrl")
    click((yield from until(lambda: shown(QAbstractButton, "Compare 2 runs"))))
    click((yield from until(lambda: shown(QAbstractButton, "Save report"))))
    dialog = yield from until(lambda: shown(QFileDialog, "Save report"))
    write(str(folder / "report.html"))
    yield lambda: dialog.selectedFiles() == [str(folder / "report.html")]
    press("Tab", "alt+s")  # Return would take the proposal of its completer first
    yield lambda: (folder / "report.html").exists() and shown(QLabel, "report.html")
    subprocess.run(["xdotool", "getactivewindow", "windowsize", "--sync", "1100", "720"], check=True)
    yield lambda: window.width() == 1100
    yield from _end(window)


def again(_folder: Path) -> Story:
    """Look where the window is, and which screen it shows."""
    window = yield from until(active_window)
    yield lambda: shown(QAbstractButton, "Save report") or shown(QLabel, "Nothing to compare")
    yield from _end(window)


STORIES: dict[str, Callable[[Path], Story]] = {"first": first, "again": again, "arrange": arrange, "look": look}

if __name__ == "__main__":
    _story, _database, _folder = sys.argv[1:]
    _users: list[User] = []

    def _sit_down() -> None:
        folder = Path(_folder)
        _users.append(User(STORIES[_story](folder), str(folder / f"{_story}.png")))

    QTimer.singleShot(0, _sit_down)  # needs no application yet: it fires in the first event loop
    sys.exit(main(["--db", _database]))
