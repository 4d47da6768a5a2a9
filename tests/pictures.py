"""Take the documentation's pictures of the window: `python -m tests.pictures [--dark] [FOLDER [NAME …]]`.

Qt paints them without a display. Those in `PICTURES` show the reference runs and come out alike on every machine; those
in `LIVE` show a new user's database and runs of this machine's processor. The folder is docs/images unless given.
pngquant, where it is installed, makes the files small; the report needs Chromium.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.gui.texts import displayed_text

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PIL import Image
from PySide6.QtCore import QEvent, QEventLoop, QObject, Qt, QTimer
from PySide6.QtGui import QImage, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QPushButton

from app.gui.app import Workbench
from app.gui.compare.screen import CompareView
from app.gui.history.screen import HistoryView
from app.gui.monitor.screen import MonitorView
from app.gui.run.script import ScriptView
from app.gui.theme import Theme
from app.gui.window import COMPARE, HISTORY, MONITOR, RUN
from app.queries import RunQuery
from app.storage.reference import add_reference
from app.storage.store import Store
from app.values.plan import Plan
from app.values.records import RunRow
from tests.integration.test_scripts import SCRIPTS
from workloads.catalog import Machine, complete
from workloads.protocol import Value

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZE = 1280, 800
_LIMIT_S = 240.0
_WAKE_MS = 5
_SOON_MS = 500
"""A timer that waits longer is for somebody who looks, not for the picture."""


class Paints(QObject):
    count = 0

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        """Count, and let everything through."""
        self.count += event.type() == QEvent.Type.Paint
        return False


def wait_until(condition: Callable[[], object]) -> None:
    """Let Qt work until a condition holds, which is asked for after all events and at short intervals."""
    limit_s, wakes = time.monotonic() + _LIMIT_S, QTimer(interval=_WAKE_MS)
    wakes.start()  # without events Qt would wait for ever, and looking all the time takes a core from the reader
    while not condition():
        if time.monotonic() > limit_s:
            raise TimeoutError(f"not reached within {_LIMIT_S:.0f} s: {condition}")
        QApplication.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)
    wakes.stop()


def settle(workbench: Workbench) -> None:
    """Let Qt work until everything is read and drawn: until a read and all timers end without another paint."""
    application, paints, before = QApplication.instance(), Paints(), -1
    assert application
    application.installEventFilter(paints)
    while paints.count != before:
        before = paints.count
        _read_and_draw(workbench)
    application.removeEventFilter(paints)


def _read_and_draw(workbench: Workbench) -> None:
    ended: list[None] = []
    workbench.reads.run(lambda: None, ended.append, lambda _: None)
    wait_until(lambda: ended and not _is_drawing(workbench))
    QApplication.sendPostedEvents()  # a layout asks for that of what it is in


def _is_drawing(workbench: Workbench) -> bool:
    timers = [timer for timer in workbench.window.findChildren(QTimer) if timer.isActive() and timer.isSingleShot()]
    return any(timer.interval() < _SOON_MS for timer in timers)


def labels(workbench: Workbench) -> str:
    return "\n".join(label.text() for label in workbench.window.findChildren(QLabel) if label.isVisible())


def click(workbench: Workbench, text: str) -> None:
    buttons = [each for each in workbench.window.findChildren(QPushButton) if each.isVisible()]
    (button,) = [each for each in buttons if each.text().replace("&", "") == text]
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)


def reference_rows(workbench: Workbench) -> list[RunRow]:
    """Return the articles' reference runs in their order."""
    with Store.open(workbench.database) as store:
        others = {run for stored in store.library.experiments() if "frameworks" in stored.name for run in stored.runs}
        numbers = store.library.find(RunQuery(order="run", descending=False, tag="reference"))
        return store.library.run_rows([number for number in numbers if number not in others])


def is_variant(row: RunRow, workload: str, **settings: object) -> bool:
    """Return whether a run is of a workload and has these settings, any of several in a set."""
    values = {name: wanted if isinstance(wanted, set) else {wanted} for name, wanted in settings.items()}
    return row.spec.workload == workload and all(row.spec.variant[name] in wanted for name, wanted in values.items())


