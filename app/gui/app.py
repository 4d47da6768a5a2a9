"""Composition root of the window: creates every part, connects them, and shuts them down."""

import importlib
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMessageLogContext, QObject, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtWidgets import QApplication, QMainWindow, QMessageBox

from app.errors import DatabaseError, DatabaseGoneError, DatabaseMissingError, DatabaseReplacedError, UserError
from app.gui.actions import Actions
from app.gui.diagnostics import Diagnostics
from app.gui.experiment.gallery_controller import GalleryController
from app.gui.experiment.queue_controller import QueueController
from app.gui.experiment.queue_sync import QueueSync
from app.gui.hosts.host_screens import HostScreens
from app.gui.quick_imports import import_plots
from app.gui.run.custom_workloads import CustomWorkloads
from app.gui.run.file_opener import FileOpener
from app.gui.run.first_start_controller import FirstStart
from app.gui.run.form_controller import FormController
from app.gui.run.replay_controller import ReplayController
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.settings.settings import Chosen, Settings, SettingsStore
from app.gui.shell.drops import DropLayer
from app.gui.shell.progress import ShownProgress, WorkProgress, queue_progress, run_progress
from app.gui.shell.shell import Shell
from app.gui.shell.undo import UndoStack
from app.gui.stored_screens import StoredScreens
from app.gui.theme import Theme
from app.gui.threads import Background, Bridge, GuiGarbageCollector, HostMessage, WindowEvent, close_jobs
from app.gui.widgets.dialogs import ConsentQuestion, ask_for_database, ask_to_close, message_box
from app.gui.window import HISTORY, MONITOR, RUN, MainWindow, Page
from app.gui.window_state import remember_windows, state_path, write_states
from app.paths import DESKTOP_NAME, PROGRAM, default_database
from app.samples import Inventory
from app.storage.files import KnownDatabase, disk_space
from app.telemetry.feed import TelemetryFeed
from app.viewmodels.run.form import VariantForm

if TYPE_CHECKING:
    from app.gui.run.sessions import SessionFactory
    from app.plan import Plan
    from app.queries import ExperimentProgress
    from app.runs.dropped_files import DropKind
    from app.runs.experiment.queue_runner import QueueRunner

_NOTHING_MADE = "No new database was made in its place. If you put the file back, try again."
_CHOSEN = "It was chosen in Settings. "
_RESCUED = "The run that was active is stored in {}; the window that opens next offers to add it."
_OTHER_RUNS = "The runs in this window are not in it. If you put the old file back, try again."


