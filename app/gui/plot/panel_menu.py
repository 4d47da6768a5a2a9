"""The menu of one plot: its value axis, smoothing and pictures, and what its stack adds."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QFormLayout, QLineEdit, QMenu, QVBoxLayout

from app import units
from app.gui.plot.export import add_picture_actions, draw_stacked
from app.gui.theme import Theme
from app.gui.widgets.basic import text_label
from app.viewmodels.plot.look import ValueMode, format_window, smoothing_windows

if TYPE_CHECKING:
    from app.gui.plot.time_panel import TimePanel

_MODES: dict[ValueMode, str] = {"zero": "From &zero", "data": "&Fit to the data in view", "log": "&Logarithmic"}


def show_panel_menu(panel: "TimePanel", theme: Theme, position: QPoint) -> None:
    """Show the menu of a plot.

    The plot's own actions come first.
    """
    menu = QMenu(panel)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    menu.addActions(panel.actions())
    menu.addSeparator()
    _add_modes(menu.addMenu("&Value axis"), panel)
    _add_windows(menu.addMenu("S&moothing"), panel)
    menu.addSeparator()
    add_picture_actions(menu, panel, lambda: draw_stacked([panel.snapshot()], theme, panel.width()))
    menu.popup(position)


def _add_modes(menu: QMenu, panel: "TimePanel") -> None:
    look, group = panel.look, QActionGroup(menu)
    for mode, text in _MODES.items():
        _add_choice(
            menu,
            group,
            text,
            look.values is None and look.mode == mode,
            partial(panel.change_look, replace(look, mode=mode, values=None)),
        )
    menu.addSeparator()
    _add_choice(menu, group, "By &hand …", look.values is not None, lambda: ValuesDialog(panel).open())


def _add_windows(menu: QMenu, panel: "TimePanel") -> None:
    look, group = panel.look, QActionGroup(menu)
    start, end = panel.span
    windows = sorted({*smoothing_windows(end - start), *([look.smoothing] if look.smoothing else [])})
    for window in (0.0, *windows):
        text = f"Running mean of {format_window(window, counts=panel.axis.counted)}" if window else "&None"
        _add_choice(
            menu,
            group,
            text,
            look.smoothing == window,
            partial(panel.change_look, replace(look, smoothing=window)),
        )


def _add_choice(menu: QMenu, group: QActionGroup, text: str, chosen: bool, act: Callable[[], None]) -> None:
    action = menu.addAction(text)
    action.setCheckable(True)
    action.setChecked(chosen)
    group.addAction(action)
    action.triggered.connect(lambda _=False: act())


class ValuesDialog(QDialog):
    """Asks for the range of a plot's value axis; a range that cannot be is said, and stays to be mended."""

    def __init__(self, panel: "TimePanel") -> None:
        super().__init__(panel)
        self._panel = panel
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(f"Value axis of {panel.title}")
        low, high = panel.values.span
        self.fields = tuple(QLineEdit(f"{value:.6g}") for value in (low, high))
        self._problem = text_label("", "problem", wrap=True)
        form = QFormLayout()
        for name, made in zip(("From", "To"), self.fields, strict=True):
            made.setAccessibleName(f"{name}, {panel.unit}" if panel.unit else name)
            form.addRow(f"{name} ({panel.unit})" if panel.unit else name, made)
        buttons = QDialogButtonBox()
        ok = buttons.addButton("Set range", QDialogButtonBox.ButtonRole.AcceptRole)
        automatic = buttons.addButton("Automatic", QDialogButtonBox.ButtonRole.ResetRole)
        buttons.addButton("Cancel", QDialogButtonBox.ButtonRole.RejectRole)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        automatic.clicked.connect(self._reset)
        layout = QVBoxLayout(self)
        layout.addLayout(form)
        layout.addWidget(self._problem)
        layout.addWidget(buttons)
        ok.setDefault(True)  # only now that it is in the dialog: Qt would choose the first, and Enter reset the axis

    @property
    def problem(self) -> str:
        """Why the range cannot be, or nothing."""
        return self._problem.text()

    def accept(self) -> None:
        """Set the range."""
        look = self._panel.look
        low, high = (_typed_number(made.text()) for made in self.fields)
        if low is None or high is None or not low < high:
            self._problem.setText("The axis needs two numbers, the first below the second.")
        elif look.mode == "log" and low <= 0:
            self._problem.setText("A logarithmic axis begins above 0.")
        else:
            self._panel.change_look(replace(look, values=(low, high)))
            super().accept()

    def _reset(self) -> None:
        self._panel.change_look(replace(self._panel.look, values=None))
        super().accept()


def _typed_number(text: str) -> float | None:
    """Return the number typed; `1,100` is what the axis itself writes for 1100."""
    found = units.typed_number(text)
    return units.typed_number(text, whole=True) if found is None else found
