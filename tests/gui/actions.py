"""Actions of a window for tests: every call is recorded."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from PySide6.QtWidgets import QWidget

from app.grants import typed
from app.gui.actions import Actions, Services
from app.gui.theme import Theme
from app.gui.threads import Background, Bridge
from app.storage.files import KnownDatabase
from app.telemetry.feed import TelemetryFeed
from app.values.samples import Inventory

if TYPE_CHECKING:
    from app.gui.window import MainWindow


class RecordedActions:
    """`actions` for the screen, which allow whatever is asked, and the `calls` it made: names with arguments.

    While `is_unable`, no run can be made here.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.is_unable = False
        recorders: dict[str, Any] = {field.name: self._recorder(field.name) for field in fields(Actions)}
        recorders["cannot_run"] = lambda _variants: self.is_unable
        self.actions = Actions(**recorders)

    def services(self, view: QWidget, database: Path, reads: Background, inventory: Inventory) -> Services:
        """What a screen without its window works with: runs are as read, every grant is given."""
        return Services(
            window=cast("MainWindow", view),
            theme=Theme(),
            database=KnownDatabase.of(database),
            reads=reads,
            sessions=reads,
            bridge=Bridge(view),
            feed=TelemetryFeed(),
            inventory=lambda: inventory,
            consent=typed,
            is_busy=lambda: False,
            record_change=self.actions.record_change,
        )

    def _recorder(self, name: str) -> Callable[..., Any]:
        return lambda *args: self.calls.append((name, *args))
