"""What is chosen in the table of runs: choosing the line of a group chooses the runs in it."""

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QModelIndex

from app.gui.views.history_model import HistoryModel


class GroupSelection(QItemSelectionModel):
    """Widens every choice of a group's line by the lines of its runs below it."""

    def __init__(self, model: HistoryModel) -> None:
        super().__init__(model)
        self._rows = model

    def select(  # type: ignore[override]  # one function for both of Qt's
        self, chosen: QItemSelection | QModelIndex, command: QItemSelectionModel.SelectionFlag
    ) -> None:
        """Qt comes here with every change of what is chosen, by mouse or keyboard."""
        selection = QItemSelection(chosen, chosen) if isinstance(chosen, QModelIndex) else chosen
        super().select(self._widened(selection), command)

    def _widened(self, selection: QItemSelection) -> QItemSelection:
        parts = [(part.top(), part.bottom()) for part in selection.toList()]
        last = self._rows.columnCount() - 1
        for top, bottom in self._rows.group_stretches():
            if any(first <= top <= end < bottom for first, end in parts):
                whole = QItemSelection(self._rows.index(top, 0), self._rows.index(bottom, last))
                selection.merge(whole, QItemSelectionModel.SelectionFlag.Select)
        return selection
