"""A custom workload in the whole window: its file is read, changed, broken and remembered."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtWidgets import QComboBox, QFileDialog
from pytestqt.qtbot import QtBot

from app.gui.app import Workbench
from app.gui.theme import Theme
from app.gui.threads import close_jobs
from app.runs.custom import read_source
from app.viewmodels.run.fields import FormState
from tests.gui.windows import window_on
from workloads.protocol import RunSpec, Value

TEXT = "def small(batch_size: int = 4, units: int = 8):\n    'A small one.'\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(TEXT)
    return path


def until(qtbot: QtBot, workbench: Workbench, that: Callable[[FormState], bool]) -> None:
    def shown() -> bool:
        state = workbench.run_view.form.state
        return state is not None and that(state)

    qtbot.waitUntil(shown)


def test_a_file_is_chosen_followed_and_remembered(qtbot: QtBot, workbench: Workbench, theme: Theme, file: Path) -> None:
    form = workbench.run_view.form
    chooser = next(box for box in form.findChildren(QComboBox) if box.accessibleName() == "Workload")
    place = chooser.findText("Custom workload …")
    assert place == chooser.count() - 1
    chooser.activated.emit(place)
    (dialog,) = workbench.window.findChildren(QFileDialog)
    dialog.fileSelected.emit(str(file))
    dialog.close()
    until(qtbot, workbench, lambda state: state.workload == "mine.py:small")
    assert chooser.currentText() == "small · mine.py"
    form.edited.emit("units", (16,))
    file.write_text("import nothing_such\n" + TEXT)
    until(qtbot, workbench, lambda state: state.custom_file_invalid)
    assert "mine.py:1: ModuleNotFoundError" in form.custom_label.text()
    assert not form.run_button.isEnabled()
    file.write_text(TEXT.replace("units", "depth: int = 2, units"))
    until(
        qtbot, workbench, lambda state: not state.custom_file_text and "depth" in [field.name for field in state.fields]
    )
    assert form.run_button.isEnabled()
    with window_on(qtbot, workbench.database, theme) as again:
        until(qtbot, again, lambda state: ("mine.py:small", "small · mine.py") in state.workloads)


def test_a_file_is_read_again_when_what_it_imports_changes(qtbot: QtBot, workbench: Workbench, file: Path) -> None:
    helper = file.with_name("helper.py")
    helper.write_text("UNITS = 8\n")
    importing = "import sys\nsys.path.insert(0, __file__.rpartition('/')[0])\nfrom helper import UNITS\n"
    file.write_text(importing + TEXT.replace("int = 8", "int = UNITS"))

    def offers(units: int) -> Callable[[FormState], bool]:
        return lambda state: [field.value for field in state.fields if field.name == "units"] == [units]

    workbench.custom_workloads.open(file)
    until(qtbot, workbench, offers(8))
    helper.write_text("UNITS = 16\n")
    until(qtbot, workbench, offers(16))


def test_runs_of_a_file_are_offered_again_only_once_it_was_read_here(
    qtbot: QtBot, workbench: Workbench, file: Path
) -> None:
    variant: dict[str, Value] = {"gpus": 0, "batch_size": 4, "units": 8, "source": read_source(file).sha256}
    imported = RunSpec(workload="mine.py:small", variant=variant)
    assert workbench.actions.cannot_run([imported])
    workbench.custom_workloads.open(file)
    until(qtbot, workbench, lambda state: state.workload == "mine.py:small")
    assert not workbench.actions.cannot_run([imported])
    changed = RunSpec(workload="mine.py:small", variant={**variant, "source": "0" * 64})
    assert workbench.actions.cannot_run([imported, changed])


def test_a_window_that_closes_gives_up_what_it_reads(qtbot: QtBot, workbench: Workbench, file: Path) -> None:
    begun = file.with_name("begun")
    file.write_text(f"open({str(begun)!r}, 'w').close()\nwhile True: pass\n{TEXT}")
    workbench.custom_workloads.open(file)
    assert workbench.run_view.form.custom_label.text() == "Reading mine.py …"
    qtbot.waitUntil(begun.exists)
    start_s = time.monotonic()
    close_jobs(workbench.window)
    assert time.monotonic() - start_s < 50, "it would be read for a minute"
