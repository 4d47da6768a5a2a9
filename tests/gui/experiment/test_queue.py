"""The queue in the whole window, with real runs of the dummy workload."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QFileDialog, QLabel
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.compare.screen import CompareView
from app.gui.experiment import queue_controller, stored
from app.gui.experiment.queue import QueueView
from app.gui.experiment.queue_controller import QueueSnapshot
from app.gui.theme import Theme
from app.gui.window import COMPARE, HISTORY, RUN
from app.queries import QueueEntry
from app.runs.experiment import idle_wait
from app.runs.experiment.queue import add_plan, entry_plan
from app.runs.experiment.queue_runner import QueueRunner
from app.runs.leases import CPU, Leases
from app.runs.standby import StandbyLauncher
from app.runs.undo import CancelledEntry, Reversal
from app.storage.files import FileFingerprint
from app.storage.store import Store
from app.values.environment_keys import IDLE_WAIT_KEY
from app.values.plan import Plan
from app.values.records import RunRow
from app.viewmodels.experiment.preview import interleaved_plan
from app.viewmodels.experiment.verdict_text import experiment_result
from app.viewmodels.run.fields import EXPERIMENT
from tests.fakes.nvml import Card, Driver, environment
from tests.fakes.sessions import kill_sampler
from tests.gui.texts import displayed_text
from tests.gui.windows import LIMIT_MS, choose, click_run, press, selected_line, wait_for_outcomes, window_on
from workloads.catalog import Machine, complete


@pytest.fixture(autouse=True)
def machine_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else this machine does, no run waits for it."""
    monkeypatch.setattr(idle_wait, "QUIET_PCT", 1000.0)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[QueueSnapshot | None]:
    """What each look at the queue finds, from now on; they follow each other quickly."""
    made: list[QueueSnapshot | None] = []
    seen = queue_controller._read_snapshot

    def recorded(database: Path, before: FileFingerprint | None) -> tuple[FileFingerprint, QueueSnapshot | None]:
        stamp, found = seen(database, before)
        made.append(found)
        return stamp, found

    monkeypatch.setattr(queue_controller, "_POLL_S", 0.05)
    monkeypatch.setattr(queue_controller, "_read_snapshot", recorded)
    return made


def plan(name: str, repeats: int = 1, **values: float | str) -> Plan:
    settings = {"gpus": 0, "steps": 20, "step_ms": 1.0, **values}
    variants = [complete("dummy", {**settings, "batch_size": batch}, Machine()) for batch in (8, 16)]
    return Plan(name=name, variants=tuple(variants), repeats=repeats)


def runs_of(workbench: Workbench) -> Sequence[RunRow]:
    with Store.open(workbench.database) as store:
        return store.list_runs()[::-1]


def outcomes_of(workbench: Workbench) -> list[str]:
    return [row.outcome.name for row in runs_of(workbench) if row.outcome is not None]


def entries_of(workbench: Workbench) -> Sequence[QueueEntry]:
    with Store.open(workbench.database) as store:
        return store.queue.entries()


def view_of(workbench: Workbench) -> QueueView:
    return workbench.run_view.queue_view()


def form_text(workbench: Workbench) -> str:
    labels = workbench.run_view.form.findChildren(QLabel)
    return " ".join(label.text() for label in labels if label.isVisible())


def rows_compared(workbench: Workbench) -> int:
    compare = workbench.window.findChild(CompareView)
    if not isinstance(compare, CompareView) or not compare.tabs.isVisible():
        return 0
    return compare.table.model().rowCount()


