"""Problems outside the screens: the log and crash reports, and a database that cannot be used."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QMainWindow, QMessageBox

from app import crash, log
from app.errors import DatabaseError, DatabaseGoneError, DatabaseMissingError, DatabaseReplacedError, UserError
from app.gui.theme import Theme
from app.gui.threads import Background
from app.gui.widgets.dialogs import ask_for_database, message_box, open_on_desktop
from app.gui.window import MainWindow
from app.paths import default_database
from app.storage.files import KnownDatabase

_log = logging.getLogger("variantscope.gui")


class Diagnostics(QObject):
    """Log and crash reports of all successive windows of this process. Thread: GUI only."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._started = False

    def attach(self, window: MainWindow) -> None:
        """Start with a window's first paint, and show the log from its Help menu."""
        window.painted.connect(lambda: self._start(window))
        window.show_log_requested.connect(show_log)

    def _start(self, window: MainWindow) -> None:
        log.configure()
        _log.info("window opened")
        if self._started:
            return
        self._started = True
        crash.watch_faults()
        if reports := crash.new_reports():
            self._offer(window, reports)

    def _offer(self, window: MainWindow, reports: Sequence[Path]) -> None:
        text = "VariantScope or a run crashed since you last looked here."
        box = message_box(window, self._theme, QMessageBox.Icon.Information, "Crash report", text)
        box.setInformativeText(f"A report is in {reports[-1].parent}. Nothing was sent anywhere.")
        open_folder = box.addButton("&Open folder", QMessageBox.ButtonRole.AcceptRole)
        box.setDefaultButton(box.addButton("&Dismiss", QMessageBox.ButtonRole.RejectRole))

        def close() -> None:
            if box.clickedButton() is open_folder:
                open_on_desktop(reports[-1].parent)
            crash.dismiss_reports(reports)

        box.finished.connect(close)
        box.open()


def show_log() -> None:
    """Open this process's log in the desktop's text viewer."""
    if (path := log.log_file()) is not None:
        open_on_desktop(path)


_NOTHING_MADE = "No new database was created in its place. If you put the file back, try again."
_CHOSEN = "It was chosen in Settings. "
_OTHER_RUNS = "The runs in this window are not in it. If you put the old file back, try again."


class DatabaseQuestion(QObject):
    """Asks how to continue without the database; every answer except a failed *Try again* opens a new window, or none.

    Thread: GUI only.
    """

    def __init__(
        self,
        window: QMainWindow,
        theme: Theme,
        database: KnownDatabase,
        is_busy: Callable[[], bool],
        on_answer: Callable[[Path | None], None],
    ) -> None:
        """Create the question without asking it.

        Args:
            window: Parent of the question.
            theme: Styles it.
            database: The window's database.
            is_busy: Whether something runs, which must end in its file before an answer may close the window.
            on_answer: Gets the database to continue with, None to quit.
        """
        super().__init__(window)
        self._window = window
        self._theme = theme
        self._database = database
        self._is_busy = is_busy
        self._on_answer = on_answer
        self.is_starting = True
        """Whether the database was not yet open, so that none of its errors can be ignored."""
        self._attempts = Background(self)
        self._is_open = False

    def take(self, error: UserError) -> bool:
        """Ask if an error means that the window cannot continue; return whether the question is or was asked."""
        if self._is_busy() or not isinstance(error, DatabaseError if self.is_starting else DatabaseGoneError):
            return False
        if not self._is_open:
            self._ask(error)
        return True

    def close(self) -> None:
        self._attempts.close()

    def _ask(self, error: UserError) -> None:
        self._is_open = True
        sentence = error.in_window if isinstance(error, DatabaseError) else str(error)
        title, consequence, open_text = "The database cannot be used", "", ""
        usual = default_database() if self._database.was_chosen else None
        if isinstance(error, DatabaseMissingError):
            title, consequence, open_text = "The database is gone", _NOTHING_MADE, "Start a &new one there"
            consequence = _CHOSEN + consequence if usual is not None else consequence
        elif isinstance(error, DatabaseReplacedError):
            title, consequence, open_text = "The database was replaced", _OTHER_RUNS, "&Open the new one"
        box = message_box(self._window, self._theme, QMessageBox.Icon.Warning, title, sentence)
        box.setInformativeText(consequence)
        retry = box.addButton("&Try again", QMessageBox.ButtonRole.AcceptRole)
        choose = box.addButton("Choose &another file …", QMessageBox.ButtonRole.ActionRole)
        open_new = box.addButton(open_text, QMessageBox.ButtonRole.ActionRole) if open_text else None
        reopen = box.addButton("Open the &usual one", QMessageBox.ButtonRole.ActionRole) if usual is not None else None
        quit_button = box.addButton("&Quit", QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(retry)
        box.setEscapeButton(quit_button)

        def answer() -> None:
            clicked = box.clickedButton()
            if clicked is retry:
                # Open the database, in a new window, because this one's screens may lack what they asked for.
                database = self._database
                self._attempts.run(lambda: prepare(database), lambda _: self._on_answer(Path(database)), self._ask)
            elif clicked is choose:
                self._choose(error)
            elif reopen is not None and clicked is reopen:
                self._on_answer(usual)
            else:
                self._on_answer(Path(self._database) if open_new is not None and clicked is open_new else None)
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


def prepare(database: Path) -> None:
    """Open a database at the start: end runs of dead processes, and delete expired samples."""
    from app.runs.experiment.queue import pause_unowned_queue
    from app.runs.sinks import mark_crashed_runs
    from app.storage.retention import prune_by_setting
    from app.storage.store import Store

    with Store.open(database) as store:
        mark_crashed_runs(store)
        pause_unowned_queue(store)
    prune_by_setting(database)
