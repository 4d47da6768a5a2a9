"""Tells of the end of a long run to someone who looks elsewhere: by a notification of the desktop, and by a sound."""

import time

from PySide6.QtWidgets import QApplication, QSystemTrayIcon

from app.gui.kept_choice import Keeping, KeptChoice
from app.gui.main_window import MainWindow
from app.records import RunEnded, RunStarted
from app.storage.known_settings import NOTICE
from app.viewmodels import units
from app.viewmodels.naming import short_name

_HEADING = "When a run or experiment of over a minute ends while another window is in front"
WAYS = {"off": "Say &nothing", "message": "Show a &message", "sound": "Show a message, and s&ound"}
LONG_S = 60.0
"""A shorter run's end is seen by who started it."""


class Notice:
    """What happens when a long run ends while the window is not the active one; its menu lets the user choose it."""

    def __init__(self, window: MainWindow, keeping: Keeping) -> None:
        self._window = window
        self._began_ns: int | None = None
        self._title = self._words = ""
        self._tray = QSystemTrayIcon(window.windowIcon(), window)
        self._tray.messageClicked.connect(window.activateWindow)
        self._way = KeptChoice(window.settings_menu, _HEADING, WAYS, NOTICE, keeping, usual="message")

    def start(self) -> None:
        """Read from the database what was chosen."""
        self._way.start()

    def handle(self, event: object) -> None:
        """Take one event of a run; other events say nothing here."""
        if isinstance(event, RunStarted):
            self._began_ns = event.t_ns if self._began_ns is None else self._began_ns
            self._words = short_name(event.spec)
        elif isinstance(event, RunEnded):
            self._title = f"Run {event.run}: {event.outcome.name.replace('_', ' ')}"

    def tell_of(self, title: str, words: str) -> None:
        """Tell of the end of an experiment."""
        self._title, self._words = title, words
        self.tell()

    def forget(self) -> None:
        """What began was left before its end, by someone who is here."""
        self._began_ns = None

    def tell(self) -> None:
        """Tell of the end of what began with the first run since the last end: one run, or many for one purpose."""
        began_ns, self._began_ns = self._began_ns, None
        way = self._way.value
        lasted_s = 0.0 if began_ns is None else (time.monotonic_ns() - began_ns) / 1e9
        if lasted_s < LONG_S or way == "off" or self._window.isActiveWindow():
            return
        if QSystemTrayIcon.isSystemTrayAvailable():
            self._tray.show()
            self._tray.showMessage(self._title, f"{self._words}, after {units.duration(lasted_s)}")
        else:
            QApplication.alert(self._window)
        if way == "sound":
            QApplication.beep()
