"""The list of a choice: every option with what it is beside it, or why it cannot run here."""

from collections.abc import Sequence

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QGuiApplication, QPainter, QPalette
from PySide6.QtWidgets import QComboBox, QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app.gui.theme import GRID, LEFT
from app.gui.views.cell_delegate import AnyIndex
from app.viewmodels.form import Option

_QUIET = 0.65
_OPTION_HEIGHT = 3 * GRID
_WIDEST_LIST = 120 * GRID
_SELECTED = QPalette.ColorRole.HighlightedText


class OptionDelegate(QStyledItemDelegate):
    """An option with what it is, or why it cannot run here, beside it; all of a list begin at the same place."""

    def __init__(self, parent: QComboBox) -> None:
        super().__init__(parent)
        self._beside = 0

    def measure(self, options: Sequence[Option], metrics: QFontMetrics) -> int:
        """Find where the words beside the options begin; the width the whole list wants, in pixels."""
        beside = max((metrics.horizontalAdvance(words_beside(option)) for option in options), default=0)
        labels = max((metrics.horizontalAdvance(option.label) for option in options), default=0)
        self._beside = labels + 3 * GRID if beside else 0
        return min(self._beside + beside + 4 * GRID, _WIDEST_LIST) if beside else 0

    def sizeHint(self, option: QStyleOptionViewItem, index: AnyIndex) -> QSize:
        """Air above and below: the style sheet's does not reach a delegate."""
        return QSize(super().sizeHint(option, index).width(), _OPTION_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """The option, faint where it is disabled, and quieter the words beside it."""
        area = QRect(option.rect).adjusted(GRID, 0, -GRID, 0)
        enabled = bool(option.state & QStyle.StateFlag.State_Enabled)
        selected = enabled and bool(option.state & QStyle.StateFlag.State_Selected)
        if selected:
            painter.fillRect(option.rect, QGuiApplication.palette().highlight())
        painter.save()
        painter.setPen(_option_colour(enabled=enabled, selected=selected))
        painter.drawText(area, LEFT, str(index.data()))
        if self._beside:
            quiet = _option_colour(enabled=True, selected=selected)
            quiet.setAlphaF(_QUIET)
            painter.setPen(quiet)
            area.setLeft(area.left() + self._beside)
            beside = str(index.data(Qt.ItemDataRole.ToolTipRole) or "")
            words = option.fontMetrics.elidedText(beside, Qt.TextElideMode.ElideRight, area.width())
            painter.drawText(area, LEFT, words)
        painter.restore()


def _option_colour(*, enabled: bool, selected: bool) -> QColor:
    """From the program's palette: the style sheet's colour makes no difference between enabled and disabled."""
    group = QPalette.ColorGroup.Active if enabled else QPalette.ColorGroup.Disabled
    return QColor(QGuiApplication.palette().color(group, _SELECTED if selected else QPalette.ColorRole.Text))


def words_beside(option: Option) -> str:
    """Why an option cannot run here, else what it is."""
    return option.reason or option.help
