"""The window's state across starts: its place, splitters, columns, and last choices.

All windows share one INI file in the user's state folder, written by Qt atomically, under a lock, merged with other
windows' changes. If two windows change the same value, the later one wins. Values that cannot be read or written count
as never stored: a start never fails because of them. https://doc.qt.io/qt-6/qsettings.html
"""

import os
from pathlib import Path
from typing import TypeVar

import msgspec
from PySide6.QtCore import QCoreApplication, QObject, QSettings, QTimer
from PySide6.QtWidgets import QApplication, QSplitter, QWidget

from app.paths import expand_home, open_private

FILE_VARIABLE = "VARIANTSCOPE_WINDOW"
"""The environment variable that names another file."""

FILE_PROPERTY = "windowStateFile"
"""The application's property for the file. Without it nothing is remembered, as in tests, benchmarks and pictures."""

_WRITE_DELAY_MS = 500
"""The delay after a change: nothing is written while a splitter is dragged, because a write waits for the disk."""

Value = TypeVar("Value")


def state_path() -> Path:
    import platformdirs

    if named := os.environ.get(FILE_VARIABLE):
        return expand_home(Path(named))
    return platformdirs.user_state_path("variantscope") / "window.ini"


def remember_windows(application: QApplication, path: Path) -> None:
    """Let an application's windows remember their state in a file that only its user may read."""
    application.setProperty(FILE_PROPERTY, str(path))
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        open(path, "ab", opener=open_private).close()
    except OSError:
        return  # the folder may be read-only: then every start is like the first


class WindowState(QObject):
    """The stored values of one screen, by name. `write_states` writes the rest when the window closes.

    Thread: GUI only.
    """

    def __init__(self, screen: str, parent: QObject, database: Path | None = None) -> None:
        """Open the state of a screen.

        Args:
            screen: The screen's name, which never changes, or users would lose their state.
            parent: A widget of the window, preferably the screen; without a window, it writes by itself.
            database: The database for values that only make sense with its runs, such as a filter by tag.
        """
        super().__init__(parent)
        self._group = f"{screen}/{database}" if database else screen
        path = (QCoreApplication.instance() or self).property(FILE_PROPERTY)
        self._settings = QSettings(path, QSettings.Format.IniFormat, self) if path else None
        self._changed: dict[str, str] = {}
        self._delay = QTimer(self, interval=_WRITE_DELAY_MS, singleShot=True)
        self._delay.timeout.connect(self.write)

    def read(self, name: str, default: Value, kind: type[Value] | None = None) -> Value:
        """Return the stored value of a name, else `default`.

        Args:
            name: The name.
            default: The value if none is stored, or if it has another type: text, number, bool, bytes, a frozen
                dataclass or a struct.
            kind: Its type, if the default's is incomplete: `list[int]`.
        """
        stored = self._changed.get(name) or (self._settings and self._settings.value(f"{self._group}/{name}"))
        try:
            # JSON keeps the types: INI reads every number as text, and a list of one item as a plain word.
            return msgspec.json.decode(stored, type=kind or type(default)) if isinstance(stored, str) else default
        except msgspec.DecodeError:
            return default

    def keep(self, name: str, value: object) -> None:
        if self._settings is None:
            return
        self._changed[name] = msgspec.json.encode(value).decode()
        self._delay.start()

    def keep_splitter(self, name: str, splitter: QSplitter) -> None:
        """Restore a splitter's sizes, with all its parts, and remember the user's changes."""
        sizes = self.read(name, [], list[int])
        if len(sizes) == splitter.count():
            splitter.setSizes(sizes)
        splitter.splitterMoved.connect(lambda *_: self.keep(name, splitter.sizes()))

    def write(self) -> None:
        self._delay.stop()
        changed, self._changed = self._changed, {}
        if self._settings is not None and changed:
            for name, text in changed.items():
                self._settings.setValue(f"{self._group}/{name}", text)
            self._settings.sync()


def write_states(*parts: QWidget) -> None:
    """Write what every screen within these widgets has not yet written."""
    for part in parts:
        for state in part.findChildren(WindowState):
            state.write()
