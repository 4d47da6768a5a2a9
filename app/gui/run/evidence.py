"""Evidence of what actually ran: the verification badge and the panel with kernels, devices and weight transfer."""

import html
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen, QWheelEvent
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QLabel, QLayout, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app import units
from app.gui.theme import GRID, LEFT, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import (
    STRETCH,
    BreakingLabel,
    ElidedLabel,
    button,
    make_column,
    make_row,
    plain_tooltip,
    set_role,
    text_label,
)
from app.gui.widgets.pacing import Slices, WhenSeen
from app.gui.widgets.share_bars import ShareBar, StackedBar, paint_name
from app.viewmodels.charts.model import linear_ticks
from app.viewmodels.history.evidence import Aspect, Badge, EvidenceView, PortabilityRow
from app.viewmodels.history.kernel_time import DEVICE_COLUMNS, KERNEL_CLASSES, KernelRow
from app.viewmodels.history.step_timeline import Lanes, TimelineView

_ROW_PX = 3 * GRID
_BAR_PX = 2 * GRID
_AXIS_PX = 3 * GRID
_MAX_LABEL_PX = 22 * GRID
_FONT_PX = 11
_TICK_ROOM_PX = 90
_REACH_PX = 4
_ZOOM = 1.25
_LEAST_US = 1.0
_DRAG_PX = 3
_PAN = 0.5
"""Of the range that is shown, for a key."""
_ZOOM_KEYS: dict[int, float] = {
    Qt.Key.Key_Plus: 1 / _ZOOM**2,
    Qt.Key.Key_Equal: 1 / _ZOOM**2,
    Qt.Key.Key_Minus: _ZOOM**2,
}
_PAN_KEYS: dict[int, float] = {Qt.Key.Key_PageUp: -_PAN, Qt.Key.Key_PageDown: _PAN}
_KERNEL_KEYS: dict[int, int] = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
_ROW_KEYS: dict[int, int] = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}
_NAMES = {colour: name for name, colour in KERNEL_CLASSES.values()}