class DatabaseQuestion(QObject):
    """Asks how to go on without the database; every answer but *Try again* in vain opens a new window, or none.

    Thread: GUI only.
    """

    def __init__(
        self,
        window: QMainWindow,
        theme: Theme,
        database: KnownDatabase,
        is_busy: Callable[[], bool],
        rescued: Callable[[], Path | None],
        on_answer: Callable[[Path | None], None],
    ) -> None:
        """Ask nothing yet.

        Args:
            window: Parent of the question.
            theme: Styles it.
            database: The window's database.
            is_busy: Whether something runs: it has a file to end in, and is not to be closed by an answer.
            rescued: Returns the file of a run that the database could not take, which the next window offers to add.
            on_answer: Gets the database to go on with, None to quit.
        """
        super().__init__(window)
        self._window = window
        self._theme = theme
        self._database = database
        self._is_busy = is_busy
        self._rescued = rescued
        self._on_answer = on_answer
        self.is_starting = True
        """Whether the database was not open yet, so that no error of it can be passed over."""
        self._attempts = Background(self)
        self._is_open = False

    def take(self, error: UserError) -> bool:
        """Ask where an error means that the window cannot go on; return whether it is asked, now or already."""
        if self._is_busy() or not isinstance(error, DatabaseError if self.is_starting else DatabaseGoneError):
            return False
        if not self._is_open:
            self._ask(error)
        return True

    def close(self) -> None:
        """Wait for an attempt that has begun."""
        self._attempts.close()

    def _ask(self, error: UserError) -> None:
        self._is_open = True
        said = error.in_window if isinstance(error, DatabaseError) else str(error)
        title, consequence, new = "The database cannot be used", "", ""
        usual = default_database() if self._database.was_chosen else None
        if isinstance(error, DatabaseMissingError):
            title, consequence, new = "The database is gone", _NOTHING_MADE, "Start a &new one there"
            consequence = _CHOSEN + consequence if usual is not None else consequence
        elif isinstance(error, DatabaseReplacedError):
            title, consequence, new = "The database was replaced", _OTHER_RUNS, "&Open the new one"
        if (path := self._rescued()) is not None:
            consequence = f"{consequence}\n\n{_RESCUED.format(path)}".strip()
        box = message_box(self._window, self._theme, QMessageBox.Icon.Warning, title, said)
        box.setInformativeText(consequence)
        again = box.addButton("&Try again", QMessageBox.ButtonRole.AcceptRole)
        other = box.addButton("Choose &another file …", QMessageBox.ButtonRole.ActionRole)
        fresh = box.addButton(new, QMessageBox.ButtonRole.ActionRole) if new else None
        back = box.addButton("Open the &usual one", QMessageBox.ButtonRole.ActionRole) if usual is not None else None
        quit_button = box.addButton("&Quit", QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(again)
        box.setEscapeButton(quit_button)

        def answer() -> None:
            clicked = box.clickedButton()
            if clicked is again:
                self._try_again()
            elif clicked is other:
                self._choose(error)
            elif back is not None and clicked is back:
                self._on_answer(usual)
            else:
                self._on_answer(Path(self._database) if fresh is not None and clicked is fresh else None)
            box.deleteLater()

        box.finished.connect(answer)
        box.open()

    def _choose(self, error: UserError) -> None:
        def take(path: Path | None) -> None:
            if path is None:
                self._ask(error)
            else:
                self._on_answer(path)

        ask_for_database(self._window, self._database.parent, take)

    def _try_again(self) -> None:
        """Open the database; with it a new window, since all screens of this one may lack what they asked for."""
        database = self._database
        self._attempts.run(lambda: prepare(database), lambda _: self._on_answer(Path(database)), self._ask)


def prepare(database: Path) -> None:
    """Open a database at the start; end in it what ended without a word, and delete what is kept no longer."""
    from app.runs.experiment.queue import pause_unowned_queue
    from app.runs.sinks import mark_crashed_runs
    from app.storage.retention import prune_by_setting
    from app.storage.store import Store

    with Store.open(database) as store:
        mark_crashed_runs(store)
        pause_unowned_queue(store)
    prune_by_setting(database)


def space_warning(database: KnownDatabase) -> str:
    """Return a sentence where the disk of a database that is there has little space left, else ""."""
    database.require()
    return disk_space(database).warning_in_window


_STORED_AFTER_MS = 1000  # Monitor is made, and History and Compare are imported and made, when the live plots stand


def main(
    database: Path | None,
    feed: TelemetryFeed,
    *,
    sample_ms: float | None = None,
    opened: Path | tuple[int | Path, float] | None = None,
) -> int:
    """Show the window on a database until it is closed.

    Args:
        database: File of the database; made where there is none. None is the one that the user chose.
        feed: Telemetry, started already, so that its process starts while Qt is loaded.
        sample_ms: Sampling period of telemetry, in milliseconds; None is the one that the user chose.
        opened: File to open at once; or stored run, or file of a trace, to play, and how many times as fast as it was.

    Returns:
        The exit status.
    """
    application = QApplication.instance() or _start_qt()
    assert isinstance(application, QApplication), "nothing else makes a Qt application here"
    application.setApplicationName("VariantScope")
    application.setDesktopFileName(DESKTOP_NAME)
    remember_windows(application, state_path())
    theme = Theme(application)
    theme.start()
    collector = GuiGarbageCollector()
    diagnostics = Diagnostics(theme)
    chosen = Chosen(application)
    next_database: Path | None = database or chosen.database or default_database()
    status = 0
    while next_database is not None:
        feed.set_rate(1000 / (sample_ms or chosen.sample_ms))
        workbench = Workbench(next_database, theme, feed=feed)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_, stop=workbench.quit: stop())
        workbench.window.painted.connect(collector.start)
        diagnostics.attach(workbench.window)
        workbench.start()
        if isinstance(opened, Path):
            workbench.opener.open_file(opened)
        elif opened is not None:
            workbench.opener.play(*opened)
        feed = TelemetryFeed()
        status = application.exec()
        workbench.close()
        collector.stop()
        opened = workbench.form.messages.rescued
        next_database = workbench.next_database
        chosen.replace_missing(workbench.database, next_database)
    return status


