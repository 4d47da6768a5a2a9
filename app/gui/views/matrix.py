"""Where experiments are built: several values of any parameter, or one of those prepared."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QButtonGroup, QHBoxLayout, QPushButton, QStackedWidget, QVBoxLayout, QWidget

from app.gui.theme import GRID
from app.gui.views.matrix_foot import MatrixFoot
from app.gui.views.matrix_presets import PresetList
from app.gui.views.matrix_rows import MatrixRows
from app.gui.views.parts import button, rule, switch, text_label
from app.viewmodels.matrix_state import MatrixState

_HELP = (
    "Every combination of the values becomes a variant. What has one value here is as in the form at the left.",
    "Questions with their variants and repeats, fitted to this machine.",
)


class MatrixView(QWidget):
    """Shows a `MatrixState` and the presets; `rows`, `foot` and `presets` tell what the user wants."""

    close_asked = Signal()
    presets_shown = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.rows = MatrixRows()
        self.foot = MatrixFoot()
        self.presets = PresetList()
        self._help = text_label("", "caption", wrap=True)
        self._pages = QStackedWidget()
        self._tabs = QButtonGroup(self)
        for at, (name, says) in enumerate((("&Values", "Choose the values"), ("Pre&pared", "Take a prepared one"))):
            tab = switch(name, says)
            self._tabs.addButton(tab, at)
        self._close = button("Close", "Back to the plots (Escape)", flat=True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._connect()
        self._build()
        self.show_page(0)

    def tab(self, index: int) -> QPushButton:
        """Turns to the values, 0, or to the presets, 1."""
        found = self._tabs.button(index)
        assert isinstance(found, QPushButton), "both are push buttons"
        return found

    def show_page(self, index: int) -> None:
        """The values, 0, or the presets, 1."""
        self.tab(index).setChecked(True)
        self._pages.setCurrentIndex(index)
        self._help.setText(_HELP[index])
        if index == 1:
            self.presets_shown.emit()

    def show_model(self, state: MatrixState, ahead: str, *, stored: bool, busy: bool) -> None:
        """Show this state and what is known `ahead` of it, `stored`: runs of it are."""
        self.rows.show_rows(state.rows)
        self.foot.show_model(state, ahead, stored=stored, busy=busy)

    def _connect(self) -> None:
        self._tabs.idClicked.connect(self.show_page)
        self._close.clicked.connect(self.close_asked)
        escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), self)
        escape.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        escape.activated.connect(self.close_asked)

    def _build(self) -> None:
        head = QHBoxLayout()
        head.setSpacing(GRID // 2)
        head.addWidget(text_label("New experiment", "title"))
        head.addSpacing(2 * GRID)
        for tab in self._tabs.buttons():
            head.addWidget(tab)
        head.addStretch(1)
        head.addWidget(self._close)
        top = QVBoxLayout()
        top.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, GRID)
        top.setSpacing(GRID // 2)
        top.addLayout(head)
        top.addWidget(self._help)
        values = QWidget()
        column = QVBoxLayout(values)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.rows, 1)
        column.addWidget(self.foot)
        self._pages.addWidget(values)
        self._pages.addWidget(self.presets)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(top)
        layout.addWidget(rule())
        layout.addWidget(self._pages, 1)
