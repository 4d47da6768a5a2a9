"""The queue below the live view: a summary line, the buttons that act on entries, banners, and its export."""

import textwrap
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from app.errors import UserError
from app.gui.experiment.queue_database import export_queue
from app.gui.experiment.queue_table import QueueTable
from app.gui.theme import GRID, Theme, tabular_font
from app.gui.threads import CancellableJob, JobControl
from app.gui.widgets.basic import ElidedLabel, button, plain_tooltip, separator, set_role, show_text, text_label
from app.gui.widgets.dialogs import ask_confirmation, ask_for_new_file
from app.gui.widgets.flow_layout import FlowBar
from app.gui.window_state import WindowState
from app.paths import RUNS_SUFFIX
from app.storage.transfer.progress import StoppedError, TransferProgress
from app.viewmodels.experiment.queue import QueueState
from app.viewmodels.experiment.queue_banner import (
    Banner,
    BannerAction,
    export_ended_banner,
    export_failed_banner,
    export_progress_banner,
)
from app.viewmodels.format.cells import Tone

_STEPS = 1000
_MAX_DETAIL_CHARS = 280
"""Characters of what is less important; the verdict on many variants is for Compare. What is important is never cut."""
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
        self._line = QHBoxLayout(self)
        self._line.setContentsMargins(0, 0, 0, 0)
        self._line.setSpacing(GRID)
        texts = QVBoxLayout()
        texts.setSpacing(GRID // 2)
        texts.addWidget(self._text)
        texts.addWidget(self._detail)
        self._line.addWidget(self._symbol, 0, Qt.AlignmentFlag.AlignTop)
        self._line.addLayout(texts, 1)
        self._buttons: list[QPushButton] = []

    @property
    def displayed_text(self) -> str:
        """Return its sentences."""
        return " ".join(filter(None, (self._text.text(), self._detail.text())))

    def button(self, action: BannerAction) -> QPushButton:
        """Return the button of an answer."""
        banner = self._banner
        assert banner is not None, "an answer is to something told"
        return self._buttons[[each for each, _ in banner.actions].index(action)]

    def show_banner(self, banner: Banner | None) -> None:
        """Show a banner, or hide for None."""
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
        for old in self._buttons:
            old.hide()
            old.deleteLater()
        self._buttons = [
            button(label, primary=n == 0 and act == "go on") for n, (act, label) in enumerate(banner.actions)
        ]
        for made, (act, _) in zip(self._buttons, banner.actions, strict=True):
            made.clicked.connect(lambda _=False, act=act: self.answered.emit(act))
            self._line.addWidget(made, 0, Qt.AlignmentFlag.AlignVCenter)


class QueueView(QWidget):
    """Shows a `QueueState`; signals about one entry carry its number."""

    move_requested = Signal(int, int)
    """Emitted with an entry and a number of places; -1 is up."""
    pause_requested = Signal(int, str)
    remove_requested = Signal(int)
    verdict_requested = Signal(int)
    pause_all_requested = Signal(str)
    cancel_all_requested = Signal()
    offer_answered = Signal(str)
    ending_answered = Signal(str)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.setProperty("role", "surface")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.offer_banner, self.ended_banner, self.export_banner = BannerView(), BannerView(), BannerView()
        self._header, self._buttons = QWidget(), QWidget()
        self.fold = button("Queue", "Experiments waiting to run, in order (Ctrl+J)", flat=True)
        self.fold.setCheckable(True)
        self.count = text_label("", "heading")
        self._bar = QProgressBar()
        self._now = ElidedLabel("muted", Qt.AlignmentFlag.AlignLeft)
        self._time_left = text_label("", "muted")
        self.skip = button("Run any&way", "Start the next run now, though the machine is in use; the run says so")
        self.pause_all = button("Pause all", "Takes effect after the current run")
        self.table = QueueTable(theme)
        self.table.remember_widths(WindowState("queue", self))
        self.up = button("Move up", "Alt+↑, or drag it", small=True)
        self.down = button("Move down", "Alt+↓, or drag it", small=True)
        self.pause = button("Pause", "Space", small=True)
        self.remove = button("Remove", "Delete: completed runs stay in the history", small=True)
        self.show_verdict = button("Show verdict", "Enter: compare the runs so far", small=True)
        self.export_button = button(
            "Export …", "To a database in which the queue can be resumed elsewhere; only while nothing runs", small=True
        )
        self.cancel_all = button("Cancel all …", "Stop the current run and empty the queue", small=True)
        self._state = QueueState()
        self._connect()
        self._build()
        self._unfold(False)
        self.export_banner.hide()
        self.hide()

    def displayed_text(self) -> str:
        """Return the text of the summary line."""
        labels = (self.count, self._now, self._time_left)
        return " ".join(label.text() for label in labels if label.text())

    def show_model(self, state: QueueState) -> None:
        """Show a state."""
        if state == self._state:
            return
        self._state = state
        self.setVisible(not state.is_empty)
        self._show_fold()
        self.offer_banner.show_banner(state.offer)
        self.ended_banner.show_banner(state.ended)
        self.count.setText(state.count)
        self._bar.setValue(round(state.fraction * _STEPS))
        self._now.setText(state.activity)
        self._now.setToolTip(plain_tooltip(state.activity))
        self._time_left.setText(state.time_left)
        self.skip.setVisible(state.can_skip_wait)
        self.pause_all.setVisible(bool(state.pause_action))
        self.pause_all.setText("Pause all" if state.pause_action == "pause" else "Resume all")
        self._bar.setVisible(bool(state.count))
        self._header.setVisible(bool(state.count) or self.fold.isChecked())
        if self.fold.isChecked():
            self.table.show_rows(state.rows)

    def unfold(self) -> None:
        """Show the entries."""
        self.fold.setChecked(True)

    def _unfold(self, shown: bool) -> None:
        self._show_fold()
        self._header.setVisible(shown or bool(self._state.count))
        self.table.setVisible(shown)
        self._buttons.setVisible(shown)
        if shown:
            self.table.show_rows(self._state.rows)

    def _show_fold(self) -> None:
        count = self._entries()
        self.fold.setText(f"Queue{f' ({count})' if count > 1 else ''}  {'▾' if self.fold.isChecked() else '▸'}")

    def _entries(self) -> int:
        """Return how many entries are in the queue, without those that ended."""
        return sum(row.in_queue for row in self._state.rows)

    def _toggle_entries(self) -> None:
        """Unfold the entries and focus them; the second time, fold them."""
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
        self.export_button.setEnabled(self._state.can_export)
        self.cancel_all.setVisible(self._entries() > 1)

    def _ask_move(self, by: int) -> None:
        row = self.table.chosen
        if row is not None and (row.can_move_up if by < 0 else row.can_move_down):
            self.move_requested.emit(row.entry, by)

    def _ask_pause(self) -> None:
        row = self.table.chosen
        if row is not None and row.pause_action:
            self.pause_requested.emit(row.entry, row.pause_action)

    def _ask_remove(self) -> None:
        row = self.table.chosen
        if row is not None and row.in_queue:
            self.remove_requested.emit(row.entry)

    def _ask_verdict(self) -> None:
        row = self.table.chosen
        if row is not None and row.experiment is not None:
            self.verdict_requested.emit(row.entry)

    def _ask_to_cancel_all(self) -> None:
        question = f"Cancel all {self._entries()} experiments of the queue?"
        loss = "The current run is stopped. Completed runs stay in the history."
        box = ask_confirmation(self, self._theme, "Cancel all", question, loss, "&Cancel all", "&Keep them")
        box.accepted.connect(self.cancel_all_requested)

    def _connect(self) -> None:
        self.offer_banner.answered.connect(self.offer_answered)
        self.ended_banner.answered.connect(self.ending_answered)
        self.fold.toggled.connect(self._unfold)
        QShortcut(QKeySequence("Ctrl+J"), self).activated.connect(self._toggle_entries)
        self.pause_all.clicked.connect(lambda: self.pause_all_requested.emit(self._state.pause_action))
        self.cancel_all.clicked.connect(self._ask_to_cancel_all)
        self.table.chosen_changed.connect(self._update_buttons)
        self.table.move_requested.connect(self.move_requested)
        for signal, button_widget, handler in (
            (self.table.move_up_requested, self.up, lambda: self._ask_move(-1)),
            (self.table.move_down_requested, self.down, lambda: self._ask_move(1)),
            (self.table.pause_requested, self.pause, self._ask_pause),
            (self.table.remove_requested, self.remove, self._ask_remove),
            (self.table.verdict_requested, self.show_verdict, self._ask_verdict),
        ):
            signal.connect(handler)
            button_widget.clicked.connect(handler)

    def _build(self) -> None:
        self._bar.setRange(0, _STEPS)
        self._bar.setTextVisible(False)
        self._bar.setFixedWidth(_BAR_WIDTH)
        self._bar.setAccessibleName("Progress of the queue")
        for label in (self.count, self._time_left):
            label.setFont(tabular_font())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(separator())
        inside = QVBoxLayout()
        inside.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        inside.setSpacing(GRID)
        inside.addWidget(self.offer_banner)
        inside.addWidget(self.ended_banner)
        inside.addWidget(self.export_banner)
        inside.addWidget(self._header)
        inside.addWidget(self.table)
        inside.addWidget(self._buttons)
        self._fill_header()
        self._fill_buttons()
        layout.addLayout(inside)

    def _fill_header(self) -> None:
        header = QHBoxLayout(self._header)
        header.setContentsMargins(0, 0, 0, 0)
        header.setSpacing(GRID)
        middle = Qt.AlignmentFlag.AlignVCenter
        header.addWidget(self.fold, 0, middle)
        header.addSpacing(GRID)
        header.addWidget(self.count, 0, middle)
        header.addWidget(self._bar, 0, middle)
        header.addWidget(self._now, 1, middle)
        for widget in (self._time_left, self.skip, self.pause_all):
            header.addWidget(widget, 0, middle)

    def _fill_buttons(self) -> None:
        line = QHBoxLayout(self._buttons)
        line.setContentsMargins(0, 0, 0, 0)
        of_entry, of_all = FlowBar(GRID // 2, GRID // 2), FlowBar(GRID // 2, GRID // 2, right=True)
        for act in (self.up, self.down, self.pause, self.remove, self.show_verdict):
            of_entry.flow.addWidget(act)
        for act in (self.export_button, self.cancel_all):
            of_all.flow.addWidget(act)
        line.addWidget(of_entry, 1)
        line.addWidget(of_all)


class QueueExport(QObject):
    """Asks for a file when the view wants an export, writes it, and shows its progress in the view's banner.

    Thread: GUI only; the file is written on a job's thread.
    """

    def __init__(self, view: QueueView, database: Path) -> None:
        super().__init__(view)
        self._view = view
        self._banner = view.export_banner
        self._database = database
        self._folder = Path.home()
        self._job = CancellableJob(self)
        view.export_button.clicked.connect(self._ask)
        self._banner.answered.connect(self._answer)

    def _ask(self) -> None:
        path = self._folder / f"queue{RUNS_SUFFIX}"
        ask_for_new_file(
            self._view,
            "Export the queue to a database, with paths, variables and log lines",
            path,
            f"Runs (*{RUNS_SUFFIX})",
            self._export,
        )

    def _export(self, name: str) -> None:
        target = Path(name)
        self._folder = target.parent

        def work(control: JobControl[float]) -> str:
            return export_queue(self._database, target, TransferProgress(control.report, control.stop.is_set))

        self._show_progress(0.0)
        self._job.run(work, self._show_end, self._fail, on_progress=self._show_progress)

    def _show_progress(self, share: float) -> None:
        self._banner.show_banner(export_progress_banner(share))

    def _show_end(self, text: str) -> None:
        self._banner.show_banner(export_ended_banner(text))

    def _fail(self, error: UserError) -> None:
        self._banner.show_banner(None if isinstance(error, StoppedError) else export_failed_banner(error))

    def _answer(self, action: BannerAction) -> None:
        if action == "stop":
            self._job.stop()
        else:
            self._banner.show_banner(None)
