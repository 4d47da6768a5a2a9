"""The Compare screen while nothing is compared: suggested comparisons, each with a button."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.widgets.basic import button, clear_layout, separator, text_label
from app.gui.widgets.panes import Scroller

if TYPE_CHECKING:
    from app.viewmodels.compare.offers import Offer, OfferAction

_OFFERS_WIDTH = 88 * GRID
_BUTTON_WIDTH = 14 * GRID
_BUTTON_TEXTS: "Mapping[OfferAction, str]" = {
    "compare": "Compare",
    "article": "Compare",
    "add": "Add",
    "build": "Choose …",
}


class OffersView(Scroller):
    """Shows `Offer`s; `offer_accepted` has the one whose button was pressed."""

    offer_accepted = Signal(object)

    def __init__(self) -> None:
        super().__init__(horizontal=False)
        self._offers: tuple[Offer, ...] | None = None
        self._buttons: dict[Offer, QPushButton] = {}
        self._rows = QVBoxLayout()
        self._experiments = button("Another &experiment …", "Compare the runs of an experiment", flat=True)
        self._experiments.hide()
        self._build()

    @property
    def experiments_button(self) -> QPushButton:
        """Button that offers the stored experiments."""
        return self._experiments

    @property
    def offers(self) -> "Mapping[Offer, QPushButton]":
        """The offers with their buttons."""
        return self._buttons

    def show_offers(self, offers: "Sequence[Offer]", *, experiments: bool) -> None:
        """Show these offers, and the button for stored experiments if there are any; equal offers stay."""
        self._experiments.setVisible(experiments)
        if tuple(offers) == self._offers:
            return
        self._offers = tuple(offers)
        clear_layout(self._rows)
        self._buttons = {}
        for offer in offers:
            self._rows.addWidget(separator())
            self._rows.addWidget(self._offer_row(offer))
        self._rows.addWidget(separator())
        self._take_keyboard()

    def show_adding(self) -> None:
        """Disable the offer that adds runs until the next offers."""
        self._offers = None
        for offer, made in self._buttons.items():
            if offer.action == "add":
                made.setText("Adding …")
                made.setEnabled(False)

    def _take_keyboard(self) -> None:
        """Give the keyboard to the first offer where Qt left it to the page, in which nothing took it yet."""
        now, first = self.window().focusWidget(), next(iter(self._buttons.values()), None)
        if first is not None and self.isVisible() and now is not None and now.isAncestorOf(first):
            first.setFocus()

    def _offer_row(self, offer: "Offer") -> QWidget:
        made = button(_BUTTON_TEXTS[offer.action], offer.detail)
        made.setAccessibleName(f"{_BUTTON_TEXTS[offer.action]}: {offer.title}")
        made.setMinimumWidth(_BUTTON_WIDTH)
        made.clicked.connect(lambda: self.offer_accepted.emit(offer))
        self._buttons[offer] = made
        texts = QVBoxLayout()
        texts.setSpacing(GRID // 2)
        texts.addWidget(text_label(offer.title, "heading", wrap=True))
        texts.addWidget(text_label(offer.detail, "muted", wrap=True))
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, GRID + GRID // 2, 0, GRID + GRID // 2)
        layout.setSpacing(3 * GRID)
        layout.addLayout(texts, 1)
        layout.addWidget(made, 0, Qt.AlignmentFlag.AlignVCenter)
        return row

    def _build(self) -> None:
        hint = text_label(
            "Select runs in History (Ctrl+3) and press Compare (Ctrl+Shift+C), or start with one of these.",
            "muted",
            wrap=True,
        )
        inside = QWidget()
        inside.setMaximumWidth(_OFFERS_WIDTH)
        column = QVBoxLayout(inside)
        column.setContentsMargins(2 * GRID, 10 * GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        column.addWidget(text_label("Nothing to compare yet", "title"))
        column.addWidget(hint)
        column.addSpacing(GRID)
        self._rows.setSpacing(0)
        column.addLayout(self._rows)
        column.addWidget(self._experiments, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch(1)
        content = QWidget()
        middle = QHBoxLayout(content)
        middle.setContentsMargins(0, 0, 0, 0)
        middle.addStretch(1)
        middle.addWidget(inside, 100)
        middle.addStretch(1)
        self.setWidget(content)
