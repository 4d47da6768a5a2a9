"""Monitor's part with the other hosts: how many there are, in what order, and their list."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QVBoxLayout, QWidget

from app.gui.hosts.hosts_list import HostsList
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import button, separator, text_label
from app.viewmodels.monitor_hosts import HostsModel, Order

_ORDERS: tuple[tuple[str, Order], ...] = (("By name", "name"), ("By load", "load"))


class HostsPanel(QWidget):
    """A head over the list of hosts; `manage_requested` asks for the dialog of hosts."""

    manage_requested = Signal()

    def __init__(self, model: HostsModel, theme: Theme) -> None:
        super().__init__()
        self._model = model
        self.list = HostsList(model, theme)
        self._summary = text_label("", "muted")
        self._order = QComboBox()
        self._order.setAccessibleName("Order of the hosts")
        for label, order in _ORDERS:
            self._order.addItem(label, order)
        self._fold = button("&Fold all", "Show only the line of each host", flat=True)
        self._unfold = button("&Unfold all", "Show the devices of every host", flat=True)
        self._manage = button("&Hosts …", "Add, check and remove hosts", flat=True)
        self._order.activated.connect(lambda _: self._sort())
        self._fold.clicked.connect(lambda: self._fold_all(True))
        self._unfold.clicked.connect(lambda: self._fold_all(False))
        self._manage.clicked.connect(self.manage_requested)
        self._build()

    @property
    def has_hosts(self) -> bool:
        """Whether there is any other host than this machine."""
        return bool(self._model.hosts)

    @property
    def wanted_height(self) -> int:
        """The height at which all hosts are in sight, with a little room."""
        return self.sizeHint().height() - self.list.sizeHint().height() + self.list.wanted_height + GRID

    def refresh(self) -> None:
        """Show the hosts as they are now."""
        self._summary.setText(self._model.summary())
        self.list.refresh()

    def _sort(self) -> None:
        self._model.sort(self._order.currentData())
        self.refresh()

    def _fold_all(self, folded: bool) -> None:
        self._model.fold(None, folded)
        self.refresh()

    def _build(self) -> None:
        head = QHBoxLayout()
        head.setContentsMargins(2 * GRID, GRID, 2 * GRID, GRID)
        head.setSpacing(GRID)
        head.addWidget(text_label("Hosts", "heading"))
        head.addWidget(self._summary)
        head.addStretch(1)
        for widget in (self._fold, self._unfold, self._order, self._manage):
            head.addWidget(widget)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(head)
        column.addWidget(self.list, 1)
        column.addWidget(separator())
