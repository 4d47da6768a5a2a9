"""The Settings dialog: one row per setting, each of which takes effect immediately."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QGridLayout, QLineEdit, QPushButton, QWidget

from app.errors import UserError
from app.gui.settings.settings import (
    THEMES,
    Chosen,
    SettingsStore,
    StoredChoice,
    hosts_text,
    recent_databases,
    sampling_choices,
)
from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import (
    STRETCH,
    BreakingLabel,
    ElidedComboBox,
    button,
    make_column,
    make_row,
    plain_tooltip,
    show_text,
    text_label,
)
from app.gui.widgets.dialogs import (
    ask_confirmation,
    ask_for_database,
    centre_on_screen,
    open_on_desktop,
    resize_within_screen,
)
from app.gui.widgets.panes import Scroller
from app.hosts.book import read_hosts
from app.runs.standby_setting import STANDBY_VARIABLE
from app.storage import retention
from app.storage.database import load_setting, save_setting
from app.storage.files import disk_space
from app.storage.known_settings import CARBON_G_PER_KWH, KEEP_SAMPLES_DAYS, PRICE_PER_KWH, Setting
from app.storage.retention import Pruned
from app.telemetry.feed import TelemetryFeed
from app.viewmodels.format.derived import EnergyRates, load_energy_rates
from app.viewmodels.history.labels import (
    RETENTION_CHOICES,
    StorageLine,
    prune_consequence,
    prune_question,
    prune_result,
    retention_label,
)

_WIDTH = 76 * GRID
_LABEL_WIDTH = 18 * GRID
_RATE_WIDTH = 15 * GRID
_SHORTEST = 8
"""The least visible characters of an option: a database's path may be long, a screen small."""
_ANOTHER = "Another database …"
_WHEN_IDLE = "Can be changed when no run is active."
_SAMPLING = "How often the GPUs of this machine are read. Shorter intervals show shorter peaks and store more samples."
_DATABASE = "The one chosen here also opens at the next start, unless the window is started on another."
_RETENTION = "Samples and logs of older runs are deleted when a window opens; their figures stay."
_NOTICE = "When a run or experiment longer than a minute ends while another window is active."
_STANDBY = "Imports the framework ahead of the next run, which then starts a few seconds sooner."
_ENERGY = "Price and grams of CO₂ of a kilowatt-hour: a run's page then states both of a million examples."
_PLACE = "The Python and the frameworks of runs on this machine."


