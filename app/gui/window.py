"""The main window: tabs over the screens, a description of the machine, and keyboard shortcuts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QCloseEvent, QIcon, QKeySequence, QPaintEvent, QShortcut
from PySide6.QtWidgets import (
    QHBoxLayout,
    QMainWindow,
    QMenu,
    QMessageBox,
    QStackedWidget,
    QTabBar,
    QVBoxLayout,
    QWidget,
)

from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import button, plain_tooltip, separator, set_role, show_text, text_label
from app.paths import RESOURCES

_SHORTCUTS = (
    ("Ctrl+R", "Run the variant in the form"),
    ("Ctrl+.", "Stop the run"),
    ("Ctrl+E", "On the Run screen: compare several values of any parameter"),
    ("Ctrl+O", "Replay a trace, a file that `watch --json` wrote"),
    ("Ctrl+S", "Save the plot under the pointer, or all plots, as an image"),
    ("Ctrl+Shift+S", "Copy the plot under the pointer, or all plots, to the clipboard"),
    ("Ctrl+J", "Go to the queue, where these keys act on an experiment:"),
    ("Alt+↑, Alt+↓", "Move it up or down"),
    ("Space, Delete", "Pause or resume it; remove it, or cancel it while it runs"),
    ("Enter", "Show its verdict"),
    ("Ctrl+L", "Go to the live plots, where these keys act:"),
    ("1, 2, 3", "The last 30 s, the last 5 min, everything"),
    ("Space", "Pause or resume the plots"),
    ("F, End", "Follow new data"),
    ("←, →", "Move the crosshair; with Shift the view"),
    ("+, −", "Zoom in and out, like the wheel"),
    ("M", "In a replay: jump to the measured part"),
    ("G", "One panel per GPU, or one for all"),
    ("B, Space", "In a comparison: make a row the baseline; show or hide its curves"),
    ("Ctrl+C", "In a comparison: copy the table"),
    ("Ctrl+3", "Go to the history, where these keys act:"),
    ("Ctrl+F, Escape", "Search, and show all runs again"),
    ("T, N", "Change tags, write a note"),
    ("Delete, Ctrl+Z", "Delete the selected runs, restore them"),
    ("Ctrl+G, ←, →", "Group by experiment, fold, unfold"),
    ("Ctrl+Shift+C", "Compare the selected runs"),
    ("Ctrl+Q", "Close the window"),
    ("F1", "This list"),
    ("Tab, Shift+Tab", "Next and previous control"),
)


RUN, MONITOR, HISTORY, COMPARE = range(4)
"""The pages, in the order of their tabs."""


@dataclass(frozen=True, slots=True)
class Page:
    """The title of a screen's tab, and what makes the screen when it is first needed."""

    title: str
    make: Callable[[], QWidget]