def test_an_experiment_runs_and_its_verdict_is_a_click_away(qtbot: QtBot, workbench: Workbench) -> None:
    queue = workbench.queue
    with qtbot.waitSignal(workbench.queue.entry_ended) as ended:
        queue.add(plan("two batches", repeats=2))
    view = view_of(workbench)
    title, text = ended.args
    assert "batch" in title
    assert text == "“two batches” is complete: 4 of 4 runs done."
    assert displayed_text(view.ended_banner).startswith(f"{title} {text}")
    result = workbench.run_view.live.result
    assert result is not None
    qtbot.waitUntil(lambda: displayed_text(result).count("2 runs") == 2)
    assert result.isVisible()
    assert displayed_text(result).startswith(title)
    assert view.isVisible()
    assert len(runs_of(workbench)) == 4
    assert entries_of(workbench) == ()
    qtbot.waitUntil(lambda: workbench.undo.undo_name == "")  # it cannot be taken away any more
    workbench.actions.compare([1, 2])
    workbench.actions.compare([4, 3, 2, 1])
    qtbot.waitUntil(view.ended_banner.isHidden)
    qtbot.waitUntil(lambda: rows_compared(workbench) == 2)
    workbench.window.show_page(RUN)
    assert not view.isVisible(), "what was seen is no news"
    choose(workbench, seconds=0.3)
    with qtbot.waitSignal(workbench.run.ended):
        QTest.mouseClick(workbench.run_view.form.run_button, Qt.MouseButton.LeftButton)
        assert not result.isVisible(), "this run is none of the experiment"
    assert "Completed" in displayed_text(workbench.run_view.live)
    with qtbot.waitSignal(workbench.queue.entry_ended):
        workbench.queue.add(plan("two others", step_ms=2.0))
        assert "Starting" in displayed_text(workbench.run_view.live), "at once, and not what ended before"


def test_the_button_promises_no_runs_of_an_entry_that_was_removed(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench)
    form = workbench.run_view.form
    form.edited.emit("batch_size", (8, 16, 32))
    form.run_button.click()
    qtbot.waitUntil(lambda: len(entries_of(workbench)) == 1)
    view = view_of(workbench)
    view.unfold()
    qtbot.waitUntil(lambda: view.count.text() == "1/9")
    QTest.keyClick(workbench.window, Qt.Key.Key_Period, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: not workbench.queue.running)
    qtbot.waitUntil(lambda: "Paused" in displayed_text(view))
    assert [entry.state for entry in entries_of(workbench)] == ["paused"]
    qtbot.waitUntil(lambda: "1 of 9 already stored" in form_text(workbench))
    assert form.run_button.text().startswith("&Run 8")
    result = workbench.run_view.live.result
    assert result is not None
    assert "waiting" in result.plot.accessibleName(), "the second run may have begun, the third has not"
    view.remove.click()
    qtbot.waitUntil(lambda: not result.isVisible() or "waiting" not in result.plot.accessibleName())
    qtbot.waitUntil(lambda: form.run_button.text().startswith("&Run 9"))
    assert "already stored" not in form_text(workbench)


def test_some_variants_can_be_repeated_alone_and_all_made_anew_when_the_machine_is_quiet(
    qtbot: QtBot, workbench: Workbench
) -> None:
    with qtbot.waitSignal(workbench.queue.entry_ended):
        workbench.queue.add(plan("two batches", repeats=1))
    live = workbench.run_view.live
    qtbot.waitUntil(lambda: live.result is not None and live.result.more_button.isVisible())
    rows = runs_of(workbench)
    view, result = live.result, experiment_result([row.spec for row in rows], rows, {1: ""})
    assert view is not None
    assert result is not None
    live.show_result(replace(result, verdict=replace(result.verdict, more_repeats=4, repeated=(rows[0].spec,))))
    view.offer_more(offered=True)
    assert view.more_button.text() == "Run 4 more of th&ese 1"
    view.more_button.click()
    qtbot.waitUntil(lambda: len(entries_of(workbench)) == 1)
    repeated = entry_plan(entries_of(workbench)[0])
    assert [spec.variant["batch_size"] for spec in repeated.variants] == [rows[0].spec.variant["batch_size"]]
    assert repeated.repeats == 5, "those that were made count"
    workbench.queue.stop()
    qtbot.waitUntil(lambda: not workbench.queue.running)
    for disturbance in ("", "Others used the CPU."):
        live.show_result(replace(result, disturbance=disturbance))
        view.offer_more(offered=True)
        assert view.quiet_button.isVisible() is bool(disturbance)
    offers = [view.quiet_button, view.more_button]
    for offer in offers:
        offer.show()
    assert view.minimumSizeHint().width() < sum(offer.sizeHint().width() for offer in offers), "below each other"
    view.quiet_button.click()
    qtbot.waitUntil(lambda: len(entries_of(workbench)) == 2)
    again = entry_plan(entries_of(workbench)[-1])
    assert (again.again, again.max_idle_wait_s, again.variants) == (True, 600.0, plan("two batches").variants)
    workbench.queue.stop()
    qtbot.waitUntil(lambda: not workbench.queue.running)


