"""The queue below the live view: banners, a summary line, a table of entries, and buttons for them."""

import textwrap
from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShortcut
from PySide6.QtWidgets import QAbstractItemView, QProgressBar, QPushButton, QWidget

from app.gui.theme import GRID, Theme, tabular_font
from app.gui.widgets.basic import (
    BreakingLabel,
    ElidedLabel,
    Surface,
    button,
    make_column,
    make_row,
    plain_tooltip,
    separator,
    set_role,
    show_text,
    text_label,
)
from app.gui.widgets.cell_delegate import ROW_HEIGHT, CellDelegate, CellModel
from app.gui.widgets.cell_table import CellTable
from app.gui.widgets.dialogs import ask_confirmation
from app.gui.widgets.panes import FlowBar
from app.gui.window_state import WindowState
from app.viewmodels.experiment.queue import (
    HOST_COLUMN,
    PYTHON_COLUMN,
    QUEUE_COLUMNS,
    WIDEST_CELLS,
    Banner,
    BannerAction,
    QueueRow,
    QueueState,
)
from app.viewmodels.format.cells import Tone

_STEPS = 1000
_MAX_DETAIL_CHARS = 280
"""The length at which less important text is cut; the verdict on many variants belongs to Compare. Important text is
never cut."""
_BAR_WIDTH = 12 * GRID
_ROLES: dict[Tone, str] = {"good": "good", "warning": "warning", "bad": "bad", "quiet": "muted", "busy": "heading"}


