"""The queue below the live view: one line for all of it, which unfolds to its entries, and what is told above it."""

import textwrap

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.gui.questions import ask
from app.gui.theme import GRID, Theme, figures
from app.gui.views.cell_table import plain_tooltip
from app.gui.views.parts import ElidedLabel, button, rule, set_role, text_label
from app.gui.views.queue_list import QueueTable
from app.viewmodels.cells import Tone
from app.viewmodels.queue import QueueState
from app.viewmodels.queue_told import Act, Telling

_STEPS = 1000
_MOST_TOLD = 280
"""Characters of a sentence; the verdict on many variants is for Compare."""
_BAR_WIDTH = 12 * GRID
_ROLES: dict[Tone, str] = {"good": "good", "warning": "warning", "bad": "bad", "quiet": "muted", "busy": "heading"}


class TellingLine(QWidget):
    """A sentence and the buttons it can be answered with."""

    answered = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._symbol = text_label("", "heading")
        self._words = text_label("", "", wrap=True)
        self._telling: Telling | None = None
        self._line = QHBoxLayout(self)
        self._line.setContentsMargins(0, 0, 0, 0)
        self._line.setSpacing(GRID)
        self._line.addWidget(self._symbol, 0, Qt.AlignmentFlag.AlignVCenter)
        self._line.addWidget(self._words, 1)
        self._buttons: list[QPushButton] = []

    @property
    def words(self) -> str:
        """What it says."""
        return self._words.text()

    def button(self, act: Act) -> QPushButton:
        """The button that answers so."""
        telling = self._telling
        assert telling is not None, "an answer is to something told"
        return self._buttons[[each for each, _ in telling.acts].index(act)]

    def show_telling(self, telling: Telling | None) -> None:
        """Show this, or nothing."""
        self.setVisible(telling is not None)
        if telling is None or telling == self._telling:
            return
        if self._telling is None or telling.acts != self._telling.acts:
            self._make_buttons(telling)
        self._telling = telling
        self._words.setText(textwrap.shorten(telling.words, _MOST_TOLD, placeholder=" …"))
        self._words.setToolTip(plain_tooltip(telling.words) or "")
        self._symbol.setText(telling.symbol)
        set_role(self._symbol, _ROLES[telling.tone])

    def _make_buttons(self, telling: Telling) -> None:
        for old in self._buttons:
            old.hide()
            old.deleteLater()
        self._buttons = [
            button(label, primary=n == 0 and act == "go on") for n, (act, label) in enumerate(telling.acts)
        ]
        for made, (act, _) in zip(self._buttons, telling.acts, strict=True):
            made.clicked.connect(lambda _=False, act=act: self.answered.emit(act))
            self._line.addWidget(made, 0, Qt.AlignmentFlag.AlignVCenter)


