"""Rows of the form: one value of a parameter or several as chips, chosen or typed."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import QEvent, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QFont, QGuiApplication, QPalette, QStandardItem, QStandardItemModel, QWheelEvent
from PySide6.QtWidgets import (
    QComboBox,
    QGridLayout,
    QHeaderView,
    QLineEdit,
    QPushButton,
    QSizePolicy,
    QTreeView,
    QWidget,
)

from app.gui.theme import GRID, LEFT
from app.gui.widgets.basic import (
    BreakingLabel,
    ChecksMenu,
    ElidedComboBox,
    button,
    clear_layout,
    make_column,
    plain_tooltip,
    set_role,
    show_text,
    text_label,
)
from app.gui.widgets.panes import FlowBar
from app.viewmodels.hosts import host_field
from app.viewmodels.run.fields import Field, Option

_LABEL_WIDTH = 15 * GRID
SIDE_WIDTH = 3 * GRID + GRID // 2
_WIDEST_LIST = 120 * GRID
_CHIP_WIDTH = 16 * GRID
"""Width of a value's text: a longer one must not widen the form."""
_MOST_CHIPS = 24
"""More values are only counted: their text is above them."""
_MAX_VISIBLE_OPTIONS = 16


def _struck(font: QFont, *, is_struck: bool) -> QFont:
    """Return the font, struck through if its text cannot run here."""
    changed = QFont(font)
    changed.setStrikeOut(is_struck)
    return changed


def option_note(option: Option) -> str:
    """Return why an option cannot run here, else its description."""
    return option.reason or option.help


class ChoiceList(ElidedComboBox):
    """The list of a field's options; those that cannot run here are struck through and say why.

    It ignores the wheel, so that scrolling past it does not change it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._field: Field | None = None
        self._items = QStandardItemModel(self)
        self._list = QTreeView(rootIsDecorated=False, headerHidden=True, uniformRowHeights=True)
        self._list.header().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.setView(self._list)
        self.setModel(self._items)
        self.setMaxVisibleItems(_MAX_VISIBLE_OPTIONS)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(6)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and self._field is not None:
            self.show_field(self._field)

    def show_field(self, field: Field) -> None:
        self._field = field
        palette, groups = QGuiApplication.palette(), QPalette.ColorGroup
        with QSignalBlocker(self):
            self._items.clear()
            for option in field.options:
                item, note = QStandardItem(option.label), QStandardItem(option_note(option))
                item.setData(option.value, Qt.ItemDataRole.UserRole)
                item.setFont(_struck(self.font(), is_struck=option.reason is not None))
                group = groups.Active if option.reason is None else groups.Disabled
                item.setForeground(palette.color(group, QPalette.ColorRole.Text))
                note.setForeground(palette.color(QPalette.ColorRole.PlaceholderText))
                for part in (item, note):
                    part.setToolTip(plain_tooltip(option_note(option)))
                self._items.appendRow([item, note] if any(map(option_note, field.options)) else [item])
            self.setCurrentIndex([option.value for option in field.options].index(field.value))
        self.setFont(_struck(self.font(), is_struck=field.chosen[0].reason is not None))
        self._list.setMinimumWidth(min(sum(map(self._list.sizeHintForColumn, range(2))) + 2 * GRID, _WIDEST_LIST))


class TypedValues(QLineEdit):
    """The line in which values are typed; left empty, it shows the default again."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self.editingFinished.connect(self._fill)

    def show_field(self, field: Field) -> None:
        """Show the values, but not over text being typed."""
        self._text = field.text
        self.setPlaceholderText(field.unset or field.default)
        if not self.hasFocus() or self.text().strip():
            self._fill()
        is_refused = len(field.chosen) == 1 and field.chosen[0].reason is not None
        self.setFont(_struck(self.font(), is_struck=is_refused))

    def _fill(self) -> None:
        if self.text() != self._text:
            with QSignalBlocker(self):
                self.setText(self._text)
            if not self.hasFocus():
                self.setCursorPosition(0)  # a long text shows its beginning