def test_an_experiment_goes_on_when_the_sampler_is_killed(qtbot: QtBot, workbench: Workbench) -> None:
    queue = workbench.queue
    with qtbot.waitSignal(queue.entry_ended) as ended:
        with qtbot.waitSignal(queue.run_stored):
            queue.add(plan("two batches", repeats=2))
        kill_sampler(workbench.feed)
    assert "4 of 4 runs done" in ended.args[1]
    assert outcomes_of(workbench) == ["completed"] * 4


def test_what_another_screen_wants_measured_is_shown_and_runs(qtbot: QtBot, workbench: Workbench) -> None:
    variants = plan("two batches").variants
    workbench.window.show_page(COMPARE)
    assert not workbench.run_view.isVisible()
    with qtbot.waitSignal(workbench.queue.entry_ended):
        workbench.actions.run_plan(interleaved_plan(variants, 1))
        assert workbench.run_view.isVisible()
    made = [row.spec for row in runs_of(workbench)]
    assert sorted(made, key=variants.index) == list(variants), "in the order of its seed"


def test_from_the_form_to_the_verdict(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench, seconds=0.3)
    form = workbench.run_view.form
    for name, text in (("batch_size", "8, 65536"), (f"{EXPERIMENT}repeats", "2")):
        QTest.keyClicks(selected_line(form, name), text)
    with qtbot.waitSignal(workbench.queue.entry_ended) as ended:
        click_run(form)
    assert workbench.run_view.live.isVisible()
    sizes = [row.spec.variant["batch_size"] for row in runs_of(workbench)]
    assert [sorted(sizes[:2]), sorted(sizes[2:])] == [[8, 65536]] * 2, "each once a round"
    verdict, ending = ended.args
    assert ending.endswith("4 of 4 runs done.")
    assert verdict.startswith("Batch size 65536 ")
    view_of(workbench).ended_banner.buttons["show"].click()
    qtbot.waitUntil(lambda: rows_compared(workbench) == 2)
    (compare,) = workbench.window.findChildren(CompareView)
    shown = [label.text() for label in compare.findChildren(QLabel) if label.isVisible()]
    assert verdict in shown


def entry_texts(view: QueueView) -> list[str]:
    """The entries in their order with their states."""
    model = view.table.model()
    return [f"{model.index(row, 0).data()}: {model.index(row, 3).data()}" for row in range(model.rowCount())]


def test_experiments_are_added_reordered_paused_resumed_and_cancelled_while_runs_go_on(
    qtbot: QtBot, workbench: Workbench
) -> None:
    queue, view = workbench.queue, view_of(workbench)
    queue.add(plan("long", seconds=600.0, steps=0))
    qtbot.waitUntil(lambda: "Measuring" in displayed_text(workbench.run_view.live))
    queue.add(plan("second"))
    queue.add(plan("third", step_ms=2.0))
    QTest.keyClick(workbench.window, Qt.Key.Key_J, Qt.KeyboardModifier.ControlModifier)
    assert view.table.hasFocus()
    qtbot.waitUntil(lambda: len(entries_of(workbench)) == 3)
    qtbot.waitUntil(lambda: entry_texts(view) == ["long: running", "second: waiting", "third: waiting"])
    assert "0/2" in displayed_text(view)
    assert "dummy TensorFlow train" in displayed_text(view)
    view.table.choose(3)
    QTest.keyClick(view.table, Qt.Key.Key_Up, Qt.KeyboardModifier.AltModifier)
    qtbot.waitUntil(lambda: entry_texts(view) == ["long: running", "third: waiting", "second: waiting"])
    workbench.undo.undo()
    qtbot.waitUntil(lambda: entry_texts(view)[1] == "second: waiting")
    assert workbench.undo.redo_name == "Redo: move “third”"
    workbench.undo.redo()
    qtbot.waitUntil(lambda: entry_texts(view)[1] == "third: waiting")
    view.table.choose(2)
    view.remove.click()
    qtbot.waitUntil(lambda: entry_texts(view) == ["long: running", "third: waiting"])
    QTest.keyClick(workbench.window, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: entry_texts(view)[1:] == ["third: waiting", "second: waiting"])
    view.table.choose(3)
    QTest.keyClick(view.table, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: entry_texts(view)[1] == "third: paused")
    view.table.choose(1)
    assert view.remove.text() == "Cancel"
    view.remove.click()
    qtbot.waitUntil(lambda: not queue.running)
    qtbot.waitUntil(lambda: entry_texts(view) == ["third: paused", "second: complete"])
    assert view.pause_all.text() == "Resume all"
    view.table.choose(3)
    view.pause.click()
    qtbot.waitUntil(lambda: entries_of(workbench) == ())
    assert outcomes_of(workbench) == ["stopped", *["completed"] * 4]


