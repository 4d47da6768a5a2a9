"""Background work, jobs with progress, the bridge of events, and garbage collection, with real threads."""

import gc
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from PySide6.QtCore import QCoreApplication, QObject
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.errors import UserError
from app.gui.threads import Background, Bridge, BridgeSink, CancellableJob, GuiGarbageCollector, JobControl, close_jobs
from app.storage.database import read_only_error
from app.values.samples import LogLine, Waiting
from tests.gui.windows import LIMIT_MS
from tests.unit.viewmodels.events import GPU_INVENTORY, ns, samples, started
from workloads.catalog import UsageError


def fail_with(error: Exception) -> None:
    raise error


def unexpected(result: object) -> None:
    raise AssertionError(f"nobody waits for {result!r}")


def test_errors_of_a_database_name_no_command_in_the_window(
    qtbot: QtBot, background: Background, tmp_path: Path
) -> None:
    path, failures = tmp_path / "shared.db", list[UserError]()
    assert "`import`" in str(read_only_error(path))
    background.run(lambda: fail_with(read_only_error(path)), unexpected, failures.append)
    qtbot.waitUntil(lambda: bool(failures))
    assert [str(error) for error in failures] == [
        f"{path} is read-only; make it writable, or choose another file in Settings and drop this one on the window."
    ]


def test_work_is_done_elsewhere_and_its_result_comes_here(qtbot: QtBot, background: Background) -> None:
    seen: list[tuple[threading.Thread, threading.Thread]] = []
    background.run(
        threading.current_thread, lambda worker: seen.append((worker, threading.current_thread())), unexpected
    )
    qtbot.waitUntil(lambda: bool(seen))
    ((worker, here),) = seen
    assert here is threading.main_thread()
    assert worker is not here


@pytest.mark.parametrize("error", [UserError("The disk is full."), UsageError("There is no preset called 'x'.")])
def test_an_error_of_the_users_world_and_wrong_use_are_handed_over(
    qtbot: QtBot, background: Background, error: Exception
) -> None:
    errors: list[UserError] = []
    background.run(lambda: fail_with(error), unexpected, errors.append)
    qtbot.waitUntil(lambda: bool(errors))
    assert [(type(each), str(each)) for each in errors] == [(UserError, str(error))]


def test_a_bug_is_told_and_raised_on_the_gui_thread(qtbot: QtBot, background: Background) -> None:
    errors: list[UserError] = []
    with qtbot.capture_exceptions() as raised:
        background.run(lambda: fail_with(ZeroDivisionError("a bug")), unexpected, errors.append)
        qtbot.waitUntil(lambda: bool(raised))
    assert [kind for kind, *_ in raised] == [ZeroDivisionError]
    assert [str(error) for error in errors] == [
        "This is a bug in VariantScope (ZeroDivisionError: a bug); what is stored is kept. Please report it."
    ]


def test_nothing_is_delivered_after_closing(qtbot: QtBot) -> None:
    background, later = Background(), Background()
    background.run(lambda: 1, unexpected, unexpected)
    background.close()
    background.run(lambda: 1, unexpected, unexpected)
    seen: list[int] = []
    later.run(lambda: 2, seen.append, unexpected)
    qtbot.waitUntil(lambda: seen == [2])
    later.close()


def count_until_stopped(control: JobControl[int]) -> int:
    """Report 0, then wait; return 1 where it is not stopped."""
    control.report(0)
    if control.stop.wait(LIMIT_MS / 1000):
        raise UserError("Stopped.")
    return 1


