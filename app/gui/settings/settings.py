"""The settings of one window: their immediate effects, and the dialog, created when first opened."""

import html
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QProcess, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QSystemTrayIcon

from app.errors import UserError
from app.gui.actions import Services
from app.gui.run.form_controller import FormController
from app.gui.shell.shell import PROGRAM_TITLE
from app.gui.threads import Background
from app.gui.window import MainWindow
from app.gui.window_state import WindowState
from app.paths import DESKTOP_NAME, default_database
from app.runs.standby_setting import AUTOMATIC, OFF, ON, environment_choice, no_standby_reason
from app.storage.files import KnownDatabase
from app.storage.known_settings import NOTICE, STANDBY, Setting
from app.values import units
from app.values.events import RunEnded, RunStarted
from app.values.plain import plain_text
from app.values.samples import SAMPLE_MS, Inventory
from app.viewmodels.format.naming import short_name

if TYPE_CHECKING:
    from app.gui.settings.dialog import SettingsDialog

_MIN_MS, _MAX_MS = 10.0, 1000.0
THEMES = {"system": "Same as system", "light": "Light", "dark": "Dark"}
"""Label of each choice of `Theme`."""

SAMPLING_CHOICES_MS = (10.0, 20.0, SAMPLE_MS, 100.0, 200.0, 500.0, 1000.0)
"""Within the limits of `--sample-ms`."""

_MAX_DATABASES = 8


@dataclass(frozen=True, slots=True)
class SettingsStore:
    """Where settings are stored, the thread that reads and writes them, and the handler of failures."""

    database: Path
    background: Background
    on_failure: Callable[[UserError], None]


class Chosen:
    """The user's choices for all windows, whatever their database."""

    def __init__(self, parent: QObject) -> None:
        self._state = WindowState("settings", parent)

    @property
    def database(self) -> KnownDatabase | None:
        """Return the database that windows open, which is not created again if deleted; None for the default."""
        named = self._state.read("database", "")
        if not named or Path(named) == default_database():
            return None
        database = KnownDatabase(named)
        database.was_chosen = True
        return database

    @property
    def sample_ms(self) -> float:
        stored = self._state.read("sample_ms", SAMPLE_MS)
        return stored if _MIN_MS <= stored <= _MAX_MS else SAMPLE_MS

    @property
    def databases(self) -> list[str]:
        """Return the paths of opened databases, last one first."""
        return self._state.read("databases", [], list[str])

    def replace_missing(self, database: KnownDatabase, choice: Path | None) -> None:
        """Replace a chosen database that no longer exists by the user's new choice, if any."""
        if database.was_chosen and choice is not None and not database.exists():
            self.keep("database", str(choice))

    def keep(self, name: str, value: object) -> None:
        """Remember a choice immediately."""
        self._state.keep(name, value)
        self._state.write()


class StoredChoice(QObject):
    """One of several options, stored in the database; `changed` is emitted when the display must be updated.

    Thread: GUI only.
    """

    changed = Signal()
    saved = Signal()

    def __init__(
        self, store: SettingsStore, setting: Setting[str], options: Mapping[str, str], default: str, fixed: str = ""
    ) -> None:
        """Create a choice that is not yet read.

        `options` maps stored keys to labels; `default` applies until the user chooses. A choice may be `fixed` by
        something else.
        """
        super().__init__()
        self.options = dict(options)
        self.value = fixed or default
        self.is_fixed = bool(fixed)
        self._store = store
        self._setting = setting

    def start(self) -> None:
        from app.storage.database import load_setting

        database, setting = self._store.database, self._setting
        self._store.background.run(lambda: load_setting(database, setting), self._show, self._store.on_failure)

    def choose(self, option: str) -> None:
        from app.storage.database import save_setting

        def show(_: object) -> None:
            self._show(option)
            self.saved.emit()

        database, setting = self._store.database, self._setting
        self._store.background.run(lambda: save_setting(database, setting, option), show, self._store.on_failure)

    def _show(self, stored: str | None) -> None:
        if stored in self.options and not self.is_fixed:
            self.value = stored
        self.changed.emit()


def sampling_choices(current_ms: float) -> dict[float, str]:
    """Return the label of each period, in milliseconds, including the current one from the command line."""
    periods_ms = sorted({*SAMPLING_CHOICES_MS, current_ms})
    return {ms: f"{units.exactly(ms, 'ms')} ({1000 / ms:.3g} per second)" for ms in periods_ms}


def hosts_text(hosts: Sequence[str]) -> str:
    named = ", ".join(hosts[:4]) + (" …" if len(hosts) > 4 else "")
    return f"{len(hosts)} {units.plural('host', len(hosts))}: {named}." if hosts else "None yet."


def recent_databases(opened: Path, former: Sequence[str]) -> tuple[Path, ...]:
    """Return the databases to offer: the open one, then earlier ones that still exist."""
    there = (path for path in map(Path, former) if path != opened and path.is_file())
    return (opened, *there)[:_MAX_DATABASES]


NOTIFICATION_CHOICES = {"off": "Show nothing", "message": "Show a message", "sound": "Show a message and play a sound"}
LONG_RUN_S = 60.0
"""The end of a shorter run is not notified: its user is still watching."""


