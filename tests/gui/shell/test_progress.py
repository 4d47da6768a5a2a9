"""The progress of the work in the window's title, and on the desktop's bus."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from PySide6.QtDBus import QDBusConnection
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.shell.progress import ShownProgress, Taskbar, WorkProgress, queue_progress, run_progress
from app.gui.theme import Theme
from app.gui.window import MainWindow
from app.queries import ExperimentProgress, TimeLeft
from app.viewmodels.experiment.queue import QueueModel
from app.viewmodels.run.live import Status
from tests.gui.windows import RUN_LIMIT_MS, choose, click_run
from workloads.catalog import Machine, complete

SPEC = complete("dummy", {"gpus": 0}, Machine())


def test_a_run_says_its_phase_how_much_is_done_and_its_name() -> None:
    measuring = Status(title="Measuring", name="lstm cuDNN · batch 64", fraction=0.459, left="0:05 left")
    assert run_progress(measuring) == WorkProgress(
        title="Measuring 45\xa0% · 0:05 left · lstm cuDNN · batch 64 – VariantScope", percent=45
    )
    compiling = replace(measuring, title="Compiling", fraction=None, left="then 0:10 measured")
    assert run_progress(compiling) == WorkProgress(title="Compiling · lstm cuDNN · batch 64 – VariantScope")


def test_a_queue_says_the_share_of_all_its_runs_and_which_experiment_runs() -> None:
    queue = QueueModel()
    first = ExperimentProgress(
        entry=1,
        name="first",
        state="running",
        done=2,
        planned=6,
        left=TimeLeft(80, 100, 120),
        timing_runs=1,
        specs=(SPEC,),
    )
    queue.update(
        (
            first,
            ExperimentProgress(
                entry=2, name="second", state="waiting", done=0, planned=2, left=TimeLeft(32, 40, 48), timing_runs=1
            ),
        )
    )
    queue.begin()
    queue.handle(first, now_s=0.0)
    assert queue_progress(queue.state(10.0)) == WorkProgress(
        title="25\xa0% · 1 to 3 min left · first – VariantScope", percent=25
    )


def test_at_rest_the_title_is_the_program_s_name() -> None:
    assert WorkProgress() == WorkProgress(title="VariantScope", percent=None)


def test_the_title_says_how_far_a_run_is_until_it_ends(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench, seconds=600.0)
    click_run(workbench.run_view.form)
    qtbot.waitUntil(lambda: workbench.window.windowTitle().startswith("Measuring 0\xa0%"), timeout=RUN_LIMIT_MS)
    assert workbench.window.windowTitle().endswith("– VariantScope")
    with qtbot.waitSignal(workbench.run.ended, timeout=RUN_LIMIT_MS):
        workbench.run.stop()
    assert workbench.window.windowTitle() == "VariantScope"


@pytest.fixture
def bus() -> Iterator[str]:
    """The address of a session bus of the test's own."""
    if shutil.which("dbus-daemon") is None or shutil.which("dbus-monitor") is None:
        pytest.skip("D-Bus is not installed")
    command = ["dbus-daemon", "--session", "--nofork", "--print-address"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as daemon:
        assert daemon.stdout is not None
        yield daemon.stdout.readline().strip()
        daemon.terminate()


def test_the_taskbar_hears_each_percent_once(qtbot: QtBot, theme: Theme, bus: str) -> None:
    window = MainWindow((), theme)
    qtbot.addWidget(window)
    window.allow_close()
    steps = iter((WorkProgress(title="a", percent=37), WorkProgress(title="b", percent=37), WorkProgress()))
    connection = QDBusConnection.connectToBus(bus, "taskbar")
    shown = ShownProgress(window, lambda: next(steps), Taskbar(connection))
    with subprocess.Popen(
        ["dbus-monitor", "--address", bus, "interface=com.canonical.Unity.LauncherEntry"],
        stdout=subprocess.PIPE,
        text=True,
    ) as monitor:
        assert monitor.stdout is not None
        assert any("NameLost" in line for line in monitor.stdout), "from then on it hears all signals"
        for _ in range(3):
            shown.refresh()
        words = []
        for line in monitor.stdout:
            words.append(line.strip())
            if words[-1].endswith("boolean false"):
                break
        monitor.terminate()
    assert "application://variantscope.desktop" in " ".join(words)
    assert [line for line in words if "double" in line] == [
        "variant             double 0.37",
        "variant             double 0",
    ]
    QDBusConnection.disconnectFromBus("taskbar")
