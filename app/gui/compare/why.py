"""Why a variant differs from the baseline: a sentence, the waterfall, what if, and a table of parts and kernels."""

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QHBoxLayout, QHeaderView, QTreeWidget, QTreeWidgetItem, QVBoxLayout, QWidget

from app.gui.actions import Actions
from app.gui.compare.charts import ChartsView
from app.gui.theme import GRID, LEFT, RIGHT, Theme, tabular_font
from app.gui.widgets.basic import ElidedComboBox, clear_layout, plain_tooltip, show_text, text_label
from app.viewmodels.compare.why import WhyRow, WhyView
from app.viewmodels.compare.why_text import CAVEAT

_MAX_WIDTH = 1600
_TABLE_WIDTH = 130 * GRID
_ROW = QSize(0, 3 * GRID)


class WhyPanel(QWidget):
    """Shows one variant against the baseline, and a choice of variants where there are several; hidden without any."""

    def __init__(self, theme: Theme, actions: Actions) -> None:
        super().__init__()
        self._views: tuple[WhyView, ...] = ()
        self.choice = ElidedComboBox()
        self.choice.setAccessibleName("Variant that is compared with the baseline")
        self.choice.currentIndexChanged.connect(self._show_chosen)
        self._against = text_label("", "muted")
        self._sentence = text_label("", "", wrap=True)
        self._sentence.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._notes = text_label("", "caption", wrap=True)
        self._charts = ChartsView(theme, actions)
        self._gains = QVBoxLayout()
        self._table_title = text_label("Parts of a step", "heading")
        self.table = PartsTable()
        self._build()
        self.hide()

    def show_views(self, views: tuple[WhyView, ...]) -> None:
        """Show the view of the variant chosen before, if it is there, else the first that explains something."""
        if views is self._views:
            return
        chosen = self.choice.currentText()
        self._views = views
        names = [view.name for view in views]
        self.choice.blockSignals(True)
        self.choice.clear()
        self.choice.addItems(names)
        first = next((n for n, view in enumerate(views) if view.found), 0)
        self.choice.setCurrentIndex(names.index(chosen) if chosen in names else first)
        self.choice.blockSignals(False)
        self._show_chosen()
        self.setVisible(bool(views))

    def _show_chosen(self) -> None:
        if not self._views:
            return
        view = self._views[self.choice.currentIndex()]
        several = len(self._views) > 1
        self.choice.setVisible(several)
        show_text(self._against, f"against {view.baseline}" if several else "")
        self._sentence.setText(view.sentence)
        show_text(self._notes, "\n".join(view.notes))
        self._charts.show_charts([view.chart] if view.chart else [])
        clear_layout(self._gains)
        if view.gains:
            self._gains.addWidget(text_label("What if", "heading"))
            for gain in view.gains:
                self._gains.addWidget(text_label(f"·  {gain}", "", wrap=True))
            self._gains.addWidget(text_label(CAVEAT, "caption", wrap=True))
        self._table_title.setVisible(bool(view.rows))
        self.table.show_rows(view.head, view.rows)

    def _build(self) -> None:
        chooser = QHBoxLayout()
        chooser.setSpacing(GRID)
        chooser.addWidget(self.choice)
        chooser.addWidget(self._against)
        chooser.addStretch(1)
        self.choice.setMinimumWidth(24 * GRID)
        self._gains.setSpacing(GRID // 2)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, GRID, 0, 2 * GRID)
        column.setSpacing(GRID)
        column.addLayout(chooser)
        column.addWidget(self._sentence)
        column.addWidget(self._notes)
        column.addWidget(self._charts)
        column.addLayout(self._gains)
        column.addWidget(self._table_title)
        column.addWidget(self.table)
        self.setMaximumWidth(_MAX_WIDTH)


class PartsTable(QTreeWidget):
    """The parts of a step, each with its kernels; as high as its rows. Arrows unfold, and so does a click."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Parts of a step and their kernels")
        self.setUniformRowHeights(True)
        self.setMaximumWidth(_TABLE_WIDTH)
        self.setFont(tabular_font())
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.header().setStretchLastSection(False)
        self.itemExpanded.connect(self._fit_height)
        self.itemCollapsed.connect(self._fit_height)

    def show_rows(self, head: Sequence[str], rows: Sequence[WhyRow]) -> None:
        """Show these rows, all parts folded; hidden without any."""
        self.clear()
        self.setColumnCount(len(head) + 1)
        self.setHeaderLabels(["Part", *head])
        self.addTopLevelItems(_items(rows))
        header = self.header()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        for column in range(1, len(head) + 1):
            self.headerItem().setTextAlignment(column, RIGHT)
        self.setVisible(bool(rows))
        self._fit_height()

    def _fit_height(self) -> None:
        parts = [self.topLevelItem(n) for n in range(self.topLevelItemCount())]
        rows = len(parts) + sum(part.childCount() for part in parts if part is not None and part.isExpanded())
        self.setFixedHeight(self.header().sizeHint().height() + rows * _ROW.height() + 2 * self.frameWidth())


def _items(rows: Sequence[WhyRow]) -> list[QTreeWidgetItem]:
    items: list[QTreeWidgetItem] = []
    bold = tabular_font(bold=True)
    for row in rows:
        item = QTreeWidgetItem([row.label, *row.cells])
        item.setSizeHint(0, _ROW)
        for column in range(len(row.cells) + 1):
            item.setTextAlignment(column, RIGHT if column else LEFT)
            if row.kind == "step":
                item.setFont(column, bold)
        # Names of kernels are full of angle brackets, which Qt would take for mark-up.
        item.setToolTip(0, plain_tooltip(row.help))
        if row.is_detail:
            items[-1].addChild(item)
        else:
            items.append(item)
    return items
