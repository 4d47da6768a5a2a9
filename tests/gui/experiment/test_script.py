"""A training script in the whole window: dropped, varied, tried and measured, and nothing of it runs unasked."""

import shutil
import sys
from pathlib import Path

import pytest
from PySide6.QtWidgets import QPlainTextEdit
from pytestqt.qtbot import QtBot

from app.errors import UserError
from app.grants import read_grants
from app.gui.app import Workbench
from app.gui.history.page import LogView
from app.gui.run.script import PURPOSE, ScriptView, make_parameter
from app.gui.widgets.basic import BreakingLabel
from app.runs.experiment import idle_wait
from app.runs.script import list_revisions
from app.storage.store import Store
from tests.gui.shell.test_drops import Drag
from tests.gui.test_grants import ALLOW, answer, question
from tests.integration.test_scripts import SCRIPTS, commit, git


@pytest.fixture(autouse=True)
def nothing_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARIANTSCOPE_GRANTS", str(tmp_path / "grants.json"))
    monkeypatch.setattr(idle_wait, "QUIET_PCT", 1000.0)


@pytest.mark.parametrize(
    ("command", "selected", "expected"),
    [
        ("python train.py --batch-size 32", "32", ("python train.py --batch-size {batch_size}", "batch_size", "32")),
        ("python train.py --lr=0.1 --amp", "--amp", ("python train.py --lr=0.1 {amp?--amp}", "amp", "off, on")),
        ("python small.py", "small.py", ("python {small}", "small", "small.py")),
    ],
)
def test_selected_words_become_a_parameter(command: str, selected: str, expected: tuple[str, str, str]) -> None:
    assert make_parameter(command, command.index(selected), selected) == expected


def test_revisions_are_listed_and_no_program_of_the_folder_runs(tmp_path: Path) -> None:
    folder, marker = tmp_path / "work", tmp_path / "marker"
    folder.mkdir()
    assert list_revisions(folder) == {}
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("")
    commit(folder)
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {marker}\n")
    hook.chmod(0o755)
    git(folder, "config", "core.fsmonitor", str(hook))
    git(folder, "branch", "other")
    marker.unlink(missing_ok=True)
    assert {"main", "other"} < set(list_revisions(folder))
    assert not marker.exists()


def test_the_form_hides_its_runs_beside_a_script_until_a_workload_is_chosen(workbench: Workbench) -> None:
    form = workbench.run_view.form
    assert form.run_button.isVisibleTo(form)
    workbench.open_script()
    assert not form.run_button.isVisibleTo(form)
    assert not form.rows["framework"].control.isVisibleTo(form)
    workbench.form.show_error(UserError("Something failed."))
    assert "Something failed." in [
        label.text() for label in form.findChildren(BreakingLabel) if label.isVisibleTo(form)
    ]
    form.workload_chosen.emit("cnn10")
    assert form.run_button.isVisibleTo(form)
    assert not workbench.window.findChildren(ScriptView)[0].isVisible()


def test_a_try_that_failed_shows_the_end_of_its_log_in_a_small_window(
    qtbot: QtBot, workbench: Workbench, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('begun')\nfor number in range(20):\n    print(number)\n1 / 0\n")
    workbench.window.resize(800, 600)
    workbench.open_script(tmp_path / "train.py")
    (view,) = workbench.window.findChildren(ScriptView)
    view.lines["command"].setText(f"{sys.executable} train.py")
    view.lines["settings"].setText("gpus=0 warmup_steps=3'")
    view.edited.emit()
    qtbot.waitUntil(lambda: "settings cannot be parsed" in view.problem.text())
    view.lines["settings"].setText("gpus=0 warmup_steps=3")
    view.edited.emit()
    qtbot.waitUntil(view.try_button.isEnabled)
    view.try_button.click()
    question(qtbot, workbench)
    answer(qtbot, workbench, ALLOW)
    qtbot.waitUntil(view.log_button.isVisible)
    assert view.result.text().endswith("ZeroDivisionError: division by zero")
    assert "begun" not in view.result.text()
    assert view.log.startswith("begun\n0\n")
    qtbot.waitUntil(lambda: not view.result.visibleRegion().isEmpty())
    for control in (view.run_button, view.try_button, view.log_button):
        assert control.visibleRegion().boundingRect() == control.rect()
    with Store.open(workbench.database) as store:
        assert store.list_runs()[0].spec.variant["warmup_steps"] == 3
    view.log_button.click()
    (log,) = [log for log in workbench.window.findChildren(LogView) if log.isVisible()]
    assert "begun" in log.findChildren(QPlainTextEdit)[0].toPlainText()
    view.edited.emit()
    assert not view.result.isVisibleTo(view)
    assert not view.log_button.isVisibleTo(view)


def test_a_dropped_script_is_asked_for_tried_and_measured(qtbot: QtBot, workbench: Workbench, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name, copy in (("steps.py", "train.py"), ("helper.py", "helper.py")):
        shutil.copy(SCRIPTS / name, folder / copy)
    Drag(workbench, folder / "train.py").drop()
    qtbot.waitUntil(lambda: bool(workbench.window.findChildren(ScriptView)))
    view = workbench.window.findChildren(ScriptView)[0]
    command = view.lines["command"]
    assert command.text() == "python train.py"
    command.setText(f"{sys.executable} train.py --slow")
    command.setSelection(command.text().index("--slow"), len("--slow"))
    view.parameter_button.click()
    assert view.values["slow"].text() == "off, on"
    for key, text in (("gpus", "0"), ("seconds", "0.6"), ("repeats", "1")):
        view.lines[key].setText(text)
    view.edited.emit()
    qtbot.waitUntil(lambda: view.run_button.text().startswith("Run 2"))
    assert read_grants() == ()
    view.try_button.click()
    assert "train.py" in question(qtbot, workbench)
    answer(qtbot, workbench, ALLOW)
    qtbot.waitUntil(lambda: "\xa0ms a step." in view.result.text())
    assert "variantscope.step()" in view.result.text()
    qtbot.waitUntil(view.run_button.isEnabled)
    view.run_button.click()
    assert "--slow" in question(qtbot, workbench)
    answer(qtbot, workbench, ALLOW)

    def runs() -> list[tuple[object, str | None]]:
        with Store.open(workbench.database) as store:
            rows = store.list_runs()
        return [
            (row.spec.variant["{slow}"], row.purpose) for row in rows if row.outcome and row.outcome.name == "completed"
        ]

    qtbot.waitUntil(lambda: len(runs()) == 3)
    assert sorted(runs(), key=str) == [(False, PURPOSE), (False, None), (True, None)]
    qtbot.waitUntil(lambda: not workbench.queue.running)
