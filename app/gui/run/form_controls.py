"""Input controls of the form, one per parameter type, and the option list of a choice."""

from collections.abc import Callable, Sequence
from typing import Protocol

from PySide6.QtCore import QRect, QSignalBlocker, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QGuiApplication,
    QPainter,
    QPalette,
    QStandardItem,
    QStandardItemModel,
    QWheelEvent,
)
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QGridLayout,
    QLineEdit,
    QSizePolicy,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.gui.theme import GRID, LEFT
from app.gui.widgets.basic import BreakingLabel, DecimalBox, IntegerBox, button, plain_tooltip, set_role, text_label
from app.gui.widgets.cell_table import AnyIndex
from app.viewmodels.hosts import host_field
from app.viewmodels.run.form import Field, Option
from workloads.protocol import Value

_NOTE_ALPHA = 0.65
_NOTE_ROLE = Qt.ItemDataRole.UserRole + 1
_OPTION_HEIGHT = 3 * GRID
_LABEL_WIDTH = 16 * GRID
_WIDEST_LIST = 120 * GRID
_SELECTED = QPalette.ColorRole.HighlightedText


class OptionDelegate(QStyledItemDelegate):
    """Paints an option with its note, or why it cannot run here; the notes of a list are aligned."""

    def __init__(self, parent: QComboBox) -> None:
        super().__init__(parent)
        self._note_x = 0

    def measure(self, options: Sequence[Option], metrics: QFontMetrics) -> int:
        """Measure where notes begin, and return the preferred width of the list, in pixels."""
        notes = max((metrics.horizontalAdvance(option_note(option)) for option in options), default=0)
        labels = max((metrics.horizontalAdvance(option.label) for option in options), default=0)
        self._note_x = labels + 3 * GRID if notes else 0
        return min(self._note_x + notes + 4 * GRID, _WIDEST_LIST) if notes else 0

    def sizeHint(self, option: QStyleOptionViewItem, index: AnyIndex) -> QSize:
        """Return the size with padding: the style sheet's does not reach a delegate."""
        return QSize(super().sizeHint(option, index).width(), _OPTION_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """Paint the option, faint where it is disabled, and its note fainter."""
        area = QRect(option.rect).adjusted(GRID, 0, -GRID, 0)
        enabled = bool(option.state & QStyle.StateFlag.State_Enabled)
        selected = enabled and bool(option.state & QStyle.StateFlag.State_Selected)
        if selected:
            painter.fillRect(option.rect, QGuiApplication.palette().highlight())
        painter.save()
        painter.setPen(_option_colour(enabled=enabled, selected=selected))
        painter.drawText(area, LEFT, str(index.data()))
        if self._note_x:
            quiet = _option_colour(enabled=True, selected=selected)
            quiet.setAlphaF(_NOTE_ALPHA)
            painter.setPen(quiet)
            area.setLeft(area.left() + self._note_x)
            note = str(index.data(_NOTE_ROLE) or "")
            text = option.fontMetrics.elidedText(note, Qt.TextElideMode.ElideRight, area.width())
            painter.drawText(area, LEFT, text)
        painter.restore()


def _option_colour(*, enabled: bool, selected: bool) -> QColor:
    """Return the colour from the palette: the style sheet's does not distinguish disabled options."""
    group = QPalette.ColorGroup.Active if enabled else QPalette.ColorGroup.Disabled
    return QColor(QGuiApplication.palette().color(group, _SELECTED if selected else QPalette.ColorRole.Text))


def option_note(option: Option) -> str:
    """Return why an option cannot run here, else its description."""
    return option.reason or option.help


Edited = Callable[[str, Value], None]

_MAX_VISIBLE_OPTIONS = 16


class Control(Protocol):
    """A control in the form."""

    @property
    def widget(self) -> QWidget:
        """The widget in the form."""

    def show_field(self, field: Field) -> None:
        """Show value, options and limits, without reporting an edit."""


def control_for(field: Field, edited: Edited) -> Control:
    """Make the control for the field's type."""
    if field.kind == "choice":
        return ChoiceControl(field.name, edited)
    if field.kind == "switch":
        return SwitchControl(field.name, edited)
    if field.kind == "text":
        return TextControl(field.name, edited)
    if field.kind == "path":
        return PathControl(field.name, edited)
    return IntegerControl(field.name, edited) if field.kind == "integer" else NumberControl(field.name, edited)


class _ComboBox(QComboBox):
    """Ignores the wheel, so that scrolling past it changes nothing."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class _SpinBox(IntegerBox):
    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class _DecimalSpinBox(DecimalBox):
    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def textFromValue(self, value: float) -> str:
        """Return the value without needless zeros: 10, 0.5."""
        text = super().textFromValue(value)
        return text.rstrip("0").removesuffix(".") if "." in text else text


class ChoiceControl:
    """A drop-down list; options that cannot run here are disabled and show the reason."""

    def __init__(self, name: str, edited: Edited) -> None:
        self.widget = _ComboBox()
        self._items = QStandardItemModel(self.widget)
        self._delegate = OptionDelegate(self.widget)
        self.widget.setModel(self._items)
        self.widget.setItemDelegate(self._delegate)
        self.widget.setMaxVisibleItems(_MAX_VISIBLE_OPTIONS)
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
                item.setData(option_note(option), _NOTE_ROLE)
                item.setToolTip(plain_tooltip(option_note(option)))
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
    """A whole number with its limits, reported when typing ends."""

    def __init__(self, name: str, edited: Edited) -> None:
        self.widget = _SpinBox()
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
        self.widget = _DecimalSpinBox()
        self.widget.valueChanged.connect(lambda value: edited(name, value))

    def show_field(self, field: Field) -> None:
        """Set limits and value."""
        with QSignalBlocker(self.widget):
            self.widget.setDecimals(field.decimals)
            self.widget.setRange(field.minimum, field.maximum)
            self.widget.setSuffix(f" {field.unit}" if field.unit else "")
            self.widget.setValue(float(field.value))


class PathControl:
    """A line of text with a list of names that may be chosen in place of a path; reported when typing ends."""

    def __init__(self, name: str, edited: Edited) -> None:
        self.widget = _ComboBox()
        self._line = QLineEdit()
        self.widget.setLineEdit(self._line)
        self.widget.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.widget.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self._shown = ""
        self._line.editingFinished.connect(lambda: self._emit_edit(self._line.text(), name, edited))
        self.widget.activated.connect(lambda index: self._emit_edit(self.widget.itemData(index), name, edited))

    def show_field(self, field: Field) -> None:
        """Set the text, and fill the list."""
        self._shown = str(field.value)
        with QSignalBlocker(self.widget):
            self.widget.clear()
            self.widget.addItem(field.unset, "")
            for value in field.suggestions:
                self.widget.addItem(value, value)
            self.widget.setEditText(self._shown)
        self._line.setPlaceholderText(field.unset)

    def _emit_edit(self, text: str, name: str, edited: Edited) -> None:
        self._line.setText(text)
        if text != self._shown:
            self._shown = text
            edited(name, text)


class TextControl:
    """A line of text, reported when typing ends."""

    def __init__(self, name: str, edited: Edited) -> None:
        self.widget = QLineEdit()
        self.widget.editingFinished.connect(lambda: self._emit_edit(name, edited))

    def show_field(self, field: Field) -> None:
        """Set the text."""
        self.widget.setText(str(field.value))
        self.widget.setModified(False)
        self.widget.setPlaceholderText(field.unset)

    def _emit_edit(self, name: str, edited: Edited) -> None:
        if self.widget.isModified():
            self.widget.setModified(False)
            edited(name, self.widget.text())


class FieldRow:
    """A parameter's label, its control and the note below."""

    def __init__(self, control: Control, field: Field) -> None:
        self.control = control
        self.label = text_label(field.label, "muted", wrap=True)
        self.label.setBuddy(control.widget)
        self.label.setFixedWidth(_LABEL_WIDTH)
        self.note = BreakingLabel("caption")
        control.widget.setAccessibleName(field.label)
        control.widget.setObjectName(f"field.{field.name}")
        control.widget.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_field(self, field: Field, *, visible: bool) -> None:
        """Show the field's value, limits and note."""
        self.control.show_field(field)
        self.control.widget.setEnabled(field.enabled)
        self.note.setText(field.note)
        set_role(self.note, "problem" if field.problem else "caption")
        for widget in (self.label, self.control.widget):
            widget.setToolTip(plain_tooltip(f"{field.help}\n{field.note}" if field.note else field.help))
            widget.setVisible(visible)
        self.control.widget.setAccessibleDescription(f"{field.help} {field.note}".strip())
        self.note.setVisible(visible and bool(field.note))


_NO_HOSTS = host_field("", (), None)


class HostChoice(QWidget):
    """The choice of the host of runs, how the connection to it is, and the button that connects again.

    `chosen` has the name of a host, "" is this machine.
    """

    chosen = Signal(str)
    retry_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.row = FieldRow(control_for(_NO_HOSTS, lambda _, host: self.chosen.emit(host)), _NO_HOSTS)
        self.retry_button = button("&Try again", "Connect to this host again", flat=True)
        self.retry_button.clicked.connect(self.retry_requested)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(GRID)
        grid.setVerticalSpacing(GRID // 2)
        grid.setColumnStretch(1, 1)
        grid.addWidget(self.row.label, 0, 0)
        grid.addWidget(self.row.control.widget, 0, 1)
        grid.addWidget(self.row.note, 1, 0, 1, 2)
        grid.addWidget(self.retry_button, 2, 0, 1, 2, Qt.AlignmentFlag.AlignLeft)
        self.show_field(_NO_HOSTS, can_retry=False)

    def show_field(self, field: Field, *, can_retry: bool) -> None:
        """Show the hosts to choose from, and how the connection to the one chosen is."""
        self.row.show_field(field, visible=True)
        self.retry_button.setVisible(can_retry)