class QueueView(QWidget):
    """Shows a `QueueState`; what acts on one entry names it."""

    move_asked = Signal(int, int)
    """An entry, and by how many places: -1 is up."""
    hold_asked = Signal(int, str)
    remove_asked = Signal(int)
    show_asked = Signal(int)
    hold_all_asked = Signal(str)
    cancel_all_asked = Signal()
    skip_asked = Signal()
    offer_answered = Signal(str)
    ending_answered = Signal(str)
    export_asked = Signal()
    export_answered = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.offer, self.ending, self.export = TellingLine(), TellingLine(), TellingLine()
        self._head, self._acts = QWidget(), QWidget()
        self.fold = button("Queue", "The experiments that are to be made, one after another (Ctrl+J)", flat=True)
        self.fold.setCheckable(True)
        self.count = text_label("", "heading")
        self._bar = QProgressBar()
        self._now = ElidedLabel("muted", Qt.AlignmentFlag.AlignLeft)
        self._left = text_label("", "muted")
        self.skip = button("S&kip the wait", "Begin the next run now, whatever the machine does")
        self.hold_all = button("Pause all", "After the run that goes on")
        self.table = QueueTable(theme)
        self.up = button("Move up", "Alt+↑, or drag it", small=True)
        self.down = button("Move down", "Alt+↓, or drag it", small=True)
        self.hold = button("Pause", "Space", small=True)
        self.remove = button("Remove", "Delete: the runs that were made stay in the history", small=True)
        self.show_verdict = button("Show verdict", "Enter: compare the runs made so far", small=True)
        self.take_away = button("Export …", "Into a database with which it goes on elsewhere; at rest only", small=True)
        self.cancel_all = button("Cancel all …", "Stop the run that goes on and empty the queue", small=True)
        self._state = QueueState()
        self._connect()
        self._build()
        self._unfold(False)
        self.export.hide()
        self.hide()

    def words(self) -> str:
        """Everything the line says, as one text."""
        labels = (self.count, self._now, self._left)
        return " ".join(label.text() for label in labels if label.text())

    def show_model(self, state: QueueState) -> None:
        """Show this state."""
        if state == self._state:
            return
        self._state = state
        self.setVisible(not state.is_empty)
        self._show_fold()
        self.offer.show_telling(state.offer)
        self.ending.show_telling(state.ended)
        self.count.setText(state.count)
        self._bar.setValue(round(state.fraction * _STEPS))
        self._now.setText(state.now)
        self._now.setToolTip(state.now)
        self._left.setText(state.left)
        self.skip.setVisible(state.skip)
        self.hold_all.setVisible(bool(state.hold))
        self.hold_all.setText("Pause all" if state.hold == "pause" else "Go on")
        self._bar.setVisible(bool(state.count))
        self._head.setVisible(bool(state.count) or self.fold.isChecked())
        if self.fold.isChecked():
            self.table.show_rows(state.rows)

    def unfold(self) -> None:
        """Show the entries."""
        self.fold.setChecked(True)

    def _unfold(self, shown: bool) -> None:
        self._show_fold()
        self._head.setVisible(shown or bool(self._state.count))
        self.table.setVisible(shown)
        self._acts.setVisible(shown)
        if shown:
            self.table.show_rows(self._state.rows)

    def _show_fold(self) -> None:
        count = self._entries()
        self.fold.setText(f"Queue{f' ({count})' if count > 1 else ''}  {'▾' if self.fold.isChecked() else '▸'}")

    def _entries(self) -> int:
        """How many are in the queue, without those that ended."""
        return sum(row.in_queue for row in self._state.rows)

    def _turn_to_entries(self) -> None:
        """Unfold them for the keyboard; once more folds them."""
        self.fold.setChecked(not self.table.hasFocus())
        (self.table if self.fold.isChecked() else self.fold).setFocus()

    def _show_acts(self) -> None:
        row = self.table.chosen
        self.up.setEnabled(row is not None and row.can_rise)
        self.down.setEnabled(row is not None and row.can_sink)
        self.hold.setEnabled(row is not None and bool(row.pause))
        self.hold.setText("Resume" if row is not None and row.pause == "resume" else "Pause")
        self.remove.setEnabled(row is not None and row.in_queue)
        self.remove.setText("Cancel" if row is not None and row.is_going_on else "Remove")
        self.show_verdict.setEnabled(row is not None and row.experiment is not None)
        self.take_away.setEnabled(self._state.may_export)
        self.cancel_all.setVisible(self._entries() > 1)

    def _ask_move(self, by: int) -> None:
        row = self.table.chosen
        if row is not None and (row.can_rise if by < 0 else row.can_sink):
            self.move_asked.emit(row.entry, by)

    def _ask_hold(self) -> None:
        row = self.table.chosen
        if row is not None and row.pause:
            self.hold_asked.emit(row.entry, row.pause)

    def _ask_remove(self) -> None:
        row = self.table.chosen
        if row is not None and row.in_queue:
            self.remove_asked.emit(row.entry)

    def _ask_show(self) -> None:
        row = self.table.chosen
        if row is not None and row.experiment is not None:
            self.show_asked.emit(row.entry)

    def _ask_to_cancel_all(self) -> None:
        question = f"Cancel all {self._entries()} experiments of the queue?"
        loss = "The run that goes on is stopped. Runs that were made stay in the history."
        box = ask(self, self._theme, "Cancel all", question, loss, "&Cancel all", "&Keep them")
        box.accepted.connect(self.cancel_all_asked)

    def _connect(self) -> None:
        self.offer.answered.connect(self.offer_answered)
        self.ending.answered.connect(self.ending_answered)
        self.export.answered.connect(self.export_answered)
        self.take_away.clicked.connect(self.export_asked)
        self.fold.toggled.connect(self._unfold)
        QShortcut(QKeySequence("Ctrl+J"), self).activated.connect(self._turn_to_entries)
        self.skip.clicked.connect(self.skip_asked)
        self.hold_all.clicked.connect(lambda: self.hold_all_asked.emit(self._state.hold))
        self.cancel_all.clicked.connect(self._ask_to_cancel_all)
        self.table.chosen_changed.connect(self._show_acts)
        self.table.place_asked.connect(self.move_asked)
        for asked, act, way in (
            (self.table.rise_asked, self.up, lambda: self._ask_move(-1)),
            (self.table.sink_asked, self.down, lambda: self._ask_move(1)),
            (self.table.hold_asked, self.hold, self._ask_hold),
            (self.table.remove_asked, self.remove, self._ask_remove),
            (self.table.show_asked, self.show_verdict, self._ask_show),
        ):
            asked.connect(way)
            act.clicked.connect(way)

    def _build(self) -> None:
        self._bar.setRange(0, _STEPS)
        self._bar.setTextVisible(False)
        self._bar.setFixedWidth(_BAR_WIDTH)
        self._bar.setAccessibleName("Runs of the queue that are done")
        for label in (self.count, self._left):
            label.setFont(figures())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(rule())
        inside = QVBoxLayout()
        inside.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        inside.setSpacing(GRID)
        inside.addWidget(self.offer)
        inside.addWidget(self.ending)
        inside.addWidget(self.export)
        inside.addWidget(self._head)
        inside.addWidget(self.table)
        inside.addWidget(self._acts)
        self._fill_head()
        self._fill_acts()
        layout.addLayout(inside)

    def _fill_head(self) -> None:
        head = QHBoxLayout(self._head)
        head.setContentsMargins(0, 0, 0, 0)
        head.setSpacing(GRID)
        middle = Qt.AlignmentFlag.AlignVCenter
        head.addWidget(self.fold, 0, middle)
        head.addSpacing(GRID)
        head.addWidget(self.count, 0, middle)
        head.addWidget(self._bar, 0, middle)
        head.addWidget(self._now, 1, middle)
        for widget in (self._left, self.skip, self.hold_all):
            head.addWidget(widget, 0, middle)

    def _fill_acts(self) -> None:
        line = QHBoxLayout(self._acts)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(GRID // 2)
        for act in (self.up, self.down, self.hold, self.remove, self.show_verdict, self.take_away, self.cancel_all):
            line.addWidget(act)
        # What is about one entry stands apart from what is about all.
        line.insertStretch(line.indexOf(self.take_away), 1)