def _start_qt() -> QApplication:
    """Return Qt's application, or exit with a sentence where Qt, without a display that it can use, would abort."""
    heard: list[str] = []

    def hear(kind: QtMsgType, _: QMessageLogContext, text: str) -> None:
        if kind == QtMsgType.QtFatalMsg:  # Qt aborts when this function returns
            sys.stderr.write(_UNUSABLE_DISPLAY.format(reason=(heard or [text])[0].strip().rstrip(".")))
            sys.stderr.flush()
            os._exit(1)
        heard.append(text)

    earlier = qInstallMessageHandler(hear)
    application = QApplication(sys.argv[:1])
    qInstallMessageHandler(earlier)
    sys.stderr.writelines(f"{text}\n" for text in heard)
    return application


_UNUSABLE_DISPLAY = (
    "The window cannot be shown here ({reason}): correct DISPLAY, WAYLAND_DISPLAY or QT_QPA_PLATFORM, or use a command "
    f"such as `{PROGRAM} run`.\n"
)


class Workbench(QObject):
    """One window on one database; `next_database` is another one that the user chose instead.

    Thread: GUI only.
    """

    def __init__(
        self, database: Path, theme: Theme, *, hidden_workloads: bool = False, feed: TelemetryFeed | None = None
    ) -> None:
        super().__init__()
        self.database = database = KnownDatabase.of(database)
        self.next_database: Path | None = None
        self.feed = feed or TelemetryFeed()
        self.bridge = Bridge(self)
        self.sessions = Background(self)
        self._theme = theme
        self.window = MainWindow(_pages(self), theme)
        self._question = DatabaseQuestion(
            self.window, theme, database, lambda: self._busy, lambda: self.form.messages.rescued, self._switch_database
        )
        self.reads = Background(self, self._question.take)
        self.undo = UndoStack(self.reads, self)
        self.stored = StoredScreens(self.window, theme, database, self.reads)
        self._later = QTimer(self, singleShot=True, interval=_STORED_AFTER_MS)
        self.run_view = run_view = RunView(theme)
        form = VariantForm(hidden=hidden_workloads)
        self.form = FormController(run_view.form, form, database, self.reads, self._wait_inventory, self.undo.push)
        self.run = RunController(
            run_view,
            self.form,
            lambda spec, host: self._session_factory().make_run(spec, host),
            lambda spec, limit, host: self._session_factory().make_search(spec, limit, host),
            self.sessions,
            self.bridge,
        )
        self.consent = ConsentQuestion(self.window, theme)
        self.custom_workloads = CustomWorkloads(run_view.form, form, database, self.form.show, self.consent.ask)
        self.replay = ReplayController(run_view)
        self.opener = FileOpener(
            self.window, self.stored, self.form, self.replay, self.reads, database, lambda: self._busy
        )
        self.hosts = HostScreens(self.window, theme, run_view, self.form, self.run, self.bridge, self.consent.ask)
        self.actions = self._make_actions()
        self._factory: SessionFactory | None = None
        sync = QueueSync(database, self.feed.wait_inventory, self.reads, self.form.show_error)
        self.queue = QueueController(run_view, self.run, sync, self._make_queue_runner, self.sessions, self.actions)
        show_run = partial(self.window.show_page, RUN)
        self.questions = GalleryController(
            run_view, self.form, database, self.reads, self._wait_inventory, self.queue.add, show_run, self.actions
        )
        store = SettingsStore(database, self.reads, self.form.show_error)
        self.settings = Settings(
            self.window, theme, store, self.feed, self.form, self._prepare_worker, self._switch_database
        )
        self._first_start = FirstStart(
            run_view, self.form, store, self.actions, self.questions.compare_quickly, self._prepare_worker
        )
        self.shell = self._make_shell(theme, database)
        self.drops = DropLayer(self.window, theme, database, lambda: self._busy, _takers(self))
        self.drops.said.connect(self.shell.undo_view.say)
        self.progress = ShownProgress(self.window, lambda: _work_progress(self))

    def _make_shell(self, theme: Theme, database: Path) -> Shell:
        run, stop, values = self._run, self.run.stop, self.settings.values
        return Shell(self.window, theme, database, self.reads, self.actions, self.undo, run, stop, values)

    def _make_actions(self) -> Actions:
        return Actions(
            open_run=self.stored.open_run,
            compare=self.stored.compare_runs,
            compare_experiment=self.stored.compare_experiment,
            run_again=self.opener.run_again,
            replay=self.opener.play,
            open_trace=self.opener.ask_for_trace,
            run_plan=self._run_plan,
            open_questions=self._open_questions,
            show_reference=self.stored.show_reference,
            add_reference=self.stored.add_reference,
            manage_hosts=self.hosts.manage,
            record_change=self.undo.push,
            consent=self.consent.ask,
            undo=self.undo.undo,
            runs_imported=self._runs_imported,
        )

    def start(self) -> None:
        """Show the window; slow parts start after the first paint."""
        self.window.painted.connect(self._start_slow_parts)
        self._later.timeout.connect(lambda: self.window.make_page(MONITOR))
        self._later.timeout.connect(
            lambda: self.reads.run(self.stored.prepare, lambda _: self.stored.make_ahead(), self.form.show_error)
        )
        self.window.close_requested.connect(self._ask_to_close)
        self.window.page_shown.connect(lambda _: self.hosts.monitor.refresh())
        self.window.page_shown.connect(self.stored.refresh)
        self.bridge.arrived.connect(self._handle)
        self.bridge.drained.connect(self._refresh)
        self.run.ended.connect(self._run_ended)
        self.settings.place_requested.connect(lambda: self.window.show_page(RUN))
        self.settings.place_requested.connect(self._first_start.open)
        self.settings.hosts_requested.connect(self.hosts.manage)
        for take in (self.stored.show_undone, self.queue.take_undone, self.questions.show_undone):
            self.undo.undone.connect(take)
        self._connect_queue()
        self.hosts.start(self.queue)
        self.run.plan_requested.connect(self.questions.submit)
        self.questions.start()
        self.run.start()
        self.form.start()
        self.custom_workloads.start()
        self.window.show_last_page(self.database)
        self.window.show()

    def _connect_queue(self) -> None:
        self.queue.running_changed.connect(self._queue_changed)
        self.queue.run_stored.connect(lambda: self.stored.refresh(HISTORY))
        for ends in (self.queue.run_stored, self.queue.running_changed, self.undo.undone):
            ends.connect(self.undo.drop_stale)
        self.stored.runs_shown.connect(self.queue.note_seen)
        self.queue.entry_ended.connect(self.settings.notifier.notify_experiment_end)
        self.queue.entry_cancelled.connect(self.settings.notifier.discard)
        self.queue.start()

    def quit(self) -> None:
        """Close the window without asking; a run is stopped first and its end stored."""
        self.consent.close()
        self.queue.shut_down()
        if self.queue.running:
            self.queue.running_changed.connect(self._close_window)
        elif self.run.running:
            self.run.ended.connect(self._close_window)
            self.run.stop()
        else:
            self._close_window()

    def close(self) -> None:
        """Stop jobs, the sampler and the worker threads."""
        if self.replay.playing:
            self.replay.stop()
        self.consent.close()
        write_states(self.window, self.run_view)  # which has no window before it is shown
        close_jobs(self.window)
        self._later.deleteLater()  # with its connections, whose lambdas would keep the workbench for ever
        self.feed.close()
        self.bridge.close()
        self.queue.shut_down()
        self.hosts.close()
        self.sessions.close()
        if self._factory is not None:
            self._factory.close()
        self.reads.close()
        self._question.close()

    def _start_slow_parts(self) -> None:
        self.feed.start()
        self.feed.subscribe(self.bridge.post)  # readings come while pyqtgraph is imported, and are drawn at once
        import_plots()  # here, for pyqtgraph crashes on another thread
        self.reads.run(lambda: prepare(self.database), lambda _: self._database_ready(), self.form.show_error)
        self._later.start()
        self.sessions.run(self._wait_telemetry, lambda _: self._telemetry_ready(), self._telemetry_failed)

    @property
    def _busy(self) -> bool:
        return self.run.running or self.queue.running

    def _telemetry_ready(self) -> None:
        self._prepare_worker()
        self.queue.check_entries()

    def _queue_changed(self, running: bool) -> None:
        if not running:
            self.bridge.flush()
            self._refresh_after_runs()

    def _session_factory(self) -> "SessionFactory":
        from app.gui.run.sessions import SessionFactory

        if self._factory is None:
            self._factory = SessionFactory(
                self.database, self.feed, self.bridge, self.hosts.hosts.connections, self.consent.ask
            )
        return self._factory

    def _prepare_worker(self) -> None:
        self._session_factory().prepare()

    def _make_queue_runner(self, on_progress: Callable[["ExperimentProgress"], None]) -> "QueueRunner":
        return self._session_factory().make_queue_runner(on_progress)

    def _wait_inventory(self) -> Inventory:
        """Return the devices of the chosen host. Thread: any but the GUI's."""
        return self.hosts.hosts.wait_inventory(self.feed.wait_inventory)

    def _wait_telemetry(self) -> None:
        """Wait for telemetry; meanwhile import the modules that runs need."""
        importlib.import_module("app.gui.run.sessions")
        self.feed.wait_inventory()

    def _database_ready(self) -> None:
        self._question.is_starting = False
        self.settings.start()
        self._first_start.start()
        self.custom_workloads.restore()
        self._check_disk_space()

    def _check_disk_space(self) -> None:
        failed = partial(self.form.messages.show_failed_read, self._check_disk_space)
        self.reads.run(lambda: space_warning(self.database), self.form.warn, failed)

    def _run(self) -> None:
        """Run the form's variant, unless a replay covers the form."""
        if not self.replay.playing:
            self.run.run()

    def _handle(self, event: WindowEvent | HostMessage, run: int | None) -> None:
        self.hosts.handle(event, run)
        if not isinstance(event, HostMessage):
            self.settings.handle(event)
            self._first_start.handle(event)

    def _refresh(self) -> None:
        for part in (self.run, self.hosts.monitor, self.queue, self.progress):
            part.refresh()

    def _telemetry_failed(self, error: UserError) -> None:
        self.hosts.show_failure(str(error))
        self.form.show_error(error)

    def _run_plan(self, plan: "Plan") -> None:
        self.questions.submit(plan)

    def _open_questions(self) -> None:
        self.questions.open()

    def _runs_imported(self) -> None:
        self.stored.refresh_all()
        self.queue.check_entries()

    def _run_ended(self) -> None:
        self.settings.notifier.notify()
        self._refresh_after_runs()

    def _refresh_after_runs(self) -> None:
        self.progress.refresh()
        self._check_disk_space()
        self._prepare_worker()
        self.stored.refresh(HISTORY)

    def _close_window(self) -> None:
        self.window.allow_close()
        self.window.close()

    def _ask_to_close(self) -> None:
        if self._busy:
            ask_to_close(self.window, self._theme, self.quit, queue=self.queue.running)
        else:
            self._close_window()

    def _switch_database(self, database: Path | None) -> None:
        """Close; `main` opens a new window on this database, if any."""
        self.next_database = database
        self._close_window()


def _pages(workbench: Workbench) -> tuple[Page, ...]:
    """Return the screens in the order of their tabs, each with what makes it."""
    return (
        Page("Run", lambda: workbench.run_view),
        Page("Monitor", lambda: workbench.hosts.make_monitor(workbench.actions)),
        Page("History", lambda: workbench.stored.make_history(workbench.actions)),
        Page("Compare", lambda: workbench.stored.make_compare(workbench.actions)),
    )


def _work_progress(workbench: Workbench) -> WorkProgress:
    """Return how far the queue is, or else the active run."""
    if workbench.queue.running:
        return queue_progress(workbench.queue.state)
    return run_progress(workbench.run_view.live.status) if workbench.run.running else WorkProgress()


def _takers(workbench: Workbench) -> dict["DropKind", Callable[[Path], object]]:
    """Return what takes a dropped file of each kind."""

    def open_workload(path: Path) -> None:
        workbench.window.show_page(RUN)
        workbench.custom_workloads.open_dropped(path)

    return {
        "database": workbench.stored.add_file,
        "trace": workbench.opener.play,
        "workload": open_workload,
        "preset": workbench.questions.add_preset,
    }
