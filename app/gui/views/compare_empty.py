"""What the Compare screen shows before anything is compared: what could be, each with a button that does it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.views.parts import Scroller, button, clear, rule, text_label

if TYPE_CHECKING:
    from app.viewmodels.compare_offers import Act, Offer

_WIDTH = 88 * GRID
_BUTTON_WIDTH = 14 * GRID
_DOES: "Mapping[Act, str]" = {"compare": "Compare", "article": "Compare", "add": "Add", "build": "Choose …"}


class CompareEmpty(Scroller):
    """Shows `Offer`s; `taken` has the one whose button was pressed."""

    taken = Signal(object)
    experiments_wanted = Signal()

    def __init__(self) -> None:
        super().__init__(sideways=False)
        self._offers: tuple[Offer, ...] | None = None
        self._buttons: dict[Offer, QPushButton] = {}
        self._cards = QVBoxLayout()
        self._experiments = button("Another &experiment …", "Compare the runs of an experiment", flat=True)
        self._experiments.clicked.connect(self.experiments_wanted)
        self._experiments.hide()
        self._build()

    @property
    def experiments_button(self) -> QPushButton:
        """Offers the stored experiments."""
        return self._experiments

    @property
    def offers(self) -> "Mapping[Offer, QPushButton]":
        """What is offered, with the button that takes it."""
        return self._buttons

    def show_offers(self, offers: "Sequence[Offer]", *, experiments: bool) -> None:
        """Offer these, made anew only where they are others than before, and the stored experiments if there are."""
        self._experiments.setVisible(experiments)
        if tuple(offers) == self._offers:
            return
        self._offers = tuple(offers)
        clear(self._cards)
        self._buttons = {}
        for offer in offers:
            self._cards.addWidget(rule())
            self._cards.addWidget(self._card(offer))
        self._cards.addWidget(rule())

    def show_adding(self) -> None:
        """Say that runs are being added, until the next offers."""
        self._offers = None
        for offer, made in self._buttons.items():
            if offer.act == "add":
                made.setText("Adding …")
                made.setEnabled(False)

    def _card(self, offer: "Offer") -> QWidget:
        made = button(_DOES[offer.act], offer.detail)
        made.setAccessibleName(f"{_DOES[offer.act]}: {offer.title}")
        made.setMinimumWidth(_BUTTON_WIDTH)
        made.clicked.connect(lambda: self.taken.emit(offer))
        self._buttons[offer] = made
        words = QVBoxLayout()
        words.setSpacing(GRID // 2)
        words.addWidget(text_label(offer.title, "heading", wrap=True))
        words.addWidget(text_label(offer.detail, "muted", wrap=True))
        card = QWidget()
        whole = QHBoxLayout(card)
        whole.setContentsMargins(0, GRID + GRID // 2, 0, GRID + GRID // 2)
        whole.setSpacing(3 * GRID)
        whole.addLayout(words, 1)
        whole.addWidget(made, 0, Qt.AlignmentFlag.AlignVCenter)
        return card

    def _build(self) -> None:
        told = text_label(
            "Choose runs in History (Ctrl+3) and press Compare (Ctrl+Shift+C), or take one of these.",
            "muted",
            wrap=True,
        )
        inside = QWidget()
        inside.setMaximumWidth(_WIDTH)
        column = QVBoxLayout(inside)
        column.setContentsMargins(2 * GRID, 10 * GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        column.addWidget(text_label("Nothing to compare yet", "title"))
        column.addWidget(told)
        column.addSpacing(GRID)
        self._cards.setSpacing(0)
        column.addLayout(self._cards)
        column.addWidget(self._experiments, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)
        content = QWidget()
        middle = QHBoxLayout(content)
        middle.setContentsMargins(0, 0, 0, 0)
        middle.addStretch(1)
        middle.addWidget(inside, 100)
        middle.addStretch(1)
        self.setWidget(content)
