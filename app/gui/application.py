"""The window's composition root: makes every part, connects them, and takes them apart again."""

import importlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication, QFileDialog

from app.errors import UserError
from app.gui.background import Background
from app.gui.bridge import Bridge
from app.gui.controllers.experiments import Experiments
from app.gui.controllers.monitor import MonitorController
from app.gui.controllers.own import OwnWorkloads
from app.gui.controllers.replay import ReplayController
from app.gui.controllers.run import BatchSearch, RunController, Session
from app.gui.garbage import GuiCollector
from app.gui.kept_choice import Keeping
from app.gui.main_window import MainWindow, Page
from app.gui.notice import Notice
from app.gui.questions import ask_for_another_database, ask_to_close
from app.gui.queueing import Queueing
from app.gui.standby_choice import StandbyChoice
from app.gui.stored_screens import StoredScreens
from app.gui.theme import Theme
from app.gui.views.monitor import MonitorView
from app.gui.views.run import RunView
from app.samples import HOST, DeviceLost, Inventory
from app.storage.space import room_for
from app.telemetry.feed import TelemetryFeed
from app.viewmodels.form import VariantForm
from app.viewmodels.tracks import machine_words
from workloads.protocol import RunSpec

if TYPE_CHECKING:
    from app.gui.sessions import Sessions
    from app.telemetry.recording import Recording

RUN, MONITOR, HISTORY, COMPARE = range(4)


def main(database: Path, *, sample_ms: float, replay: tuple[int | Path, float] | None = None) -> int:
    """Show the window on a database until it is closed; returns the exit status.

    `replay` is a stored run or a trace to play at once, and how fast.
    """
    application = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(application, QApplication), "nothing else makes a Qt application here"
    application.setApplicationName("VariantScope")
    theme = Theme(application)
    theme.start()
    collector = GuiCollector()
    chosen: Path | None = database
    status = 0
    while chosen is not None:
        workbench = Workbench(chosen, theme, sample_ms=sample_ms)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_, leave=workbench.leave: leave())
        workbench.window.painted.connect(collector.start)
        workbench.start()
        if replay is not None:
            workbench.play(*replay)
            replay = None
        status = application.exec()
        workbench.close()
        collector.stop()
        chosen = workbench.next_database
    return status


