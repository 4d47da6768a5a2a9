"""The footer of the experiment builder: baseline, repeats, limits, estimate, and the Start button."""

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QCheckBox,
    QGridLayout,
    QHBoxLayout,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app import units
from app.gui.theme import GRID, tabular_font
from app.gui.widgets.basic import (
    DecimalBox,
    ElidedComboBox,
    IntegerBox,
    button,
    plain_tooltip,
    separator,
    show_text,
    text_label,
)
from app.plan import REPEATS_LIMIT
from app.viewmodels.experiment.matrix_state import MatrixState
from app.viewmodels.experiment.preview import RefusedGroup, describe_refused

_MAX_MINUTES = 7 * 24 * 60


class MatrixFooter(QWidget):
    """Baseline, repeats and limits, then what they amount to."""

    baseline_chosen = Signal(int)
    extent_changed = Signal(str, object)
    """Emitted with a field of `Extent` and its new value."""
    start_requested = Signal()
    copy_requested = Signal()
    reset_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._refused_shown: tuple[RefusedGroup, ...] = ()
        self._combinations = 0
        self._baseline = ElidedComboBox()
        self._repeats = IntegerBox()
        self._until = DecimalBox()
        self._budget = IntegerBox()
        self._concurrent = QCheckBox("Runs on different GPUs at the same &time")
        self._rerun = QCheckBox("Re-run stored resu&lts")
        self._reuse = QCheckBox("Count &older results")
        self._headline = text_label("", "title")
        self._detail = text_label("", "muted")
        self._text = text_label("", "", wrap=True)
        self._refused = text_label("", "caption", wrap=True)
        self._every_reason = button("", "Every reason", flat=True)
        self._every_reason.setCheckable(True)
        self._start = button("Start e&xperiment", "Start now, or after the current run", primary=True)
        self._copy = button("", "Copy the same experiment as a shell command", flat=True)
        self._reset = button("Clear values", "Reset every parameter to its value in the form", flat=True)
        self._connect()
        self._build()

    @property
    def start_button(self) -> QPushButton:
        """Return the button that starts the experiment."""
        return self._start

    @property
    def copy_button(self) -> QPushButton:
        """Return the button that copies the command."""
        return self._copy

    @property
    def concurrent_box(self) -> QCheckBox:
        """Return the box for concurrent runs, visible where they are possible."""
        return self._concurrent

    @property
    def rerun_box(self) -> QCheckBox:
        """Return the box that leaves stored runs out, enabled where there are any."""
        return self._rerun

    @property
    def reuse_box(self) -> QCheckBox:
        """Return the box that counts stored runs of any age, visible where some would not count."""
        return self._reuse

    @property
    def reasons_button(self) -> QPushButton:
        """Return the button that shows every reason, or the first ones again."""
        return self._every_reason

    def show_model(self, state: MatrixState, estimate: str, *, stored: bool, older: bool, busy: bool) -> None:
        """Show a state.

        Args:
            state: The state.
            estimate: Sentences on what is stored and left.
            stored: Whether any runs are stored that count; they can be made again.
            older: Whether any are stored that are too old to count unless the user wants it.
            busy: Whether the experiment can only be queued.
        """
        with QSignalBlocker(self._baseline):
            if [self._baseline.itemText(at) for at in range(self._baseline.count())] != list(state.variants):
                self._baseline.clear()
                self._baseline.addItems(state.variants)
            self._baseline.setCurrentIndex(state.baseline)
        self._baseline.setEnabled(len(state.variants) > 1)
        self._show_extent(state)
        self._rerun.setEnabled(stored)
        self._rerun.setChecked(state.again)
        self._reuse.setVisible(older)
        self._reuse.setEnabled(not state.again)
        self._reuse.setChecked(state.reuse)
        show_text(self._headline, state.headline)
        show_text(self._detail, "" if state.problem else state.detail)
        self._text.setText(state.problem or estimate)
        self._combinations, self._refused_shown = state.combinations, state.refused
        self._show_refused()
        self._start.setText("Add e&xperiment to queue" if busy else "Start e&xperiment")
        self._start.setEnabled(not state.problem)
        self._copy.setText("Copy as comman&d")
        self._copy.setEnabled(not state.problem)

    def confirm_copied(self) -> None:
        """Show that the command is on the clipboard, until something changes."""
        self._copy.setText("Copied")

    def _show_extent(self, state: MatrixState) -> None:
        with QSignalBlocker(self._repeats), QSignalBlocker(self._until), QSignalBlocker(self._budget):
            self._repeats.setRange(state.min_repeats, REPEATS_LIMIT)
            self._repeats.setValue(state.repeats)
            self._repeats.setPrefix("" if state.until_pct is None else "at most ")
            self._until.setValue(state.until_pct or 0.0)
            self._budget.setValue(round((state.budget_s or 0.0) / 60))
        self._concurrent.setVisible(state.side_by_side is not None)
        self._concurrent.setChecked(bool(state.side_by_side))

    def _show_refused(self) -> None:
        texts = describe_refused(self._refused_shown, self._combinations, show_all=self._every_reason.isChecked())
        self._refused.setText(texts.text)
        self._refused.setVisible(bool(texts.text))
        self._every_reason.setText(texts.more_label)
        self._every_reason.setVisible(bool(texts.more_label))

    def _connect(self) -> None:
        self._baseline.activated.connect(self.baseline_chosen)
        self._repeats.valueChanged.connect(lambda value: self.extent_changed.emit("repeats", value))
        self._until.valueChanged.connect(lambda value: self.extent_changed.emit("until_pct", value or None))
        self._budget.valueChanged.connect(lambda value: self.extent_changed.emit("budget_s", 60.0 * value or None))
        self._concurrent.clicked.connect(lambda on: self.extent_changed.emit("side_by_side", on))
        self._rerun.clicked.connect(lambda on: self.extent_changed.emit("again", on))
        self._reuse.clicked.connect(lambda on: self.extent_changed.emit("reuse", on))
        self._every_reason.toggled.connect(lambda _: self._show_refused())
        self._start.clicked.connect(self.start_requested)
        self._copy.clicked.connect(self.copy_requested)
        self._reset.clicked.connect(self.reset_requested)

    def _build(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(separator())
        column = QVBoxLayout()
        column.setContentsMargins(2 * GRID, GRID, 2 * GRID, 2 * GRID)
        column.setSpacing(GRID)
        column.addLayout(self._extent())
        column.addLayout(self._check_boxes())
        column.addLayout(self._summary())
        column.addWidget(self._text)
        column.addWidget(self._refused)
        column.addWidget(self._every_reason, 0, Qt.AlignmentFlag.AlignLeft)
        column.addLayout(self._buttons())
        layout.addLayout(column)

    def _extent(self) -> QGridLayout:
        for spin in (self._repeats, self._until, self._budget):
            spin.setButtonSymbols(QAbstractSpinBox.ButtonSymbols.UpDownArrows)
            spin.setFixedWidth(14 * GRID)
        self._until.setRange(0.0, 50.0)
        self._until.setDecimals(1)
        self._until.setSingleStep(0.5)
        self._until.setPrefix(units.plus_minus(""))
        self._until.setSuffix(units.quantity("", "%"))
        self._until.setSpecialValueText("off")
        self._budget.setRange(0, _MAX_MINUTES)
        self._budget.setSuffix(" min")
        self._budget.setSpecialValueText("none")
        self._baseline.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._baseline.setMaxVisibleItems(16)
        fields = (
            ("&Baseline", self._baseline, "The variant that all others are compared with"),
            ("Repeats", self._repeats, "Runs per variant, interleaved, each in a fresh process"),
            ("&Until", self._until, "Stop once every speed-up is known to this precision"),
            (
                "T&ime limit",
                self._budget,
                "Start no run that would not finish within this time; the experiment can be resumed",
            ),
        )
        grid = QGridLayout()
        grid.setHorizontalSpacing(2 * GRID)
        grid.setVerticalSpacing(GRID // 2)
        grid.setColumnStretch(0, 1)
        for column, (name, widget, tip) in enumerate(fields):
            label = text_label(name, "caption")
            label.setBuddy(widget)
            for part in (label, widget):
                part.setToolTip(plain_tooltip(tip))
            widget.setAccessibleName(name.replace("&", ""))
            grid.addWidget(label, 0, column)
            grid.addWidget(widget, 1, column)
        return grid

    def _check_boxes(self) -> QHBoxLayout:
        self._rerun.setToolTip("Run every variant again, even those with stored runs")
        self._reuse.setToolTip("Count the stored runs that were made more than an hour before, too")
        line = QHBoxLayout()
        line.setSpacing(3 * GRID)
        line.addWidget(self._concurrent)
        line.addWidget(self._rerun)
        line.addWidget(self._reuse)
        line.addStretch(1)
        return line

    def _summary(self) -> QHBoxLayout:
        self._headline.setFont(tabular_font(20, bold=True))
        line = QHBoxLayout()
        line.setSpacing(GRID + GRID // 2)
        line.addWidget(self._headline)
        line.addWidget(self._detail, 0, Qt.AlignmentFlag.AlignBottom)
        line.addStretch(1)
        return line

    def _buttons(self) -> QHBoxLayout:
        line = QHBoxLayout()
        line.setSpacing(2 * GRID)
        line.addWidget(self._start)
        line.addWidget(self._copy)
        line.addStretch(1)
        line.addWidget(self._reset)
        return line
