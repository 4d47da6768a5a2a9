"""The line above a page that says what went wrong, with the button that tries the same once more."""

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from app.errors import UserError
from app.gui.theme import GRID
from app.gui.widgets.basic import button, make_row, show_text, text_label

Retry = Callable[[], None]


class ProblemLine(QWidget):
    """One sentence; it takes no room while there is none.

    Thread: GUI only.
    """

    def __init__(self) -> None:
        super().__init__()
        self._retry: Retry | None = None
        self._is_read = False
        self._text = text_label("", "bad", wrap=True)
        self._button = button("&Try again", "Read it once more", small=True)
        self._button.clicked.connect(self._try_again)
        layout = make_row((self._text, 1), parent=self, margins=(2 * GRID, GRID, 2 * GRID, 0), spacing=2 * GRID)
        layout.addWidget(self._button, 0, Qt.AlignmentFlag.AlignTop)
        self.hide()

    @property
    def text(self) -> str:
        """The sentence; "" for none."""
        return self._text.text()

    def show_sentence(self, sentence: str) -> None:
        """Show a sentence that is not about a read; "" hides it, and what failed to be read."""
        self._is_read = False
        self._show(sentence, None)

    def show_failed_read(self, error: UserError, retry: Retry) -> None:
        """Show why something could not be read, and offer to read it again where that may help."""
        self._is_read = True
        self._show(str(error), retry if error.may_pass else None)

    def end_failed_read(self) -> None:
        """Hide what failed to be read, as it was read now; a sentence about something else stays."""
        if self._is_read:
            self.show_sentence("")

    def _show(self, sentence: str, retry: Retry | None) -> None:
        self._retry = retry
        show_text(self._text, sentence)
        self._button.setVisible(retry is not None)
        self._button.setEnabled(True)
        self.setVisible(bool(sentence))

    def _try_again(self) -> None:
        """Read again; whoever reads shows how it ends."""
        if self._retry is not None:
            self._button.setEnabled(False)
            self._retry()
