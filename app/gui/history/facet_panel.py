"""The panel of facets beside the table of runs: values with their numbers of runs, several of which can be chosen."""

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QHeaderView, QTreeWidget, QTreeWidgetItem, QVBoxLayout, QWidget

from app.gui.theme import GRID, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import plain_tooltip
from app.gui.window_state import WindowState
from app.viewmodels.history.facets import OPEN_AT_FIRST, FacetGroup

_VALUE_ROLE = Qt.ItemDataRole.UserRole
_LABEL, _COUNT = 0, 1
_LINE = QSize(0, 3 * GRID)


class FacetPanel(QWidget):
    """Shows facets as a tree: a line for each, its values below it with a box to tick."""

    value_toggled = Signal(str, str, bool)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._state = WindowState("history", self)
        self._open = set(self._state.read("open facets", list(OPEN_AT_FIRST), list[str]))
        self._groups: Sequence[FacetGroup] = ()
        self.tree = QTreeWidget()
        self.tree.itemChanged.connect(self._emit_toggled)
        self.tree.itemExpanded.connect(lambda item: self._fold(item, is_open=True))
        self.tree.itemCollapsed.connect(lambda item: self._fold(item, is_open=False))
        theme.follow(self, self._rebuild)
        self._build()

    @property
    def has_groups(self) -> bool:
        """Whether there is anything to narrow runs down by."""
        return bool(self._groups)

    def show_groups(self, groups: Sequence[FacetGroup]) -> None:
        """Show these facets; position and current line stay."""
        if groups != self._groups:
            self._groups = groups
            self._rebuild()

    def _rebuild(self) -> None:
        position, current = self.tree.verticalScrollBar().value(), self._current()
        self.tree.header().resizeSection(_COUNT, self._count_width())
        self.tree.blockSignals(True)
        self.tree.clear()
        for group in self._groups:
            head = self._add_head(group)
            for value in group.values:
                item = QTreeWidgetItem(head, [value.label, f"{value.runs:,}"])
                item.setData(_LABEL, _VALUE_ROLE, (group.name, value.value))
                item.setCheckState(_LABEL, Qt.CheckState.Checked if value.chosen else Qt.CheckState.Unchecked)
                item.setSizeHint(_LABEL, _LINE)
                item.setTextAlignment(_COUNT, RIGHT)
                item.setForeground(_COUNT, QColor(self._theme.colours.muted))
                item.setToolTip(_LABEL, plain_tooltip(value.label))
                if (group.name, value.value) == current:
                    self.tree.setCurrentItem(item)
            head.setFirstColumnSpanned(True)
            head.setExpanded(group.name in self._open)
            if (group.name, "") == current:
                self.tree.setCurrentItem(head)
        self.tree.blockSignals(False)
        self.tree.verticalScrollBar().setValue(position)

    def _count_width(self) -> int:
        """Return what the longest number takes: Qt would make room for a title that is not shown."""
        metrics = self.tree.fontMetrics()
        counts = (f"{value.runs:,}" for group in self._groups for value in group.values)
        return max(map(metrics.horizontalAdvance, counts), default=0) + 2 * GRID + 2

    def _add_head(self, group: FacetGroup) -> QTreeWidgetItem:
        """Add the line of a facet, which says how many of its values are chosen."""
        chosen = sum(value.chosen for value in group.values)
        head = QTreeWidgetItem(self.tree, [f"{group.title} ({chosen})" if chosen else group.title])
        head.setSizeHint(_LABEL, _LINE)
        head.setData(_LABEL, _VALUE_ROLE, (group.name, ""))
        head.setFont(_LABEL, tabular_font(bold=True))
        return head

    def _current(self) -> tuple[str, str] | None:
        item = self.tree.currentItem()
        return tuple(item.data(_LABEL, _VALUE_ROLE)) if item is not None else None

    def _emit_toggled(self, item: QTreeWidgetItem, _column: int) -> None:
        name, value = item.data(_LABEL, _VALUE_ROLE)
        self.value_toggled.emit(name, value, item.checkState(_LABEL) == Qt.CheckState.Checked)

    def _fold(self, item: QTreeWidgetItem, *, is_open: bool) -> None:
        name, _ = item.data(_LABEL, _VALUE_ROLE)
        self._open = self._open | {name} if is_open else self._open - {name}
        self._state.keep("open facets", sorted(self._open))

    def _build(self) -> None:
        self.tree.setHeaderLabels(("Value", "Runs"))  # for screen readers
        self.tree.setHeaderHidden(True)
        self.tree.setAccessibleName("Facets of the runs")
        self.tree.setIndentation(GRID + GRID // 2)
        self.tree.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        header = self.tree.header()
        header.setStretchLastSection(False)
        header.setMinimumSectionSize(3 * GRID)
        header.setSectionResizeMode(_LABEL, QHeaderView.ResizeMode.Stretch)
        header.setSectionResizeMode(_COUNT, QHeaderView.ResizeMode.Fixed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(GRID, GRID // 2, 0, 0)
        layout.addWidget(self.tree, 1)
        self.setMinimumWidth(20 * GRID)
