"""What `soak` reads of a process, makes the programs do, and counts as growth."""

import subprocess
import sys
from pathlib import Path

from app.runs.experiment.queue import entry_plan
from app.storage.store import Store
from tests.present import present
from tests.reliability import soak


def test_memory_files_and_threads_are_read_beside_what_the_window_says(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.write_text('{"frame_ms": 3.5, "qt_objects": 7}\n{"frame_ms": null, "qt_objects": 9}\n')
    words = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        present(process.stdout).readline()  # before it runs Python it has no memory of its own
        watched = soak.Watched("window", process, output=output)
        watched.read(0.5)
    watched.read(0.6)
    (reading,) = watched.series["window"]
    assert (reading["progress"], reading["threads"], reading["frame_ms"], reading["qt_objects"]) == (0.5, 1, 3.5, 9)
    assert reading["memory"] > 1


def test_no_experiment_of_the_queue_counts_the_runs_of_another(database_path: Path) -> None:
    soak._fill_queue(database_path, 250, 1.5)
    with Store.open(database_path) as store:
        plans = [entry_plan(entry) for entry in store.queue.entries()]
    assert [plan.repeats for plan in plans] == [50, 50, 25]
    assert len({spec.variant["seed"] for plan in plans for spec in plan.variants}) == 3
    assert {spec.variant["seconds"] for plan in plans for spec in plan.variants} == {1.5}


def test_growth_is_that_after_the_warm_up_and_before_the_end() -> None:
    readings = [{"progress": n / 1000, "memory": 50 + 0.002 * n} for n in range(100, 1000, 10)]
    cold, over = {"progress": 0.0, "memory": 1.0}, {"progress": 1.0, "memory": 900.0}
    start, growth = soak._results("command", [cold, *readings, over], 1000)
    assert (start.name, round(start.value, 3)) == ("command: memory after 100 runs", 50.2)
    assert (growth.name, round(growth.value, 3), growth.passed) == ("command: memory, growth over 900 runs", 1.8, False)
