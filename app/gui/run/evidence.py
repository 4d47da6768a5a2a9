"""Evidence of what actually ran: the verification badge and the panel with kernels, devices and weight transfer."""

import html
from collections.abc import Iterator, Sequence
from functools import partial

from PySide6.QtCore import QEvent, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QHelpEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLayout,
    QScrollArea,
    QSizePolicy,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from app.gui.theme import GRID, LEFT, RIGHT, Theme, ink_on, tabular_font
from app.gui.widgets.basic import STRETCH, BreakingLabel, button, make_column, make_row, plain_tooltip, text_label
from app.gui.widgets.pacing import Slices, WhenSeen
from app.values import units
from app.viewmodels.history.evidence import Aspect, Badge, EvidenceView, PortabilityRow
from app.viewmodels.history.kernel_time import DEVICE_COLUMNS, ClassShare, KernelRow

_STACK_HEIGHT = 2 * GRID
_BAR_HEIGHT = GRID
_GAP = 1.0
_RADIUS = 2.0
_FONT_PX = 11
_NAME_MARGIN = 4.0


def paint_name(painter: QPainter, area: QRectF, name: str, ground: QColor) -> None:
    """Write a name at the left of a bar unless the bar is too short for it."""
    area = area.adjusted(_NAME_MARGIN, 0, -_NAME_MARGIN, 0)
    if painter.fontMetrics().horizontalAdvance(name) <= area.width():
        painter.setPen(ink_on(ground))
        painter.drawText(area, LEFT, name)


class StackedBar(QWidget):
    """Parts side by side, each as wide as its share, with a hairline between them."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._parts: Sequence[ClassShare] = ()
        self.setFixedHeight(_STACK_HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def show_parts(self, parts: Sequence[ClassShare]) -> None:
        """Show these parts in order."""
        self._parts = parts
        self.setAccessibleName(", ".join(f"{part.name} {units.percent(100 * part.share, 1)}" for part in parts))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint each part in its class's colour, with its name where there is room."""
        painter = QPainter(self)
        painter.setFont(tabular_font(_FONT_PX))
        for part, area in zip(self._parts, self._areas(), strict=True):
            colour = self._theme.class_colour(part.colour)
            painter.fillRect(area.adjusted(0, 0, -min(_GAP, area.width() / 2), 0), colour)
            paint_name(painter, area, part.name, colour)
        painter.end()

    def event(self, event: QEvent) -> bool:
        """Show name and share of the part under the pointer."""
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            QToolTip.showText(event.globalPos(), plain_tooltip(self.text_at(event.pos().x())), self)
            return True
        return super().event(event)

    def text_at(self, x: float) -> str:
        """Return name and share of the part at `x` pixels, "" outside."""
        under = (p for p, area in zip(self._parts, self._areas(), strict=True) if area.left() <= x < area.right())
        return next((f"{part.name}, {units.percent(100 * part.share, 1)} of the time" for part in under), "")

    def _areas(self) -> list[QRectF]:
        left, areas = 0.0, []
        for part in self._parts:
            width = part.share * self.width()
            areas.append(QRectF(left, 0.0, width, self.height()))
            left += width
        return areas


class ShareBar(QWidget):
    """One bar from the left, `fraction` of the width, in the colour of a curve."""

    def __init__(self, theme: Theme, colour: int, fraction: float) -> None:
        super().__init__()
        self._theme = theme
        self._colour = colour
        self._fraction = fraction
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        """Return the height of a line's small letters."""
        return QSize(16 * GRID, _BAR_HEIGHT)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint at least one pixel: nothing in the list took no time at all."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(0, 0, 0, 0))
        painter.setBrush(self._theme.class_colour(self._colour))
        painter.drawRoundedRect(QRectF(0, 0, max(1.0, self._fraction * self.width()), self.height()), _RADIUS, _RADIUS)
        painter.end()


