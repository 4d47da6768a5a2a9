"""What the user chose: for all windows, or in a database for its windows, such as the standby worker."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.threads import Background
from app.gui.window_state import WindowState
from app.paths import default_database
from app.runs.standby_setting import AUTOMATIC, OFF, ON, STANDBY_VARIABLE, environment_choice, no_standby_reason
from app.samples import SAMPLE_MS, Inventory
from app.storage.files import KnownDatabase
from app.storage.known_settings import STANDBY, Setting

_MIN_MS, _MAX_MS = 10.0, 1000.0


@dataclass(frozen=True, slots=True)
class SettingsStore:
    """Where settings are stored, the thread that reads and writes them, and the handler of failures."""

    database: Path
    background: Background
    on_failure: Callable[[UserError], None]


class Chosen:
    """What the user chose for all windows, whatever their database."""

    def __init__(self, parent: QObject) -> None:
        self._state = WindowState("settings", parent)

    @property
    def database(self) -> KnownDatabase | None:
        """The database that windows open, which is not made anew where it is gone; None for the usual one."""
        named = self._state.read("database", "")
        if not named or Path(named) == default_database():
            return None
        database = KnownDatabase(named)
        database.was_chosen = True
        return database

    @property
    def sample_ms(self) -> float:
        """Milliseconds between two readings."""
        stored = self._state.read("sample_ms", SAMPLE_MS)
        return stored if _MIN_MS <= stored <= _MAX_MS else SAMPLE_MS

    @property
    def databases(self) -> list[str]:
        """Paths of the databases that were opened, the last one first."""
        return self._state.read("databases", [], list[str])

    def replace_missing(self, database: KnownDatabase, taken: Path | None) -> None:
        """Choose what the user took in place of a chosen database that is gone, if anything."""
        if database.was_chosen and taken is not None and not database.exists():
            self.keep("database", str(taken))

    def keep(self, name: str, value: object) -> None:
        """Remember a choice at once."""
        self._state.keep(name, value)
        self._state.write()


class StoredChoice(QObject):
    """One of several options, stored in the database; `changed` is emitted when it is to be shown anew.

    Thread: GUI only.
    """

    changed = Signal()
    saved = Signal()

    def __init__(
        self, store: SettingsStore, setting: Setting[str], options: Mapping[str, str], *, default: str
    ) -> None:
        """Make a choice that is not read yet.

        Args:
            store: Where it is stored.
            setting: The setting in the database.
            options: Label of each option by its stored key.
            default: Key of the option until the user chooses one.
        """
        super().__init__()
        self.options = dict(options)
        self.value = default
        self.fixed_by = ""
        """What decides in place of the user; "" where nothing does."""
        self._store = store
        self._setting = setting

    def start(self) -> None:
        """Read the stored choice."""
        from app.storage.database import load_setting

        database, setting = self._store.database, self._setting
        self._store.background.run(lambda: load_setting(database, setting), self._show, self._store.on_failure)

    def choose(self, option: str) -> None:
        """Store an option, and show it once that is done."""
        from app.storage.database import save_setting

        def show(_: object) -> None:
            self._show(option)
            self.saved.emit()

        database, setting = self._store.database, self._setting
        self._store.background.run(lambda: save_setting(database, setting, option), show, self._store.on_failure)

    def set_label(self, option: str, label: str) -> None:
        """Change the label of an option."""
        self.options[option] = label
        self.changed.emit()

    def fix(self, option: str, by: str) -> None:
        """Fix an option that something else decides."""
        self.value, self.fixed_by = option, by

    def _show(self, stored: str | None) -> None:
        if stored in self.options and not self.fixed_by:
            self.value = stored
        self.changed.emit()


class StandbySetting:
    """Whether a standby worker waits for the next run."""

    def __init__(self, store: SettingsStore, on_change: Callable[[], None]) -> None:
        self.choice = StoredChoice(store, STANDBY, {AUTOMATIC: "Automatic", ON: "On", OFF: "Off"}, default=AUTOMATIC)
        self.choice.saved.connect(on_change)
        if decided := environment_choice():
            self.choice.fix(decided, STANDBY_VARIABLE)

    def handle(self, event: object) -> None:
        """Say what Automatic means on this machine, when it is known."""
        if isinstance(event, Inventory):
            reason = no_standby_reason(event.machine)
            self.choice.set_label(AUTOMATIC, f"Automatic: off here, {reason}" if reason else "Automatic: on here")
