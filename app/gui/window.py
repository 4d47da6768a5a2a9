"""The main window: tabs for the screens, and a description of the machine."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import QByteArray, QSize, Qt, Signal
from PySide6.QtGui import QCloseEvent, QIcon, QMoveEvent, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QLayout,
    QMainWindow,
    QMenu,
    QScrollArea,
    QSizePolicy,
    QSplitter,
    QStackedWidget,
    QTabBar,
    QWidget,
)

from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import (
    STRETCH,
    ElidedLabel,
    button,
    make_column,
    make_row,
    plain_tooltip,
    separator,
    set_role,
    text_label,
)
from app.gui.widgets.dialogs import resize_within_screen
from app.gui.widgets.panes import PageScroller
from app.gui.window_state import WindowState
from app.paths import RESOURCES


def focus_next(window: QWidget, *, forward: bool) -> bool:
    """Focus and show the next widget, or the previous one; return whether there is one."""
    order = list(_in_order(window))
    stops = [widget for widget in order if _is_stop(widget)]
    if not stops:
        return False
    focused = QApplication.focusWidget()
    while focused is not None and focused not in order:
        focused = focused.parentWidget()
    at = order.index(focused) if focused is not None else -1
    if forward:
        chosen = next((widget for widget in order[at + 1 :] if _is_stop(widget)), stops[0])
    else:
        chosen = next((widget for widget in reversed(order[: max(0, at)]) if _is_stop(widget)), stops[-1])
    chosen.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
    around = chosen.parentWidget()
    while around is not None:
        if isinstance(around, QScrollArea):
            around.ensureWidgetVisible(chosen)
        around = around.parentWidget()
    return True


def _is_stop(widget: QWidget) -> bool:
    takes_tab = (widget.focusPolicy() & Qt.FocusPolicy.TabFocus) == Qt.FocusPolicy.TabFocus
    return takes_tab and widget.isEnabled() and widget.focusProxy() is None


def _in_order(widget: QWidget) -> Iterator[QWidget]:
    if not widget.isVisible():
        return
    yield widget
    if isinstance(widget, QSplitter):
        for number in range(widget.count()):
            yield from _in_order(widget.handle(number))
            if (part := widget.widget(number)) is not None:
                yield from _in_order(part)
    elif isinstance(widget, QScrollArea):
        if (content := widget.widget()) is not None:
            yield from _in_order(content)
    elif (layout := widget.layout()) is not None:
        yield from _in_layout(layout, widget)


def _in_layout(layout: QLayout, around: QWidget) -> Iterator[QWidget]:
    """Yield the items in a widget's layout, in order.

    Never by `itemAt`: PySide6 does not notice when Qt deletes an item that Python has seen, and crashes later.
    """
    parts = [part for part in (*around.children(), *layout.children()) if isinstance(part, QWidget | QLayout)]
    for part in sorted((widget for widget in parts if layout.indexOf(widget) >= 0), key=layout.indexOf):
        yield from _in_order(part) if isinstance(part, QWidget) else _in_layout(part, around)


RUN, MONITOR, HISTORY, COMPARE = range(4)
"""The pages, in the order of their tabs."""

_DOTS = {"good": "●", "muted": "○", "warning": "▲", "bad": "✖"}
"""The machine's state mark by tone, in Monitor's shapes."""


@dataclass(frozen=True, slots=True)
class Page:
    """The title of a screen's tab, and the function that creates the screen when first needed."""

    title: str
    make: Callable[[], QWidget]