class BadgeLine(QWidget):
    """One line that says what was verified of the run, with the button that shows the evidence."""

    toggled = Signal(bool)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._badge: Badge | None = None
        self._title = text_label("", "heading")
        self._detail = text_label("", "", wrap=True)
        self._detail.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.button = button("Show e&vidence", "Requested against actual, and where the time went", flat=True)
        self.button.setCheckable(True)
        self.button.toggled.connect(self._toggle)
        theme.follow(self, self._restyle)
        layout = make_row(parent=self, margins=0, spacing=GRID)
        # As far down as the words of the button stand in it.
        for label in (self._title, self._detail):
            label.setContentsMargins(0, GRID // 2, 0, GRID // 2)
        layout.addWidget(self._title, 0, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(self._detail, 1, Qt.AlignmentFlag.AlignTop)
        layout.addWidget(self.button, 0, Qt.AlignmentFlag.AlignTop)

    def show_view(self, view: EvidenceView) -> None:
        """Show this badge, with the button only where there is evidence."""
        self._badge = view.badge
        self._title.setText(f"{view.badge.symbol}  {view.badge.title}".strip())
        self._detail.setText(view.badge.detail)
        has_evidence = bool(view.aspects or view.portability or view.equality)
        self.button.setVisible(has_evidence)
        if not has_evidence:
            self.button.setChecked(False)
        self._restyle()

    def _toggle(self, checked: bool) -> None:
        self.button.setText("Hide e&vidence" if checked else "Show e&vidence")
        self.toggled.emit(checked)

    def _restyle(self) -> None:
        if self._badge is not None:
            self._title.setStyleSheet(f"color: {self._theme.tone_colour(self._badge.tone)};")


def _insert_last(column: QVBoxLayout, part: QVBoxLayout) -> None:
    """Insert a part above the room that is left, in a widget: Qt would show and lay out its labels one by one."""
    around = QWidget()
    part.setContentsMargins(0, 0, 0, 0)
    around.setLayout(part)
    column.insertWidget(column.count() - 1, around)


class EvidencePanel(QScrollArea):
    """Shows an `EvidenceView`: requested and actual, time by class, top kernels, weight transfer."""

    timeline_requested = Signal()

    def __init__(self, theme: Theme, *, is_stored: bool = False) -> None:
        """Show nothing yet; of a run that `is_stored` the timeline can be written to a file."""
        super().__init__()
        self._theme = theme
        self._is_stored = is_stored
        self._note: QLabel | None = None
        self._view: EvidenceView | None = None
        self.setWidgetResizable(True)
        self.setAccessibleName("Evidence of what ran")
        self._content = WhenSeen(self, self._rebuild)
        self._filling = Slices(self, slice_s=0.0)

    def show_view(self, view: EvidenceView) -> None:
        """Show this evidence from its top, unless it is shown already."""
        if view != self._view:
            self._view = view
            self._content.ask()

    def show_note(self, text: str) -> None:
        """Show a sentence on the file of the timeline, unless the button is gone by now."""
        if self._note is not None:
            self._note.setText(text)

    def _rebuild(self) -> None:
        if self._view is None:
            return
        self._note = None  # Qt deletes it with the former content
        content = QWidget()
        column = make_column(STRETCH, parent=content, margins=(0, GRID, 2 * GRID, 2 * GRID), spacing=3 * GRID)
        self.setWidget(content)
        self._filling.start(map(partial(_insert_last, column), self._parts(self._view)))

    def _parts(self, view: EvidenceView) -> Iterator[QVBoxLayout]:
        """Yield the parts of the evidence, the most important first."""
        if view.aspects:
            yield _titled("Requested and actual", self._aspects(view.aspects))
        if view.warning:
            yield _titled("", text_label(f"▲  {view.warning}", "caution", wrap=True))
        if view.kernels:
            yield _titled("Where the time went", self._time_shares(view))
        if view.has_step and self._is_stored:
            opener = button("Open in &Perfetto …", "Write a file that ui.perfetto.dev opens")
            opener.clicked.connect(self.timeline_requested)
            self._note = text_label("When each kernel of a step ran, on which stream.", "muted", wrap=True)
            yield _titled("One step", make_row(opener, (self._note, 1), margins=0, spacing=GRID))
        if view.kernels:
            yield _titled(f"Top {view.noun}s", self._kernels(view))
        if view.devices:
            yield _titled("Step time per device", _devices(view))
        if view.portability:
            yield _titled("Weight transfer", _trials(view.portability))
        if view.equality:
            yield _titled("Against other variants", text_label("\n".join(view.equality), wrap=True))
        if notes := "\n".join(filter(None, (view.sources, *view.notes))):
            yield _titled("", text_label(notes, "caption", wrap=True))

    def _aspects(self, aspects: tuple[Aspect, ...]) -> QGridLayout:
        grid = _table(("", "Requested", "Actual"), numbers=())
        for row, aspect in enumerate(aspects, 1):
            ran = text_label(f"{aspect.symbol}  {aspect.actual}", "warning" if aspect.differs else "")
            for column, label in enumerate((text_label(aspect.name, "muted"), text_label(aspect.requested), ran)):
                grid.addWidget(label, row, column)
        grid.setColumnStretch(3, 1)
        return grid

    def _time_shares(self, view: EvidenceView) -> QHBoxLayout:
        bar = StackedBar(self._theme)
        bar.show_parts(view.classes)
        legend = QLabel(self._legend(view))
        legend.setTextFormat(Qt.TextFormat.RichText)
        legend.setWordWrap(True)
        self._theme.follow(legend, lambda: legend.setText(self._legend(view)))
        line = make_row(spacing=4 * GRID)
        if view.idle_share:
            idle = text_label("of the measured step\nno kernel runs", "caption")
            line.addLayout(make_column(text_label(view.idle_share, "figure"), idle, STRETCH, spacing=GRID // 2))
        caption = text_label(f"Shares of {view.noun} time. {view.traced}", "caption", wrap=True)
        line.addLayout(make_column(bar, legend, caption, STRETCH, spacing=GRID // 2), 1)
        return line

    def _legend(self, view: EvidenceView) -> str:
        muted = self._theme.colours.muted
        return " &nbsp; ".join(
            f'<span style="color:{self._theme.class_colour(part.colour).name()}">■</span>&nbsp;{html.escape(part.name)}'
            f'&nbsp;<span style="color:{muted}">{units.percent(100 * part.share, 1)}</span>'
            for part in view.classes
        )

    def _kernels(self, view: EvidenceView) -> QGridLayout:
        on_tensor_cores = "Tensor cores" if any(kernel.tensor_cores for kernel in view.kernels) else ""
        occupancy = "Occupancy" if any(kernel.occupancy for kernel in view.kernels) else ""
        heads = ("Class", view.noun.capitalize(), "", f"% of {view.noun} time", "Count", occupancy, on_tensor_cores)
        grid = _table(heads, (3, 4, 5))
        grid.setHorizontalSpacing(2 * GRID)  # seven columns fit a window of 1024 pixels
        largest = max(kernel.share for kernel in view.kernels) or 1.0
        for row, kernel in enumerate(view.kernels, 1):
            bar = ShareBar(self._theme, kernel.colour, kernel.share / largest)
            for column, widget in enumerate(_kernel_cells(kernel, bar)):
                grid.addWidget(widget, row, column)
        if view.other_kernels:
            grid.addWidget(text_label(view.other_kernels, "caption", wrap=True), len(view.kernels) + 1, 1)
        grid.setColumnStretch(1, 3)
        grid.setColumnStretch(2, 1)
        return grid


def _kernel_cells(kernel: KernelRow, bar: ShareBar) -> tuple[QWidget, ...]:
    name = BreakingLabel("")
    name.setText(kernel.name)
    name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    # Names of kernels are full of angle brackets, which Qt would take for mark-up.
    name.setToolTip(plain_tooltip(kernel.help))
    numbers = (units.percent(100 * kernel.share, 1), f"{kernel.count:,}", kernel.occupancy)
    return text_label(kernel.kind, "muted"), name, bar, *map(_number, numbers), text_label(kernel.tensor_cores)


def _devices(view: EvidenceView) -> QVBoxLayout:
    grid = _table(DEVICE_COLUMNS, numbers=range(1, len(DEVICE_COLUMNS)))
    for row, device in enumerate(view.devices, 1):
        for column, text in enumerate(device):
            grid.addWidget(_number(text) if column else text_label(text, "muted"), row, column)
    grid.setColumnStretch(len(DEVICE_COLUMNS), 1)
    return make_column(grid, text_label(view.imbalance, "caption"), STRETCH, spacing=GRID // 2)


def _trials(trials: tuple[PortabilityRow, ...]) -> QGridLayout:
    grid = _table(("", "Largest difference", ""), numbers=(1,))
    for row, trial in enumerate(trials, 1):
        for column, label in enumerate(
            (text_label(trial.where), _number(trial.difference), text_label(trial.magnitude, "muted"))
        ):
            grid.addWidget(label, row, column)
    grid.setColumnStretch(3, 1)
    return grid


def _table(titles: Sequence[str], numbers: Sequence[int]) -> QGridLayout:
    """Make an empty table with its header; columns of numbers are aligned to the right."""
    grid = QGridLayout()
    grid.setContentsMargins(0, 0, 0, 0)
    grid.setHorizontalSpacing(3 * GRID)
    grid.setVerticalSpacing(GRID // 2)
    for column, title in enumerate(titles):
        label = text_label(title, "caption")
        label.setAlignment(RIGHT if column in numbers else LEFT)
        grid.addWidget(label, 0, column)
    return grid


def _number(text: str) -> QLabel:
    label = text_label(text)
    label.setFont(tabular_font())
    label.setAlignment(RIGHT)
    return label


def _titled(title: str, content: QLayout | QWidget) -> QVBoxLayout:
    heading = [text_label(title, "heading")] if title else []
    return make_column(*heading, content, spacing=GRID)