def test_a_closed_window_offers_what_is_left_and_runs_nothing_twice(
    qtbot: QtBot, theme: Theme, database_path: Path
) -> None:
    with window_on(qtbot, database_path, theme) as first:
        first.queue.add(plan("four runs", repeats=2, steps=0, seconds=1.0))
        qtbot.waitUntil(lambda: "2/4" in displayed_text(view_of(first)))
        first.window.close()
        press(first, "Stop and close")
        qtbot.waitUntil(lambda: not first.window.isVisible())
        made = outcomes_of(first).count("completed")

    with window_on(qtbot, database_path, theme) as again:
        view = view_of(again)
        qtbot.waitUntil(view.offer_banner.isVisible)
        assert displayed_text(view.offer_banner) == f"“four runs” is unfinished: {made} of 4 runs done."
        assert not again.queue.running
        with qtbot.waitSignal(again.queue.entry_ended):
            view.offer_banner.buttons["go on"].click()
        assert not view.offer_banner.isVisible()
        outcomes = outcomes_of(again)
        assert outcomes.count("completed") == 4
        assert outcomes.count("stopped") == len(outcomes) - 4 <= 1, "the run that went on, if one had begun"


def test_what_is_asked_for_before_the_window_has_looked_into_the_queue_begins_all_the_same(
    qtbot: QtBot, workbench: Workbench
) -> None:
    runs_held, queue, looked = threading.Event(), workbench.queue, list[None]()
    workbench.sessions.run(runs_held.wait, lambda _: None, lambda _: None)
    queue.add(plan("early"))
    workbench.queue.check_entries()
    workbench.reads.run(lambda: None, looked.append, lambda _: None)
    qtbot.waitUntil(lambda: len(looked) == 1)
    workbench.reads.run(lambda: None, looked.append, lambda _: None)
    qtbot.waitUntil(lambda: len(looked) == 2)  # what was made of what it found is done too
    states = [entry.state for entry in entries_of(workbench)]
    runs_held.set()
    assert states == ["waiting"]
    with qtbot.waitSignal(workbench.queue.entry_ended):
        pass
    assert outcomes_of(workbench) == ["completed"] * 2


def test_what_a_crashed_window_left_does_not_begin_with_what_is_asked_for_at_once(
    qtbot: QtBot, theme: Theme, database_path: Path
) -> None:
    with Store.open(database_path) as store:
        add_plan(store, plan("left over", step_ms=2.0))
    with window_on(qtbot, database_path, theme, lambda made: made.queue.add(plan("early"))) as opened:
        wait_for_outcomes(qtbot, opened, ["completed"] * 2)
        assert ("left over", "paused") in [(entry.name, entry.state) for entry in entries_of(opened)]


