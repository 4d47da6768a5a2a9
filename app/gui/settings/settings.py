"""The settings of one window: what follows from them at once, and the dialog, made when it is first opened."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.gui.run.run_controller import RunController
from app.gui.settings.notifications import RunEndNotifier
from app.gui.settings.stored import SettingsStore, StandbySetting
from app.gui.theme import Theme
from app.gui.window import MainWindow
from app.telemetry.feed import TelemetryFeed

if TYPE_CHECKING:
    from app.gui.settings.controller import SettingsController


class Settings(QObject):
    """Opens the settings of a window; `place_requested` and `hosts_requested` lead on from there.

    Thread: GUI only.
    """

    place_requested = Signal()
    hosts_requested = Signal()

    def __init__(
        self,
        window: MainWindow,
        theme: Theme,
        store: SettingsStore,
        feed: TelemetryFeed,
        run: RunController,
        standby_changed: Callable[[], None],
        switch_database: Callable[[Path | None], None],
    ) -> None:
        """Make the settings of a window; `start` reads them.

        Args:
            window: The window.
            theme: Its theme.
            store: Where the database's settings are.
            feed: This machine's telemetry.
            run: Knows whether a run or the queue is active.
            standby_changed: Called when the standby worker is switched on or off.
            switch_database: Opens another database in place of this one.
        """
        super().__init__(window)
        self.notifier = RunEndNotifier(window, store)
        self._standby = StandbySetting(store, standby_changed)
        self._window = window
        self._theme = theme
        self._store = store
        self._feed = feed
        self._switch_database = switch_database
        self._busy = False
        self._controller: SettingsController | None = None
        window.settings_requested.connect(self.open)
        run.form_shown.connect(self._take_busy)

    def start(self) -> None:
        """Read the stored choices."""
        self.notifier.choice.start()
        self._standby.choice.start()

    def handle(self, event: object) -> None:
        """Take an event of runs or of this machine's telemetry."""
        self.notifier.handle(event)
        self._standby.handle(event)

    def open(self) -> None:
        """Show the dialog."""
        from app.gui.settings.controller import SettingsController
        from app.gui.settings.dialog import SettingsDialog

        if self._controller is None:
            dialog = SettingsDialog(self._window, self._theme, self.notifier.choice, self._standby.choice)
            dialog.hosts_requested.connect(self.hosts_requested)
            dialog.place_requested.connect(dialog.close)
            dialog.place_requested.connect(self.place_requested)
            self._controller = SettingsController(dialog, self._theme, self._store, self._feed, self._switch_database)
        self._controller.open(busy=self._busy)

    def _take_busy(self, busy: bool) -> None:
        self._busy = busy
        if self._controller is not None:
            self._controller.dialog.show_busy(busy)
