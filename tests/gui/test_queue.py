"""The queue in the whole window, with real runs of the dummy workload."""

from collections.abc import Sequence

from pytestqt.qtbot import QtBot

from app.gui.application import Workbench
from app.gui.views.compare import CompareView
from app.gui.views.queue import QueueView
from app.queries import QueueEntry
from app.records import RunRow
from app.runs.queued import Asked
from app.runs.schedule import Plan
from app.storage.store import Store
from tests.gui.test_window import READ_LIMIT_MS, RUN_LIMIT_MS
from workloads.catalog import Machine, complete

GATE_S = 0.0


def asked(name: str, repeats: int = 1, **values: float | str) -> Asked:
    """An experiment of two variants that waits for nothing."""
    settings = {"gpus": 0, "steps": 20, "step_ms": 1.0, **values}
    variants = [complete("dummy", {**settings, "batch_size": batch}, Machine()) for batch in (8, 16)]
    return Asked.of(Plan(name=name, variants=tuple(variants), repeats=repeats), gate_s=GATE_S)


def runs_of(workbench: Workbench) -> Sequence[RunRow]:
    with Store.open(workbench.database) as store:
        return store.list_runs()[::-1]


def entries_of(workbench: Workbench) -> Sequence[QueueEntry]:
    with Store.open(workbench.database) as store:
        return store.queue.entries()


def view_of(workbench: Workbench) -> QueueView:
    return workbench.run_view.queue_view()


def rows_compared(workbench: Workbench) -> int:
    """How many variants Compare shows, its curves drawn."""
    compare = workbench.window.findChild(CompareView)
    if (
        not isinstance(compare, CompareView)
        or not compare.parts.curves.panels.shown
        or compare.parts.curves.panels.busy
    ):
        return 0
    return compare.table.model().rowCount()


def rest(qtbot: QtBot, workbench: Workbench) -> None:
    """Wait until all runs are made and what is left of the queue was read."""
    assert workbench.queue is not None
    queue = workbench.queue
    qtbot.waitUntil(lambda: not queue.goes_on and not any(e.owned for e in entries_of(workbench)), timeout=RUN_LIMIT_MS)


def test_an_experiment_runs_and_its_verdict_is_a_click_away(qtbot: QtBot, workbench: Workbench) -> None:
    queue = workbench._queue()
    with qtbot.waitSignal(queue.entry_ended, timeout=RUN_LIMIT_MS) as ended:
        queue.add(asked("two batches", repeats=2))
    view = view_of(workbench)
    assert "two batches" in ended.args[1]
    assert view.isVisible()
    assert "4 of 4 runs made" in view.ending.words
    assert len(runs_of(workbench)) == 4
    assert entries_of(workbench) == ()
    view.ending.button("show").click()
    qtbot.waitUntil(lambda: rows_compared(workbench) == 2, timeout=READ_LIMIT_MS)
