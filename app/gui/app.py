"""Composition root of the window: creates every part, connects them, and shuts them down."""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QMessageLogContext, QObject, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtWidgets import QApplication

from app.errors import UserError
from app.gui.actions import Actions, Services
from app.gui.diagnostics import DatabaseQuestion, Diagnostics, prepare
from app.gui.experiment.gallery import GalleryController
from app.gui.experiment.queue_controller import QueueController
from app.gui.hosts.hosts_controller import HostsController
from app.gui.run.files import CustomWorkloads, FileDrops
from app.gui.run.first_start import FirstStart
from app.gui.run.form_controller import FormController
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.settings.settings import Chosen, Settings, SettingsStore
from app.gui.shell.shell import PROGRAM_TITLE, Shell, UndoStack, queue_title, run_title
from app.gui.stored_screens import StoredScreens
from app.gui.theme import Theme
from app.gui.threads import Background, Bridge, GuiGarbageCollector, HostMessage, WindowEvent, close_jobs
from app.gui.widgets.dialogs import ConsentQuestion, ask_to_close
from app.gui.window import HISTORY, MONITOR, RUN, MainWindow, Page
from app.gui.window_state import remember_windows, state_path, write_states
from app.paths import DESKTOP_NAME, PROGRAM, default_database
from app.storage.files import KnownDatabase, disk_space, is_database
from app.telemetry.feed import TelemetryFeed
from app.viewmodels.run.form import VariantForm
from workloads.catalog import check, with_defaults
from workloads.protocol import RunSpec

if TYPE_CHECKING:
    from app.gui.run.script import ScriptController
    from app.gui.run.sessions import SessionFactory
    from app.runs.dropped_files import DropKind
    from app.values.plan import Plan


_STORED_AFTER_MS = 1000  # by then the live plots are drawn: create Monitor, then import and create History and Compare


