"""An experiment's answer during and after it: one sentence, and a forest plot of its variants."""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.gui.theme import GRID, LEFT, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import BreakingLabel, button, make_column, plain_tooltip, set_role, show_text, text_label
from app.gui.widgets.panes import FlowBar
from app.viewmodels.experiment.verdict_text import ExperimentResult

_ROW_PX, _AXIS_PX = 3 * GRID, 2 * GRID
_MOST_ROWS = 12
"""The most rows of an experiment on the Run screen: Compare has them all."""
_NAME_SHARE = 0.4
_ENERGY_FROM_PX = 110 * GRID
"""From this width on, energy fits beside a useful plot."""


class ForestPlot(QWidget):
    """One row per variant below a common axis of ratios: its name, its interval and dot, and its figures."""

    def __init__(self, theme: Theme, most_rows: int) -> None:
        super().__init__()
        self._theme = theme
        self._most_rows = most_rows
        self._result: ExperimentResult | None = None
        self.setFont(tabular_font())
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        policy.setRetainSizeWhenHidden(True)  # while another answer is pending
        self.setSizePolicy(policy)
        theme.changed.connect(self.update)

    def show_model(self, result: ExperimentResult) -> None:
        self._result = result
        texts = ((row.name, row.change, row.interval, row.energy, row.runs) for row in result.rows)
        self.setAccessibleName(". ".join(" ".join(filter(None, text)) for text in texts))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        rows = min(len(self._result.rows), self._most_rows) if self._result is not None else 0
        return QSize(60 * GRID, _AXIS_PX + rows * _ROW_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._result is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        metrics, colours = QFontMetricsF(self.font()), self._theme.colours
        rows = self._result.rows[: self._most_rows]
        name_px = min(_NAME_SHARE * self.width(), max(metrics.horizontalAdvance(row.name) for row in rows)) + GRID
        has_room = self.width() > _ENERGY_FROM_PX
        figures = ((row.change, row.interval, row.energy if has_room else "", row.runs) for row in rows)
        columns = list(zip(*figures, strict=True))
        widths = [max(map(metrics.horizontalAdvance, column)) for column in columns]
        figures_px = sum(width + 2 * GRID for width in widths if width)
        axis = QRectF(name_px + GRID, 0, max(1.0, self.width() - name_px - figures_px - 2 * GRID), _ROW_PX)
        self._paint_axis(painter, metrics, axis)
        first = max(0, event.rect().top() - _AXIS_PX) // _ROW_PX
        for number, row in enumerate(rows[first : event.rect().bottom() // _ROW_PX + 1], first):
            line = QRectF(0, _AXIS_PX + number * _ROW_PX, self.width(), _ROW_PX)
            painter.setPen(QColor(colours.text))
            name = metrics.elidedText(row.name, Qt.TextElideMode.ElideMiddle, name_px - GRID)
            painter.drawText(line.adjusted(0, 0, name_px - self.width(), 0), LEFT, name)
            if row.ratio is not None:
                dot = QColor(colours.accent if row.is_fastest else colours.muted)
                ends = row.low or row.ratio, row.ratio, row.high or row.ratio
                paint_whisker(painter, axis.translated(0, line.top()), tuple(map(self._result.axis.share, ends)), dot)
            for column, width in zip(reversed(columns), reversed(widths), strict=True):
                painter.setPen(QColor(colours.text if column is columns[0] else colours.muted))
                painter.drawText(line, RIGHT, column[number])
                line.adjust(0, 0, -width - 2 * GRID if width else 0, 0)
        painter.end()

    def _paint_axis(self, painter: QPainter, metrics: QFontMetricsF, axis: QRectF) -> None:
        assert self._result is not None, "a result is painted"
        colours, count = self._theme.colours, len(self._result.rows)
        baseline, right_px = QPen(QColor(colours.muted), 1, Qt.PenStyle.DashLine), 0.0
        for value, label in (*self._result.axis.ticks, (1.0, "")):
            x = axis.left() + axis.width() * self._result.axis.share(value)
            painter.setPen(QColor(colours.line) if label else baseline)
            painter.drawLine(QPointF(x, _AXIS_PX), QPointF(x, self.height()))
            painter.setPen(QColor(colours.muted))
            width = metrics.horizontalAdvance(label)
            if x - width / 2 > right_px:
                painter.drawText(QRectF(x - width / 2, 0, width, _AXIS_PX), RIGHT, label)
                right_px = x + width / 2 + GRID
        if count > self._most_rows:
            painter.drawText(QRectF(0, 0, axis.left(), _AXIS_PX), LEFT, f"{self._most_rows} of {count:,} variants")


_DOT_PX, _WHISKER_PX, _ARROW_PX = 4.0, 2.0, 6.0


def paint_whisker(painter: QPainter, area: QRectF, shares: Sequence[float], colour: QColor) -> None:
    """Paint a dot and its interval into an area, with arrows if they extend beyond it.

    `shares` of the width are the interval's lower end, the dot, and its upper end.
    """
    low, at, high = shares
    x = [area.left() + area.width() * min(1.0, max(0.0, share)) for share in shares]
    y = area.center().y()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(colour, _WHISKER_PX))
    painter.drawLine(QPointF(x[0], y), QPointF(x[2], y))
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(colour)
    for end, leaves, way in ((x[0], low < 0, _ARROW_PX), (x[2], high > 1, -_ARROW_PX)):
        if leaves:
            painter.drawPolygon(QPolygonF([QPointF(end, y), QPointF(end + way, y - 4), QPointF(end + way, y + 4)]))
    if 0 <= at <= 1:
        painter.drawEllipse(QPointF(x[1], y), _DOT_PX, _DOT_PX)


_LARGEST_CHARS = 200
"""The longest answer in the largest letters, about three lines of a window of usual width."""


class ResultView(QWidget):
    """The answer in the screen's largest letters, what would decide it, and the forest plot; hidden without an answer.

    A long answer is smaller, and so are those on several workloads, one a line. The `plot` may be placed elsewhere.
    `more_requested` carries the repeats that would decide it and their variants, empty for all; `quiet_requested`
    requests all runs again, each once the machine is quiet.
    """

    more_requested = Signal(int, tuple)
    quiet_requested = Signal()

    def __init__(self, theme: Theme, most_rows: int = _MOST_ROWS) -> None:
        super().__init__()
        self._result: ExperimentResult | None = None
        self.more_button = button("", "Run these interleaved; completed runs count")
        self.more_button.clicked.connect(self._request_more)
        self.quiet_button = button("Run again when &quiet", "Repeat every run when nothing else uses the machine")
        self.quiet_button.clicked.connect(self.quiet_requested)
        for offer in (self.more_button, self.quiet_button):
            offer.hide()
        self._lamp = text_label("", "muted")
        self._answer = BreakingLabel("answer")
        self._answer.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._next_step = text_label("", "muted", wrap=True)
        self.plot = ForestPlot(theme, most_rows)
        self._offers = FlowBar(2 * GRID, GRID // 2)
        for widget in (self._lamp, self.quiet_button, self.more_button):
            self.add_offer(widget)
        parts = self._answer, self._next_step, self._offers, self.plot
        make_column(*parts, parent=self, margins=(0, 0, 0, GRID), spacing=GRID)
        self.hide()

    def add_offer(self, offer: QWidget) -> None:
        """Put a button below what would decide it."""
        self._offers.flow.addWidget(offer)

    def show_model(self, result: ExperimentResult | None) -> None:
        self._result = result
        self.setVisible(result is not None)
        if result is not None:
            is_short = len(result.answer) <= _LARGEST_CHARS and "\n" not in result.answer
            set_role(self._answer, "answer" if is_short else "verdict")
            self._answer.setText(result.answer)
            show_text(self._next_step, result.verdict.next_step)
            show_text(self._lamp, f"● {result.lamp}" if result.lamp else "")
            set_role(self._lamp, "warning" if result.disturbance else "good")
            self._lamp.setToolTip(plain_tooltip(result.disturbance))
            self.plot.show_model(result)

    def show_waiting(self, text: str) -> None:
        """Show what is being computed, instead of the answer to another question."""
        self._answer.setText(text)
        show_text(self._next_step, "")
        self.plot.hide()
        for offer in (self.more_button, self.quiet_button, self._lamp):
            offer.hide()

    def offer_more(self, *, offered: bool) -> None:
        """Offer further runs if they would help; none while the experiment may still run them."""
        more, some, rows = 0, 0, 0
        if self._result is not None:
            verdict, rows = self._result.verdict, len(self._result.rows)
            more, some = verdict.more_repeats, len(verdict.repeated)
        runs = f" ({more * rows:,} runs)" if rows > _MOST_ROWS and not some else ""
        self.more_button.setText(f"Run {more:,} more of {f'th&ese {some}' if some else f'&each{runs}'}")
        self.more_button.setVisible(offered and more > 0)
        self.quiet_button.setVisible(offered and self._result is not None and bool(self._result.disturbance))

    def _request_more(self) -> None:
        if self._result is not None:
            self.more_requested.emit(self._result.verdict.more_repeats, self._result.verdict.repeated)
