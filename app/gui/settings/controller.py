"""Reads what the Settings dialog shows, and stores what is chosen in it."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QUrl
from PySide6.QtGui import QDesktopServices

from app.errors import UserError
from app.gui.settings.dialog import SettingsDialog
from app.gui.settings.settings import Chosen, SettingsStore
from app.gui.theme import Theme
from app.gui.widgets.dialogs import ask_confirmation, ask_for_database
from app.hosts.book import read_hosts
from app.storage import retention
from app.storage.files import disk_space
from app.storage.retention import Pruned
from app.telemetry.feed import TelemetryFeed
from app.viewmodels.history.labels import StorageLine, prune_consequence, prune_question, prune_result
from app.viewmodels.settings import SettingsState, recent_databases


class SettingsController(QObject):
    """Reads what the dialog shows, and stores what is chosen in it.

    Thread: GUI only; the database is read on the store's thread.
    """

    def __init__(
        self,
        dialog: SettingsDialog,
        theme: Theme,
        store: SettingsStore,
        feed: TelemetryFeed,
        switch_database: Callable[[Path], None],
    ) -> None:
        """Make the controller of a window's settings."""
        super().__init__(dialog)
        self.dialog = dialog
        self._theme = theme
        self._store = store
        self._feed = feed
        self._switch_database = switch_database
        self._chosen = Chosen(self)
        self._storage: StorageLine | None = None
        self._problem = ""
        self._connect(dialog)

    def open(self, *, busy: bool) -> None:
        """Show the dialog with what is stored now, and whether a run or the queue is active."""
        self._problem = ""
        self._read()
        self._show()
        self.dialog.show_busy(busy)
        self.dialog.show()
        self.dialog.activateWindow()

    def _connect(self, dialog: SettingsDialog) -> None:
        dialog.theme_chosen.connect(self._theme.choose)
        dialog.motion_chosen.connect(self._theme.reduce_motion)
        dialog.sampling_chosen.connect(self._set_sampling)
        dialog.database_chosen.connect(self._choose_database)
        dialog.retention_chosen.connect(self._set_retention)
        dialog.folder_requested.connect(self._open_folder)

    def _read(self, note: str = "") -> None:
        def show(storage: StorageLine) -> None:
            self._storage = storage
            self._show()

        database = self._store.database
        self._store.background.run(lambda: read_storage(database, note), show, self._show_error)

    def _show(self) -> None:
        self.dialog.show_model(
            SettingsState(
                theme=self._theme.choice,
                reduces_motion=self._theme.reduces_motion,
                sample_ms=1000 / self._feed.hz,
                databases=recent_databases(self._store.database, self._chosen.databases),
                storage=self._storage,
                hosts=self._host_names(),
                problem=self._problem,
            )
        )

    def _host_names(self) -> tuple[str, ...]:
        try:
            return tuple(entry.name for entry in read_hosts())
        except UserError as error:
            self._problem = str(error)
            return ()

    def _set_sampling(self, period_ms: float) -> None:
        self._chosen.keep("sample_ms", period_ms)
        self._feed.set_rate(1000 / period_ms)
        self._show()

    def _choose_database(self, path: Path | None) -> None:
        if path is None:
            ask_for_database(self.dialog, self._store.database.parent, self._take_database)
            self._show()
        else:
            self._take_database(path)

    def _take_database(self, path: Path | None) -> None:
        if path is None or path == self._store.database:
            return
        former = recent_databases(self._store.database, self._chosen.databases)
        self._chosen.keep("databases", [str(each) for each in dict.fromkeys((path, *former))])
        self._chosen.keep("database", str(path))
        self._switch_database(path)

    def _open_folder(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self._store.database.parent)))

    def _set_retention(self, days: int | None) -> None:
        """Keep samples for so many days; where that deletes any, ask first."""

        def show_preview(preview: Pruned | None) -> None:
            if days is None or preview is None or not preview.runs:
                self._read()
                return
            box = ask_confirmation(
                self.dialog,
                self._theme,
                "Old samples",
                prune_question(preview, days),
                prune_consequence(preview),
                "&Delete",
                "&Keep them",
            )
            box.accepted.connect(lambda: self._prune(days))
            box.rejected.connect(self._show)

        database = self._store.database
        self._store.background.run(lambda: retention.preview_days(database, days), show_preview, self._show_error)

    def _prune(self, days: int) -> None:
        database = self._store.database
        self._store.background.run(
            lambda: retention.apply_days(database, days), lambda done: self._read(prune_result(done)), self._show_error
        )

    def _show_error(self, error: UserError) -> None:
        self._problem = str(error)
        self._show()


def read_storage(database: Path, note: str = "") -> StorageLine:
    """Return the size of a database and its retention."""
    return StorageLine(
        path=database,
        size_bytes=retention.size_bytes(database),
        free_bytes=disk_space(database).free_bytes,
        retention_days=retention.load_days(database),
        note=note,
    )