class StepCanvas(QWidget):
    """Paints the streams as rows and the kernels as bars, all in one go; `described` is of the kernel pointed at.

    Shown times are microseconds since the step's start.
    """

    described = Signal(int)
    zoomed = Signal()

    def __init__(self, theme: Theme, view: TimelineView) -> None:
        super().__init__()
        self._theme = theme
        self._view = view
        self._lanes = Lanes(view)
        self.range_us = (0.0, view.step_us)
        """The times that are shown."""
        self._selected: int | None = None
        self._held: tuple[float, float] | None = None
        self.setFont(tabular_font(_FONT_PX))
        widest = max(QFontMetricsF(self.font()).horizontalAdvance(row.label) for row in view.rows)
        self._gutter = min(widest + 2 * GRID, _MAX_LABEL_PX)
        self.setFixedHeight(len(view.rows) * _ROW_PX + _AXIS_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(view.text)

    @property
    def selected(self) -> int | None:
        """Number of the selected kernel among those of the step; None if none is."""
        return None if self._selected is None else int(self._lanes.index[self._selected])

    def sizeHint(self) -> QSize:
        """Return a width that shows something."""
        return QSize(60 * GRID, self.height())

    def show_range(self, start_us: float, end_us: float) -> None:
        """Show these times, as far as the step has them."""
        length = min(max(end_us - start_us, _LEAST_US), self._view.step_us)
        start_us = min(max(start_us, 0.0), self._view.step_us - length)
        self.range_us = (start_us, start_us + length)
        self.zoomed.emit()
        self.update()

    def zoom(self, factor: float, about_us: float | None = None) -> None:
        """Show so many times as much time, about a time that stays where it is: the selected kernel or the middle."""
        start_us, end_us = self.range_us
        if about_us is None:
            about_us = (
                (start_us + end_us) / 2 if self._selected is None else float(self._lanes.start_us[self._selected])
            )
            about_us = min(max(about_us, start_us), end_us)
        self.show_range(about_us - (about_us - start_us) * factor, about_us + (end_us - about_us) * factor)

    def paintEvent(self, _event: QPaintEvent) -> None:
        """Paint rows, bars and the time axis."""
        painter = QPainter(self)
        colours = self._theme.colours
        self._paint_axis(painter)
        self._paint_bars(painter)
        painter.setPen(QColor(colours.muted))
        metrics = painter.fontMetrics()
        for number, row in enumerate(self._view.rows):
            area = QRectF(0, number * _ROW_PX, self._gutter - GRID, _ROW_PX)
            label = metrics.elidedText(row.label, Qt.TextElideMode.ElideMiddle, int(area.width()))
            painter.drawText(area, LEFT, label)
        if self._selected is not None:
            painter.setPen(QPen(QColor(colours.text), 1.0))
            painter.drawRect(self._area_of(self._selected).adjusted(-1.5, -1.5, 0.5, 0.5))
        if self.hasFocus():
            painter.setPen(QColor(colours.accent))
            painter.drawRect(self._plot().adjusted(-1, 0, 0, -1))
        painter.end()

    def _paint_axis(self, painter: QPainter) -> None:
        """Paint lanes and, below, round times: microseconds, or milliseconds of a longer range."""
        plot, colours = self._plot(), self._theme.colours
        for number in range(len(self._view.rows)):
            lane = QRectF(plot.left(), number * _ROW_PX + (_ROW_PX - _BAR_PX) / 2, plot.width(), _BAR_PX)
            painter.fillRect(lane, QColor(colours.band))
        start_us, end_us = self.range_us
        unit, size = ("ms", 1000.0) if end_us - start_us >= 1000 else ("µs", 1.0)
        ticks = linear_ticks(start_us / size, end_us / size, max(2, int(plot.width() / _TICK_ROOM_PX)))
        for value, label in ticks:
            x = self._x_of(value * size)
            painter.setPen(QColor(colours.line))
            painter.drawLine(QPointF(x, 0), QPointF(x, plot.bottom()))
            painter.setPen(QColor(colours.muted))
            area = QRectF(x - _TICK_ROOM_PX / 2, plot.bottom(), _TICK_ROOM_PX, _AXIS_PX)
            if area.right() <= self.width() + GRID:
                painter.drawText(area, Qt.AlignmentFlag.AlignCenter, f"{label} {unit}")

    def _paint_bars(self, painter: QPainter) -> None:
        plot = self._plot()
        bars = self._lanes.bars(*self.range_us, max(1, int(plot.width())))
        by_colour = defaultdict(list)
        top = bars.row * _ROW_PX + (_ROW_PX - _BAR_PX) / 2 + _BAR_PX * (1 - bars.high)
        height = _BAR_PX * (bars.high - bars.low)
        columns = (bars.colour, bars.left + plot.left(), top, bars.width, height)
        for colour, x, y, width, tall in zip(*(column.tolist() for column in columns), strict=True):
            by_colour[colour].append(QRectF(x, y, width, tall))
        for colour, rects in by_colour.items():
            ground = self._theme.class_colour(colour)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ground)
            painter.drawRects(rects)
            for bar in rects:
                if bar.height() == _BAR_PX < bar.width():
                    paint_name(painter, bar, _NAMES[colour], ground)
        painter.setBrush(Qt.BrushStyle.NoBrush)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Zoom about the pointer with Ctrl; without it the wheel scrolls what is around."""
        if not event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            event.ignore()
            return
        self.zoom(_ZOOM ** (-event.angleDelta().y() / 120), self._time_at(event.position()))
        event.accept()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take hold of the time under the pointer by the left button."""
        if event.button() == Qt.MouseButton.LeftButton:
            self._held = (event.position().x(), self.range_us[0])

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Pan, or tell which kernel is under the pointer."""
        if self._held is not None and event.buttons() & Qt.MouseButton.LeftButton:
            x, start_us = self._held
            length = self.range_us[1] - self.range_us[0]
            start_us -= (event.position().x() - x) / self._plot().width() * length
            self.show_range(start_us, start_us + length)
            return
        kernel = self._kernel_at(event.position())
        described = self._selected if kernel is None else kernel
        self.described.emit(-1 if described is None else int(self._lanes.index[described]))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Select the kernel that was clicked, unless the view was dragged."""
        if event.button() != Qt.MouseButton.LeftButton:
            return
        held, self._held = self._held, None
        if held is not None and abs(event.position().x() - held[0]) < _DRAG_PX:
            self._select(self._kernel_at(event.position()))

    def mouseDoubleClickEvent(self, _event: QMouseEvent) -> None:
        """Show the whole step."""
        self.show_range(0.0, self._view.step_us)

    def leaveEvent(self, _event: QEvent) -> None:
        """Tell of the selected kernel again."""
        self.described.emit(-1 if self.selected is None else self.selected)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Zoom, pan, or select another kernel."""
        key = event.key()
        start_us, end_us = self.range_us
        if key in _ZOOM_KEYS:
            self.zoom(_ZOOM_KEYS[key])
        elif key in _PAN_KEYS:
            shift = _PAN_KEYS[key] * (end_us - start_us)
            self.show_range(start_us + shift, end_us + shift)
        elif key in _KERNEL_KEYS:
            self._move_selection(_KERNEL_KEYS[key])
        elif key in _ROW_KEYS:
            self._move_row(_ROW_KEYS[key])
        elif key == Qt.Key.Key_0:
            self.show_range(0.0, self._view.step_us)
        else:
            super().keyPressEvent(event)

    def _move_selection(self, step: int) -> None:
        if self._selected is None:
            self._select(self._lanes.find(0, self.range_us[0], self._view.step_us))
        else:
            self._select(self._lanes.next_on_row(self._selected, step))

    def _move_row(self, step: int) -> None:
        """Select the kernel that runs about then on another stream."""
        if self._selected is None:
            self._move_selection(step)
            return
        row = int(self._lanes.row[self._selected]) + step
        if 0 <= row < len(self._view.rows):
            time_us = float(self._lanes.start_us[self._selected])
            self._select(self._lanes.find(row, time_us, self._view.step_us))

    def _select(self, kernel: int | None) -> None:
        self._selected = kernel
        if kernel is not None:
            at_us, (start_us, end_us) = float(self._lanes.start_us[kernel]), self.range_us
            if not start_us <= at_us < end_us:
                half = (end_us - start_us) / 2
                self.show_range(at_us - half, at_us + half)
        self.described.emit(-1 if self.selected is None else self.selected)
        self.setAccessibleDescription("" if self.selected is None else self._view.describe(self.selected))
        self.update()

    def _kernel_at(self, position: QPointF) -> int | None:
        reach_us = _REACH_PX * (self.range_us[1] - self.range_us[0]) / self._plot().width()
        row = int(position.y() // _ROW_PX)
        if position.x() < self._plot().left() or row >= len(self._view.rows):
            return None
        return self._lanes.find(row, self._time_at(position), reach_us)

    def _plot(self) -> QRectF:
        rows = len(self._view.rows) * _ROW_PX
        return QRectF(self._gutter, 0, max(1.0, self.width() - self._gutter - GRID), rows)

    def _time_at(self, position: QPointF) -> float:
        plot, (start_us, end_us) = self._plot(), self.range_us
        return start_us + (position.x() - plot.left()) / plot.width() * (end_us - start_us)

    def _x_of(self, time_us: float) -> float:
        plot, (start_us, end_us) = self._plot(), self.range_us
        return plot.left() + (time_us - start_us) / (end_us - start_us) * plot.width()

    def _area_of(self, number: int) -> QRectF:
        plot = self._plot()
        left, right = (self._x_of(float(column[number])) for column in (self._lanes.start_us, self._lanes.end_us))
        left, right = max(left, plot.left()), min(max(right, left + 1), plot.right())
        return QRectF(left, int(self._lanes.row[number]) * _ROW_PX + (_ROW_PX - _BAR_PX) / 2, right - left, _BAR_PX)


class StepTimelineWidget(QWidget):
    """The canvas with buttons that zoom, a line that says what is pointed at or selected, and notes."""

    def __init__(self, theme: Theme, view: TimelineView) -> None:
        super().__init__()
        self._view = view
        self.canvas = StepCanvas(theme, view)
        self.reading = ElidedLabel(side=Qt.AlignmentFlag.AlignLeft)
        self._whole_step = button("Whole step", "Show the whole step (0, or a double click)", flat=True)
        self._whole_step.clicked.connect(lambda: self.canvas.show_range(0.0, view.step_us))
        self.canvas.described.connect(self._describe)
        self.canvas.zoomed.connect(self._offer_whole)
        line = QHBoxLayout()
        line.addWidget(self.reading, 1)
        line.addWidget(self._whole_step, 0, RIGHT)
        column = make_column(self.canvas, line, parent=self, margins=0, spacing=GRID // 2)
        column.addWidget(text_label(view.notes, "caption", wrap=True))
        self._describe(-1)
        self._offer_whole()

    def _describe(self, index: int) -> None:
        hint = "Ctrl+wheel or + and − zoom, dragging or Page Up and Page Down pan, the arrow keys select."
        self.reading.setText(self._view.describe(index) if index >= 0 else hint)
        set_role(self.reading, "" if index >= 0 else "muted")

    def _offer_whole(self) -> None:
        self._whole_step.setEnabled(self.canvas.range_us != (0.0, self._view.step_us))


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

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
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

    def _rebuild(self) -> None:
        if self._view is None:
            return
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
        if view.timeline:
            yield _titled("One step", StepTimelineWidget(self._theme, view.timeline))
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
