"""What a new user sees first on the Run screen: the places where runs can be made, a card for each."""

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.gui.hosts.environment_maker import EnvironmentMaker
from app.gui.theme import GRID
from app.gui.widgets.basic import button, show_text, text_label
from app.gui.widgets.panes import Scroller
from app.viewmodels.run.first_start import LEAD, TITLE, FirstChoice

_WIDTH = 80 * GRID


class ChoiceCard(QFrame):
    """A `FirstChoice`; `chosen` has the place and the action."""

    chosen = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "card")
        self._shown: FirstChoice | None = None
        self._title = text_label("", "heading", wrap=True)
        self._text = text_label("", "muted", wrap=True)
        self._actions: list[QPushButton] = []
        self._buttons = QHBoxLayout()
        self._buttons.setSpacing(GRID)
        layout = QGridLayout(self)
        layout.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        layout.setHorizontalSpacing(3 * GRID)
        layout.setVerticalSpacing(GRID // 2)
        layout.setColumnStretch(0, 1)
        for row, widget in enumerate((self._title, self._text)):
            layout.addWidget(widget, row, 0)
        layout.addLayout(self._buttons, 0, 1, 2, 1, Qt.AlignmentFlag.AlignVCenter)

    @property
    def action_buttons(self) -> Sequence[QPushButton]:
        """The buttons, the most likely one first."""
        return self._actions

    def displayed_text(self) -> str:
        """Return what the card says."""
        labels = (self._title, self._text)
        return " ".join(label.text() for label in labels if label.text())

    def show_model(self, choice: FirstChoice, *, primary: bool) -> None:
        """Show a choice; `primary` marks the one that most users take."""
        self._title.setText(choice.title)
        show_text(self._text, choice.text)
        if self._shown is None or self._shown.actions != choice.actions:
            self._show_actions(choice, primary=primary)
        self._shown = choice

    def _show_actions(self, choice: FirstChoice, *, primary: bool) -> None:
        while self._actions:
            _discard(self._buttons, self._actions.pop())
        for action, label in choice.actions:
            made = button(label, primary=primary and action in ("compare", "install", "watch"))
            made.clicked.connect(lambda _=False, action=action: self.chosen.emit(choice.place, action))
            self._buttons.addWidget(made)
            self._actions.append(made)


def _discard(layout: QBoxLayout, widget: QWidget) -> None:
    """Take a widget out of a layout at once, and delete it when nothing uses it any more."""
    layout.removeWidget(widget)
    widget.hide()
    widget.deleteLater()


class FirstStartView(QWidget):
    """The cards under a title; `chosen` has the place and the action, `left` says that the user wants none.

    Attributes:
        maker: Makes the environment of runs on this machine.
    """

    chosen = Signal(str, str)
    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName(TITLE)
        self.maker = EnvironmentMaker()
        self._cards: list[ChoiceCard] = []
        self._column = QVBoxLayout()
        self._column.setSpacing(GRID)
        self._later = button("Not now", "Settings leads back to this choice", flat=True)
        self._later.clicked.connect(self.left)
        self._build()

    @property
    def cards(self) -> Sequence[ChoiceCard]:
        """The cards, in their order."""
        return self._cards

    @property
    def later_button(self) -> QPushButton:
        """Button that leaves the choice for later."""
        return self._later

    def show_model(self, choices: Sequence[FirstChoice]) -> None:
        """Show these choices."""
        while len(self._cards) < len(choices):
            card = ChoiceCard()
            card.chosen.connect(self.chosen)
            self._cards.append(card)
            self._column.addWidget(card)
        while len(self._cards) > len(choices):
            _discard(self._column, self._cards.pop())
        for index, (card, choice) in enumerate(zip(self._cards, choices, strict=True)):
            card.show_model(choice, primary=index == 0)

    def _build(self) -> None:
        middle = QWidget()
        middle.setMaximumWidth(_WIDTH)
        column = QVBoxLayout(middle)
        column.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        column.addStretch(1)
        column.addWidget(text_label(TITLE, "title"))
        column.addWidget(text_label(LEAD, "muted", wrap=True))
        column.addSpacing(GRID)
        column.addLayout(self._column)
        column.addWidget(self.maker)
        column.addWidget(self._later, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(2)
        around = QWidget()
        line = QHBoxLayout(around)
        line.setContentsMargins(0, 0, 0, 0)
        line.addStretch(1)
        line.addWidget(middle, 100)
        line.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(Scroller(around, horizontal=False))
