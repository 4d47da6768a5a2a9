"""The progress of the work in the window's title."""

from dataclasses import replace

from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.shell.shell import queue_title, run_title
from app.queries import ExperimentProgress, TimeLeft
from app.viewmodels.experiment.queue import QueueModel
from app.viewmodels.run.live import Status
from tests.gui.windows import choose, click_run
from workloads.catalog import Machine, complete

SPEC = complete("dummy", {"gpus": 0}, Machine())


def test_a_run_says_its_phase_how_much_is_done_and_its_name() -> None:
    measuring = Status(title="Measuring", name="lstm cuDNN · batch 64", fraction=0.459, left="0:05 left")
    assert run_title(measuring) == "Measuring 45\xa0% · 0:05 left · lstm cuDNN · batch 64 – VariantScope"
    compiling = replace(measuring, title="Compiling", fraction=None, left="then 0:10 measured")
    assert run_title(compiling) == "Compiling · lstm cuDNN · batch 64 – VariantScope"


def test_a_queue_says_which_experiment_runs_and_how_far_it_is() -> None:
    queue = QueueModel()
    left = TimeLeft(80, 100, 120)
    first = ExperimentProgress(
        entry=1, name="first", state="running", done=2, planned=6, left=left, timing_runs=1, specs=(SPEC,)
    )
    queue.update((first, replace(first, entry=2, name="second", state="waiting", done=0, left=TimeLeft(32, 40, 48))))
    queue.begin()
    queue.handle(first, now_s=0.0)
    assert queue_title(queue.state(10.0)) == "33\xa0% · 1 to 2 min left, 1 to 3 min for all · first – VariantScope"


def test_the_title_says_how_far_a_run_is_until_it_ends(qtbot: QtBot, workbench: Workbench) -> None:
    choose(workbench, seconds=600.0)
    click_run(workbench.run_view.form)
    qtbot.waitUntil(lambda: workbench.window.windowTitle().startswith("Measuring 0\xa0%"))
    assert workbench.window.windowTitle().endswith("– VariantScope")
    with qtbot.waitSignal(workbench.run.ended):
        workbench.run.stop()
    assert workbench.window.windowTitle() == "VariantScope"