class Workbench(QObject):
    """One window on one database. `next_database` is another one the user chose instead."""

    def __init__(
        self, database: Path, theme: Theme, *, hidden_workloads: bool = False, sample_ms: float = 50.0
    ) -> None:
        super().__init__()
        self.database = database
        self.next_database: Path | None = None
        self.feed = TelemetryFeed(1000 / sample_ms)
        self.bridge = Bridge(self)
        self.reads = Background(self)
        self.sessions = Background(self)
        self._theme = theme
        run_view, self._monitor_view = RunView(theme), MonitorView(theme)
        form = VariantForm(hidden=hidden_workloads)
        self.run = RunController(run_view, form, self._session, self._search, self.sessions, self.bridge)
        self.own = OwnWorkloads(run_view.form, form, database, self.run.show_form)
        self.replay = ReplayController(run_view)
        self.experiments = Experiments(run_view, self.run, form, database, self.reads, self.feed.wait_inventory)
        self.monitor = MonitorController(self._monitor_view)
        self._runs: Sessions | None = None
        self.queue = Queueing(
            run_view, self.run, database, self.feed.wait_inventory, self._started, self.reads, self.sessions
        )
        self.stored = StoredScreens(
            theme,
            database,
            self.reads,
            lambda: self.window.show_page(HISTORY),
            lambda: self.window.show_page(COMPARE),
        )
        pages = (
            Page("Run", lambda: run_view),
            Page("Monitor", lambda: self._monitor_view),
            Page("History", self.stored.make_history),
            Page("Compare", self.stored.make_compare),
        )
        self.window = MainWindow(pages, theme)
        keeping = Keeping(database, self.reads, self.run.show_error)
        self._notice = Notice(self.window, keeping)
        self._standby = StandbyChoice(self.window.settings_menu, keeping, lambda: self._started().prepare())
        self.run_view = run_view

    def start(self) -> None:
        """Show the window; everything slow begins after its first paint."""
        window = self.window
        window.painted.connect(self._start_slow_parts)
        window.run_asked.connect(self._run)
        window.open_asked.connect(self._open_trace)
        self._monitor_view.trace_asked.connect(self._open_trace)
        self._monitor_view.no_gpu.reference_asked.connect(self.stored.show_reference)
        self.replay.changed.connect(window.show_chip)
        self.stored.replay_asked.connect(self.play)
        self.stored.again_asked.connect(self._fill_form)
        self.stored.build_asked.connect(lambda: window.show_page(RUN))
        self.stored.build_asked.connect(self.experiments.open_prepared)
        window.stop_asked.connect(self.run.stop)
        window.close_asked.connect(self._ask_to_close)
        window.page_shown.connect(self._page_shown)
        self.bridge.arrived.connect(self._handle)
        self.bridge.drained.connect(self._refresh)
        self.run.ended.connect(self._run_ended)
        self.experiments.asked.connect(lambda asked, preset: self.queue.controller().add(asked, preset))
        self.experiments.compare_asked.connect(self.stored.compare_experiment)
        self._connect_queue()
        self.experiments.start()
        self.run.start()
        self.own.start()
        window.show_page(RUN)
        window.show()

    def _connect_queue(self) -> None:
        news = self.queue.news
        news.changed.connect(self._queue_changed)
        news.run_made.connect(self.stored.refresh_history)
        news.entry_ended.connect(self._notice.tell_of)
        news.entry_left.connect(self._notice.forget)
        news.compare_asked.connect(self.stored.compare_experiment)
        news.open_asked.connect(self.stored.open_run)
        self.stored.imported.connect(self.queue.look)
        self.queue.start()

    def leave(self) -> None:
        """Close the window without asking; a run is stopped first, so its end is stored."""
        self.queue.end()
        if self.queue.goes_on:
            self.queue.news.changed.connect(self._close_window)
        elif self.run.running:
            self.run.ended.connect(self._close_window)
            self.run.stop()
        else:
            self._close_window()

    def play(self, recorded: int | Path, speed: float = 1.0) -> None:
        """Play a stored run or a trace on the Run screen; while a run goes on it is not played, and said why."""
        self.window.show_page(RUN)
        if self._goes_on:
            self.run.warn("A run is going on: replay another one when it has ended.")
            return
        self.reads.run(
            lambda: _read(self.database, recorded), lambda found: self.replay.play(found, speed), self.run.show_error
        )

    def close(self) -> None:
        """End the sampler and the worker threads."""
        if self.replay.playing:
            self.replay.stop()
        self.stored.close()
        self.own.close()
        self.experiments.close()
        self.feed.close()
        self.bridge.close()
        self.queue.end()
        self.sessions.close()
        if self._runs is not None:
            self._runs.close()
        self.reads.close()

    def _start_slow_parts(self) -> None:
        from app.analysis import intervals

        self.feed.subscribe(self.bridge.post)
        self.feed.start()
        self.reads.run(lambda: _prepare(self.database), lambda _: self._prepared(), self._offer_another_database)
        self.reads.run(self.stored.prepare, lambda _: None, self.run.show_error)
        self.sessions.run(self._wait_telemetry, lambda _: self._telemetry_known(), self._telemetry_failed)
        # Not when History or Compare is opened: that is when someone waits.
        self.sessions.run(intervals.prepare, lambda _: None, self.run.show_error)

    @property
    def _goes_on(self) -> bool:
        return self.run.running or self.queue.goes_on

    def _telemetry_known(self) -> None:
        self._started().prepare()
        self.queue.look()

    def _queue_changed(self, goes_on: bool) -> None:
        if not goes_on:
            self.bridge.flush()
            self._look_around()

    def _session(self, spec: RunSpec) -> Session:
        return self._started().one(spec)

    def _search(self, spec: RunSpec, limit: int) -> BatchSearch:
        return self._started().search(spec, limit)

    def _started(self) -> "Sessions":
        from app.gui.sessions import Sessions

        if self._runs is None:
            self._runs = Sessions(self.database, self.feed, self.bridge)
        return self._runs

    def _wait_telemetry(self) -> None:
        """Wait until it has begun, and import meanwhile what runs are made of."""
        importlib.import_module("app.gui.sessions")
        self.feed.wait_inventory()

    def _prepared(self) -> None:
        self._notice.start()
        self._standby.start()
        self.own.restore()
        self._look_for_room()

    def _look_for_room(self) -> None:
        self.reads.run(lambda: room_for(self.database).warning, self.run.warn, self.run.show_error)

    def _run(self) -> None:
        """Run what the form says, unless a replay covers it."""
        if not self.replay.playing:
            self.run.run()

    def _handle(self, event: object, run: int | None) -> None:
        self.run.handle(event, run)  # type: ignore[arg-type]
        self.monitor.handle(event)  # type: ignore[arg-type]
        self._notice.handle(event)
        self._standby.handle(event)
        if isinstance(event, Inventory):
            self.window.show_machine(machine_words(event), "good", event.no_gpu_reason or "Telemetry is running.")
        if isinstance(event, DeviceLost) and event.device == HOST:
            # The host itself stays: it is its sampler that has ended.
            self.window.show_machine("No telemetry", "bad", event.reason)

    def _refresh(self) -> None:
        self.run.refresh()
        self.monitor.refresh()
        self.queue.refresh()

    def _telemetry_failed(self, error: UserError) -> None:
        self.window.show_machine("No telemetry", "bad", str(error))
        self.run.show_error(error)

    def _fill_form(self, spec: RunSpec) -> None:
        """Put a variant into the form, to be run again."""
        self.window.show_page(RUN)
        self.run.fill(spec)

    def _open_trace(self) -> None:
        name, _ = QFileDialog.getOpenFileName(
            self.window, "Replay a trace", str(Path.cwd()), "Traces (*.jsonl *.json);;All files (*)"
        )
        if name:
            self.play(Path(name))

    def _page_shown(self, index: int) -> None:
        """Bring a page up to date: other programs may have stored runs meanwhile."""
        self.monitor.refresh()
        if index == HISTORY:
            self.stored.refresh_history()
        elif index == COMPARE:
            self.stored.refresh_compare()

    def _run_ended(self) -> None:
        self._notice.tell()
        self._look_around()

    def _look_around(self) -> None:
        """Runs were stored and none goes on."""
        self._look_for_room()
        self._started().prepare()
        self.stored.refresh_history()

    def _close_window(self) -> None:
        self.window.allow_close()
        self.window.close()

    def _ask_to_close(self) -> None:
        if not self._goes_on:
            self._close_window()
            return
        follows = "What it has measured so far stays in the history as a stopped run."
        if self.queue.goes_on:
            follows += " The queue stays as it is, and the next start offers to go on with it."
        ask_to_close(self.window, self._theme, follows, self.leave)

    def _offer_another_database(self, error: UserError) -> None:
        ask_for_another_database(self.window, self._theme, error, self._turn_to)

    def _turn_to(self, database: Path | None) -> None:
        """Close, and begin again on this database if there is one."""
        self.next_database = database
        self._close_window()


def _prepare(database: Path) -> None:
    from app.runs.recovery import pause_unowned, recover
    from app.storage.retention import apply_setting
    from app.storage.store import Store

    with Store.open(database) as store:
        recover(store)
        pause_unowned(store)
    apply_setting(database)


def _read(database: Path, recorded: int | Path) -> "Recording":
    from app.storage.store import Store
    from app.telemetry.recording import RunRecording
    from app.telemetry.trace import read_trace

    if isinstance(recorded, Path):
        return read_trace(recorded)
    with Store.open(database) as store:
        return RunRecording(store.load(recorded))