class RunEndNotifier:
    """Notifies the user of the end of a long run while another window is active, as the setting decides."""

    def __init__(self, window: MainWindow, store: SettingsStore) -> None:
        self._window = window
        self._began_ns: int | None = None
        self._title = self._text = ""
        self._tray = QSystemTrayIcon(window.windowIcon(), window)
        self._tray.messageClicked.connect(window.activateWindow)
        self.choice = StoredChoice(store, NOTICE, NOTIFICATION_CHOICES, "message")

    def handle(self, event: object) -> None:
        if isinstance(event, RunStarted):
            self._began_ns = event.t_ns if self._began_ns is None else self._began_ns
            self._text = short_name(event.spec)
        elif isinstance(event, RunEnded):
            self._title = f"Run {event.run}: {event.outcome.name.replace('_', ' ')}"

    def notify_experiment_end(self, title: str, text: str) -> None:
        """Notify the user of the end of an experiment.

        Args:
            title: The verdict in a few words: desktops show one bold line.
            text: The full verdict, then the outcome: desktops show the beginning of a long text.
        """
        self._title, self._text = title, text
        self.notify()

    def discard(self) -> None:
        """Forget the start: the user cancelled, and so is present."""
        self._began_ns = None

    def notify(self) -> None:
        """Notify the user that the work that began with the first run since the last notification has ended."""
        began_ns, self._began_ns = self._began_ns, None
        choice = self.choice.value
        lasted_s = 0.0 if began_ns is None else (time.monotonic_ns() - began_ns) / 1e9
        if lasted_s < LONG_RUN_S or choice == "off" or self._window.isActiveWindow():
            return
        took = units.duration(lasted_s)
        text = f"{self._text} It took {took}." if self._text.endswith(".") else f"{self._text}, after {took}"
        title, body = plain_text(self._title), plain_text(text)
        if sys.platform == "linux":
            # https://specifications.freedesktop.org/notification-spec/latest/markup.html
            body = html.escape(body, quote=False)
        if QSystemTrayIcon.isSystemTrayAvailable():
            self._tray.show()
            self._tray.showMessage(title, body)
        elif not _send(title, body):
            QApplication.alert(self._window)
        if choice == "sound":
            QApplication.beep()


def has_desktop() -> bool:
    """Return whether a Linux desktop shows messages: not on Qt's offscreen platform or other systems."""
    return sys.platform == "linux" and QGuiApplication.platformName() in ("xcb", "wayland")


def _send(title: str, body: str) -> bool:
    """Show a message on a Linux desktop without a tray, such as GNOME; return whether a program for it exists."""
    program = shutil.which("notify-send") if has_desktop() else None
    if program is None:
        return False
    words = [f"--app-name={PROGRAM_TITLE}", f"--hint=string:desktop-entry:{DESKTOP_NAME}", "--", title, body]
    process = QProcess()
    process.setProgram(program)
    process.setArguments(words)
    return bool(process.startDetached())


class Settings(QObject):
    """Opens the settings of a window; `place_requested` and `hosts_requested` lead elsewhere from there.

    Thread: GUI only.
    """

    place_requested = Signal()
    hosts_requested = Signal()

    def __init__(
        self,
        services: Services,
        store: SettingsStore,
        form: FormController,
        standby_changed: Callable[[], None],
        switch_database: Callable[[Path | None], None],
    ) -> None:
        """Create the settings of a window; `start` reads them."""
        super().__init__(services.window)
        self.notifier = RunEndNotifier(services.window, store)
        self.standby = StoredChoice(
            store, STANDBY, {AUTOMATIC: "Automatic", ON: "On", OFF: "Off"}, AUTOMATIC, environment_choice()
        )
        self.standby.saved.connect(standby_changed)
        self._services = services
        self._store = store
        self._switch_database = switch_database
        self._dialog: SettingsDialog | None = None
        services.window.settings_requested.connect(self.open)
        form.updated.connect(self._take_busy)

    def start(self) -> None:
        self.notifier.choice.start()
        self.standby.start()

    def handle(self, event: object) -> None:
        """Take an event of runs or of this machine's telemetry."""
        self.notifier.handle(event)
        if isinstance(event, Inventory):  # it determines what Automatic means here
            reason = no_standby_reason(event.machine)
            self.standby.options[AUTOMATIC] = f"Automatic: off here, {reason}" if reason else "Automatic: on here"
            self.standby.changed.emit()

    def open(self) -> None:
        from app.gui.settings.dialog import SettingsDialog

        if self._dialog is None:
            services, notice, standby = self._services, self.notifier.choice, self.standby
            self._dialog = dialog = SettingsDialog(
                services.window, services.theme, self._store, services.feed, notice, standby, self._switch_database
            )
            dialog.hosts_button.clicked.connect(self.hosts_requested)
            dialog.place_button.clicked.connect(dialog.close)
            dialog.place_button.clicked.connect(self.place_requested)
        self._dialog.show_current(busy=self._services.is_busy())

    def values(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield the values that can be set without the dialog, each with its setting's name, and what sets it."""
        for key, label in THEMES.items():
            yield f"Theme: {label}", partial(self._services.theme.choose, key)
        for name, choice in (("Notifications", self.notifier.choice), ("Standby", self.standby)):
            if choice.is_fixed:  # the dialog shows what fixes it
                yield f"{name} …", self.open
            else:
                yield from ((f"{name}: {label}", partial(choice.choose, key)) for key, label in choice.options.items())
        for name in ("Sampling interval", "Retention of samples", "Database file"):
            yield f"{name} …", self.open

    def _take_busy(self, busy: bool) -> None:
        if self._dialog is not None:
            self._dialog.show_busy(busy)
