"""Nothing from elsewhere runs unasked in the window: what it asks, and that a marker is made by nothing but a yes."""

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from app.grants import read_grants
from app.gui.app import Workbench
from app.gui.experiment.queue import QueueView
from app.gui.theme import Theme
from app.runs.custom import read_source
from app.runs.experiment import idle_wait
from app.runs.experiment.queue import add_plan, import_with_queue
from app.storage.database import save_setting
from app.storage.known_settings import CUSTOM_WORKLOADS
from app.storage.store import Store
from app.values.plan import Plan
from tests.fakes.attacker import Attacker
from tests.gui.shell.test_drops import Drag
from tests.gui.texts import displayed_text
from tests.gui.windows import choose, click_run, press, window_on
from workloads.catalog import Machine, complete

ALLOW, REFUSE = "Allow", "Do not allow"


@pytest.fixture(autouse=True)
def nothing_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run waits for the machine either."""
    monkeypatch.setenv("VARIANTSCOPE_GRANTS", str(tmp_path / "grants.json"))
    monkeypatch.setattr(idle_wait, "QUIET_PCT", 1000.0)


@pytest.fixture
def attacker(tmp_path: Path) -> Attacker:
    (tmp_path / "theirs").mkdir()
    return Attacker(tmp_path / "theirs")


def question(qtbot: QtBot, workbench: Workbench) -> str:
    qtbot.waitUntil(lambda: workbench.window.findChild(QMessageBox) is not None)
    (box,) = workbench.window.findChildren(QMessageBox)
    return f"{box.text()} {box.informativeText()}"


def answer(qtbot: QtBot, workbench: Workbench, label: str) -> None:
    press(workbench, label)
    qtbot.waitUntil(lambda: workbench.window.findChild(QMessageBox) is None)


def queue_view(workbench: Workbench) -> QueueView:
    return workbench.run_view.queue_view()


def offered(qtbot: QtBot, workbench: Workbench) -> str:
    workbench.queue.check_entries()
    qtbot.waitUntil(lambda: bool(displayed_text(queue_view(workbench).offer_banner)))
    return displayed_text(queue_view(workbench).offer_banner)


def test_resume_of_an_imported_entry_shows_its_python_and_asks(
    qtbot: QtBot, workbench: Workbench, attacker: Attacker
) -> None:
    attacker.queue(*attacker.specs(interpreter=str(attacker.python)))
    import_with_queue(workbench.database, attacker.database)
    assert f"Its runs are made by the Python {attacker.python}." in offered(qtbot, workbench)
    queue_view(workbench).answered.emit("go on")
    assert f"run {attacker.python} as Python" in question(qtbot, workbench)
    answer(qtbot, workbench, REFUSE)
    qtbot.waitUntil(lambda: not workbench.queue.running)
    assert not attacker.marker.exists()
    assert "nobody has allowed" in workbench.form.messages.error
    assert read_grants() == ()
    workbench.queue.pause_or_resume(1, "go on")
    question(qtbot, workbench)
    answer(qtbot, workbench, ALLOW)
    qtbot.waitUntil(attacker.marker.exists)
    qtbot.waitUntil(lambda: not workbench.queue.running)


def test_an_imported_entry_s_host_is_connected_to_after_a_yes_alone(
    qtbot: QtBot, workbench: Workbench, attacker: Attacker
) -> None:
    attacker.queue(*attacker.specs(), host=f"sh:?python={attacker.python}")
    import_with_queue(workbench.database, attacker.database)
    assert f"Its runs are made on sh:?python={attacker.python}." in offered(qtbot, workbench)
    queue_view(workbench).answered.emit("go on")
    assert f"connect to sh:?python={attacker.python}" in question(qtbot, workbench)
    answer(qtbot, workbench, REFUSE)
    qtbot.waitUntil(lambda: not workbench.queue.running)
    assert not attacker.marker.exists()


def test_resume_of_several_leaves_out_what_was_imported(qtbot: QtBot, workbench: Workbench, attacker: Attacker) -> None:
    attacker.queue(*attacker.specs(seconds=600.0))
    import_with_queue(workbench.database, attacker.database)
    mine = [complete("dummy", {"gpus": 0, "steps": 5, "batch_size": size}, Machine()) for size in (1, 2)]
    with Store.open(workbench.database) as store:
        add_plan(store, Plan(name="mine", variants=tuple(mine), repeats=1))
    assert "1 of them comes from another database" in offered(qtbot, workbench)
    queue_view(workbench).answered.emit("go on")
    qtbot.waitUntil(lambda: states(workbench) == ["paused"])
    qtbot.waitUntil(lambda: not workbench.queue.running)


def states(workbench: Workbench) -> list[str]:
    with Store.open(workbench.database) as store:
        return [entry.state for entry in store.queue.entries()]


def test_a_dropped_file_is_run_after_a_yes_alone(qtbot: QtBot, workbench: Workbench, attacker: Attacker) -> None:
    drag = Drag(workbench, attacker.module)
    drag.drop()
    assert f"run the code of {attacker.module} (SHA-256 " in question(qtbot, workbench)
    answer(qtbot, workbench, REFUSE)
    qtbot.waitUntil(lambda: "nobody has allowed" in workbench.run_view.form.custom_label.text())
    attacker.module.write_text(attacker.module.read_text() + "# changed\n")
    changed = read_source(attacker.module).sha256
    qtbot.waitUntil(lambda: changed in workbench.run_view.form.custom_label.text())
    assert not attacker.marker.exists()
    workbench.custom_workloads.open_dropped(attacker.module)
    question(qtbot, workbench)
    answer(qtbot, workbench, ALLOW)
    qtbot.waitUntil(attacker.marker.exists)


def test_a_dropped_preset_is_listed_and_its_start_asks(qtbot: QtBot, workbench: Workbench, attacker: Attacker) -> None:
    file = attacker.preset()
    Drag(workbench, file).drop()
    qtbot.waitUntil(lambda: "list the preset" in workbench.undo.undo_name)
    assert not attacker.marker.exists()
    presets = workbench.run_view.gallery
    presets.start_requested.emit(str(file))
    assert f"run the code of {attacker.module} (SHA-256 " in question(qtbot, workbench)
    answer(qtbot, workbench, REFUSE)
    assert not attacker.marker.exists()
    presets.start_requested.emit(str(file))
    question(qtbot, workbench)
    answer(qtbot, workbench, ALLOW)
    qtbot.waitUntil(attacker.marker.exists)


def test_a_database_s_own_files_are_not_run_when_a_window_opens_on_it(
    qtbot: QtBot, theme: Theme, attacker: Attacker
) -> None:
    attacker.custom_specs()
    save_setting(attacker.database, CUSTOM_WORKLOADS, [str(attacker.module)])
    with window_on(qtbot, attacker.database, theme) as opened:
        qtbot.waitUntil(lambda: "nobody has allowed" in opened.run_view.form.custom_label.text())
    assert not attacker.marker.exists()


def test_run_again_asks_where_the_field_was_not_typed(qtbot: QtBot, workbench: Workbench, attacker: Attacker) -> None:
    (spec, _) = attacker.specs(interpreter=str(attacker.python))
    workbench.form.fill(spec)
    click_run(workbench.run_view.form)
    assert f"run {attacker.python} as Python" in question(qtbot, workbench)
    (box,) = workbench.window.findChildren(QMessageBox)
    # It opens while the user types elsewhere, and would take a letter of a button's shortcut without Alt.
    assert [button.shortcut().toString() for button in box.buttons()] == ["", ""]
    answer(qtbot, workbench, REFUSE)
    qtbot.waitUntil(lambda: not workbench.run.running)
    assert not attacker.marker.exists()
    choose(workbench, interpreter="")
    choose(workbench, interpreter=str(attacker.python))
    click_run(workbench.run_view.form)
    qtbot.waitUntil(attacker.marker.exists)
    qtbot.waitUntil(lambda: not workbench.run.running)


def in_another_workload(workbench: Workbench, own: str) -> None:
    form = workbench.run_view.form
    form.workload_chosen.emit("gru")
    form.edited.emit("interpreter", (own,))
    form.workload_chosen.emit("lstm")


def in_a_form_that_is_put_back(workbench: Workbench, own: str) -> None:
    form = workbench.run_view.form
    QTest.mouseClick(form.reset_button, Qt.MouseButton.LeftButton)
    form.edited.emit("interpreter", (own,))
    workbench.undo.undo()


def test_a_python_that_is_typed_allows_no_other(
    qtbot: QtBot, workbench: Workbench, attacker: Attacker, tmp_path: Path
) -> None:
    (spec, _) = attacker.specs("lstm", interpreter=str(attacker.python))
    chosen = (str(attacker.python),)
    for type_another in (in_another_workload, in_a_form_that_is_put_back):
        workbench.form.fill(spec)
        type_another(workbench, str(tmp_path / "own" / "bin" / "python"))
        qtbot.waitUntil(lambda: workbench.form.form.selection.chosen["interpreter"] == chosen)
        # Undo changes the choices on another thread; the button follows once the window has shown them.
        qtbot.waitUntil(workbench.run_view.form.run_button.isEnabled)
        click_run(workbench.run_view.form)
        assert f"run {attacker.python} as Python" in question(qtbot, workbench)
        answer(qtbot, workbench, REFUSE)
        qtbot.waitUntil(lambda: not workbench.run.running)
    assert not attacker.marker.exists()


def test_a_window_that_quits_answers_no(qtbot: QtBot, workbench: Workbench, attacker: Attacker) -> None:
    (spec, _) = attacker.specs(interpreter=str(attacker.python))
    workbench.form.fill(spec)
    click_run(workbench.run_view.form)
    question(qtbot, workbench)
    workbench.quit()
    qtbot.waitUntil(lambda: not workbench.run.running)
    assert not attacker.marker.exists()
