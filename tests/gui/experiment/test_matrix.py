"""Experiments built on the Run screen: values, presets, what is said before the start, and what is asked for."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QCheckBox, QLabel, QLineEdit, QPushButton
from pytestqt.qtbot import QtBot

from app.gui.experiment.experiment_controller import ExperimentController
from app.gui.experiment.matrix import MatrixView
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.theme import Theme
from app.gui.threads import Background, Bridge, close_jobs
from app.gui.window_state import write_states
from app.plan import Plan
from app.runs.experiment.presets import load_preset
from app.runs.leases import CPU, FOLDER_VARIABLE, Leases
from app.samples import Inventory
from app.storage.reference import FOLDER, TAG
from app.storage.store import Store
from app.viewmodels.run.form import VariantForm
from tests.fakes.experiments import aged, environment_here, result
from tests.gui.actions import RecordedActions
from tests.gui.screens import Screen
from tests.unit.viewmodels.events import CPU_INVENTORY, GPU_INVENTORY
from tests.unit.viewmodels.stored import keep, run_row, stored_run
from workloads.protocol import RunSpec, Value

LIMIT_MS = 120_000
MEASURED = FOLDER / "cnn.db"


class RunScreen(Screen[RunView]):
    """The Run screen on a machine that a test chooses; nothing runs, what is asked for is noted."""

    def __init__(self, qtbot: QtBot, theme: Theme, database: Path, inventory: Inventory, workload: str) -> None:
        self.plans: list[Plan] = []
        self.recorded = RecordedActions()
        self.reads = Background()
        view = RunView(theme)
        self.form = form = VariantForm(workload, hidden=True)
        self.run = RunController(view, form, _no_session, _no_search, self.reads, Bridge(view))
        self.experiments = ExperimentController(
            view,
            self.run,
            form,
            database,
            self.reads,
            lambda: inventory,
            self.plans.append,
            lambda: None,
            self.recorded.actions,
        )
        self.experiments.start()
        self.run.start()
        self.run.handle(inventory)
        self.run.set_machine("", inventory)
        theme.apply_style_sheet(view)
        super().__init__(qtbot, view, 1100, 700)

    @property
    def matrix(self) -> MatrixView:
        assert self.view.matrix is not None
        return self.view.matrix

    def open(self) -> None:
        QTest.mouseClick(self.view.form.compare_button, Qt.MouseButton.LeftButton)
        self.qtbot.waitUntil(self.matrix.isVisible, timeout=LIMIT_MS)

    def tick(self, name: str, *labels: str) -> None:
        boxes = self.matrix.rows.control(name).findChildren(QCheckBox)
        for box in boxes:
            if box.text() in labels:
                QTest.mouseClick(box, Qt.MouseButton.LeftButton, pos=QPoint(8, box.height() // 2))

    def type(self, name: str, text: str) -> None:
        edit = self.matrix.rows.control(name).findChild(QLineEdit)
        assert isinstance(edit, QLineEdit)
        edit.setFocus()
        edit.selectAll()
        QTest.keyClicks(edit, text)
        self.typed = self.visible_text()
        QTest.keyClick(edit, Qt.Key.Key_Return)

    def count_older(self) -> None:
        box = self.matrix.footer.reuse_box
        self.qtbot.waitUntil(box.isVisible, timeout=LIMIT_MS)
        QTest.mouseClick(box, Qt.MouseButton.LeftButton, pos=QPoint(8, box.height() // 2))

    def start(self) -> Plan:
        QTest.mouseClick(self.matrix.footer.start_button, Qt.MouseButton.LeftButton)
        return self.plans[-1]

    def destroy(self) -> None:
        self.reads.close()
        super().destroy()


def _no_session(_spec: RunSpec, _host: str) -> NoReturn:
    raise AssertionError("no test here runs anything")


def _no_search(_spec: RunSpec, _limit: int, _host: str) -> NoReturn:
    raise AssertionError("no test here searches")


Open = Callable[..., RunScreen]


@pytest.fixture
def screen_on(qtbot: QtBot, theme: Theme, database_path: Path) -> Iterator[Open]:
    """Shows the Run screen on a machine with two H200s or another one."""
    made: list[RunScreen] = []

    def open_screen(inventory: Inventory = GPU_INVENTORY, workload: str = "cnn10") -> RunScreen:
        made.append(RunScreen(qtbot, theme, database_path, inventory, workload))
        return made[-1]

    yield open_screen
    for screen in made:
        screen.destroy()


@pytest.fixture
def measured(database_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The variants of the CNNs that ran on H200s, as if this very machine had made them."""
    shutil.copy(MEASURED, database_path)
    for name, value in {"NCCL_NVLS_ENABLE": "0", "KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}.items():
        monkeypatch.setenv(name, value)
    with Store.open(database_path) as store:
        rows = store.list_runs()
        store.library.remove_tag([row.run for row in rows], TAG)
        for row in rows:
            store.add_environment(row.run, environment_here(GPU_INVENTORY))
    return database_path


def test_the_values_of_an_experiment_are_there_in_the_next_window(screen_on: Open, window_state: Path) -> None:
    first = screen_on()
    first.open()
    first.type("batch_size", "32, 64")
    write_states(first.view)
    second = screen_on()
    second.open()
    assert [spec.variant["batch_size"] for spec in second.start().variants] == [32, 64]


def varied(plan: Plan, *names: str) -> list[tuple[Value, ...]]:
    return [tuple(spec.variant[name] for name in names) for spec in plan.variants]


def test_values_are_ticked_and_typed_and_the_experiment_is_asked_for(screen_on: Open) -> None:
    screen = screen_on()
    screen.open()
    assert "Choose two or more values" in screen.visible_text()
    assert not screen.matrix.footer.start_button.isEnabled()
    screen.tick("layout", "NHWC")
    screen.type("batch_size", "128, 256")
    screen.wait_for_text("This takes 2 to 4 min")
    assert "12 runs" in screen.visible_text()
    plan = screen.start()
    assert varied(plan, "layout", "batch_size") == [("NCHW", 128), ("NCHW", 256), ("NHWC", 128), ("NHWC", 256)]
    assert (plan.repeats, plan.parallel, plan.budget_s) == (3, 1, None)
    assert screen.view.live.isVisible(), "what was asked for is seen there"


def test_what_cannot_run_is_said_before_it_starts_and_left_out(screen_on: Open) -> None:
    screen = screen_on(workload="lstm")
    screen.open()
    screen.tick("implementation", "Standard")
    screen.tick("xla", "On")
    words = screen.visible_text()
    assert "1 of 4 combinations cannot run here and are left out:" in words
    assert "1 ×  cuDNN with XLA on: XLA cannot compile cuDNN's layers" in words
    plan = screen.start()
    assert varied(plan, "implementation", "xla") == [("cudnn", False), ("standard", False), ("standard", True)]
    assert len(plan.notes) == 1


def test_many_reasons_unfold(screen_on: Open) -> None:
    screen = screen_on(CPU_INVENTORY, "lstm")
    screen.open()
    screen.tick("implementation", "cuDNN", "Block-fused")
    screen.tick("xla", "On")
    screen.tick("precision", "TF32")
    screen.tick("gpus", "1")
    brief = screen.visible_text()
    QTest.mouseClick(screen.matrix.footer.reasons_button, Qt.MouseButton.LeftButton)
    whole = screen.visible_text()
    assert "XLA cannot compile TensorFlow's block LSTM" in whole
    assert "XLA cannot compile TensorFlow's block LSTM" not in brief


def test_a_list_that_cannot_be_read_says_why_and_nothing_starts(screen_on: Open) -> None:
    screen = screen_on()
    screen.open()
    screen.tick("layout", "NHWC")
    screen.type("batch_size", "many, 128")
    assert "Batch size takes a whole number, not 'many'." in screen.typed
    assert "takes a whole number, not 'many'" in screen.visible_text()
    assert not screen.matrix.footer.start_button.isEnabled()


def test_the_time_and_what_is_stored_come_from_stored_runs(screen_on: Open, measured: Path) -> None:
    screen = screen_on()
    for name, value in {"precision": "tf32", "seconds": 3.0, "warmup_steps": 10}.items():
        screen.view.form.edited.emit(name, value)
    screen.open()
    screen.tick("layout", "NHWC")
    screen.type("batch_size", "128, 256, 4096")
    screen.wait_for_text("Not counted, as made more than an hour before: 12 stored runs of 20")
    screen.count_older()
    screen.wait_for_text("12 of 18 already stored; the other 6 will take")
    assert "(estimated from 84 stored runs)." in screen.visible_text()
    assert "3 repeats can show a difference of about" in screen.visible_text()
    assert "stored runs of these variants)." in screen.visible_text()


def test_stored_runs_can_be_made_again(screen_on: Open, measured: Path) -> None:
    screen = screen_on()
    for name, value in {"precision": "tf32", "seconds": 3.0, "warmup_steps": 10, "batch_size": 512}.items():
        screen.view.form.edited.emit(name, value)
    screen.open()
    screen.tick("layout", "NHWC")
    again = screen.matrix.footer.rerun_box
    assert not screen.matrix.footer.reuse_box.isVisible()
    screen.count_older()
    assert not again.isEnabled()
    screen.qtbot.waitUntil(again.isEnabled, timeout=LIMIT_MS)
    assert "All 6 are already stored" in screen.visible_text()
    QTest.mouseClick(again, Qt.MouseButton.LeftButton, pos=QPoint(8, again.height() // 2))
    screen.wait_for_text("This takes ")
    assert not screen.matrix.footer.reuse_box.isEnabled()
    assert screen.start().again


def test_runs_on_different_gpus_at_once_are_a_choice_where_there_are_two(screen_on: Open) -> None:
    screen = screen_on()
    screen.open()
    box = screen.matrix.footer.concurrent_box
    screen.tick("layout", "NHWC")
    screen.wait_for_text("This takes 1 to 2 min")
    QTest.mouseClick(box, Qt.MouseButton.LeftButton, pos=QPoint(8, box.height() // 2))
    screen.wait_for_text("This takes 30 ")
    screen.tick("gpus", "2")
    screen.tick("gpus", "1")
    screen.wait_for_text("no two of them fit on the 2 GPUs of this machine.")
    assert screen.start().parallel == 2
    without = screen_on(CPU_INVENTORY)
    without.open()
    assert not without.matrix.footer.concurrent_box.isVisible()


def test_the_form_stays_usable_and_says_what_is_not_varied(screen_on: Open) -> None:
    screen = screen_on()
    screen.open()
    screen.tick("layout", "NHWC")
    screen.view.form.edited.emit("channels", 32)
    plan = screen.start()
    assert varied(plan, "channels") == [(32,), (32,)]


def test_the_baseline_is_chosen_among_the_variants(screen_on: Open) -> None:
    screen = screen_on()
    screen.open()
    screen.tick("layout", "NHWC")
    screen.matrix.footer.baseline_chosen.emit(1)
    assert varied(screen.start(), "layout") == [("NHWC",), ("NCHW",)]


def test_the_command_goes_to_the_clipboard(screen_on: Open) -> None:
    screen = screen_on()
    screen.open()
    screen.tick("layout", "NHWC")
    screen.matrix.footer.extent_changed.emit("repeats", 5)
    QTest.mouseClick(screen.matrix.footer.copy_button, Qt.MouseButton.LeftButton)
    assert QGuiApplication.clipboard().text() == ("python -m app experiment cnn10 -s layout=NCHW,NHWC --repeats 5")


def test_presets_are_listed_for_this_machine_and_start_with_one_click(screen_on: Open, measured: Path) -> None:
    screen = screen_on()
    screen.open()
    QTest.mouseClick(screen.matrix.tab(1), Qt.MouseButton.LeftButton)
    screen.wait_for_text("66 variants, 198 runs")
    words = screen.visible_text()
    assert "Not counted, as made more than an hour before: 127 stored runs of 20" in words
    assert load_preset("quick").experiment_for(GPU_INVENTORY.machine).question in words
    QTest.mouseClick(screen.matrix.presets.start_button("article-c"), Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.plans), timeout=LIMIT_MS)
    plan = screen.plans[-1]
    assert (plan.preset, len(plan.variants), plan.repeats) == ("article-c", 66, 3)


def test_a_preset_with_nothing_left_to_run_shows_its_verdict(screen_on: Open, database_path: Path) -> None:
    variants = load_preset("quick").plan(CPU_INVENTORY.machine).variants
    with Store.open(database_path) as store:
        for number, spec in enumerate(variants * 3, 1):
            keep(store, aged(result(number, spec, environment=environment_here(CPU_INVENTORY)), 60 - number))
    screen = screen_on(CPU_INVENTORY)
    screen.open()
    screen.matrix.show_page(1)
    screen.wait_for_text("All 6 are already stored")
    shows = screen.matrix.presets.start_button("quick")
    assert (shows.text(), screen.matrix.presets.start_button("article-a").text()) == ("Show verdict", "Start")
    needs_environments = screen.matrix.presets.start_button("article-a-versions")
    assert screen.matrix.presets.start_button("article-a").isEnabled()
    assert not needs_environments.isEnabled(), "none of its variants can run here"
    assert "about 0:00" not in screen.visible_text()
    QTest.mouseClick(shows, Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.recorded.calls), timeout=LIMIT_MS)
    assert screen.recorded.calls == [("compare_experiment", [1, 3, 5, 2, 4, 6])], "the runs of the baseline come first"
    assert screen.plans == [], "nothing is run"


def test_a_preset_of_another_hour_starts_anew_and_its_verdict_is_one_click_away(
    screen_on: Open, database_path: Path
) -> None:
    variants = load_preset("quick").plan(CPU_INVENTORY.machine).variants
    with Store.open(database_path) as store:
        for number, spec in enumerate(variants, 1):
            keep(store, result(number, spec, environment=environment_here(CPU_INVENTORY)))
    screen = screen_on(CPU_INVENTORY)
    screen.open()
    screen.matrix.show_page(1)
    screen.wait_for_text("Not counted, as made more than an hour before: 2 stored runs")
    assert screen.matrix.presets.start_button("quick").text() == "Start"
    QTest.mouseClick(screen.matrix.presets.verdict_button("quick"), Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.recorded.calls), timeout=LIMIT_MS)
    assert screen.recorded.calls == [("compare_experiment", [1, 2])]


def test_the_reference_runs_of_a_preset_are_one_click_away(screen_on: Open, database_path: Path) -> None:
    variants = load_preset("article-c").all_plans()[0].variants[:2]
    with Store.open(database_path) as store:
        for number, spec in enumerate((*variants, *variants[::-1]), 1):
            store.library.add_tag([keep(store, result(number, spec))], "reference")
        keep(store, result(5, load_preset("article-a").all_plans()[0].variants[0]))
    screen = screen_on(CPU_INVENTORY)
    screen.open()
    screen.matrix.show_page(1)
    screen.wait_for_text("channels_first makes GPU training a little faster (2019)")
    buttons = [button.text() for button in screen.matrix.presets.findChildren(QPushButton)]
    assert buttons.count("H200 reference") == 1, "of article C alone"
    QTest.mouseClick(screen.matrix.presets.reference_button("article-c"), Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.recorded.calls), timeout=LIMIT_MS)
    assert screen.recorded.calls == [("compare_experiment", [1, 4, 2, 3])]


def test_the_list_of_presets_fits_a_small_window(screen_on: Open) -> None:
    screen = screen_on(CPU_INVENTORY)
    screen.view.resize(1024, 660)
    screen.open()
    screen.matrix.show_page(1)
    screen.wait_for_text("No GPU here, so scaled down")
    presets = screen.matrix.presets
    start = presets.start_button("article-a")
    assert start.mapTo(presets, start.rect().bottomRight()).x() < presets.viewport().width()


def test_how_a_preset_is_made_smaller_is_said(screen_on: Open) -> None:
    screen = screen_on(CPU_INVENTORY)
    screen.open()
    screen.matrix.show_page(1)
    screen.wait_for_text("No GPU here, so scaled down")


def test_the_users_own_presets_are_kept_and_a_broken_one_is_said(screen_on: Open, tmp_path: Path) -> None:
    own, broken = tmp_path / "mine.toml", tmp_path / "broken.toml"
    matrix = '[{workload = "dummy", settings = {gpus = 0, step_ms = [1, 2]}}]'
    form = f'question = "Is it mine?"\nrepeats = 2\nmatrix = {matrix}'
    own.write_text(f"[gpu]\n{form}\n[cpu]\n{form}\n", encoding="utf-8")
    broken.write_text("[gpu]\n", encoding="utf-8")
    first = screen_on(CPU_INVENTORY)
    first.open()
    first.matrix.show_page(1)
    first.wait_for_text("Quick comparison")
    bar = first.matrix.presets.verticalScrollBar()
    bar.setValue(bar.maximum())
    first.matrix.presets.file_chosen.emit(str(broken))
    first.wait_for_text("is not a preset")
    (problem,) = (each for each in first.matrix.findChildren(QLabel) if "is not a preset" in each.text())
    assert not problem.visibleRegion().isEmpty(), "in sight, however long the list is"
    first.matrix.presets.file_chosen.emit(str(own))
    first.wait_for_text("Is it mine?")
    assert "is not a preset" not in first.visible_text()
    later = screen_on(CPU_INVENTORY)
    later.open()
    later.matrix.show_page(1)
    later.wait_for_text("Is it mine?")
    assert "2 variants, 4 runs" in later.visible_text()


OWN = "def mine(batch_size: int = 4, units: int = 8): ...\n"


@pytest.fixture
def preset_of_mine(tmp_path: Path) -> Path:
    """A preset whose workload lies beside it."""
    (tmp_path / "mine.py").write_text(OWN)
    form = """question = "Is it mine?"
        repeats = 2
        matrix = [{ workload = "mine.py:mine", settings = { gpus = 0, units = [1, 2] } }]"""
    path = tmp_path / "ours.toml"
    path.write_text(f"[gpu]\n{form}\n[cpu]\n{form}\n", encoding="utf-8")
    return path


def test_a_preset_of_the_users_own_workload_is_read_when_it_starts_and_when_its_file_has_changed(
    screen_on: Open, preset_of_mine: Path
) -> None:
    screen = screen_on(CPU_INVENTORY)
    screen.open()
    screen.matrix.show_page(1)
    presets = screen.matrix.presets
    presets.file_chosen.emit(str(preset_of_mine))
    screen.wait_for_text("mine.py has not been read yet. Start asks before it runs it.")
    QTest.mouseClick(presets.start_button(str(preset_of_mine)), Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.plans), timeout=LIMIT_MS)
    screen.open()
    screen.matrix.show_page(0)
    screen.matrix.show_page(1)
    screen.wait_for_text("2 variants, 4 runs")
    preset_of_mine.with_name("mine.py").write_text(OWN.replace("units", "units: int = 1, depth"))
    screen.matrix.show_page(0)
    screen.matrix.show_page(1)
    screen.wait_for_text("mine.py has not been read yet. Start asks before it runs it.")
    assert "2 variants, 4 runs" not in screen.visible_text()
    QTest.mouseClick(presets.start_button(str(preset_of_mine)), Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: len(screen.plans) == 2, timeout=LIMIT_MS)
    plan = screen.plans[-1]
    assert plan.preset == str(preset_of_mine)
    made = [(spec.workload, spec.variant["units"], spec.variant["depth"]) for spec in plan.variants]
    assert made == [("mine.py:mine", 1, 8), ("mine.py:mine", 2, 8)]