def test_a_job_reports_on_the_gui_thread_before_it_ends(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    job, seen = CancellableJob(window), list[object]()

    def work(control: JobControl[str]) -> str:
        control.report("first")
        control.report("second")
        return "done"

    job.run(
        work, seen.append, unexpected, on_progress=lambda text: seen.append((text, threading.current_thread().name))
    )
    qtbot.waitUntil(lambda: seen[-1:] == ["done"])
    assert seen == [("first", "MainThread"), ("second", "MainThread"), "done"]
    close_jobs(window)


def test_a_stopped_job_ends_and_the_next_one_is_not_stopped(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    job, reports, errors, seen = CancellableJob(window), list[int](), list[UserError](), list[str]()
    job.run(count_until_stopped, unexpected, errors.append, on_progress=reports.append)
    qtbot.waitUntil(lambda: reports == [0])
    job.stop()
    job.run(lambda control: str(control.stop.is_set()), seen.append, unexpected)
    qtbot.waitUntil(lambda: seen == ["False"])
    assert [str(error) for error in errors] == ["Stopped."]
    close_jobs(window)


def test_jobs_end_with_their_window_and_deliver_nothing_more(qtbot: QtBot) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    first, second, reports = CancellableJob(window), CancellableJob(window), list[int]()
    first.run(count_until_stopped, unexpected, unexpected, on_progress=reports.append)
    second.run(count_until_stopped, unexpected, unexpected, on_progress=reports.append)
    qtbot.waitUntil(lambda: reports == [0, 0])
    close_jobs(window)
    QCoreApplication.processEvents()


def test_events_of_other_threads_arrive_in_order_on_the_gui_thread(qtbot: QtBot) -> None:
    bridge = Bridge()
    seen: list[tuple[object, bool]] = []
    bridge.arrived.connect(
        lambda event, _run: seen.append((event, threading.current_thread() is threading.main_thread()))
    )
    lines = [LogLine(n, str(n)) for n in range(5000)]

    def send() -> None:
        for line in lines:
            bridge.post(line)

    sender = threading.Thread(target=send)
    sender.start()
    qtbot.waitUntil(lambda: len(seen) == len(lines))
    sender.join()
    assert [event for event, _ in seen] == lines
    assert all(on_gui_thread for _, on_gui_thread in seen)
    bridge.close()


def test_the_timer_rests_when_nothing_arrives_and_wakes_again(qtbot: QtBot) -> None:
    bridge = Bridge()
    for round_ in range(3):
        with qtbot.waitSignal(bridge.drained):
            bridge.post(LogLine(round_, "line"))
        qtbot.waitUntil(lambda: not bridge._timer.isActive())


def test_what_arrives_after_a_rest_does_not_wait_for_the_timer(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.gui.threads._DRAIN_PERIOD_MS", 3_600_000)
    bridge = Bridge()
    with qtbot.waitSignal(bridge.drained):
        bridge.post(LogLine(0, "line"))
    bridge.close()


def test_a_run_sends_its_events_with_its_number_and_no_samples_twice(qtbot: QtBot) -> None:
    bridge = Bridge()
    seen: list[tuple[str, int | None]] = []
    bridge.arrived.connect(lambda event, run: seen.append((type(event).__name__, run)))
    sink = BridgeSink(bridge)
    sink.handle(Waiting(ns(0), "Another run uses this device."))
    sink.handle(started(GPU_INVENTORY))
    for sample in samples(0, 1):
        sink.handle(sample)
        bridge.post(sample)
    sink.handle(LogLine(ns(1), "end"))
    bridge.flush()
    assert [each for each in seen if each[0] != "Sample"] == [("Waiting", None), ("RunStarted", 7), ("LogLine", 7)]
    assert [run for name, run in seen if name == "Sample"] == [None] * 30
    bridge.close()


class Cycle(QObject):
    def __init__(self, deaths: list[int]) -> None:
        super().__init__()
        self.me = self
        self.deaths = deaths

    def __del__(self) -> None:
        self.deaths.append(threading.get_ident())


@pytest.fixture
def collector(qtbot: QtBot) -> Iterator[GuiGarbageCollector]:
    made = GuiGarbageCollector()
    made.start()
    yield made
    made.stop()


def allocate_much() -> None:
    lists = [[number] for number in range(200_000)]
    assert len(lists) == 200_000


def test_another_threads_allocations_collect_nothing_and_the_timer_does(
    qtbot: QtBot, collector: GuiGarbageCollector
) -> None:
    deaths: list[int] = []
    Cycle(deaths)
    other = threading.Thread(target=allocate_much)
    other.start()
    other.join()
    assert deaths == []
    qtbot.waitUntil(lambda: deaths == [threading.get_ident()])


def test_modules_imported_later_are_not_examined_again_either(
    collector: GuiGarbageCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("imported_later")
    collector.collect()
    assert any(each is module for each in gc.get_objects()), "no module is new"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    collector.collect()
    assert not any(each is module for each in gc.get_objects())


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc's allocator holds on to freed memory")
def test_memory_freed_between_used_memory_goes_back_to_the_system(collector: GuiGarbageCollector) -> None:
    blocks = [bytes([number % 250]) * 50_000 for number in range(2000)]
    used = blocks[::50]
    with_all = psutil.Process().memory_info().rss
    del blocks
    collector.collect()
    assert with_all - psutil.Process().memory_info().rss > 1000 * len(used[0])


def test_stopping_hands_collection_back(qtbot: QtBot) -> None:
    made = GuiGarbageCollector()
    made.start()
    assert not gc.isenabled()
    made.stop()
    assert gc.isenabled()