def main(
    database: Path | None,
    feed: TelemetryFeed,
    *,
    sample_ms: float | None = None,
    opened: Path | None = None,
) -> int:
    """Show the window on a database until it is closed.

    Args:
        database: The database file, created if missing. None means the user's choice.
        feed: Running telemetry, so that its process starts while Qt loads.
        sample_ms: Sampling period of telemetry, in milliseconds; None means the user's choice.
        opened: A file whose runs to offer immediately.

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
        if opened is not None:
            workbench.open_file(opened)
        feed = TelemetryFeed()
        status = application.exec()
        workbench.close()
        collector.stop()
        opened = None
        next_database = workbench.next_database
        chosen.replace_missing(workbench.database, next_database)
    return status


def _start_qt() -> QApplication:
    """Return Qt's application, or exit with a sentence if Qt would abort for lack of a display."""
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
    """One window on one database; `next_database` is the one to which the user switches. Thread: GUI only."""

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
        self._question = DatabaseQuestion(self.window, theme, database, lambda: self._busy, self._switch_database)
        self.reads = Background(self, self._question.take)
        self.undo = UndoStack(self.reads, self)
        self.consent = ConsentQuestion(self.window, theme)
        self.services = services = Services(
            window=self.window,
            theme=theme,
            database=database,
            reads=self.reads,
            sessions=self.sessions,
            bridge=self.bridge,
            feed=self.feed,
            inventory=lambda: self.hosts.wait_inventory(self.feed.wait_inventory),
            consent=self.consent.ask,
            is_busy=lambda: self._busy,
            record_change=self.undo.push,
        )
        self.stored = StoredScreens(services)
        self._later = QTimer(self, singleShot=True, interval=_STORED_AFTER_MS)
        self.run_view = run_view = RunView(theme)
        self.form = FormController(run_view.form, VariantForm(hidden=hidden_workloads), services)
        self.run = RunController(
            run_view,
            self.form,
            services,
            lambda spec, host, purpose: self._session_factory().make_run(spec, host, purpose),
            lambda spec, limit, host: self._session_factory().make_search(spec, limit, host),
        )
        self.custom_workloads = CustomWorkloads(run_view.form, self.form, services)
        self.hosts = HostsController(services, run_view, self.form, self.run)
        self.actions = Actions(
            open_run=self.stored.open_run,
            compare=self.stored.compare_runs,
            run_again=self.form.run_again,
            run_plan=self._run_plan,
            cannot_run=self._cannot_run,
            open_questions=self._open_questions,
            show_reference=self.stored.show_reference,
            add_reference=self.stored.add_reference,
            manage_hosts=self.hosts.manage,
            record_change=self.undo.push,
            undo=self.undo.undo,
            runs_imported=self._runs_imported,
        )
        self._factory: SessionFactory | None = None
        self._script: ScriptController | None = None
        self.queue = QueueController(
            run_view,
            self.run,
            services,
            lambda on_progress: self._session_factory().make_queue_runner(on_progress),
            self.actions,
        )
        show_run = partial(self.window.show_page, RUN)
        self.questions = GalleryController(run_view, self.form, services, self.queue.add, show_run, self.actions)
        store = SettingsStore(database, self.reads, self.form.show_error)
        self.settings = Settings(services, store, self.form, self._prepare_worker, self._switch_database)
        self._first_start = FirstStart(run_view, self.form, store, self.actions, self.questions.compare_quickly)
        self.shell = Shell(services, self.actions, self.undo, self._run, self.run.stop, self.settings.values)
        self.drops = FileDrops(services, _takers(self))
        self.drops.message.connect(self.shell.undo_view.say)

    def start(self) -> None:
        """Show the window; slow parts start after the first paint."""
        self.window.painted.connect(self._start_slow_parts)
        self._later.timeout.connect(lambda: self.window.make_page(MONITOR))
        self._later.timeout.connect(
            lambda: self.reads.run(self.stored.prepare, lambda _: self.stored.make_ahead(), self.form.show_error)
        )
        self.window.close_requested.connect(self._ask_to_close)
        self.window.page_shown.connect(lambda _: self.hosts.refresh())
        self.window.page_shown.connect(self.stored.refresh)
        self.bridge.arrived.connect(self._handle)
        self.bridge.drained.connect(self._refresh)
        self.run.ended.connect(self.settings.notifier.notify)
        self.run.ended.connect(self._refresh_after_runs)
        self.settings.place_requested.connect(lambda: self.window.show_page(RUN))
        self.settings.place_requested.connect(self._first_start.open)
        self.settings.hosts_requested.connect(self.hosts.manage)
        for take in (self.stored.show_undone, self.queue.take_undone, self.questions.show_undone):
            self.undo.undone.connect(take)
        self._connect_queue()
        self.hosts.start(self.queue)
        self.hosts.runs_fetched.connect(self._runs_imported)
        self.run.plan_requested.connect(self.queue.add)
        self.questions.start()
        self.window.page_shown.connect(lambda _: self.questions.come_in_sight())
        self._first_start.decided.connect(self.questions.read)
        self.run.start()
        self.form.start()
        self.custom_workloads.start()
        self.run_view.form.script_requested.connect(self.open_script)
        self.window.show_last_page(self.database)
        self.window.show()

    def _connect_queue(self) -> None:
        self.queue.running_changed.connect(self._queue_changed)
        self.queue.entries_changed.connect(self.form.read_again)
        self.queue.run_stored.connect(lambda: self.stored.refresh(HISTORY))
        for ends in (self.queue.run_stored, self.queue.running_changed, self.undo.undone):
            ends.connect(self.undo.drop_stale)
        self.stored.runs_shown.connect(self.queue.note_seen)
        self.queue.entry_ended.connect(self.settings.notifier.notify_experiment_end)
        self.queue.entry_cancelled.connect(self.settings.notifier.discard)
        self.queue.start()

    def quit(self) -> None:
        """Close the window without asking; a current run is stopped first, and its end stored."""
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
        self.consent.close()
        write_states(self.window, self.run_view)  # it has no window before it is first shown
        close_jobs(self.window)
        self._later.deleteLater()  # otherwise its connections' lambdas would keep the workbench alive
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
        importlib.import_module("app.gui.plot.time_panel")  # here: pyqtgraph crashes on another thread
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

    def open_file(self, path: Path) -> None:
        """Ask whether to add the runs of a database."""

        def check() -> None:
            if not is_database(path):
                raise UserError(f"{path.name} is not a database of this program.")

        failed = partial(self.form.messages.show_failed_read, lambda: self.open_file(path))
        self.reads.run(check, lambda _: self.stored.import_file(path), failed)

    def open_script(self, path: Path | None = None) -> None:
        """Show the page for users' scripts, with the command of a dropped file."""
        from app.gui.run.script import ScriptController, ScriptView

        if self._script is None:
            self._script = ScriptController(ScriptView(), self.run_view, self.run, self.services)
        self.window.show_page(RUN)
        self._script.open(path)

    def _run(self) -> None:
        runner = self._script if self._script is not None and self.run_view.form.is_script else self.run
        runner.run()

    def _session_factory(self) -> "SessionFactory":
        from app.gui.run.sessions import SessionFactory

        if self._factory is None:
            self._factory = SessionFactory(
                self.database, self.feed, self.bridge, self.hosts.connections, self.consent.ask
            )
        return self._factory

    def _prepare_worker(self) -> None:
        self._session_factory().prepare()

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
        """Warn if the disk of an existing database has little space left."""

        def read() -> str:
            self.database.require()
            return disk_space(self.database).warning_in_window

        self.reads.run(read, self.form.warn, partial(self.form.messages.show_failed_read, self._check_disk_space))

    def _handle(self, event: WindowEvent | HostMessage, run: int | None) -> None:
        self.hosts.handle(event, run)
        if not isinstance(event, HostMessage):
            self.settings.handle(event)
            self._first_start.handle(event)

    def _refresh(self) -> None:
        for controller in (self.run, self.hosts, self.queue):
            controller.refresh()
        self._show_title()

    def _show_title(self) -> None:
        """Show the queue's progress, else the active run's, in the window's title."""
        title = run_title(self.run_view.live.status) if self.run.running else PROGRAM_TITLE
        self.window.setWindowTitle(queue_title(self.queue.state) if self.queue.running else title)

    def _telemetry_failed(self, error: UserError) -> None:
        self.hosts.show_failure(str(error))
        self.form.show_error(error)

    def _run_plan(self, plan: "Plan") -> None:
        self.questions.submit(plan)

    def _open_questions(self) -> None:
        self.questions.open()

    def _cannot_run(self, variants: Sequence[RunSpec]) -> bool:
        inventory = self.hosts.inventory(self.hosts.chosen)
        if inventory is None or any(check(with_defaults(spec), inventory.machine) for spec in variants):
            return True
        from app.runs.custom import lacks_source

        return lacks_source(variants, self.database)

    def _runs_imported(self) -> None:
        self.stored.refresh_all()
        self.queue.check_entries()

    def _refresh_after_runs(self) -> None:
        self._show_title()
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
    """Return the screens in the order of their tabs, with functions that create them."""
    return (
        Page("Run", lambda: workbench.run_view),
        Page("Monitor", lambda: workbench.hosts.make_monitor(workbench.actions)),
        Page("History", lambda: workbench.stored.make_history(workbench.actions)),
        Page("Compare", lambda: workbench.stored.make_compare(workbench.actions)),
    )


def _takers(workbench: Workbench) -> dict["DropKind", Callable[[Path], object]]:
    def open_workload(path: Path) -> None:
        workbench.window.show_page(RUN)
        workbench.custom_workloads.open_dropped(path)

    return {
        "database": workbench.stored.add_file,
        "workload": open_workload,
        "script": workbench.open_script,
        "preset": workbench.questions.add_preset,
    }