class MainWindow(QMainWindow):
    """Tabs over pages that are created when first needed. Closing emits `close_requested` until `allow_close`.

    Every page gets its own copy of the style sheet when first shown.
    """

    painted = Signal()
    page_shown = Signal(int)
    close_requested = Signal()
    show_log_requested = Signal()
    keys_requested = Signal()
    settings_requested = Signal()

    def __init__(self, pages: Sequence[Page], theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._pages = tuple(pages)
        self._close_allowed = False
        self._is_painted = False
        self._head = QWidget()
        self._tabs = QTabBar(drawBase=False, expanding=False, usesScrollButtons=False)
        self._stack = QStackedWidget()
        self._stack_indices: dict[int, int] = {}
        self._machine = ElidedLabel("muted", elided=Qt.TextElideMode.ElideRight)
        self._machine.setText("Looking for GPUs …")
        self._dot = text_label(_DOTS["muted"], "muted")
        self._settings = button("Settings", "Theme, database, retention and more (Ctrl+,)", flat=True)
        self._settings.clicked.connect(self.settings_requested)
        self._help = button("?", "Keys and actions (F1), and the program's log", flat=True)
        self._help.setProperty("menu", "true")
        self.help_menu = QMenu(self._help)
        self._help.setMenu(self.help_menu)
        self._build()
        self._tabs.currentChanged.connect(self.show_page)
        self.help_menu.addAction("&Keys and actions").triggered.connect(self.keys_requested)
        self.help_menu.addAction("Show &log").triggered.connect(self.show_log_requested)
        self._state = WindowState("window", self)
        # Open where the window was closed; if that screen is gone, Qt chooses another. On a screen of very different
        # width Qt restores nothing: then at least the size is as before.
        size = self._state.read("size", (0, 0), tuple[int, int])
        if not self.restoreGeometry(QByteArray(self._state.read("geometry", b""))) and min(size) > 0:
            self.resize(QSize(*size).boundedTo(self.screen().availableSize()))

    @property
    def page(self) -> int:
        return self._tabs.currentIndex()

    def show_page(self, index: int) -> None:
        """Switch to a page, created if necessary."""
        if index != self._tabs.currentIndex():
            self._tabs.setCurrentIndex(index)  # this switches the page
            return
        self.make_page(index)
        self._stack.setCurrentIndex(self._stack_indices[index])
        for part in filter(None, (self._head, self._stack.currentWidget())):
            self._theme.apply_style_sheet(part)
        self.page_shown.emit(index)

    def show_last_page(self, database: Path) -> None:
        """Switch to the page last used with a database, at first Run, and remember the page from now on."""
        state = WindowState("window", self, database)
        page = state.read("page", RUN)
        self.show_page(page if page in range(len(self._pages)) else RUN)
        self.page_shown.connect(partial(state.keep, "page"))

    def make_page(self, index: int) -> None:
        """Create a page if missing, without switching to it."""
        if index not in self._stack_indices:
            self._stack_indices[index] = self._stack.addWidget(PageScroller(self._pages[index].make()))

    def show_machine(self, text: str, tone: str, help: str = "") -> None:
        """Show which machine this is. `tone` is the role of the dot: good, warning, bad or muted."""
        self._machine.setText(text)
        self._machine.setToolTip(plain_tooltip(help))
        self._dot.setToolTip(plain_tooltip(help))
        self._dot.setText(_DOTS[tone])
        set_role(self._dot, tone)

    def add_to_head(self, widget: QWidget) -> None:
        self._line.insertWidget(self._line.indexOf(self._machine), widget)

    def allow_close(self) -> None:
        self._close_allowed = True

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self._close_allowed:
            self.close_requested.emit()
        event.setAccepted(self._close_allowed)

    def moveEvent(self, event: QMoveEvent) -> None:
        super().moveEvent(event)
        self._keep_geometry()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._keep_geometry()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Emit `painted` at the first paint, after which slow work may start."""
        super().paintEvent(event)
        if not self._is_painted:
            self._is_painted = True
            self.painted.emit()

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Handle Tab, about which Qt asks the window."""
        return focus_next(self, forward=forward)

    def save_picture(self, *, to_clipboard: bool = False) -> None:
        """Save or copy the plot under the pointer, or the visible ones."""
        from app.gui.plot.pictures import save_picture_in_sight

        if (page := self._stack.currentWidget()) is not None:
            save_picture_in_sight(page, self._theme, to_clipboard=to_clipboard)

    def _keep_geometry(self) -> None:
        self._state.keep("geometry", self.saveGeometry().data())
        self._state.keep("size", self.normalGeometry().size().toTuple())

    def _build(self) -> None:
        self.setWindowTitle("VariantScope")
        self.setWindowIcon(QIcon(str(RESOURCES / "icons" / "variantscope.svg")))
        resize_within_screen(self, 160 * GRID, 105 * GRID)
        for page in self._pages:
            self._tabs.addTab(page.title)
        self._machine.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self._machine.setMinimumWidth(4 * GRID)
        self._tabs.setAccessibleName("Screens")
        self._dot.setAccessibleName("State of telemetry")
        self._help.setAccessibleName("Help")
        widgets = self._tabs, STRETCH, self._machine, self._dot, self._settings, self._help
        self._line = make_row(*widgets, margins=(GRID, 0, 2 * GRID, 0), spacing=GRID)
        make_column(self._line, separator(), parent=self._head, margins=0, spacing=0)
        central = QWidget()
        make_column(self._head, (self._stack, 1), parent=central, margins=0, spacing=0)
        self.setCentralWidget(central)
