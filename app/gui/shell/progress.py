"""The progress of the work where it is seen from other windows: in the window's title, and in the desktop's taskbar.

Qt has no taskbar progress. On Linux docks and taskbars (Ubuntu Dock, Plasma, Dash to Dock, Plank) listen to a signal on
the session's D-Bus: https://wiki.ubuntu.com/Unity/LauncherAPI. Elsewhere only the title says it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication

from app import units
from app.gui.window import MainWindow
from app.paths import DESKTOP_NAME
from app.viewmodels.experiment.queue import QueueState
from app.viewmodels.run.live import Status

if TYPE_CHECKING:
    from PySide6.QtDBus import QDBusConnection

_PATH = "/com/canonical/unity/launcherentry/variantscope"
_INTERFACE = "com.canonical.Unity.LauncherEntry"


PROGRAM_TITLE = "VariantScope"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkProgress:
    """What is done of the active run or of the queue.

    Attributes:
        title: The window's title.
        percent: The whole percent that is done; None where it is not known, or nothing runs.
    """

    title: str = PROGRAM_TITLE
    percent: int | None = None


def queue_progress(queue: QueueState) -> WorkProgress:
    """Return the progress of a queue that runs: the share of its runs that are done."""
    name = next((row.name for row in queue.rows if row.is_running_here), "")
    return _progress(queue.fraction, "", queue.time_left, name)


def run_progress(status: Status) -> WorkProgress:
    """Return the progress of a run: its phase, and how much of the phase is done."""
    left = status.left if status.left.endswith(" left") else ""
    return _progress(status.fraction, status.title, left, status.name)


def _progress(fraction: float | None, phase: str, left: str, name: str) -> WorkProgress:
    """Return the progress with the figures first: of a long title the desktop shows the beginning.

    Args:
        fraction: The share that is done; None where it is not known.
        phase: What goes on; "" where the share says enough.
        left: The time left; "" where it is not known.
        name: Of the run or the experiment.
    """
    percent = None if fraction is None else int(100 * fraction)
    share = "" if percent is None else units.percent(percent)
    parts = [" ".join(filter(None, (phase, share))), left, name]
    return WorkProgress(title=f"{' · '.join(filter(None, parts))} – {PROGRAM_TITLE}", percent=percent)


class ShownProgress(QObject):
    """Shows what `read` returns, whenever it differs from what is shown.

    Thread: GUI only.
    """

    def __init__(self, window: MainWindow, read: Callable[[], WorkProgress], taskbar: "Taskbar | None" = None) -> None:
        """Prepare for a window.

        `read` returns the progress of its work, and is called often.
        """
        super().__init__(window)
        self._window = window
        self._read = read
        self._shown = WorkProgress()
        self._taskbar = taskbar or Taskbar()

    def refresh(self) -> None:
        """Show the progress as it is now; quick where nothing has changed."""
        progress = self._read()
        if progress == self._shown:
            return
        if progress.percent != self._shown.percent:
            self._taskbar.show_percent(progress.percent)
        self._shown = progress
        self._window.setWindowTitle(progress.title)


class Taskbar:
    """The bar on the program's icon, where the desktop has one.

    Args:
        connection: The bus; None is the session's, looked for with the first progress.
    """

    def __init__(self, connection: "QDBusConnection | None" = None) -> None:
        self._connection = connection

    def show_percent(self, percent: int | None) -> None:
        """Show how much is done; None hides the bar. Nobody has to listen."""
        if self._connection is None and not has_desktop():
            return
        from PySide6.QtDBus import QDBusConnection, QDBusMessage

        self._connection = self._connection or QDBusConnection.sessionBus()
        message = QDBusMessage.createSignal(_PATH, _INTERFACE, "Update")
        shown = {"progress": (percent or 0) / 100, "progress-visible": percent is not None}
        message.setArguments([f"application://{DESKTOP_NAME}.desktop", shown])
        self._connection.send(message)


def has_desktop() -> bool:
    """Return whether a Linux desktop can listen: not on Qt's offscreen platform, nor on other systems."""
    return sys.platform == "linux" and QGuiApplication.platformName() in ("xcb", "wayland")