def test_an_offer_can_be_left_for_later_and_removed(qtbot: QtBot, workbench: Workbench) -> None:
    with Store.open(workbench.database) as store:
        add_plan(store, plan("left over"))
    queue, view = workbench.queue, view_of(workbench)
    queue.check_entries()
    qtbot.waitUntil(view.offer_banner.isVisible)
    view.offer_banner.buttons["not now"].click()
    assert "Paused" in displayed_text(view)
    assert [entry.state for entry in entries_of(workbench)] == ["paused"]
    queue.check_entries()
    qtbot.waitUntil(view.offer_banner.isVisible)
    view.offer_banner.buttons["remove"].click()
    qtbot.waitUntil(lambda: not view.isVisible())
    assert entries_of(workbench) == ()
    assert runs_of(workbench) == []


def test_while_a_run_goes_on_the_form_adds_to_the_queue_which_begins_after_it(
    qtbot: QtBot, workbench: Workbench
) -> None:
    choose(workbench, seconds=0.5)
    workbench.run.run()
    assert workbench.run.running
    workbench.run.run()
    qtbot.waitUntil(lambda: len(entries_of(workbench)) == 1)
    queue = workbench.queue
    with qtbot.waitSignal(workbench.queue.entry_ended):
        pass
    first, second = runs_of(workbench)
    assert first.spec == second.spec
    assert first.ended_utc_ns is not None
    assert second.started_utc_ns > first.ended_utc_ns
    qtbot.waitUntil(lambda: not queue.running)
    assert view_of(workbench).ended_banner.buttons["show"].text() == "Show the run"


def test_what_waits_for_a_single_run_is_said_to_wait_until_it_is_paused(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench, seconds=600.0)
    workbench.run.run()
    workbench.run.run()
    qtbot.waitUntil(lambda: len(entries_of(workbench)) == 1)
    view = view_of(workbench)
    qtbot.waitUntil(lambda: "Waiting for the current run to end" in displayed_text(view))
    assert view.pause_all.text() == "Pause all"
    view.pause_all.click()
    qtbot.waitUntil(lambda: "Paused" in displayed_text(view))
    assert view.pause_all.text() == "Resume all"
    workbench.run.stop()
    qtbot.waitUntil(lambda: not workbench.run.running)
    assert not workbench.queue.running


def test_resuming_the_queue_is_no_longer_to_be_undone_when_it_has_ended(qtbot: QtBot, workbench: Workbench) -> None:
    def again() -> Reversal:
        return again

    queue, undo = workbench.queue, workbench.undo
    CancelledEntry(workbench.database, plan("resumed"))()  # paused at once: the window begins what waits
    offered: list[str] = []
    undo.changed.connect(lambda: offered.append(undo.undo_name))
    queue.pause_or_resume(None, "go on")
    # On a slow machine the runner may have begun by the next look, and then nothing is offered any more.
    qtbot.waitUntil(lambda: "Undo: resume the queue" in offered)
    undo.push("tag run 1", again)
    with qtbot.waitSignal(queue.running_changed, check_params_cb=lambda running: not running):
        pass
    undo.undo()
    qtbot.waitUntil(lambda: undo.redo_name == "Redo: tag run 1" and not undo.undo_name)
    undo.redo()
    queue.add(plan("added", repeats=2))
    with qtbot.waitSignal(queue.running_changed, check_params_cb=lambda running: not running):
        pass
    qtbot.waitUntil(lambda: undo.undo_name == "Undo: tag run 1")


