"""Take the documentation's pictures of the window: `python -m tests.pictures [--dark] [FOLDER [NAME …]]`.

They show the reference runs, so that they come out alike on every machine, and Qt paints them without a display. The
folder is docs/images unless given.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEventLoop, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton

from app.gui.app import Workbench
from app.gui.compare.screen import CompareView
from app.gui.history.screen import HistoryView
from app.gui.theme import Theme
from app.gui.window import COMPARE, HISTORY
from app.queries import RunQuery
from app.records import RunRow
from app.storage.reference import add_reference
from app.storage.store import Store

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
_LIMIT_S = 120.0
_QUIET_S = 0.5


def wait_until(condition: Callable[[], bool]) -> None:
    """Let Qt work until a condition holds, and until nothing more is painted."""
    limit_s = time.monotonic() + _LIMIT_S
    while not condition():
        if time.monotonic() > limit_s:
            raise TimeoutError(f"not reached within {_LIMIT_S:.0f} s: {condition}")
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 50)
    quiet_until_s = time.monotonic() + _QUIET_S
    while time.monotonic() < quiet_until_s:
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 50)


def reference_rows(workbench: Workbench) -> list[RunRow]:
    """Return the reference runs in their order."""
    with Store.open(workbench.database) as store:
        return store.library.run_rows(store.library.find(RunQuery(order="run", descending=False)))


def compare(workbench: Workbench, rows: list[RunRow], tab: str = "") -> None:
    """Compare runs, and open a tab."""
    painted: list[None] = []
    workbench.window.make_page(COMPARE)
    (view,) = workbench.window.findChildren(CompareView)
    view.painted.connect(lambda *_: painted.append(None))
    workbench.actions.compare([row.run for row in rows])
    wait_until(lambda: bool(painted))
    if tab:
        view.tabs.open_tab(tab)
        wait_until(lambda: True)


def is_variant(row: RunRow, workload: str, **settings: object) -> bool:
    """Return whether a run is of a workload and has these settings, any of several in a set."""
    values = {name: wanted if isinstance(wanted, set) else {wanted} for name, wanted in settings.items()}
    return row.spec.workload == workload and all(row.spec.variant[name] in wanted for name, wanted in values.items())


def lstm_layers(workbench: Workbench) -> list[RunRow]:
    """Return article B's runs of one layer in one direction."""
    wanted = {"standard", "cudnn", "cudnn_stack", "block_fused"}
    rows = [
        row
        for row in reference_rows(workbench)
        if is_variant(row, "lstm", implementation=wanted, layers=1, mode="train", xla=False, bidirectional=False)
        and is_variant(row, "lstm", units=512, precision="tf32", batch_size=64, gpus=1)
    ]
    return [row for row in rows if sum(other.spec == row.spec for other in rows) > 1]


def layouts(workbench: Workbench) -> list[RunRow]:
    """Return the 10-layer network's runs in both layouts, of which there are several of each."""
    return [
        row
        for row in reference_rows(workbench)
        if is_variant(row, "cnn10", batch_size=1024, gpus=1, precision="tf32", xla=False, implementation="native")
    ]


def take_history(workbench: Workbench) -> None:
    """Show the list of runs, in groups by experiment."""
    workbench.window.show_page(HISTORY)
    wait_until(lambda: bool(reference_rows(workbench)))
    QTest.keySequence(workbench.window, QKeySequence("Ctrl+G"))
    wait_until(lambda: True)


def take_run(workbench: Workbench) -> None:
    """Show the page of a run of cuDNN's LSTM."""
    run = next(row.run for row in lstm_layers(workbench) if row.spec.variant["implementation"] == "cudnn")
    workbench.actions.open_run(run)
    (view,) = workbench.window.findChildren(HistoryView)
    wait_until(lambda: view.shows_run)


def take_evidence(workbench: Workbench) -> None:
    """Show what ran in it."""
    take_run(workbench)
    buttons = workbench.window.findChildren(QPushButton)
    (button,) = [each for each in buttons if "vidence" in each.text() and each.isVisible()]
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    wait_until(lambda: True)


PICTURES: Mapping[str, Callable[[Workbench], None]] = {
    "compare": lambda workbench: compare(workbench, lstm_layers(workbench)),
    "why": lambda workbench: compare(workbench, layouts(workbench), "Why"),
    "history": take_history,
    "h200-run": take_run,
    "h200-evidence": take_evidence,
}


def main(words: list[str]) -> None:
    """Take the pictures that are named, else all."""
    folder, *names = [word for word in words if not word.startswith("--")] or [str(IMAGES)]
    application = QApplication(sys.argv[:1])
    theme = Theme(application)
    theme.start()
    theme.apply(Qt.ColorScheme.Dark if "--dark" in words else Qt.ColorScheme.Light)
    with tempfile.TemporaryDirectory() as made:
        database = Path(made) / "profiles.db"
        add_reference(database)
        workbench = Workbench(database, theme)
        workbench.window.resize(1280, 800)
        workbench.start()
        try:
            for name in names or PICTURES:
                PICTURES[name](workbench)
                workbench.window.grab().save(str(Path(folder) / f"{name}.png"))
        finally:
            workbench.window.close()
            workbench.close()


if __name__ == "__main__":
    main(sys.argv[1:])
