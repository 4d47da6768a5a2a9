"""One control per kind of parameter: shows a `Field`, tells what the user set."""

from collections.abc import Callable
from typing import Protocol

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtGui import QStandardItem, QStandardItemModel, QWheelEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QLineEdit, QSpinBox, QWidget

from app.gui.views.options import OptionDelegate, words_beside
from app.gui.views.parts import prepare_spin_box
from app.viewmodels.form import Field
from workloads.protocol import Value

Edited = Callable[[str, Value], None]

_MOST_OPTIONS = 16


class Control(Protocol):
    """A control in the form."""

    @property
    def widget(self) -> QWidget:
        """What stands in the form."""

    def show_field(self, field: Field) -> None:
        """Show this value, these options and limits, without telling of an edit."""


def control_for(field: Field, edited: Edited) -> Control:
    """The control that suits the field's kind."""
    if field.kind == "choice":
        return ChoiceControl(field.name, edited)
    if field.kind == "switch":
        return SwitchControl(field.name, edited)
    if field.kind in ("text", "path"):
        return TextControl(field.name, edited)
    return IntegerControl(field.name, edited) if field.kind == "integer" else NumberControl(field.name, edited)


class _Choice(QComboBox):
    """Leaves the wheel to the form's scrolling, so that scrolling by changes nothing."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class _Integer(QSpinBox):
    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class _Number(QDoubleSpinBox):
    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def textFromValue(self, value: float) -> str:
        """As many decimals as the value has, two at least."""
        text = super().textFromValue(value)
        more = max(0, self.decimals() - 2)
        return text[: len(text) - more] + text[len(text) - more :].rstrip("0")


class ChoiceControl:
    """A drop-down list; options that cannot run here are there, disabled, with the reason beside them."""

    def __init__(self, name: str, edited: Edited) -> None:
        self.widget = _Choice()
        self._items = QStandardItemModel(self.widget)
        self._delegate = OptionDelegate(self.widget)
        self.widget.setModel(self._items)
        self.widget.setItemDelegate(self._delegate)
        self.widget.setMaxVisibleItems(_MOST_OPTIONS)
        self.widget.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.widget.setMinimumContentsLength(6)
        self.widget.activated.connect(lambda index: edited(name, self.widget.itemData(index)))

    def show_field(self, field: Field) -> None:
        """Fill the list and choose the value."""
        with QSignalBlocker(self.widget):
            self._items.clear()
            for option in field.options:
                item = QStandardItem(option.label)
                item.setData(option.value, Qt.ItemDataRole.UserRole)
                item.setToolTip(words_beside(option))
                item.setEnabled(option.reason is None)
                self._items.appendRow(item)
            values = [option.value for option in field.options]
            self.widget.setCurrentIndex(values.index(field.value))
        self.widget.view().setMinimumWidth(self._delegate.measure(field.options, self.widget.fontMetrics()))


class SwitchControl:
    """A check box."""

    def __init__(self, name: str, edited: Edited) -> None:
        self.widget = QCheckBox()
        self.widget.clicked.connect(lambda checked: edited(name, checked))

    def show_field(self, field: Field) -> None:
        """Tick or untick."""
        self.widget.setChecked(bool(field.value))


class IntegerControl:
    """A whole number with its limits; told when typing ends, not at each digit."""

    def __init__(self, name: str, edited: Edited) -> None:
        self.widget = _Integer()
        prepare_spin_box(self.widget)
        self.widget.setGroupSeparatorShown(True)
        self.widget.valueChanged.connect(lambda value: edited(name, value))

    def show_field(self, field: Field) -> None:
        """Set limits and value."""
        with QSignalBlocker(self.widget):
            self.widget.setRange(int(field.minimum), int(field.maximum))
            self.widget.setSuffix(f" {field.unit}" if field.unit else "")
            self.widget.setSpecialValueText(field.unset)
            self.widget.setValue(int(field.value))


class NumberControl:
    """A number with its limits and unit."""

    def __init__(self, name: str, edited: Edited) -> None:
        self.widget = _Number()
        prepare_spin_box(self.widget)
        self.widget.valueChanged.connect(lambda value: edited(name, value))

    def show_field(self, field: Field) -> None:
        """Set limits and value."""
        with QSignalBlocker(self.widget):
            self.widget.setDecimals(field.decimals)
            self.widget.setRange(field.minimum, field.maximum)
            self.widget.setSuffix(f" {field.unit}" if field.unit else "")
            self.widget.setValue(float(field.value))


class TextControl:
    """A line of text; told when typing ends."""

    def __init__(self, name: str, edited: Edited) -> None:
        self.widget = QLineEdit()
        self.widget.editingFinished.connect(lambda: self._tell(name, edited))

    def show_field(self, field: Field) -> None:
        """Set the text."""
        self.widget.setText(str(field.value))
        self.widget.setModified(False)
        self.widget.setPlaceholderText(field.unset)

    def _tell(self, name: str, edited: Edited) -> None:
        if self.widget.isModified():
            self.widget.setModified(False)
            edited(name, self.widget.text())