def test_a_preset_waits_in_sight_for_the_run_that_uses_the_processor_and_no_longer_than_the_window(
    screen_on: Open, preset_of_mine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    lease = Leases().take([CPU], 1)
    assert lease is not None
    screen = screen_on(CPU_INVENTORY)
    screen.open()
    screen.matrix.show_page(1)
    presets = screen.matrix.presets
    presets.file_chosen.emit(str(preset_of_mine))
    screen.wait_for_text("mine.py has not been read yet.")
    QTest.mouseClick(presets.start_button(str(preset_of_mine)), Qt.MouseButton.LeftButton)
    screen.wait_for_text("mine.py will be read when the run on the CPU ends …")
    close_jobs(screen.view)
    lease.release()


def test_a_preset_whose_workload_is_gone_says_so(screen_on: Open, preset_of_mine: Path) -> None:
    preset_of_mine.with_name("mine.py").unlink()
    screen = screen_on(CPU_INVENTORY)
    screen.open()
    screen.matrix.show_page(1)
    screen.matrix.presets.file_chosen.emit(str(preset_of_mine))
    screen.wait_for_text("ours.toml names a workload that cannot be loaded.")
    assert "mine.py cannot be read (No such file or directory)." in screen.visible_text()


def test_a_newcomer_is_offered_the_quick_comparison(screen_on: Open) -> None:
    screen = screen_on(CPU_INVENTORY)
    quick = load_preset("quick")
    screen.wait_for_text(quick.experiment_for(CPU_INVENTORY.machine).question)
    QTest.mouseClick(screen.view.live.offer_button, Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.plans), timeout=LIMIT_MS)
    plan = screen.plans[-1]
    assert (plan.name, plan.preset, plan) == ("Quick comparison", "quick", quick.plan(CPU_INVENTORY.machine))
    assert not screen.view.live.offer_button.isVisible()
    assert screen.view.focusWidget() is screen.view.live.stack, "and not the button beside it"
    screen.form.set_host("gpu1")
    screen.experiments.compare_quickly(CPU_INVENTORY.machine)
    screen.qtbot.waitUntil(lambda: len(screen.plans) == 2, timeout=LIMIT_MS)
    assert screen.plans[-1].host == "", "for this machine, whatever host the form names"