def test_a_mistake_of_the_program_s_own_ends_what_goes_on_and_is_told(
    qtbot: QtBot, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(StandbyLauncher, "launch", fail)
    queue, view = workbench.queue, view_of(workbench)
    with qtbot.capture_exceptions() as raised:
        queue.add(plan("meets it"))
        qtbot.waitUntil(lambda: "Paused" in displayed_text(view))
        assert not queue.running
        assert "a bug in VariantScope (ZeroDivisionError: a bug)" in form_text(workbench)
        choose(workbench)
        workbench.run.run()
        qtbot.waitUntil(lambda: not workbench.run.running)
        assert "a bug in VariantScope (ZeroDivisionError: a bug)" in form_text(workbench)
    assert [kind for kind, *_ in raised] == [ZeroDivisionError] * 2
    assert [entry.state for entry in entries_of(workbench)] == ["paused"]
    assert outcomes_of(workbench) == ["failed"] * 2
    workbench.window.close()
    assert not workbench.window.isVisible()


def test_all_are_cancelled_after_a_question(qtbot: QtBot, workbench: Workbench) -> None:
    queue, view = workbench.queue, view_of(workbench)
    for name, seconds in (("long", 600.0), ("longer", 601.0)):
        queue.add(plan(name, seconds=seconds, steps=0))
    view.unfold()
    qtbot.waitUntil(lambda: entry_texts(view) == ["long: running", "longer: waiting"])
    view.cancel_all.click()
    press(workbench, "Cancel all")
    qtbot.waitUntil(lambda: not queue.running)
    qtbot.waitUntil(lambda: not view.isVisible())
    assert entries_of(workbench) == ()
    names = {workbench.undo.undo_name}
    workbench.undo.undo()
    qtbot.waitUntil(lambda: workbench.undo.redo_name != "")
    assert names | {workbench.undo.undo_name} == {"Undo: cancel “long”", "Undo: remove “longer” from the queue"}
    assert [entry.name for entry in entries_of(workbench)] in (["long"], ["longer"])


def test_a_slow_database_loses_no_undo_of_a_cancelled_entry(
    qtbot: QtBot, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, released, read, cancel = workbench.queue, threading.Event(), entry_plan, QueueRunner.cancel
    cancelled: list[int] = []

    def read_late(entry: QueueEntry) -> Plan:
        assert released.wait(LIMIT_MS / 1000)
        return read(entry)

    def note_cancel(self: QueueRunner, entry: int) -> None:
        cancelled.append(entry)
        cancel(self, entry)

    queue.add(plan("long", seconds=600.0, steps=0))
    view_of(workbench).unfold()
    qtbot.waitUntil(lambda: entry_texts(view_of(workbench)) == ["long: running"])
    monkeypatch.setattr(stored, "entry_plan", read_late)
    monkeypatch.setattr(QueueRunner, "cancel", note_cancel)
    queue.cancel_all()
    assert not cancelled, "stopped before what undoes it is read"
    released.set()
    qtbot.waitUntil(lambda: not queue.running)
    assert cancelled == [1]
    assert workbench.undo.undo_name == "Undo: cancel “long”"


@pytest.fixture
def hot(qtbot: QtBot, theme: Theme, database_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    """A window on a machine whose one GPU is too hot for a fair run, and stays so."""
    for name, value in environment(Driver(cards=(Card(uuid="GPU-hot", throttle_reasons=0x40),))).items():
        monkeypatch.setenv(name, value)
    with window_on(qtbot, database_path, theme) as made:
        yield made


def test_a_wait_for_a_fair_machine_is_shown_and_can_be_skipped(qtbot: QtBot, hot: Workbench) -> None:
    workbench = hot
    queue, view = workbench.queue, view_of(workbench)
    queue.add(plan("waits", gpus=1))
    qtbot.waitUntil(lambda: "GPU 0 throttled" in displayed_text(view))
    assert "Waiting: " in displayed_text(view)
    qtbot.waitUntil(lambda: "Starting the next run" in displayed_text(workbench.run_view.live))
    view.skip.click()
    qtbot.waitUntil(lambda: bool(runs_of(workbench)))
    qtbot.waitUntil(lambda: not view.skip.isVisible())
    with Store.open(workbench.database) as store:
        assert store.load(1).environment[IDLE_WAIT_KEY] == "skipped"
    queue.stop()
    qtbot.waitUntil(lambda: not queue.running)


def test_a_window_that_closes_after_a_single_run_begins_nothing_of_the_queue(
    qtbot: QtBot, theme: Theme, database_path: Path
) -> None:
    with window_on(qtbot, database_path, theme) as window:
        choose(window, seconds=600.0)
        window.run.run()
        window.queue.add(plan("later"))
        qtbot.waitUntil(lambda: "0/2" in displayed_text(view_of(window)))
        window.quit()
        qtbot.waitUntil(lambda: not window.window.isVisible())
        assert not window.queue.running
        assert [entry.name for entry in entries_of(window)] == ["later"]
        assert len(runs_of(window)) == 1


def test_what_another_version_queued_is_said_and_the_others_go_on(qtbot: QtBot, workbench: Workbench) -> None:
    with Store.open(workbench.database) as store:
        store.queue.add(name="newer", preset=None, plan='{"variants": []}')
    queue, view = workbench.queue, view_of(workbench)
    view.unfold()
    with qtbot.waitSignal(workbench.queue.entry_ended) as ended:
        queue.add(plan("known"))
    assert "“known” is complete" in ended.args[1]
    qtbot.waitUntil(lambda: entry_texts(view) == ["newer: paused", "known: complete"])
    assert "Entry 1 of the queue cannot be read by this version" in form_text(workbench)


def test_what_an_import_brings_is_offered_and_nothing_begins(
    qtbot: QtBot, workbench: Workbench, tmp_path: Path
) -> None:
    with Store.open(tmp_path / "elsewhere.db") as store:
        add_plan(store, plan("begun elsewhere"))
    workbench.window.show_page(HISTORY)
    history = workbench.stored.history
    assert history is not None
    history.transfer.import_runs()
    (dialog,) = workbench.window.findChildren(QFileDialog)
    dialog.fileSelected.emit(str(tmp_path / "elsewhere.db"))
    dialog.close()
    qtbot.waitUntil(lambda: bool(displayed_text(view_of(workbench).offer_banner)))
    assert displayed_text(view_of(workbench).offer_banner) == "“begun elsewhere” is unfinished: 0 of 2 runs done."
    assert not workbench.queue.running


def test_what_another_program_adds_pauses_or_takes_out_is_seen_at_rest_and_nothing_begins(
    qtbot: QtBot, workbench: Workbench, looks: list[QueueSnapshot | None]
) -> None:
    view = view_of(workbench)
    qtbot.waitUntil(lambda: looks[-5:] == [None] * 5)  # where nothing was written; what it finds before, it pauses
    with Store.open(workbench.database) as other:
        entry = add_plan(other, plan("from a terminal"))
        qtbot.waitUntil(view.offer_banner.isVisible)
        assert displayed_text(view.offer_banner) == "“from a terminal” is unfinished: 0 of 2 runs done."
        assert [each.state for each in other.queue.entries()] == ["waiting"], "it is the terminal's to go on with it"
        qtbot.waitUntil(lambda: looks[-5:] == [None] * 5)
        view.offer_banner.buttons["not now"].click()
        view.unfold()
        qtbot.waitUntil(lambda: entry_texts(view) == ["from a terminal: paused"])
        other.queue.set_state(entry, "waiting")
        qtbot.waitUntil(lambda: entry_texts(view) == ["from a terminal: waiting"])
        assert not view.offer_banner.isVisible(), "what was answered is not asked again"
        choose(workbench, seconds=0.1)
        with qtbot.waitSignal(workbench.run.ended):
            workbench.run.run()
        assert not workbench.queue.running, "only what this window was asked for follows a run of its own"
        other.queue.remove(entry)
        qtbot.waitUntil(lambda: not view.isVisible())
    assert len(runs_of(workbench)) == 1


def test_a_run_whose_device_others_use_can_begin_all_the_same(qtbot: QtBot, workbench: Workbench) -> None:
    live, held = workbench.run_view.live, Leases().take([CPU], 1)
    assert held is not None
    choose(workbench, seconds=0.3)
    with qtbot.waitSignal(workbench.run.ended):
        workbench.run.run()
        qtbot.waitUntil(live.anyway_button.isVisible)
        live.anyway_button.click()
    qtbot.waitUntil(live.anyway_button.isHidden)
    workbench.queue.add(plan("two batches"))
    view = view_of(workbench)
    for _ in range(2):
        qtbot.waitUntil(view.skip.isVisible)
        view.skip.click()
        qtbot.waitUntil(view.skip.isHidden)
    wait_for_outcomes(qtbot, workbench, ["completed"] * 3)
    held.release()
