"""Asks how far a search for the largest batch may go."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QInputDialog, QWidget

from app.viewmodels.form import FormState

_CPU_DOUBLINGS = 4


class LimitDialog(QInputDialog):
    """One number: the batch size to go no further than. On the CPU it matters, so it starts near what is chosen."""

    def __init__(self, state: FormState, parent: QWidget) -> None:
        super().__init__(parent)
        fields = {field.name: field for field in state.fields}
        first, most = int(fields["batch_size"].value), int(fields["batch_size"].maximum)
        on_cpu = fields["gpus"].value == 0
        warning = "\nOn the CPU a batch that does not fit makes the whole machine swap." if on_cpu else ""
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Find the largest batch")
        self.setLabelText(
            f"Short runs: the batch doubles from {first:,} until memory runs out,\nthen what lies between is searched."
            f"{warning}\n\nGo no further than"
        )
        self.setInputMode(QInputDialog.InputMode.IntInput)
        self.setIntRange(first, most)
        self.setIntValue(min(most, first * 2**_CPU_DOUBLINGS) if on_cpu else most)
        self.setOkButtonText("&Search")
