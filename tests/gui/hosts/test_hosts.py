"""Hosts in the window: the dialog with pretended ones, and a run in the window by a real program there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton
from pytestqt.qtbot import QtBot

from app.cli.main import main
from app.gui.app import Workbench
from app.gui.hosts.hosts_dialog import HostsDialog
from app.gui.monitor.screen import MonitorView
from app.gui.theme import Theme
from app.gui.widgets.panes import PageScroller
from app.gui.window import MONITOR
from app.hosts.book import HostEntry, add_host, read_hosts
from app.storage.store import Store
from benchmarks.hosts import frame_times
from tests.fakes.hosts import HERE
from tests.gui.screens import button
from tests.gui.texts import displayed_text
from tests.gui.windows import choose, click_run

LONG = "a-host-whose-name-has-all-sixty-characters-that-one-can-have"


def test_the_benchmark_of_many_hosts_times_frames_of_both(qtbot: QtBot, theme: Theme) -> None:
    times = frame_times(theme, frames=1, rounds=1)
    assert {name: len(found) for name, found in times.items()} == {"many": 1, "one": 1}


@pytest.fixture(autouse=True)
def program_sent_once(host_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(host_cache))


@pytest.fixture
def dialog(workbench: Workbench, theme: Theme, tmp_path: Path) -> Iterator[HostsDialog]:
    made = HostsDialog(workbench.window, theme, workbench.hosts, tmp_path / "profiles.db")
    made.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
    made.open()
    yield made
    made.done(0)


def test_a_host_is_added_and_removed_and_a_small_screen_shows_close(qtbot: QtBot, dialog: HostsDialog) -> None:
    assert not dialog.check_button.isEnabled(), "nothing to check"
    dialog.name.setText(LONG)
    dialog.address.setText("ray://head")
    dialog.add_button.click()
    assert "write ray+ssh://" in dialog.problem.text()
    dialog.address.setText("ssh://me@gpu1")
    assert dialog.problem.text() == ""
    QTest.keyClick(dialog.address, Qt.Key.Key_Return)
    assert dialog.isVisible(), "Enter does not close it over what is typed"
    assert [entry.name for entry in read_hosts()] == [LONG]
    assert dialog.chosen == HostEntry(name=LONG, address="ssh://me@gpu1")
    assert dialog.list.item(0).text().endswith("\nnot connected")
    dialog.name.setText(LONG)
    dialog.address.setText("ssh://other")
    dialog.add_button.click()
    assert dialog.problem.text().startswith(f"Host {LONG} already exists")
    dialog.remove_button.click()
    assert read_hosts() == ()
    assert [dialog.check_button.isEnabled(), dialog.details.isVisible()] == [False, False], "nothing to check"
    dialog.resize(320, 200)
    (page,) = dialog.findChildren(PageScroller)
    qtbot.waitUntil(lambda: page.verticalScrollBar().maximum() > 0)
    assert dialog.height() == 200
    assert not button(dialog, "Close").visibleRegion().isEmpty()


def test_detached_runs_are_fetched_and_stopped(
    qtbot: QtBot, dialog: HostsDialog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    database, words = tmp_path / "profiles.db", ["dummy", "-s", "gpus=0", "-s", "seconds=60"]
    assert main(["run", *words, "--on", HERE, "--detach", "--db", str(database)]) == 0
    add_host(HostEntry(name="here", address=HERE))
    dialog._hosts.connections.reload()
    dialog.refresh()

    def press(action: QPushButton) -> str:
        with qtbot.waitSignal(dialog._hosts.runs_fetched):
            action.click()
        return dialog.details.toPlainText()

    assert press(dialog.fetch_button) == "0 runs of here fetched. 1 still run or wait there."
    assert "as this machine's" in press(dialog.check_button), "its clock"
    assert press(dialog.stop_button).startswith("1 run of here asked to end")
    while not (said := press(dialog.fetch_button)).startswith("1 run"):
        assert said == "0 runs of here fetched. 1 still run or wait there."
    with Store.open(database) as store:
        assert [row.host for row in store.list_runs()] == ["here"]


def test_a_run_on_a_host_streams_into_the_plots_and_says_where_it_was_made(qtbot: QtBot, workbench: Workbench) -> None:
    hosts, form = workbench.hosts, workbench.run_view.form
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
    with qtbot.waitSignal(workbench.run.ended):
        click_run(form)
    assert "Completed" in displayed_text(workbench.run_view.live)
    assert len(workbench.run_view.live.stack.panel("load_pct").curves["host"].source.points()[0]) > 0
    with Store.open(workbench.database) as store:
        (row,) = store.list_runs()
    assert row.host == "lab"
    workbench.window.show_page(MONITOR)
    (monitor,) = workbench.window.findChildren(MonitorView)
    qtbot.waitUntil(lambda: "lab · " in displayed_text(monitor.table))
    form.host.chosen.emit("")
    qtbot.waitUntil(form.run_button.isEnabled)
    assert hosts.shown_host == ""
