"""Actions of a window for tests: every call is recorded."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from app.gui.actions import Actions


class RecordedActions:
    """`actions` for the screen, and the `calls` it made: the name of each with its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.actions = Actions(**{field.name: self._recorder(field.name) for field in fields(Actions)})

    def _recorder(self, name: str) -> Callable[..., Any]:
        return lambda *args: self.calls.append((name, *args))