class FieldRow:
    """A parameter's label, the widget of its values, chips for several, and the note below.

    `edit` gets the field and its values, empty for the default; `write` the field and the typed text.
    """

    def __init__(self, field: Field, edit: Callable[..., None], write: Callable[[str, str], None]) -> None:
        self._field, self._edit = field, edit
        self.label = text_label(field.label, "muted", wrap=True)
        self.label.setFixedWidth(_LABEL_WIDTH)
        self.list = ChoiceList() if field.options else None
        self.line = None if field.options else TypedValues()
        self.chips = FlowBar(GRID // 2, GRID // 2)
        self.chip_buttons: list[QPushButton] = []
        self._chips: tuple[Option, ...] = ()
        self.side: QWidget | None = text_label(field.unit, "muted") if field.unit else None
        self.back = button("⟲", flat=True)
        self.note = BreakingLabel("caption")
        if self.list is not None:
            self.list.activated.connect(lambda index: edit(field.name, self.value_at(index)))
        if self.line is not None:
            self.line.textEdited.connect(lambda text: write(field.name, text))
        if field.options and field.takes_several:
            self.side = self._make_menu()
        self.back.clicked.connect(lambda: edit(field.name))
        self._dress(field)

    @property
    def control(self) -> QWidget:
        widget = self.line or self.list
        assert widget is not None, "one of them is made"
        return self.side if widget.isHidden() and self.side is not None else widget

    def value_at(self, index: int) -> object:
        return self._field.options[index].value

    def place(self, grid: QGridLayout, line: int) -> None:
        grid.addWidget(self.label, line, 0)
        grid.addWidget(self._widgets[1], line, 1)
        if self.line is not None:
            grid.addWidget(self.chips, line + 1, 1, 1, 3)
        else:
            grid.addWidget(self.chips, line, 1)
        if self.side is not None:
            grid.addWidget(self.side, line, 2)
        grid.addWidget(self.back, line, 3)
        grid.addWidget(self.note, line + 2, 0, 1, 4)

    def remove(self) -> None:
        for widget in self._widgets:
            widget.hide()
            widget.deleteLater()

    def show_field(self, field: Field, *, visible: bool) -> None:
        self._field = field
        several = len(field.chosen) > 1
        for editor in (self.line, self.list):
            if editor is not None:
                editor.show_field(field)
                editor.setVisible(visible and not (several and editor is self.list))
                editor.setEnabled(field.enabled)
                editor.setToolTip(plain_tooltip("\n".join(filter(None, (field.help, field.chosen[0].reason)))))
                editor.setAccessibleDescription(f"{field.help} {field.note}".strip())
        chips = field.chosen if several else ()
        if chips != self._chips:
            self._show_chips(chips)
        self.chips.setVisible(visible and several)
        set_role(self.label, "heading" if field.default else "muted")
        self.label.setToolTip(plain_tooltip(field.help))
        self.label.setVisible(visible)
        if self.side is not None:
            self.side.setVisible(visible)
        self.back.setVisible(visible and bool(field.default))
        self.back.setToolTip(plain_tooltip(f"Back to the default: {field.default}"))
        self.back.setAccessibleName(f"{field.label} back to the default")
        show_text(self.note, field.note if visible else "")
        set_role(self.note, "problem" if field.problem else "caption")

    @property
    def _widgets(self) -> list[QWidget]:
        editor = self.line or self.list
        assert editor is not None, "one of them is made"
        return [self.label, editor, self.chips, self.back, self.note, *([self.side] if self.side else [])]

    def _dress(self, field: Field) -> None:
        editor = self.line or self.list
        assert editor is not None, "one of them is made"
        editor.setObjectName(f"field.{field.name}")
        editor.setAccessibleName(field.label)
        editor.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.label.setBuddy(editor)
        if self.side is not None:
            self.side.setFixedWidth(SIDE_WIDTH)
        self.back.setFixedWidth(SIDE_WIDTH)

    def _show_chips(self, chosen: tuple[Option, ...]) -> None:
        self._chips = chosen
        focused = next((n for n, chip in enumerate(self.chip_buttons) if chip.hasFocus()), None)
        clear_layout(self.chips.flow)
        self.chip_buttons = []
        for option in chosen[:_MOST_CHIPS]:
            text = self.chips.fontMetrics().elidedText(option.label, Qt.TextElideMode.ElideMiddle, _CHIP_WIDTH)
            chip = button(f"{text} ✕", option.reason or f"Leave out {option.label}", small=True)
            chip.setProperty("chip", "refused" if option.reason else "true")
            chip.setFont(_struck(chip.font(), is_struck=option.reason is not None))
            chip.setAccessibleName(f"Leave out {self._field.label} {option.label}")
            chip.setAccessibleDescription(option.reason or "")
            chip.clicked.connect(lambda _, value=option.value: self._leave_out(value))
            self.chips.flow.addWidget(chip)
            self.chip_buttons.append(chip)
        if len(chosen) > _MOST_CHIPS:
            self.chips.flow.addWidget(text_label(f"and {len(chosen) - _MOST_CHIPS} more", "caption"))
        if focused is not None:  # the focus stays where one was removed
            following: Sequence[QWidget] = self.chip_buttons[focused:] or self.chip_buttons[-1:]
            (following or [self.control])[0].setFocus()

    def _leave_out(self, value: object) -> None:
        self._edit(self._field.name, *(option.value for option in self._field.chosen if option.value != value))

    def _make_menu(self) -> QPushButton:
        menu_button = button("+", f"Several values of {self._field.label}", flat=True)
        menu_button.setAccessibleName(f"More values of {self._field.label}")
        menu = ChecksMenu(menu_button)
        menu.aboutToShow.connect(lambda: self._fill_menu(menu))
        menu_button.clicked.connect(lambda: menu.popup(menu_button.mapToGlobal(menu_button.rect().bottomLeft())))
        return menu_button

    def _fill_menu(self, menu: ChecksMenu) -> None:
        menu.clear()
        field, offered = self._field, self._field.options
        every = [option.value for option in offered if option.reason is None]
        everything = menu.addAction("All that can run here" if len(every) < len(offered) else "All")
        everything.triggered.connect(lambda: self._edit(field.name, *every))
        menu.addSeparator()
        values = {option.value for option in field.chosen}
        for option in offered:
            entry = menu.addAction(f"{option.label}\t{option.reason or ''}")
            entry.setCheckable(True)
            entry.setChecked(option.value in values)
            entry.setFont(_struck(entry.font(), is_struck=option.reason is not None))
            entry.toggled.connect(lambda on, value=option.value: self._tick(value, on=on))

    def _tick(self, value: object, *, on: bool) -> None:
        """Add or remove a value; the last one stays."""
        chosen = [option.value for option in self._field.chosen if option.value != value]
        self._edit(self._field.name, *(([*chosen, value] if on else chosen) or [value]))


_NO_HOSTS = host_field("", (), None)


class HostChoice(QWidget):
    """The choice of the host of runs, how the connection to it is, and the button that connects again.

    `chosen` has the name of a host, "" is this machine.
    """

    chosen = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.row = FieldRow(_NO_HOSTS, lambda _, host: self.chosen.emit(host), lambda *_: None)
        self.retry_button = button("&Try again", "Connect to this host again", flat=True)
        grid = QGridLayout()
        grid.setSpacing(0)  # also of the columns for other buttons, which would end the list before others do
        self.row.label.setFixedWidth(_LABEL_WIDTH + GRID // 2)  # as in the form, so that the controls align
        grid.setColumnStretch(1, 1)
        self.row.place(grid, 0)
        make_column(grid, (self.retry_button, 0, LEFT), parent=self, margins=0, spacing=GRID // 2)
        self.show_field(_NO_HOSTS, can_retry=False)

    def show_field(self, field: Field, *, can_retry: bool) -> None:
        self.row.show_field(field, visible=True)
        self.retry_button.setVisible(can_retry)
