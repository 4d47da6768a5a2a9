"""The Settings menu: choices stored in the database, end-of-run notifications, and the standby worker."""

import html
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QApplication, QMenu, QSystemTrayIcon

from app import units
from app.errors import UserError
from app.gui.threads import Background
from app.gui.window import MainWindow
from app.plain import plain_text
from app.records import RunEnded, RunStarted
from app.runs.standby_setting import AUTOMATIC, OFF, ON, STANDBY_VARIABLE, environment_choice, no_standby_reason
from app.samples import Inventory
from app.storage.known_settings import NOTICE, STANDBY, Setting
from app.viewmodels.format.naming import short_name
from workloads.catalog import FRAMEWORK


@dataclass(frozen=True, slots=True)
class SettingsStore:
    """Where settings are stored, the thread that reads and writes them, and the handler of failures."""

    database: Path
    background: Background
    on_failure: Callable[[UserError], None]


class ChoiceSetting:
    """A group of exclusive entries in the settings menu, stored in the database.

    Args:
        menu: The settings menu.
        heading: Entry above the choices, not selectable.
        options: Label of each choice by its stored key.
        setting: The setting in the database.
        store: Where it is stored.
        default: Key of the choice until the user makes one.
        on_saved: Called when a choice is stored.
    """

    def __init__(
        self,
        menu: QMenu,
        heading: str,
        options: Mapping[str, str],
        setting: Setting[str],
        store: SettingsStore,
        *,
        default: str,
        on_saved: Callable[[], None] = lambda: None,
    ) -> None:
        self._setting = setting
        self._store = store
        self._default = default
        self._on_saved = on_saved
        if not menu.isEmpty():
            menu.addSeparator()
        self._heading = menu.addAction(heading)
        self._heading.setEnabled(False)
        font = self._heading.font()
        font.setBold(True)
        self._heading.setFont(font)
        self._group = QActionGroup(menu)
        self._actions = {way: self._group.addAction(menu.addAction(label)) for way, label in options.items()}
        for way, action in self._actions.items():
            action.setCheckable(True)
            action.triggered.connect(partial(self._save, way))
        self._show(None)

    @property
    def value(self) -> str:
        """Key of the current choice."""
        return next(way for way, action in self._actions.items() if action.isChecked())

    def start(self) -> None:
        """Read the stored choice."""
        from app.storage.database import load_setting

        database, setting = self._store.database, self._setting
        self._store.background.run(lambda: load_setting(database, setting), self._show, self._store.on_failure)

    def set_label(self, option: str, label: str) -> None:
        """Change the label of a choice."""
        self._actions[option].setText(label)

    def force(self, option: str, heading: str) -> None:
        """Fix a choice that is made elsewhere, as `heading` says, and disable the group."""
        self._heading.setText(heading)
        self._group.setEnabled(False)
        self._actions[option].setChecked(True)

    def _show(self, stored: str | None) -> None:
        if self._group.isEnabled():
            self._actions[stored if stored in self._actions else self._default].setChecked(True)

    def _save(self, option: str) -> None:
        from app.storage.database import save_setting

        database, setting = self._store.database, self._setting
        self._store.background.run(
            lambda: save_setting(database, setting, option), lambda _: self._after_save(option), self._store.on_failure
        )

    def _after_save(self, option: str) -> None:
        self._show(option)
        self._on_saved()


_NOTIFICATION_HEADING = "When a run or experiment of over a minute ends while another window is active"
NOTIFICATION_CHOICES = {
    "off": "Show &nothing",
    "message": "Show a &message",
    "sound": "Show a message, and play a s&ound",
}
LONG_RUN_S = 60.0
"""Nobody is notified of the end of a shorter run: its user still watches."""


class RunEndNotifier:
    """Notifies the user of the end of a long run while another window is active, as the menu's setting says."""

    def __init__(self, window: MainWindow, store: SettingsStore) -> None:
        self._window = window
        self._began_ns: int | None = None
        self._title = self._text = ""
        self._tray = QSystemTrayIcon(window.windowIcon(), window)
        self._tray.messageClicked.connect(window.activateWindow)
        self._choice = ChoiceSetting(
            window.settings_menu, _NOTIFICATION_HEADING, NOTIFICATION_CHOICES, NOTICE, store, default="message"
        )

    def start(self) -> None:
        """Read the stored choice."""
        self._choice.start()

    def handle(self, event: object) -> None:
        """Note the start and the outcome of a run."""
        if isinstance(event, RunStarted):
            self._began_ns = event.t_ns if self._began_ns is None else self._began_ns
            self._text = short_name(event.spec)
        elif isinstance(event, RunEnded):
            self._title = f"Run {event.run}: {event.outcome.name.replace('_', ' ')}"

    def notify_experiment_end(self, title: str, text: str) -> None:
        """Notify the user of the end of an experiment."""
        self._title, self._text = title, text
        self.notify()

    def discard(self) -> None:
        """Forget the start: the user cancelled, and so is present."""
        self._began_ns = None

    def notify(self) -> None:
        """Notify the user that the work is over that began with the first run since the last notification."""
        began_ns, self._began_ns = self._began_ns, None
        choice = self._choice.value
        lasted_s = 0.0 if began_ns is None else (time.monotonic_ns() - began_ns) / 1e9
        if lasted_s < LONG_RUN_S or choice == "off" or self._window.isActiveWindow():
            return
        if QSystemTrayIcon.isSystemTrayAvailable():
            self._tray.show()
            self._tray.showMessage(plain_text(self._title), _body(f"{self._text}, after {units.duration(lasted_s)}"))
        else:
            QApplication.alert(self._window)
        if choice == "sound":
            QApplication.beep()


def _body(text: str) -> str:
    """Return the text as Linux desktops show it as it is: they read the body of a notification as mark-up.

    https://specifications.freedesktop.org/notification-spec/latest/markup.html
    """
    return html.escape(plain_text(text), quote=False) if sys.platform == "linux" else plain_text(text)


_STANDBY_HEADING = f"Standby: import {FRAMEWORK.name} ahead of the next run"
_AUTOMATIC = "&Automatic"


class StandbySetting:
    """The setting of the standby worker; `on_change` is called when it changes."""

    def __init__(self, menu: QMenu, store: SettingsStore, on_change: Callable[[], None]) -> None:
        options = {AUTOMATIC: _AUTOMATIC, ON: "&On", OFF: "O&ff"}
        self._choice = ChoiceSetting(
            menu, _STANDBY_HEADING, options, STANDBY, store, default=AUTOMATIC, on_saved=on_change
        )
        if decided := environment_choice():
            self._choice.force(decided, f"Standby: {decided}, as {STANDBY_VARIABLE} says")

    def start(self) -> None:
        """Read the stored choice."""
        self._choice.start()

    def handle(self, event: object) -> None:
        """Show what Automatic means on this machine, when it is known."""
        if isinstance(event, Inventory):
            reason = no_standby_reason(event.machine)
            state = f"off here, {reason}" if reason else "on here"
            self._choice.set_label(AUTOMATIC, f"{_AUTOMATIC}: {state}")
