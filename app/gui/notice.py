"""Tells of the end of a long run to someone who looks elsewhere: by a notification of the desktop, and by a sound."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QApplication, QMenu, QSystemTrayIcon

from app.errors import UserError
from app.gui.background import Background
from app.gui.main_window import MainWindow
from app.records import RunEnded, RunStarted
from app.storage.known_settings import NOTICE
from app.viewmodels import units
from app.viewmodels.naming import short_name

WAYS = {"off": "Say &nothing", "message": "Show a &message", "sound": "Show a message, and s&ound"}
LONG_S = 60.0
"""A shorter run's end is seen by who started it."""


class Notice:
    """What happens when a long run ends while the window is not the active one; its button lets the user choose it."""

    def __init__(
        self, window: MainWindow, database: Path, background: Background, failed: Callable[[UserError], None]
    ) -> None:
        self._window = window
        self._database = database
        self._background = background
        self._failed = failed
        self._began_ns: int | None = None
        self._title = self._words = ""
        self._tray = QSystemTrayIcon(window.windowIcon(), window)
        self._tray.messageClicked.connect(window.activateWindow)
        menu = QMenu(window.notify)
        self._ways = QActionGroup(menu)
        for way, label in WAYS.items():
            action = self._ways.addAction(menu.addAction(label))
            action.setCheckable(True)
            action.setData(way)
            action.triggered.connect(partial(self._keep, way))
        window.notify.setMenu(menu)
        self._show(None)

    def start(self) -> None:
        """Read from the database what was chosen."""
        from app.storage.settings import kept_in

        self._background.run(lambda: kept_in(self._database, NOTICE), self._show, self._failed)

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
        way = self._ways.checkedAction().data()
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

    def _show(self, kept: str | None) -> None:
        for action in self._ways.actions():
            action.setChecked(action.data() == (kept if kept in WAYS else "message"))

    def _keep(self, way: str) -> None:
        from app.storage.settings import keep_in

        self._background.run(lambda: keep_in(self._database, NOTICE, way), lambda _: None, self._failed)
