"""Actions of a window for tests: every call is recorded."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from app.grants import typed
from app.gui.actions import Actions


class RecordedActions:
    """`actions` for the screen, which allow whatever is asked, and the `calls` it made: names with arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        recorders: dict[str, Any] = {field.name: self._recorder(field.name) for field in fields(Actions)}
        self.actions = Actions(**{**recorders, "consent": typed})

    def _recorder(self, name: str) -> Callable[..., Any]:
        return lambda *args: self.calls.append((name, *args))
