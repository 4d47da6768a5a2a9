"""The setting of the worker that stands by: automatic, on or off, unless the environment decides."""

from collections.abc import Callable

from PySide6.QtWidgets import QMenu

from app.gui.kept_choice import Keeping, KeptChoice
from app.runs.standby_setting import AUTOMATIC, OFF, ON, VARIABLE, said, why_none
from app.samples import Inventory
from app.storage.known_settings import STANDBY

_HEADING = "Standby: import TensorFlow ahead of the next run"
_AUTOMATIC = "&Automatic"


class StandbyChoice:
    """Its choices in the window's menu; `changed` is called when another one holds."""

    def __init__(self, menu: QMenu, keeping: Keeping, changed: Callable[[], None]) -> None:
        ways = {AUTOMATIC: _AUTOMATIC, ON: "&On", OFF: "O&ff"}
        self._choice = KeptChoice(menu, _HEADING, ways, STANDBY, keeping, usual=AUTOMATIC, kept=changed)
        if decided := said():
            self._choice.decide(decided, f"Standby: {decided}, as {VARIABLE} says")

    def start(self) -> None:
        """Read from the database what was chosen."""
        self._choice.start()

    def handle(self, event: object) -> None:
        """Say of the machine, when it is known, what it does by itself."""
        if isinstance(event, Inventory):
            why = why_none(event.machine)
            here = f"off here, {why}" if why else "on here"
            self._choice.name_way(AUTOMATIC, f"{_AUTOMATIC}: {here}")