def lstm_layers(workbench: Workbench) -> list[RunRow]:
    """Return article B's runs of one layer in one direction."""
    wanted = {"standard", "cudnn", "cudnn_stack", "block_fused"}
    plain = {
        "layers": 1,
        "mode": "train",
        "xla": False,
        "bidirectional": False,
        "units": 512,
        "batch_size": 64,
        "gpus": 1,
    }
    settings = {**plain, "implementation": wanted, "precision": "tf32", "batch_size": 64}
    return repeated([row for row in reference_rows(workbench) if is_variant(row, "lstm", **settings)])


def repeated(rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the runs whose variant has several of them."""
    return [row for row in rows if sum(other.spec == row.spec for other in rows) > 1]


def cnn_runs(workbench: Workbench, **settings: object) -> list[RunRow]:
    """Return the 10-layer network's runs in both layouts."""
    wanted = {"precision": "tf32", "xla": False, "implementation": "native", **settings}
    return [row for row in reference_rows(workbench) if is_variant(row, "cnn10", **wanted)]


def compare(workbench: Workbench, rows: list[RunRow], tab: str = "Answer") -> CompareView:
    painted: list[None] = []
    workbench.window.make_page(COMPARE)
    (view,) = workbench.window.findChildren(CompareView)
    view.painted.connect(lambda *_: painted.append(None))
    view.tabs.open_tab("Answer")
    workbench.actions.compare([row.run for row in rows])
    wait_until(lambda: painted)
    view.tabs.open_tab(tab)
    settle(workbench)
    return view


def repeat_lstm(workbench: Workbench) -> list[QImage]:
    """Compare two LSTMs after two to six runs of each, as they were made: the interval becomes narrower."""
    runs = [row for row in lstm_layers(workbench) if row.spec.variant["implementation"] in {"standard", "cudnn"}]
    frames = []
    workbench.window.resize(SIZE[0], 600)
    for count in range(2, 7):
        compare(workbench, sorted(runs, key=lambda row: row.started_utc_ns)[: 2 * count])
        frames.append(workbench.window.grab().toImage())
    workbench.window.resize(*SIZE)
    return frames


def explain_layouts(workbench: Workbench) -> None:
    """Ask why NCHW is faster than NHWC."""
    compare(workbench, cnn_runs(workbench, batch_size=1024, gpus=1), "Why")


def show_pivot(workbench: Workbench) -> None:
    """Show what the layout does by batch size and GPUs, beside what article C says."""
    compare(workbench, cnn_runs(workbench), "Pivot")


def draw_scaling(workbench: Workbench) -> None:
    compare(workbench, cnn_runs(workbench), "Scaling")


def show_history(workbench: Workbench) -> None:
    """Show the list of runs, in groups by experiment."""
    workbench.window.show_page(HISTORY)
    settle(workbench)
    QTest.keySequence(workbench.window, QKeySequence("Ctrl+G"))
    settle(workbench)


def open_run(workbench: Workbench) -> None:
    run = next(row.run for row in lstm_layers(workbench) if row.spec.variant["implementation"] == "cudnn")
    workbench.actions.open_run(run)
    (view,) = workbench.window.findChildren(HistoryView)
    wait_until(lambda: view.shows_run)
    settle(workbench)


def show_evidence(workbench: Workbench) -> None:
    """Show what ran in it."""
    open_run(workbench)
    (view,) = workbench.window.findChildren(HistoryView)
    if not view.detail.evidence.isVisible():
        click(workbench, "Show evidence")
    settle(workbench)


def search_palette(workbench: Workbench) -> None:
    palette = workbench.shell.palette
    workbench.window.show_page(HISTORY)
    palette.close_palette()
    QTest.keySequence(workbench.window, QKeySequence("Ctrl+K"))
    QTest.keyClicks(palette.line, "reference")
    settle(workbench)


def save_report(workbench: Workbench) -> QImage:
    """Save the report of four LSTM layers and let Chromium draw its beginning."""
    view = compare(workbench, lstm_layers(workbench))
    with tempfile.TemporaryDirectory() as made:
        page, picture = Path(made) / "report.html", Path(made) / "report.png"
        view.report_requested.emit(page)
        wait_until(lambda: page.name in labels(workbench))
        words = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={made}")
        command = ["chromium", *words, "--window-size={},{}".format(*SIZE), f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)
        return QImage(str(picture))


def first_start(workbench: Workbench) -> None:
    workbench.window.show_page(RUN)
    wait_until(lambda: workbench.run_view.first_start and workbench.run_view.first_start.isVisible())
    settle(workbench)


def vary_script(workbench: Workbench) -> None:
    """Vary a training script's batch size and a switch of it."""
    first_start(workbench)
    workbench.open_script(SCRIPTS / "plain.py")
    view = workbench.window.findChildren(ScriptView)[0]
    command = view.lines["command"]
    command.setText("python plain.py --batch 32 --amp")
    for words in ("32", "--amp"):
        command.setSelection(command.text().index(words), len(words))
        view.parameter_button.click()
    view.values["batch"].setText("32, 64")
    view.lines["gpus"].setText("0")
    view.lines["folder"].setText(os.path.relpath(SCRIPTS))  # no path of this machine
    view.edited.emit()
    wait_until(lambda: view.run_button.text().startswith("Run 12"))
    settle(workbench)


def wait_idle(workbench: Workbench) -> None:
    wait_until(workbench.run_view.form.run_button.isEnabled)
    wait_until(lambda: not workbench.queue.running and not workbench.run.running)


def choose(workbench: Workbench, workload: str, **values: bool | float | str) -> None:
    """Set the form on the Run screen, without the cards of the first start."""
    wait_idle(workbench)
    workbench.window.show_page(RUN)
    workbench.run_view.show_live()
    workbench.run_view.form.workload_chosen.emit(workload)
    for name, value in {"gpus": 0, **values}.items():
        workbench.run_view.form.edited.emit(name, (value,))


def run_variant(workbench: Workbench) -> None:
    """Run an LSTM on the processor until three seconds are left."""
    choose(workbench, "lstm", seconds=20)
    click(workbench, "Run")
    wait_until(lambda: re.search(r"Measuring.*\n?.*0:0[0-3] left", labels(workbench)))


def watch_machine(workbench: Workbench) -> None:
    """Show the host while a run uses its processor."""
    run_variant(workbench)
    workbench.window.show_page(MONITOR)
    monitor = workbench.window.findChild(MonitorView)
    assert isinstance(monitor, MonitorView)
    wait_until(monitor.details.isVisible)
    wait_idle(workbench)


def build_experiment(workbench: Workbench) -> None:
    """Choose two implementations, XLA off and on, and three batch sizes."""
    choose(workbench, "lstm", seconds=2)
    form = workbench.run_view.form
    form.edited.emit("implementation", ("standard", "block_fused"))
    form.edited.emit("xla", (False, True))
    form.typed.emit("batch_size", "16..64 x2")
    settle(workbench)  # a new user is asked first where to run
    workbench.run_view.show_gallery()
    settle(workbench)


def show_questions(workbench: Workbench) -> None:
    """Show the prepared questions beside a form with one value each."""
    choose(workbench, "cnn10")
    settle(workbench)  # a new user is asked first where to run
    workbench.run_view.show_gallery()
    settle(workbench)


def plan(name: str, workload: str, repeats: int, values: Mapping[str, list[Value]]) -> Plan:
    """Return an experiment on the processor."""
    ((parameter, chosen),) = values.items()
    variants = tuple(complete(workload, {"gpus": 0, "seconds": 2.0, parameter: each}, Machine()) for each in chosen)
    return Plan(name=name, variants=variants, repeats=repeats)


def fill_queue(workbench: Workbench) -> None:
    """Show a queue in which one experiment is complete, one runs, and one waits."""
    choose(workbench, "lstm")
    workbench.queue.add(plan("Batch size", "lstm", 2, {"batch_size": [32, 64]}))
    workbench.queue.add(plan("Implementation", "lstm", 3, {"implementation": ["standard", "block_fused"]}))
    workbench.queue.add(plan("Layout", "cnn10", 3, {"layout": ["NHWC", "NCHW"]}))
    view = workbench.run_view.queue_view()
    view.unfold()
    wait_until(lambda: "Batch size" in displayed_text(view.ended_banner) and "Measuring" in labels(workbench))


def compare_with_reference(workbench: Workbench) -> None:
    """Compare a run of this processor with the same one of an H200."""
    wait_idle(workbench)
    add_reference(workbench.database)
    theirs = next(row for row in lstm_layers(workbench) if is_variant(row, "lstm", implementation="standard"))
    workbench.actions.run_again(theirs.run)
    settle(workbench)
    for name, value in {"gpus": 0, "precision": "float32", "seconds": 5}.items():
        workbench.run_view.form.edited.emit(name, (value,))
    click(workbench, "Run")
    wait_until(lambda: "Completed" in labels(workbench))
    with Store.open(workbench.database) as store:
        own = next(row for row in store.list_runs() if "reference" not in row.tags)
    compare(workbench, [own, theirs])


Take = Callable[[Workbench], object]
"""Brings the window into its state, or returns the picture; several are of one that moves."""
PICTURES: Mapping[str, Take] = {
    "compare": lambda workbench: compare(workbench, lstm_layers(workbench)),
    "answer": repeat_lstm,
    "why": explain_layouts,
    "history": show_history,
    "palette": search_palette,
    "run-page": open_run,
    "h200-evidence": show_evidence,
    "pivot": show_pivot,
    "pictures": draw_scaling,
    "report": save_report,
}
LIVE: Mapping[str, Take] = {
    "first-start": first_start,
    "run": run_variant,
    "monitor": watch_machine,
    "experiment": build_experiment,
    "questions": show_questions,
    "reference": compare_with_reference,
    "queue": fill_queue,
    "script": vary_script,
}


@contextmanager
def opened(theme: Theme, *, reference: bool) -> Iterator[Workbench]:
    """Open the window on a database of its own, of the reference runs or new."""
    with tempfile.TemporaryDirectory() as made:
        database = Path(made) / "profiles.db"
        if reference:
            add_reference(database)
        workbench = Workbench(database, theme)
        workbench.window.resize(*SIZE)
        workbench.start()
        wait_until(workbench.run_view.form.run_button.isEnabled)
        try:
            yield workbench
        finally:
            workbench.quit()
            wait_until(lambda: not workbench.window.isVisible())
            workbench.close()


def animate(pictures: Sequence[QImage], path: Path) -> None:
    """Write a moving picture (APNG) of 256 colours; the last one stays longest."""
    frames = []
    for picture in pictures:
        picture.save(str(path))
        frames.append(Image.open(path).convert("RGB").quantize(256, dither=Image.Dither.NONE))
    duration_ms = [*[1200] * (len(frames) - 1), 4000]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=duration_ms, loop=0, optimize=True)


