"""A setting in the window's menu: a heading, and choices of which one holds, kept in the database."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu

from app.errors import UserError
from app.gui.background import Background
from app.storage.known_settings import Setting


@dataclass(frozen=True, slots=True)
class Keeping:
    """The database that choices are kept in, the thread that reads and writes them, and what hears of a failure."""

    database: Path
    background: Background
    failed: Callable[[UserError], None]


class KeptChoice:
    """One of `ways`, by its key; until another is chosen, `usual`. `kept` is called when a choice is stored."""

    def __init__(
        self,
        menu: QMenu,
        heading: str,
        ways: Mapping[str, str],
        known: Setting[str],
        keeping: Keeping,
        *,
        usual: str,
        kept: Callable[[], None] = lambda: None,
    ) -> None:
        self._known = known
        self._keeping = keeping
        self._usual = usual
        self._kept = kept
        if not menu.isEmpty():
            menu.addSeparator()
        self._heading = menu.addAction(heading)
        self._heading.setEnabled(False)
        font = self._heading.font()
        font.setBold(True)
        self._heading.setFont(font)
        self._group = QActionGroup(menu)
        self._actions = {way: self._group.addAction(menu.addAction(label)) for way, label in ways.items()}
        for way, action in self._actions.items():
            action.setCheckable(True)
            action.triggered.connect(partial(self._keep, way))
        self._show(None)

    @property
    def value(self) -> str:
        """What holds."""
        return next(way for way, action in self._actions.items() if action.isChecked())

    def start(self) -> None:
        """Read from the database what was chosen."""
        from app.storage.settings import kept_in

        database, known = self._keeping.database, self._known
        self._keeping.background.run(lambda: kept_in(database, known), self._show, self._keeping.failed)

    def name_way(self, way: str, label: str) -> None:
        """Give one of the choices other words."""
        self._actions[way].setText(label)

    def decide(self, way: str, heading: str) -> None:
        """Let this hold, whatever is chosen: it is decided elsewhere, as `heading` says."""
        self._heading.setText(heading)
        self._group.setEnabled(False)
        self._actions[way].setChecked(True)

    def _show(self, kept: str | None) -> None:
        if self._group.isEnabled():
            self._actions[kept if kept in self._actions else self._usual].setChecked(True)

    def _keep(self, way: str) -> None:
        from app.storage.settings import keep_in

        database, known = self._keeping.database, self._known
        self._keeping.background.run(
            lambda: keep_in(database, known, way), lambda _: self._has_kept(way), self._keeping.failed
        )

    def _has_kept(self, way: str) -> None:
        self._show(way)
        self._kept()
