"""A tour of every screen and dialog of a window that shows reference runs and fake GPUs, for what holds on all."""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QDialog, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.history.annotations import NoteDialog, TagDialog
from app.gui.history.run_list import RunMenu
from app.gui.history.screen import HistoryView
from app.gui.theme import Theme
from app.gui.window import HISTORY, MONITOR, RUN
from app.hosts.book import HostEntry, add_host
from app.runs.experiment.queue import add_plan
from app.storage.store import Store
from app.values.plan import Plan
from app.viewmodels.history.labels import Annotations
from tests.fakes.nvml import TWO_H200, Driver, environment
from tests.gui.windows import window_on
from tests.pictures import (
    click,
    compare,
    explain_layouts,
    lstm_layers,
    open_run,
    settle,
    show_evidence,
    show_history,
    show_pivot,
    wait_until,
)
from workloads.catalog import Machine, complete

_NOTED = Annotations(runs=(1, 2), tags={"night": True, "baseline": None}, note="")


@contextmanager
def toured(
    qtbot: QtBot, folder: Path, theme: Theme, monkeypatch: pytest.MonkeyPatch, reference: Path
) -> Iterator[Workbench]:
    """Open a window with reference runs, two fake GPUs, a host that is not connected, and a queue that waits."""
    for name, value in environment(Driver(cards=TWO_H200)).items():
        monkeypatch.setenv(name, value)
    database = folder / "profiles.db"
    shutil.copyfile(reference, database)
    variants = tuple(complete("dummy", {"gpus": 0, "batch_size": batch}, Machine()) for batch in (8, 16))
    with Store.open(database) as store:
        for name in ("tonight", "tomorrow"):
            add_plan(store, Plan(name=name, variants=variants, repeats=2))
    add_host(HostEntry(name="gpu1", address="ssh://me@gpu1"))
    with window_on(qtbot, database, theme) as workbench:
        wait_until(lambda: workbench.run_view.queue is not None and workbench.run_view.queue.offer_banner.isVisible())
        yield workbench


def _page(workbench: Workbench, page: int) -> None:
    workbench.window.show_page(page)
    settle(workbench)


def _queue(workbench: Workbench) -> None:
    queue = workbench.run_view.queue_view()
    queue.unfold()
    wait_until(queue.table.isVisible)


def _experiment(workbench: Workbench) -> None:
    """Give the form several values."""
    _page(workbench, RUN)
    form = workbench.run_view.form
    form.edited.emit("layout", ("NCHW", "NHWC"))
    form.typed.emit("batch_size", "8..32 x2")


def _questions(workbench: Workbench) -> None:
    for name in ("layout", "batch_size"):
        workbench.run_view.form.edited.emit(name, ())
    workbench.actions.open_questions()
    wait_until(lambda: _start_buttons(workbench))


def _start_buttons(workbench: Workbench) -> list[QPushButton]:
    buttons = workbench.run_view.gallery.findChildren(QPushButton)
    return [each for each in buttons if each.text() == "Start"]


def _largest_batch(workbench: Workbench) -> None:
    _page(workbench, RUN)
    click(workbench, "Find the largest batch …")


def _history(workbench: Workbench) -> HistoryView:
    workbench.window.make_page(HISTORY)
    (view,) = workbench.window.findChildren(HistoryView)
    workbench.window.show_page(HISTORY)
    view.show_list()
    wait_until(lambda: view.table.model().rowCount() > 0)
    return view


def _facets(workbench: Workbench) -> None:
    view = _history(workbench)
    if not view.overview.wants_facets:
        view.overview.bar.facets.click()
    wait_until(view.overview.facets.isVisible)


def _diff(workbench: Workbench) -> None:
    view = _history(workbench)
    (menu,) = view.findChildren(RunMenu)
    menu.diff_requested.emit([row.run for row in lstm_layers(workbench)[:2]])
    wait_until(view.diff.isVisible)


def _trash(workbench: Workbench) -> None:
    _history(workbench).ask_to_purge((1, 2), lambda: None)


def _tab(title: str) -> Callable[[Workbench], object]:
    return lambda workbench: compare(workbench, lstm_layers(workbench), title)


SCREENS: Mapping[str, Callable[[Workbench], object]] = {
    "run": lambda workbench: _page(workbench, RUN),
    "queue": _queue,
    "experiment": _experiment,
    "questions": _questions,
    "monitor": lambda workbench: _page(workbench, MONITOR),
    "history": show_history,
    "facets": _facets,
    "diff": _diff,
    "page of a run": open_run,
    "evidence": show_evidence,
    "curves": _tab("Curves"),
    "why": explain_layouts,
    "pivot": show_pivot,
    "answer": _tab("Answer"),
    "table": _tab("Table"),
    "charts": _tab("Charts"),
    "settings": lambda workbench: workbench.settings.open(),
    "keys": lambda workbench: workbench.shell.show_keys(),
    "palette": lambda workbench: workbench.shell.open_palette(),
    "hosts": lambda workbench: workbench.hosts.manage(),
    "tags": lambda workbench: TagDialog(_NOTED, _history(workbench)).open(),
    "note": lambda workbench: NoteDialog(_NOTED, _history(workbench)).open(),
    "question before deleting": _trash,
    "log": lambda workbench: workbench.run_view.show_log("A line."),
    "largest batch": _largest_batch,
}


def tour(workbench: Workbench) -> Iterator[tuple[str, QWidget]]:
    """Yield every screen and dialog by name, once it is shown; close what opened afterwards."""
    for name, show in SCREENS.items():
        show(workbench)
        settle(workbench)
        palette = workbench.shell.palette
        shown = [each for each in QApplication.topLevelWidgets() if isinstance(each, QDialog) and each.isVisible()]
        yield name, shown[0] if shown else palette if palette.isVisible() else workbench.window
        palette.close_palette()
        for dialog in shown:
            dialog.reject()
