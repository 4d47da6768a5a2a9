"""Notifications of the end of long work while another window is active."""

import html
import shutil
import sys
import time

from PySide6.QtCore import QProcess
from PySide6.QtWidgets import QApplication, QSystemTrayIcon

from app import units
from app.events import RunEnded, RunStarted
from app.gui.settings.stored import SettingsStore, StoredChoice
from app.gui.shell.progress import PROGRAM_TITLE, has_desktop
from app.gui.window import MainWindow
from app.paths import DESKTOP_NAME
from app.plain import plain_text
from app.storage.known_settings import NOTICE
from app.viewmodels.format.naming import short_name

NOTIFICATION_CHOICES = {"off": "Show nothing", "message": "Show a message", "sound": "Show a message and play a sound"}
LONG_RUN_S = 60.0
"""Nobody is notified of the end of a shorter run: its user still watches."""


class RunEndNotifier:
    """Notifies the user of the end of a long run while another window is active, as the setting says."""

    def __init__(self, window: MainWindow, store: SettingsStore) -> None:
        self._window = window
        self._began_ns: int | None = None
        self._title = self._text = ""
        self._tray = QSystemTrayIcon(window.windowIcon(), window)
        self._tray.messageClicked.connect(window.activateWindow)
        self.choice = StoredChoice(store, NOTICE, NOTIFICATION_CHOICES, default="message")

    def handle(self, event: object) -> None:
        """Note the start and the outcome of a run."""
        if isinstance(event, RunStarted):
            self._began_ns = event.t_ns if self._began_ns is None else self._began_ns
            self._text = short_name(event.spec)
        elif isinstance(event, RunEnded):
            self._title = f"Run {event.run}: {event.outcome.name.replace('_', ' ')}"

    def notify_experiment_end(self, title: str, text: str) -> None:
        """Notify the user of the end of an experiment.

        Args:
            title: The verdict in a few words: desktops show it in bold, and one line of it.
            text: The verdict in full, then how it ended: of a long text desktops show the beginning.
        """
        self._title, self._text = title, text
        self.notify()

    def discard(self) -> None:
        """Forget the start: the user cancelled, and so is present."""
        self._began_ns = None

    def notify(self) -> None:
        """Notify the user that the work is over that began with the first run since the last notification."""
        began_ns, self._began_ns = self._began_ns, None
        choice = self.choice.value
        lasted_s = 0.0 if began_ns is None else (time.monotonic_ns() - began_ns) / 1e9
        if lasted_s < LONG_RUN_S or choice == "off" or self._window.isActiveWindow():
            return
        title, body = plain_text(self._title), _body(self._body_text(lasted_s))
        if QSystemTrayIcon.isSystemTrayAvailable():
            self._tray.show()
            self._tray.showMessage(title, body)
        elif not _send(title, body):
            QApplication.alert(self._window)
        if choice == "sound":
            QApplication.beep()

    def _body_text(self, lasted_s: float) -> str:
        """Return the text with how long it took, which a sentence has at its end and a name after a comma."""
        took = units.duration(lasted_s)
        return f"{self._text} It took {took}." if self._text.endswith(".") else f"{self._text}, after {took}"


def _send(title: str, body: str) -> bool:
    """Show a message on a Linux desktop without a tray, as GNOME is; return whether there is a program that does.

    Args:
        title: Its title.
        body: Its text, as mark-up.
    """
    program = shutil.which("notify-send") if has_desktop() else None
    if program is None:
        return False
    words = [f"--app-name={PROGRAM_TITLE}", f"--hint=string:desktop-entry:{DESKTOP_NAME}", "--", title, body]
    process = QProcess()
    process.setProgram(program)
    process.setArguments(words)
    return bool(process.startDetached())


def _body(text: str) -> str:
    """Return the text as Linux desktops show it as it is: they read the body of a notification as mark-up.

    https://specifications.freedesktop.org/notification-spec/latest/markup.html
    """
    return html.escape(plain_text(text), quote=False) if sys.platform == "linux" else plain_text(text)