class ChoiceBox(ElidedComboBox):
    """A list of options; `chosen` carries the selected key."""

    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.setSizeAdjustPolicy(self.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(_SHORTEST)
        self.activated.connect(lambda index: self.chosen.emit(self.itemData(index)))

    def show_options(self, options: Mapping[Any, str], current: object) -> None:
        self.clear()
        for key, label in options.items():
            self.addItem(label, key)
        self.setCurrentIndex(list(options).index(current) if current in options else -1)
        self.setToolTip(plain_tooltip(self.currentText()))


class SettingsDialog(QDialog):
    """Shows every setting, and stores the user's choices.

    Thread: GUI only; the database is read on the store's thread.
    """

    def __init__(
        self,
        window: QWidget,
        theme: Theme,
        store: SettingsStore,
        feed: TelemetryFeed,
        notice: StoredChoice,
        standby: StoredChoice,
        switch_database: Callable[[Path], None],
    ) -> None:
        super().__init__(window)
        self._window = window
        self._theme = theme
        self._store = store
        self._feed = feed
        self._switch_database = switch_database
        self._chosen = Chosen(self)
        self._storage: StorageLine | None = None
        self._failure = ""
        self._busy = self._is_sized = False
        self.theme_box, self.sampling_box, self.database_box = ChoiceBox(), ChoiceBox(), ChoiceBox()
        self.retention_box, self.notice_box, self.standby_box = ChoiceBox(), ChoiceBox(), ChoiceBox()
        self.price_line, self.carbon_line = _rate_line("price per kWh"), _rate_line("g CO₂ per kWh")
        self.place_button = button("&Choose …", "Install or choose the Python and the frameworks of runs")
        self.hosts_button = button("&Manage …", "Add, check and remove hosts")
        self.folder_button = button("Show &folder", "Open the database's folder in the desktop's file manager")
        self._problem = BreakingLabel("problem")
        self._captions: dict[QWidget, BreakingLabel] = {}
        self._grid = QGridLayout()
        self._content = QWidget()
        self._scroller = Scroller(self._content, horizontal=False)
        self._build()
        self.theme_box.chosen.connect(self._theme.choose)
        self.sampling_box.chosen.connect(self._set_sampling)
        self.database_box.chosen.connect(self._choose_database)
        self.retention_box.chosen.connect(self._set_retention)
        for rate_line, setting in ((self.price_line, PRICE_PER_KWH), (self.carbon_line, CARBON_G_PER_KWH)):
            rate_line.editingFinished.connect(partial(self._save_rate, rate_line, setting))
        self.folder_button.clicked.connect(lambda: open_on_desktop(self._store.database.parent))
        for box, choice in ((self.notice_box, notice), (self.standby_box, standby)):
            choice.changed.connect(lambda box=box, choice=choice: _show_choice(box, choice))
            box.chosen.connect(choice.choose)
            _show_choice(box, choice)
        if standby.is_fixed:
            self._captions[self.standby_box].setText(f"The environment variable {STANDBY_VARIABLE} decides.")
        theme.apply_style_sheet(self)

    def show_current(self, *, busy: bool) -> None:
        """Show the stored values, and whether a run or the queue is active."""
        self._failure = ""
        self._read()
        self._show()
        self.show_busy(busy)
        self.show()
        self.activateWindow()

    def show_busy(self, busy: bool) -> None:
        """Lock what cannot change while a run or the queue is active, and explain it."""
        self._busy = busy
        storage = "" if self._storage is None else f"{self._storage.text}. "
        for box, words in ((self.sampling_box, _SAMPLING), (self.database_box, f"{storage}{_DATABASE}")):
            box.setEnabled(not busy)
            self._captions[box].setText(_WHEN_IDLE if busy else words)

    def showEvent(self, event: QShowEvent) -> None:
        """Open high enough that nothing scrolls, if the screen allows."""
        super().showEvent(event)
        if not self._is_sized:
            self._is_sized = True
            line = self.fontMetrics().lineSpacing()  # the database's size has not been read yet
            foot = self.height() - self._scroller.height()
            resize_within_screen(self, _WIDTH, self._content.heightForWidth(_WIDTH) + line + foot)
            centre_on_screen(self, self._window)

    def _build(self) -> None:
        self.setWindowTitle("Settings")
        self._grid.setHorizontalSpacing(2 * GRID)
        self._grid.setVerticalSpacing(GRID // 2)
        self._grid.setColumnMinimumWidth(0, _LABEL_WIDTH)
        self._grid.setColumnStretch(1, 1)
        self._add_heading("All windows")
        self._add_row("&Theme", self.theme_box)
        self._add_row("&Sampling interval", self.sampling_box, _SAMPLING)
        self._add_row("R&uns use", self.place_button, _PLACE)
        self._add_row("&Hosts", self.hosts_button, " ")
        self._add_heading("This database")
        self._add_row("&File", self.database_box, _DATABASE, extra=self.folder_button)
        self._add_row("&Retention", self.retention_box, _RETENTION)
        self._add_row("&Notifications", self.notice_box, _NOTICE)
        self._add_row("Stand&by", self.standby_box, _STANDBY)
        self._add_row("&Energy", self.price_line, _ENERGY, extra=self.carbon_line)
        self.carbon_line.setAccessibleName("CO₂ of energy")
        lines = self._grid, self._problem, STRETCH
        make_column(*lines, parent=self._content, margins=(3 * GRID, GRID, 3 * GRID, 2 * GRID))
        buttons = QDialogButtonBox()
        buttons.addButton(button("&Close", "Close the settings (Escape)"), QDialogButtonBox.ButtonRole.RejectRole)
        buttons.rejected.connect(self.reject)
        foot = make_row(buttons, margins=(3 * GRID, 0, 3 * GRID, 0))
        make_column((self._scroller, 1), foot, parent=self, margins=(0, 0, 0, 2 * GRID))

    def _add_heading(self, text: str) -> None:
        row = self._grid.rowCount()
        self._grid.setRowMinimumHeight(row, 2 * GRID)
        self._grid.addWidget(text_label(text, "heading"), row + 1, 0, 1, 2)
        self._grid.setRowMinimumHeight(row + 2, GRID // 2)

    def _add_row(self, label: str, control: QWidget, caption: str = "", extra: QWidget | None = None) -> None:
        row = self._grid.rowCount()
        name = text_label(label, "")
        name.setBuddy(control)
        control.setAccessibleName(label.replace("&", ""))
        line = make_row(*((control, STRETCH) if isinstance(control, QPushButton) else ((control, 1),)), spacing=GRID)
        if extra is not None:
            line.addWidget(extra)
        self._grid.addWidget(name, row, 0)
        self._grid.addLayout(line, row, 1)
        if caption:
            self._captions[control] = BreakingLabel("caption")
            self._captions[control].setText(caption)
            self._grid.addWidget(self._captions[control], row + 1, 1)
        self._grid.setRowMinimumHeight(row + 2, GRID // 2)

    def _read(self, note: str = "") -> None:
        def show(stored: tuple[StorageLine, EnergyRates]) -> None:
            self._storage, rates = stored
            for line, rate in zip((self.price_line, self.carbon_line), rates, strict=True):
                line.setText(f"{rate:.10g}" if rate else "")
            self._show()

        database = self._store.database
        self._store.background.run(
            lambda: (read_storage(database, note), load_energy_rates(database)), show, self._show_error
        )

    def _show(self) -> None:
        storage, sample_ms = self._storage, 1000 / self._feed.hz
        databases = recent_databases(self._store.database, self._chosen.databases)
        days = storage.retention_days if storage is not None else None
        self.theme_box.show_options(THEMES, self._theme.choice)
        self.sampling_box.show_options(sampling_choices(sample_ms), sample_ms)
        self.database_box.show_options({**{path: str(path) for path in databases}, None: _ANOTHER}, databases[0])
        days_offered = dict.fromkeys((*RETENTION_CHOICES, *([days] if storage is not None else [])))
        self.retention_box.show_options({days: retention_label(days) for days in days_offered}, days)
        self.retention_box.setEnabled(storage is not None)
        try:
            hosts = [entry.name for entry in read_hosts()]
        except UserError as error:
            self._failure, hosts = str(error), []
        self._captions[self.hosts_button].setText(
            f"{hosts_text(hosts)} Machines reached over SSH, Slurm, Ray or Docker."
        )
        show_text(self._problem, self._failure)
        self.show_busy(self._busy)

    def _set_sampling(self, period_ms: float) -> None:
        self._chosen.keep("sample_ms", period_ms)
        self._feed.set_rate(1000 / period_ms)
        self._show()

    def _choose_database(self, path: Path | None) -> None:
        if path is None:
            ask_for_database(self, self._store.database.parent, self._take_database)
            self._show()
        else:
            self._take_database(path)

    def _take_database(self, path: Path | None) -> None:
        if path is None or path == self._store.database:
            return
        former = recent_databases(self._store.database, self._chosen.databases)
        self._chosen.keep("databases", [str(database) for database in dict.fromkeys((path, *former))])
        self._chosen.keep("database", str(path))
        self._switch_database(path)

    def _save_rate(self, line: QLineEdit, setting: Setting[float]) -> None:
        try:
            rate = float(line.text().replace(",", ".") or 0)
        except ValueError:
            rate = math.nan
        is_rate = 0 <= rate < math.inf
        self._failure = "" if is_rate else f"“{line.text()}” is not a number from 0 up."
        self._show()
        if is_rate:
            # The lines do not change: the user may already be typing in the other one.
            save = partial(save_setting, self._store.database, setting, rate)
            self._store.background.run(save, lambda _: None, self._show_error)

    def _set_retention(self, days: int | None) -> None:
        """Keep samples for that many days; ask first if that deletes any."""

        def show_preview(preview: Pruned | None) -> None:
            if days is None or preview is None or not preview.runs:
                self._read()
                return
            question, loss = prune_question(preview, days), prune_consequence(preview)
            box = ask_confirmation(self, self._theme, "Old samples", question, loss, "&Delete", "&Keep them")
            box.accepted.connect(lambda: prune(days))
            box.rejected.connect(self._show)

        def prune(most: int) -> None:
            run(lambda: retention.apply_days(database, most), lambda done: self._read(prune_result(done)), fail)

        database, run, fail = self._store.database, self._store.background.run, self._show_error
        run(lambda: retention.preview_days(database, days), show_preview, fail)

    def _show_error(self, error: UserError) -> None:
        self._failure = str(error)
        self._show()


def _show_choice(box: ChoiceBox, choice: StoredChoice) -> None:
    box.show_options(choice.options, choice.value)
    box.setEnabled(not choice.is_fixed)


def _rate_line(unit: str) -> QLineEdit:
    line = QLineEdit(placeholderText=unit)
    line.setMinimumWidth(_RATE_WIDTH)
    return line


def read_storage(database: Path, note: str = "") -> StorageLine:
    return StorageLine(
        path=database,
        size_bytes=retention.size_bytes(database),
        free_bytes=disk_space(database).free_bytes,
        retention_days=load_setting(database, KEEP_SAMPLES_DAYS),
        note=note,
    )
