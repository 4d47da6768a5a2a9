"""Asks how far a search for the largest batch may go."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QInputDialog, QWidget

from app.viewmodels.largest_batch import LimitQuestion


class LimitDialog(QInputDialog):
    """One number: the batch size to go no further than."""

    def __init__(self, question: LimitQuestion, parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Find the largest batch")
        self.setLabelText(question.words)
        self.setInputMode(QInputDialog.InputMode.IntInput)
        self.setIntRange(question.least, question.most)
        self.setIntValue(question.usual)
        self.setOkButtonText("&Search")