class BannerView(QWidget):
    """A sentence with buttons to answer it."""

    answered = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._symbol = text_label("", "heading")
        self._text = text_label("", "", wrap=True)
        self._detail = text_label("", "caption", wrap=True)
        self._banner: Banner | None = None
        texts = make_column(self._text, self._detail, spacing=GRID // 2)
        parts = (self._symbol, 0, Qt.AlignmentFlag.AlignTop), (texts, 1)
        self._line = make_row(*parts, parent=self, margins=0, spacing=GRID)
        self.buttons: dict[BannerAction, QPushButton] = {}

    def show_banner(self, banner: Banner | None) -> None:
        self.setVisible(banner is not None)
        if banner is None or banner == self._banner:
            return
        if self._banner is None or banner.actions != self._banner.actions:
            self._make_buttons(banner)
        self._banner = banner
        self._text.setText(banner.text)
        set_role(self._text, "heading" if banner.detail else "")
        line = Qt.AlignmentFlag.AlignTop if banner.detail else Qt.AlignmentFlag.AlignVCenter
        self._line.setAlignment(self._symbol, line)
        show_text(self._detail, textwrap.fill(banner.detail, _MAX_DETAIL_CHARS, max_lines=1, placeholder=" …"))
        self._detail.setToolTip(plain_tooltip(banner.detail))
        self._symbol.setText(banner.symbol)
        set_role(self._symbol, _ROLES[banner.tone])

    def _make_buttons(self, banner: Banner) -> None:
        for old in self.buttons.values():
            old.hide()
            old.deleteLater()
        self.buttons = {act: button(label, primary=act == "go on") for act, label in banner.actions}
        for act, answer_button in self.buttons.items():
            answer_button.clicked.connect(lambda _=False, act=act: self.answered.emit(act))
            self._line.addWidget(answer_button, 0, Qt.AlignmentFlag.AlignVCenter)


class QueueView(Surface):
    """Shows a `QueueState`; signals about one entry carry its number."""

    move_requested = Signal(int, int)
    """Emitted with an entry and a number of places; -1 is up."""
    pause_requested = Signal(object, str)
    """Emitted with an entry, or None for all, and the action."""
    remove_requested = Signal(int)
    verdict_requested = Signal(int)
    cancel_all_requested = Signal()
    answered = Signal(str)
    """Emitted with the answer to a banner."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.offer_banner, self.ended_banner = BannerView(), BannerView()
        self._header, self._buttons = QWidget(), QWidget()
        self.fold = button("Queue", "Experiments waiting to run, in order (Ctrl+J)", flat=True)
        self.fold.setCheckable(True)
        self.count = text_label("", "heading")
        self._bar = QProgressBar(maximum=_STEPS, textVisible=False)
        self._now = ElidedLabel("muted", Qt.AlignmentFlag.AlignLeft)
        self._wait = BreakingLabel("muted")
        self._time_left = text_label("", "muted")
        self.skip = button("Run any&way", "Start the next run now, though the machine is in use; the run records it")
        self.pause_all = button("Pause all", "Takes effect after the current run")
        self.table = QueueTable(theme)
        self.table.remember_widths(WindowState("queue", self))
        self.up = button("Move up", "Alt+↑", small=True)
        self.down = button("Move down", "Alt+↓", small=True)
        self.pause = button("Pause", "Space", small=True)
        self.remove = button("Remove", "Delete: completed runs stay in the history", small=True)
        self.show_verdict = button("Show verdict", "Enter: compare the runs so far", small=True)
        self.cancel_all = button("Cancel all …", "Stop the current run and empty the queue", small=True)
        self._state = QueueState()
        self._connect()
        self._build()
        self._unfold(False)
        self.hide()

    def show_model(self, state: QueueState) -> None:
        if state == self._state:
            return
        self._state = state
        self.setVisible(not state.is_empty)
        self._show_fold()
        self.offer_banner.show_banner(state.offer)
        self.ended_banner.show_banner(state.ended)
        self.count.setText(state.count)
        self._bar.setValue(round(state.fraction * _STEPS))
        self._now.setText("" if state.can_skip_wait else state.activity)
        show_text(self._wait, state.activity if state.can_skip_wait else "")
        self._time_left.setText(state.time_left)
        self.skip.setVisible(state.can_skip_wait)
        self.pause_all.setVisible(bool(state.pause_action))
        self.pause_all.setText("Pause all" if state.pause_action == "pause" else "Resume all")
        self._bar.setVisible(bool(state.count))
        self._header.setVisible(bool(state.count) or self.fold.isChecked())
        if self.fold.isChecked():
            self.table.show_rows(state.rows)

    def unfold(self) -> None:
        self.fold.setChecked(True)

    def _unfold(self, is_unfolded: bool) -> None:
        self._show_fold()
        self._header.setVisible(is_unfolded or bool(self._state.count))
        self.table.setVisible(is_unfolded)
        self._buttons.setVisible(is_unfolded)
        if is_unfolded:
            self.table.show_rows(self._state.rows)

    def _show_fold(self) -> None:
        count = self._entries()
        self.fold.setText(f"Queue{f' ({count})' if count > 1 else ''}  {'▾' if self.fold.isChecked() else '▸'}")

    def _entries(self) -> int:
        return sum(row.in_queue for row in self._state.rows)

    def _toggle_entries(self) -> None:
        """Unfold and focus the entries, or fold them."""
        self.fold.setChecked(not self.table.hasFocus())
        (self.table if self.fold.isChecked() else self.fold).setFocus()

    def _update_buttons(self) -> None:
        row = self.table.chosen
        self.up.setEnabled(row is not None and row.can_move_up)
        self.down.setEnabled(row is not None and row.can_move_down)
        self.pause.setEnabled(row is not None and bool(row.pause_action))
        self.pause.setText("Resume" if row is not None and row.pause_action == "resume" else "Pause")
        self.remove.setEnabled(row is not None and row.in_queue)
        self.remove.setText("Cancel" if row is not None and row.is_running_here else "Remove")
        self.show_verdict.setEnabled(row is not None and row.experiment is not None)
        self.cancel_all.setVisible(self._entries() > 1)

    def _ask_to_cancel_all(self) -> None:
        question = f"Cancel all {self._entries()} experiments of the queue?"
        loss = "The current run is stopped. Completed runs stay in the history."
        box = ask_confirmation(self, self._theme, "Cancel all", question, loss, "&Cancel all", "&Keep them")
        box.accepted.connect(self.cancel_all_requested)

    def _connect(self) -> None:
        for banner in (self.offer_banner, self.ended_banner):
            banner.answered.connect(self.answered)
        self.fold.toggled.connect(self._unfold)
        QShortcut("Ctrl+J", self, self._toggle_entries)
        self.pause_all.clicked.connect(lambda: self.pause_requested.emit(None, self._state.pause_action))
        self.cancel_all.clicked.connect(self._ask_to_cancel_all)
        self.table.chosen_changed.connect(self._update_buttons)
        self.table.opened.connect(self.show_verdict.click)
        of_entry: tuple[tuple[QPushButton, str, Callable[[QueueRow], None]], ...] = (
            (self.up, "Alt+Up", lambda row: self.move_requested.emit(row.entry, -1)),
            (self.down, "Alt+Down", lambda row: self.move_requested.emit(row.entry, 1)),
            (self.pause, "Space", lambda row: self.pause_requested.emit(row.entry, row.pause_action)),
            (self.remove, "Del", lambda row: self.remove_requested.emit(row.entry)),
            (self.show_verdict, "", lambda row: self.verdict_requested.emit(row.entry)),
        )
        for widget, keys, act in of_entry:
            widget.clicked.connect(lambda _=False, act=act: self._act_on_chosen(act))
            # A click on a disabled button does nothing.
            QShortcut(keys, self.table, context=Qt.ShortcutContext.WidgetShortcut).activated.connect(widget.click)

    def _act_on_chosen(self, act: Callable[[QueueRow], None]) -> None:
        if (row := self.table.chosen) is not None:
            act(row)

    def _build(self) -> None:
        self._bar.setFixedWidth(_BAR_WIDTH)
        self._bar.setAccessibleName("Progress of the queue")
        for label in (self.count, self._time_left):
            label.setFont(tabular_font())
        widgets = self.offer_banner, self.ended_banner, self._header, self._wait, self.table, self._buttons
        inside = make_column(*widgets, margins=(2 * GRID, GRID, 2 * GRID, GRID), spacing=GRID)
        make_column(separator(), inside, parent=self, margins=0, spacing=0)
        middle = Qt.AlignmentFlag.AlignVCenter
        progress = (self.count, 0, middle), (self._bar, 0, middle), (self._now, 1, middle)
        rest = ((widget, 0, middle) for widget in (self._time_left, self.skip, self.pause_all))
        make_row((self.fold, 0, middle), GRID, *progress, *rest, parent=self._header, margins=0, spacing=GRID)
        buttons = self.up, self.down, self.pause, self.remove, self.show_verdict
        of_entry = FlowBar(GRID // 2, GRID // 2, *buttons)
        of_all = FlowBar(GRID // 2, GRID // 2, self.cancel_all, right=True)
        make_row((of_entry, 1), of_all, parent=self._buttons, margins=0)


_MAX_ROWS = 6
"""The most visible rows; the plots above need their space."""


class QueueTable(CellTable):
    """Keeps the selected entry while entries change."""

    chosen_changed = Signal()
    opened = Signal()

    def __init__(self, theme: Theme) -> None:
        self._model, self._rows = CellModel(QUEUE_COLUMNS), tuple[QueueRow, ...]()
        super().__init__(self._model, CellDelegate(theme))
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAccessibleName("Queue")
        self.horizontalHeader().hide()
        self.fit(WIDEST_CELLS)
        self.selectionModel().selectionChanged.connect(lambda *_: self.chosen_changed.emit())

    @property
    def chosen(self) -> QueueRow | None:
        row = self.currentIndex().row()
        return self._rows[row] if 0 <= row < len(self._rows) else None

    def open_row(self, _row: int) -> None:
        self.opened.emit()

    def show_rows(self, rows: tuple[QueueRow, ...]) -> None:
        """Show these entries; the selection stays, or moves to the entry in the place of a finished one."""
        chosen, position = self.chosen, max(0, self.currentIndex().row())
        is_alike = [row.entry for row in rows] == [row.entry for row in self._rows]
        self._rows = rows
        self._model.show_rows([row.cells for row in rows], is_alike=is_alike)
        self.setColumnHidden(HOST_COLUMN, not any(row.cells[HOST_COLUMN].text for row in rows))
        self.setColumnHidden(PYTHON_COLUMN, not any(row.cells[PYTHON_COLUMN].text for row in rows))
        chosen_key = None if chosen is None else (chosen.entry, chosen.in_queue)
        matching = [n for n, row in enumerate(rows) if (row.entry, row.in_queue) == chosen_key]
        target = matching[0] if matching else min(position, len(rows) - 1)
        if rows and target != self.currentIndex().row():
            self.selectRow(target)
        self.setFixedHeight(min(len(rows), _MAX_ROWS) * ROW_HEIGHT)
        self.chosen_changed.emit()

    def choose(self, entry: int) -> None:
        self.selectRow([row.entry for row in self._rows].index(entry))