class MainWindow(QMainWindow):
    """Tabs over pages that are made when first needed. Closing emits `close_requested` until `allow_close`.

    Every page has its own copy of the style sheet: when the theme changes, a hidden one gets it when it is shown.
    """

    painted = Signal()
    page_shown = Signal(int)
    run_requested = Signal()
    stop_requested = Signal()
    open_trace_requested = Signal()
    close_requested = Signal()
    show_log_requested = Signal()

    def __init__(self, pages: Sequence[Page], theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._pages = tuple(pages)
        self._close_allowed = False
        self._is_painted = False
        self._head = QWidget()
        self._tabs = QTabBar()
        self._stack = QStackedWidget()
        self._stack_indices: dict[int, int] = {}
        self._chip = text_label("", "chip")
        self._machine = text_label("Looking for GPUs …", "muted")
        self._dot = text_label("●", "muted")
        self._settings = button("Settings", "Settings for every window on this database", flat=True)
        self._settings.setProperty("menu", "true")
        self.settings_menu = QMenu(self._settings)
        self._settings.setMenu(self.settings_menu)
        self._help = button("?", "Keyboard shortcuts (F1), and the program's log", flat=True)
        self._help.setProperty("menu", "true")
        self.help_menu = QMenu(self._help)
        self._help.setMenu(self.help_menu)
        self._build()
        self._connect()

    def show_page(self, index: int) -> None:
        """Turn to a page, made now if it is the first time."""
        if index != self._tabs.currentIndex():
            self._tabs.setCurrentIndex(index)  # its tab turns the page
            return
        self.make_page(index)
        self._stack.setCurrentIndex(self._stack_indices[index])
        self._apply_style_sheet()
        self.page_shown.emit(index)

    def make_page(self, index: int) -> None:
        """Make a page, if it is not made yet, without turning to it."""
        if index not in self._stack_indices:
            self._stack_indices[index] = self._stack.addWidget(self._pages[index].make())

    def show_machine(self, text: str, tone: str, help: str = "") -> None:
        """Show which machine this is.

        Args:
            text: Name of the machine.
            tone: Role of the dot: good, warning, bad or muted.
            help: Tooltip.
        """
        self._machine.setText(text)
        self._machine.setToolTip(plain_tooltip(help))
        self._dot.setToolTip(plain_tooltip(help))
        set_role(self._dot, tone)

    def show_chip(self, text: str) -> None:
        """Show what the screens show in place of this machine, such as a replay; "" hides it."""
        show_text(self._chip, text)

    def allow_close(self) -> None:
        """Let the next close event close the window."""
        self._close_allowed = True

    def closeEvent(self, event: QCloseEvent) -> None:
        """Close only when allowed; ask otherwise."""
        if not self._close_allowed:
            self.close_requested.emit()
        event.setAccepted(self._close_allowed)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Emit `painted` at the first paint, after which slow work may start."""
        super().paintEvent(event)
        if not self._is_painted:
            self._is_painted = True
            self.painted.emit()

    def show_shortcuts(self) -> None:
        """Show the list of keyboard shortcuts."""
        box = QMessageBox(self)
        self._theme.apply_style_sheet(box)
        box.setWindowTitle("Keyboard shortcuts")
        box.setTextFormat(Qt.TextFormat.RichText)
        pages = (f"Ctrl+1 … Ctrl+{len(self._pages)}", ", ".join(page.title for page in self._pages))
        shown = (pages, *_SHORTCUTS)
        rows = "".join(f"<tr><td><b>{keys}</b>&nbsp;&nbsp;</td><td>{action}</td></tr>" for keys, action in shown)
        box.setText(f"<table cellspacing='6'>{rows}</table>")
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.open()

    def _save_shown(self) -> None:
        from app.gui.save_shown import save_shown_chart

        page = self._stack.currentWidget()
        if page is not None:
            save_shown_chart(page, self._theme)

    def _copy_shown(self) -> None:
        from app.gui.save_shown import copy_shown_chart

        page = self._stack.currentWidget()
        if page is not None:
            copy_shown_chart(page, self._theme)

    def _apply_style_sheet(self) -> None:
        """Apply the current style sheet to the visible parts."""
        for part in (self._head, self._stack.currentWidget()):
            if part is not None:
                self._theme.apply_style_sheet(part)

    def _connect(self) -> None:
        self._theme.changed.connect(self._apply_style_sheet)
        self._tabs.currentChanged.connect(self.show_page)
        self.help_menu.addAction("&Keyboard shortcuts").triggered.connect(self.show_shortcuts)
        self.help_menu.addAction("Show &log").triggered.connect(self.show_log_requested)
        for keys, act in (
            ("Ctrl+R", self.run_requested.emit),
            ("Ctrl+.", self.stop_requested.emit),
            ("Ctrl+O", self.open_trace_requested.emit),
            ("Ctrl+S", self._save_shown),
            ("Ctrl+Shift+S", self._copy_shown),
            ("Ctrl+Q", self.close),
            ("F1", self.show_shortcuts),
        ):
            QShortcut(QKeySequence(keys), self).activated.connect(act)
        for index in range(len(self._pages)):
            shortcut = QShortcut(self)
            shortcut.setKeys([QKeySequence(f"Ctrl+{index + 1}"), QKeySequence(f"Alt+{index + 1}")])
            shortcut.activated.connect(lambda index=index: self.show_page(index))

    def _build(self) -> None:
        self.setWindowTitle("VariantScope")
        self.setWindowIcon(QIcon(str(RESOURCES / "icons" / "variantscope.svg")))
        self.resize(160 * GRID, 105 * GRID)
        for page in self._pages:
            self._tabs.addTab(page.title)
        self._tabs.setDrawBase(False)
        self._tabs.setExpanding(False)
        self._tabs.setAccessibleName("Screens")
        self._dot.setAccessibleName("State of telemetry")
        self._help.setAccessibleName("Help")
        line = QHBoxLayout()
        line.setContentsMargins(GRID, 0, 2 * GRID, 0)
        line.setSpacing(GRID)
        line.addWidget(self._tabs)
        line.addStretch(1)
        self._chip.hide()
        line.addWidget(self._chip, 0, Qt.AlignmentFlag.AlignVCenter)
        for widget in (self._machine, self._dot, self._settings, self._help):
            line.addWidget(widget)
        head = _column(self._head)
        head.addLayout(line)
        head.addWidget(separator())
        central = QWidget()
        layout = _column(central)
        layout.addWidget(self._head)
        layout.addWidget(self._stack, 1)
        self.setCentralWidget(central)


def _column(widget: QWidget) -> QVBoxLayout:
    layout = QVBoxLayout(widget)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.setSpacing(0)
    return layout
