"""What the window remembers from one start to the next: its place, splitters, columns, and what was chosen last.

All windows share one INI file in the user's state folder, written by Qt: whole, under a lock, with what other windows
wrote since. Of two windows that change the same thing the later one wins. What cannot be read or written is as if it
had never been remembered: a start never fails over it. https://doc.qt.io/qt-6/qsettings.html
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
"""Of the application: the file. Without it nothing is remembered, as in tests, benchmarks and pictures."""

_WRITE_DELAY_MS = 500
"""After a change: while a splitter is dragged nothing is written, for a write waits for the disk."""

Value = TypeVar("Value")


def state_path() -> Path:
    import platformdirs

    if named := os.environ.get(FILE_VARIABLE):
        return expand_home(Path(named))
    return platformdirs.user_state_path("variantscope") / "window.ini"


def remember_windows(application: QApplication, path: Path) -> None:
    """Let the windows of an application remember their state in a file, which its user alone may read."""
    application.setProperty(FILE_PROPERTY, str(path))
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        open(path, "ab", opener=open_private).close()
    except OSError:
        return  # the folder may be read-only: then every start is like the first


class WindowState(QObject):
    """What one screen remembers, by name. `write_states` writes what is left when the window closes.

    Thread: GUI only.
    """

    def __init__(self, screen: str, parent: QObject, database: Path | None = None) -> None:
        """Open the state of a screen.

        Args:
            screen: Name of the screen; a name never changes, or users would lose what they had.
            parent: A widget of the window, best the screen itself; what has none writes by itself.
            database: Of what makes sense with its runs alone, such as a filter by tag.
        """
        super().__init__(parent)
        self._group = f"{screen}/{database}" if database else screen
        path = (QCoreApplication.instance() or self).property(FILE_PROPERTY)
        self._settings = QSettings(path, QSettings.Format.IniFormat, self) if path else None
        self._changed: dict[str, str] = {}
        self._delay = QTimer(self)
        self._delay.setSingleShot(True)
        self._delay.setInterval(_WRITE_DELAY_MS)
        self._delay.timeout.connect(self.write)

    def read(self, name: str, default: Value, kind: type[Value] | None = None) -> Value:
        """Return what is remembered by a name, else `default`.

        Args:
            name: The name.
            default: Its value until one is kept, or where that is of another type: text, number, bool, bytes, a frozen
                dataclass or a struct.
            kind: Its type, where that of the default does not say all: `list[int]`.
        """
        stored = self._changed.get(name) or (self._settings and self._settings.value(f"{self._group}/{name}"))
        try:
            # JSON keeps the types: INI reads every number as text, and a list of one as its only word.
            return msgspec.json.decode(stored, type=kind or type(default)) if isinstance(stored, str) else default
        except msgspec.DecodeError:
            return default

    def keep(self, name: str, value: object) -> None:
        if self._settings is None:
            return
        self._changed[name] = msgspec.json.encode(value).decode()
        self._delay.start()

    def keep_splitter(self, name: str, splitter: QSplitter) -> None:
        """Give a splitter, with all its parts, the sizes that it had, and remember what the user makes of them."""
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
    """Write what every screen within these widgets has not written yet."""
    for part in parts:
        for state in part.findChildren(WindowState):
            state.write()