def test_who_has_runs_is_offered_nothing(screen_on: Open, database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store, stored_run(run_row(1)))
    screen = screen_on(CPU_INVENTORY)
    read: list[object] = []
    screen.reads.run(lambda: None, read.append, read.append)
    screen.qtbot.waitUntil(lambda: bool(read), timeout=LIMIT_MS)
    assert not screen.view.live.offer_button.isVisible()


def test_while_the_queue_goes_on_all_is_added_to_it_and_stop_stops_it(screen_on: Open) -> None:
    screen = screen_on(CPU_INVENTORY)
    queued: list[RunSpec] = []
    screen.run.queue_requested.connect(queued.append)
    screen.open()
    screen.tick("layout", "NHWC")
    screen.run.show_queue(running=True)
    assert screen.matrix.footer.start_button.text().replace("&", "") == "Add experiment to queue"
    QTest.mouseClick(screen.view.form.queue_button, Qt.MouseButton.LeftButton)
    screen.run.run()
    assert [spec.workload for spec in queued] == ["cnn10", "cnn10"]
    with screen.qtbot.waitSignal(screen.run.queue_stop_requested, timeout=LIMIT_MS):
        QTest.mouseClick(screen.view.form.run_button, Qt.MouseButton.LeftButton)
    screen.run.show_queue(running=False)
    assert screen.view.form.run_button.text() == "&Run"


def test_the_windows_start_waits_for_nothing_that_builds_experiments() -> None:
    code = "import sys, app.gui.app; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "app.gui.run.form" in loaded
    assert not loaded & {
        "app.gui.experiment.matrix",
        "app.viewmodels.experiment.matrix",
        "app.runs.experiment.presets",
        "app.runs.experiment.queue",
    }


def test_escape_goes_back_to_the_plots(screen_on: Open) -> None:
    screen = screen_on(CPU_INVENTORY)
    screen.open()
    screen.qtbot.waitUntil(screen.matrix.tab(0).hasFocus, timeout=LIMIT_MS)
    QTest.keyClick(screen.matrix, Qt.Key.Key_Escape)
    assert screen.view.live.isVisible()
    assert screen.view.focusWidget() is screen.view.live.stack
