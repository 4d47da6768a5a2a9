"""The Settings dialog: each choice takes effect at once and is remembered."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QMessageBox, QPushButton, QScrollArea, QWidget
from pytestqt.qtbot import QtBot

from app.errors import UserError
from app.gui.app import Workbench
from app.gui.settings.dialog import ChoiceBox, SettingsDialog
from app.gui.settings.settings import Chosen, SettingsStore, StoredChoice
from app.gui.theme import DARK, LIGHT, Theme
from app.gui.threads import Background
from app.gui.window import MainWindow, Page
from app.runs.standby_setting import AUTOMATIC
from app.storage import retention
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import KEEP_SAMPLES_DAYS, NOTICE, STANDBY
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.viewmodels.format.derived import load_energy_rates
from tests.fakes.runs import begin
from tests.gui.screens import muted_colours, visible_text
from tests.unit.viewmodels.stored import keep_all, run_row, stored_run


class Opened:
    """The Settings of a window on a database with one run, more than a year old or nearly so."""

    def __init__(self, qtbot: QtBot, theme: Theme, database: Path, background: Background) -> None:
        self.feed = TelemetryFeed()
        self.switched: list[Path] = []
        self.window = MainWindow((Page("Run", QWidget),), theme)
        qtbot.addWidget(self.window)
        self.window.show_page(0)
        store = SettingsStore(database, background, self._fail)
        notice = StoredChoice(store, NOTICE, {"off": "Nothing", "message": "A message"}, "message")
        standby = StoredChoice(store, STANDBY, {AUTOMATIC: "Automatic"}, AUTOMATIC)
        self.dialog = SettingsDialog(self.window, theme, store, self.feed, notice, standby, self.switched.append)
        self.dialog.show_current(busy=False)
        qtbot.waitUntil(self.dialog.retention_box.isEnabled)

    @staticmethod
    def _fail(error: UserError) -> None:
        raise error


@pytest.fixture
def open_settings(qtbot: QtBot, theme: Theme, database_path: Path, background: Background) -> Callable[[], Opened]:
    keep_all(database_path, [stored_run(run_row(1))])
    return lambda: Opened(qtbot, theme, database_path, background)


@pytest.fixture
def opened(open_settings: Callable[[], Opened]) -> Opened:
    return open_settings()


@pytest.fixture
def light_again(theme: Theme) -> Iterator[None]:
    """Leave the application in light for the tests that follow."""
    yield
    theme.apply(Qt.ColorScheme.Light)


def take(box: ChoiceBox, key: object) -> None:
    """As a user does: with the keyboard, entry by entry."""
    box.setCurrentIndex(next(n for n in range(box.count()) if box.itemData(n) == key))
    box.activated.emit(box.currentIndex())


def answer(qtbot: QtBot, dialog: SettingsDialog, button: str) -> str:
    """Press a button of the question and return what was asked."""
    qtbot.waitUntil(lambda: dialog.findChild(QMessageBox) is not None)
    (box,) = dialog.findChildren(QMessageBox)
    question = f"{box.text()} {box.informativeText()}"
    made = next(b for b in box.findChildren(QPushButton) if b.text() == button)
    QTest.mouseClick(made, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: dialog.findChild(QMessageBox) is None)
    return question


def test_a_theme_is_shown_at_once_and_at_the_next_start(
    window_state: Path, open_settings: Callable[[], Opened], qtbot: QtBot, light_again: None
) -> None:
    opened = open_settings()
    take(opened.dialog.theme_box, "dark")
    assert muted_colours(opened.dialog) == {DARK.muted}
    later = Theme()
    later.start()
    assert (later.choice, later.colours) == ("dark", DARK)
    take(opened.dialog.theme_box, "light")
    assert muted_colours(opened.dialog) == {LIGHT.muted}
    window_state.write_text('[theme]\nchoice="\\"pink\\""\n')
    later = Theme()
    later.start()
    assert later.choice == "system"


def test_a_sampling_interval_reaches_the_sampler_and_the_next_start(
    window_state: Path, opened: Opened, qapp: QApplication
) -> None:
    assert Chosen(qapp).sample_ms == 50
    take(opened.dialog.sampling_box, 10.0)
    assert opened.feed.hz == 100
    assert Chosen(qapp).sample_ms == 10
    assert opened.dialog.sampling_box.currentText() == "10\xa0ms (100 per second)"


def test_another_database_is_opened_now_and_at_the_next_start(
    window_state: Path, open_settings: Callable[[], Opened], qapp: QApplication, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    opened = open_settings()
    assert Chosen(qapp).database is None
    opened.dialog._take_database(other)
    assert opened.switched == [other]
    Store.open(other).close()
    assert Chosen(qapp).database == other
    again = open_settings()
    assert [again.dialog.database_box.itemText(n) for n in range(3)] == [
        str(tmp_path / "profiles.db"),
        str(other),
        "Another database …",
    ]
    take(again.dialog.database_box, other)
    assert again.switched == [other]


def test_what_a_run_depends_on_is_locked_while_one_is_active(opened: Opened) -> None:
    dialog = opened.dialog
    for busy in (True, False):
        dialog.show_busy(busy)
        locked = [not box.isEnabled() for box in (dialog.sampling_box, dialog.database_box, dialog.theme_box)]
        assert locked == [busy, busy, False]
        assert ("Can be changed when no run is active." in visible_text(dialog)) == busy


def test_the_settings_fit_a_small_screen_have_names_and_close_by_escape(opened: Opened) -> None:
    dialog = opened.dialog
    (view,) = dialog.findChildren(QScrollArea)
    content = view.widget()
    assert content is not None
    assert content.minimumSizeHint().width() <= 470, "nothing is cut at 1024x700 and 200 %"
    assert dialog.screen().availableGeometry().contains(dialog.frameGeometry())
    is_whole = content.height() == view.viewport().height()
    assert is_whole or dialog.height() == dialog.screen().availableSize().height() - 64, (
        "nothing scrolls where the screen is high enough"
    )
    controls = [control for kind in (ChoiceBox, QLineEdit, QPushButton) for control in dialog.findChildren(kind)]
    assert all(each.accessibleName() or (isinstance(each, QPushButton) and each.text()) for each in controls)
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()


def test_the_size_is_told_and_everything_is_kept_at_first(opened: Opened) -> None:
    assert "profiles.db · " in visible_text(opened.dialog)
    assert "free on disk" in visible_text(opened.dialog)
    assert opened.dialog.retention_box.currentText() == "Keep all samples"


def test_a_price_and_an_intensity_are_stored_and_seen_again(
    qtbot: QtBot, opened: Opened, open_settings: Callable[[], Opened], database_path: Path
) -> None:
    for box, text in ((opened.dialog.price_line, "0,36"), (opened.dialog.carbon_line, "400")):
        box.setFocus()
        box.selectAll()
        QTest.keyClicks(box, text)
        QTest.keyClick(box, Qt.Key.Key_Tab)
    qtbot.waitUntil(lambda: load_energy_rates(database_path) == (0.36, 400.0))
    again = open_settings().dialog
    qtbot.waitUntil(lambda: again.price_line.text() == "0.36")
    assert again.carbon_line.text() == "400"
    again.price_line.setText("dear")
    again.price_line.editingFinished.emit()
    assert "“dear” is not a number from 0 up." in visible_text(again)
    again.price_line.setText("0.36")
    again.price_line.editingFinished.emit()
    assert "is not a number" not in visible_text(again)
    assert load_energy_rates(database_path) == (0.36, 400.0)


def test_nothing_is_deleted_before_the_user_agrees(qtbot: QtBot, opened: Opened, database_path: Path) -> None:
    take(opened.dialog.retention_box, 7)
    question = answer(qtbot, opened.dialog, "&Keep them")
    assert question.startswith("Delete the samples and logs of 1 run that ended more than 7 days ago?")
    assert "122 samples and log lines would be deleted; figures, phases and blocks stay." in question
    assert opened.dialog.retention_box.currentText() == "Keep all samples"
    assert (load_setting(database_path, KEEP_SAMPLES_DAYS), retention.pruned_utc_ns(database_path, 1)) == (None, None)


def test_agreed_samples_are_deleted_and_the_setting_stays(qtbot: QtBot, opened: Opened, database_path: Path) -> None:
    box = opened.dialog.retention_box
    take(box, 7)
    answer(qtbot, opened.dialog, "&Delete")
    qtbot.waitUntil(lambda: "given back in" in visible_text(opened.dialog))
    assert load_setting(database_path, KEEP_SAMPLES_DAYS) == 7
    assert retention.pruned_utc_ns(database_path, 1) is not None
    assert box.currentText() == "Keep samples of the last 7 days"
    take(box, None)
    qtbot.waitUntil(lambda: load_setting(database_path, KEEP_SAMPLES_DAYS) is None)


def test_while_a_run_goes_on_it_is_said_and_nothing_is_deleted(
    qtbot: QtBot, opened: Opened, database_path: Path
) -> None:
    with Store.open(database_path) as store:
        begin(store, uid="uid-2")
    take(opened.dialog.retention_box, 7)
    answer(qtbot, opened.dialog, "&Delete")
    qtbot.waitUntil(lambda: "Run 2 is in progress" in visible_text(opened.dialog))
    assert opened.dialog.retention_box.currentText() == "Keep all samples"
    assert retention.pruned_utc_ns(database_path, 1) is None


def test_opening_the_window_deletes_what_is_older_than_the_setting(
    qtbot: QtBot, theme: Theme, database_path: Path
) -> None:
    keep_all(database_path, [stored_run(run_row(1))])
    save_setting(database_path, KEEP_SAMPLES_DAYS, 30)
    workbench = Workbench(database_path, theme)
    qtbot.addWidget(workbench.window)
    workbench.start()
    qtbot.waitUntil(lambda: retention.pruned_utc_ns(database_path, 1) is not None)
    workbench.quit()
    workbench.close()
