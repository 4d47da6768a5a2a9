"""Hosts in the window: the dialog with pretended ones, and a run in the window by a real program there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton, QWidget
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.hosts.hosts_controller import HostsController
from app.gui.hosts.hosts_dialog import HostsDialog
from app.gui.monitor.screen import MonitorView
from app.gui.run.form_controls import HostChoice
from app.gui.theme import Theme
from app.gui.threads import Bridge
from app.gui.window import MONITOR
from app.hosts.book import HostEntry, add_host, read_hosts
from app.storage.store import Store
from app.viewmodels.monitor.model import MonitorModel
from benchmarks.hosts import frame_times
from tests.fakes.hosts import HERE
from tests.gui.texts import displayed_text
from tests.gui.windows import RUN_LIMIT_MS, choose, click_run

LONG = "a-host-whose-name-has-all-sixty-characters-that-one-can-have"


def test_the_benchmark_of_many_hosts_times_frames_of_both(qtbot: QtBot, theme: Theme) -> None:
    times = frame_times(theme, frames=1, rounds=1)
    assert {name: len(found) for name, found in times.items()} == {"many": 1, "one": 1}


@pytest.fixture
def dialog(qtbot: QtBot, theme: Theme, tmp_path: Path) -> Iterator[HostsDialog]:
    window, choice, bridge = QWidget(), HostChoice(), Bridge()
    qtbot.addWidget(window)
    qtbot.addWidget(choice)
    hosts = HostsController(choice, bridge, MonitorModel())
    hosts.start()
    made = HostsDialog(window, theme, hosts, tmp_path / "profiles.db")
    made.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
    made.open()
    yield made
    made.done(0)
    hosts.close()
    bridge.close()


def test_a_host_is_explained_while_it_is_typed_then_added_checked_and_removed(
    qtbot: QtBot, dialog: HostsDialog
) -> None:
    form = dialog.form
    form.address.setText("ray://head")
    assert "write ray+ssh://" in form.meaning.text()
    assert [form.add_button.isEnabled(), form.test_button.isEnabled()] == [False, False]
    form.address.setText("ssh://me@gpu1")
    assert form.meaning.text().startswith("Your own ssh connects to ssh://me@gpu1")
    assert form.test_button.isEnabled()
    assert not form.add_button.isEnabled(), "it has no name yet"
    form.address.clear()
    form.name.setText(LONG)
    QTest.keyClick(form.name, Qt.Key.Key_Return)
    assert dialog.focusWidget() is form.address
    assert dialog.isVisible(), "Enter does not close it over what is typed"
    form.address.setText("ssh://me@gpu1")
    QTest.keyClick(form.address, Qt.Key.Key_Return)
    assert dialog.isVisible()
    assert [entry.name for entry in read_hosts()] == [LONG]
    assert dialog.chosen == HostEntry(name=LONG, address="ssh://me@gpu1")
    form.name.setText(LONG)
    form.address.setText("ssh://other")
    form.add_button.click()
    assert form.meaning.text().startswith(f"There is a host {LONG} already")
    dialog.remove_button.click()
    assert read_hosts() == ()
    assert [dialog.check_button.isVisible(), dialog.details.isVisible()] == [False, False], "nothing to check"


def test_a_connection_is_tested_once_at_a_time(qtbot: QtBot, dialog: HostsDialog) -> None:
    form = dialog.form
    form.address.setText("ssh://nobody@127.0.0.1:1")
    form.test_button.setFocus()
    form.test_button.click()
    assert not form.test_button.isEnabled()
    assert dialog.focusWidget() is form.address, "and no second press of Space adds it"
    qtbot.waitUntil(form.test_button.isEnabled, timeout=RUN_LIMIT_MS)
    assert "Checking" not in dialog.details.toPlainText()


def test_hosts_of_the_ssh_configuration_are_a_click_away(
    qtbot: QtBot, dialog: HostsDialog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not dialog.check_button.isVisible(), "no dead buttons beside an empty list"
    assert not dialog.form.offers.isVisible()
    monkeypatch.setattr("app.hosts.book.SSH_CONFIG", tmp_path / "config.ssh")
    (tmp_path / "config.ssh").write_text("Host gpu1 gpu2\n")
    dialog.refresh()
    offered = dialog.form.offers.findChildren(QPushButton)
    assert [offer.text() for offer in offered] == ["gpu1", "gpu2"]
    offered[1].click()
    assert dialog.form.entry() == HostEntry(name="gpu2", address="ssh://gpu2")
    dialog.form.add_button.click()
    assert dialog.check_button.isVisible()

    def names() -> list[str]:
        return [offer.text() for offer in dialog.form.offers.findChildren(QPushButton) if offer.isVisible()]

    qtbot.waitUntil(lambda: names() == ["gpu1"])


def test_a_run_on_a_host_streams_into_the_plots_and_says_where_it_was_made(qtbot: QtBot, workbench: Workbench) -> None:
    hosts, form = workbench.hosts.hosts, workbench.run_view.form
    add_host(HostEntry(name="lab", address=HERE))
    add_host(HostEntry(name="gone", address="ssh://nobody@127.0.0.1:1"))
    hosts.connections.reload()
    form.host.chosen.emit("gone")
    assert not form.run_button.isEnabled()
    qtbot.waitUntil(lambda: hosts.connections.state("gone").stage == "failed")
    qtbot.waitUntil(form.host.retry_button.isVisible)
    assert "gone cannot be reached" in displayed_text(workbench.run_view.live)
    choose(workbench)  # which needs no framework: that Python may have none
    form.host.chosen.emit("lab")
    qtbot.waitUntil(form.run_button.isEnabled)
    with qtbot.waitSignal(workbench.run.ended, timeout=RUN_LIMIT_MS):
        click_run(form)
    assert "Completed" in displayed_text(workbench.run_view.live)
    assert len(workbench.run_view.live.stack.panel("load_pct").curves["host"].source.points()[0]) > 0
    with Store.open(workbench.database) as store:
        (row,) = store.list_runs()
    assert row.host == "lab"
    workbench.window.show_page(MONITOR)
    monitor = workbench.window.findChild(MonitorView)
    assert isinstance(monitor, MonitorView)
    qtbot.waitUntil(lambda: "lab · " in displayed_text(monitor.table))
    form.host.chosen.emit("")
    qtbot.waitUntil(form.run_button.isEnabled)
    assert hosts.shown_host == ""