def save(picture: QImage | Sequence[QImage], path: Path) -> None:
    """Write a picture of at most 256 colours, if that can be done here; of several one that moves."""
    if not isinstance(picture, QImage):
        animate(picture, path)
        return
    picture.save(str(path))
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--strip", "--speed", "1", "--output", path, path], check=True)


def main(words: list[str]) -> None:
    """Take the pictures that are named, else all."""
    folder, *names = [word for word in words if not word.startswith("--")] or [str(IMAGES)]
    Path(folder).mkdir(parents=True, exist_ok=True)
    application = QApplication(sys.argv[:1])
    application.setCursorFlashTime(0)
    theme = Theme(application)
    theme.start()
    theme.apply(Qt.ColorScheme.Dark if "--dark" in words else Qt.ColorScheme.Light)
    for table in (PICTURES, LIVE):
        wanted = [name for name in names or table if name in table]
        if "report" in wanted and not shutil.which("chromium"):
            wanted.remove("report")
            print("The report is left out: it needs chromium.", file=sys.stderr)
        if not wanted:
            continue
        with opened(theme, reference=table is PICTURES) as workbench:
            for name in wanted:
                taken = table[name](workbench)
                picture = taken if isinstance(taken, QImage | list) else workbench.window.grab().toImage()
                save(picture, Path(folder) / f"{name}.png")
                print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
