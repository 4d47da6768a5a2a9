"""The prepared questions of the Run screen, and experiments made in its form: what is said, and what is asked for."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QPushButton
from pytestqt.qtbot import QtBot

from app.gui.experiment.gallery import GalleryController, GalleryView, QuestionCard
from app.gui.run.form import FormView
from app.gui.run.form_controller import FormController
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.theme import Theme
from app.gui.threads import Background, close_jobs
from app.gui.window_state import write_states
from app.queries import Question
from app.runs.experiment.presets import load_preset
from app.runs.leases import CPU, FOLDER_VARIABLE, Leases
from app.storage.store import Store
from app.values.plan import Plan
from app.values.records import REFERENCE_TAG
from app.values.samples import Inventory
from app.viewmodels.experiment.preview import PresetLine
from app.viewmodels.run.fields import EXPERIMENT
from app.viewmodels.run.form import VariantForm
from app.viewmodels.run.selection import OLDER, RECENT
from tests.fakes.experiments import aged, environment_here, result
from tests.fakes.reference import copy_reference
from tests.gui.actions import RecordedActions
from tests.gui.screens import Screen, button
from tests.gui.windows import selected_line
from tests.unit.viewmodels.events import CPU_INVENTORY, GPU_INVENTORY
from tests.unit.viewmodels.stored import keep, keep_all
from workloads.protocol import RunSpec, Value


class RunScreen(Screen[RunView]):
    """The Run screen on a machine that a test chooses; nothing runs, what is asked for is noted."""

    def __init__(self, qtbot: QtBot, theme: Theme, database: Path, inventory: Inventory, workload: str) -> None:
        self.plans: list[Plan] = []
        self.recorded = RecordedActions()
        self.reads = Background()
        view = RunView(theme)
        form = VariantForm(workload, hidden=True)
        services = self.recorded.services(view, database, self.reads, inventory)
        self.form = FormController(view.form, form, services)
        self.run = RunController(view, self.form, services, _no_session, _no_search)
        self.questions = GalleryController(
            view, self.form, services, self.plans.append, lambda: None, self.recorded.actions
        )
        self.run.plan_requested.connect(self.questions.submit)
        self.questions.start()
        self.questions.read()
        self.run.start()
        self.form.start()
        self.run.handle(inventory)
        theme.apply_style_sheet(view)
        super().__init__(qtbot, view, 1100, 700)
        self.form.set_machine("", inventory)

    @property
    def gallery(self) -> GalleryView:
        return self.view.gallery

    def card(self, key: str) -> QuestionCard:
        return next(card for card in self.gallery.cards if card.key == key)

    def choose(self, name: str, *values: Value) -> None:
        """Choose values as the list, the menu and the chips of a field do."""
        self.view.form.edited.emit(name, values)

    def type(self, name: str, text: str) -> None:
        QTest.keyClicks(selected_line(self.view.form, name), text)

    def wait_for_label(self, text: str) -> None:
        self.qtbot.waitUntil(lambda: text in label(self.view.form))

    def start(self) -> Plan:
        QTest.mouseClick(self.view.form.run_button, Qt.MouseButton.LeftButton)
        return self.plans[-1]

    def destroy(self) -> None:
        self.reads.close()
        super().destroy()


def label(form: FormView) -> str:
    return form.run_button.text().replace("&", "").replace("\xa0", " ")


def _no_session(_spec: RunSpec, _host: str, _purpose: str | None) -> NoReturn:
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
    copy_reference("cnn", database_path)
    for name, value in {"NCCL_NVLS_ENABLE": "0", "KMP_DUPLICATE_LIB_OK": "True", "KMP_INIT_AT_FORK": "FALSE"}.items():
        monkeypatch.setenv(name, value)
    with Store.open(database_path) as store:
        rows = store.list_runs()
        store.library.remove_tag([row.run for row in rows], REFERENCE_TAG)
        for row in rows:
            store.add_environment(row.run, environment_here(GPU_INVENTORY))
    return database_path


def test_the_values_of_an_experiment_are_there_in_the_next_window(screen_on: Open, window_state: Path) -> None:
    first = screen_on()
    first.type("batch_size", "32, 64")
    write_states(first.view)
    second = screen_on()
    assert varied(second.start(), "batch_size") == [(32,), (64,)]


def varied(plan: Plan, *names: str) -> list[tuple[Value, ...]]:
    return [tuple(spec.variant[name] for name in names) for spec in plan.variants]


def test_values_are_chosen_and_typed_and_the_one_button_runs_what_they_make(screen_on: Open) -> None:
    screen = screen_on()
    assert label(screen.view.form) == "Run"
    screen.choose("layout", "NCHW", "NHWC")
    screen.type("batch_size", "128, 256")
    assert label(screen.view.form) == "Run 12"
    screen.wait_for_label("Run 12 (")
    assert "4 variants, 3 runs each." in screen.visible_text()
    plan = screen.start()
    assert varied(plan, "layout", "batch_size") == [("NCHW", 128), ("NCHW", 256), ("NHWC", 128), ("NHWC", 256)]
    assert (plan.repeats, plan.parallel, plan.budget_s, plan.again) == (3, 1, None, True)
    assert screen.view.live.isVisible(), "what was asked for is seen there"


def test_the_button_follows_every_key_and_is_never_older_than_the_text(screen_on: Open) -> None:
    screen = screen_on()
    button = screen.view.form.run_button
    line = selected_line(screen.view.form, "batch_size")
    shown = []
    for key in "8, 16-":
        QTest.keyClicks(line, key)
        shown.append((line.text(), label(screen.view.form), button.isEnabled()))
    assert shown == [
        ("8", "Run", True),
        ("8,", "Run", True),
        ("8, ", "Run", True),
        ("8, 1", "Run 6", True),
        ("8, 16", "Run 6", True),
        ("8, 16-", "Run", False),
    ]
    QTest.keyClick(line, Qt.Key.Key_Backspace)
    assert button.isEnabled(), "without leaving the field"
    assert varied(screen.start(), "batch_size") == [(8,), (16,)]


def test_many_reasons_unfold(screen_on: Open) -> None:
    screen = screen_on(CPU_INVENTORY, "lstm")
    screen.choose("implementation", "standard", "cudnn", "block_fused")
    screen.choose("xla", False, True)
    screen.choose("precision", "float32", "tf32")
    screen.choose("gpus", 0, 1)
    brief = screen.visible_text()
    QTest.mouseClick(screen.view.form.reasons_button, Qt.MouseButton.LeftButton)
    whole = screen.visible_text()
    assert "XLA cannot compile TensorFlow's block LSTM" in whole
    assert "XLA cannot compile TensorFlow's block LSTM" not in brief


def test_stored_runs_count_where_the_user_wants_it(screen_on: Open, measured: Path) -> None:
    screen = screen_on()
    screen.choose("precision", "tf32")
    screen.choose("seconds", 3.0)
    screen.choose("warmup_steps", 10)
    screen.choose("layout", "NCHW", "NHWC")
    screen.type("batch_size", "128, 256, 4096")
    screen.wait_for_label("Run 18 (")
    screen.wait_for_text("Not counted: 12 stored runs of 20")
    screen.choose(f"{EXPERIMENT}stored", RECENT)
    screen.wait_for_label("Run 18 (")
    screen.choose(f"{EXPERIMENT}stored", OLDER)
    screen.wait_for_label("Run 6 (")
    assert "shows " in label(screen.view.form)
    tip = screen.view.form.run_button.toolTip().replace("\xa0", " ")
    assert "12 of 18 already stored; the other 6 will take" in tip
    assert "3 repeats can show a difference of about" in tip
    plan = screen.start()
    assert (plan.again, plan.reuse) == (False, True)


def test_runs_on_different_gpus_at_once_are_a_choice_where_there_are_two(screen_on: Open) -> None:
    screen = screen_on()
    screen.choose("layout", "NCHW", "NHWC")
    screen.wait_for_label("Run 6 (")
    alone = label(screen.view.form)
    screen.choose(f"{EXPERIMENT}side_by_side", True)
    screen.wait_for_label("Run 6 (")
    assert label(screen.view.form) != alone, "it takes less time"
    screen.choose("gpus", 2)
    screen.qtbot.waitUntil(
        lambda: "no two of them fit on the 2 GPUs of this machine." in screen.view.form.run_button.toolTip()
    )
    assert screen.start().parallel == 2


def test_the_command_goes_to_the_clipboard(screen_on: Open) -> None:
    screen = screen_on()
    screen.choose("layout", "NCHW", "NHWC")
    screen.choose(f"{EXPERIMENT}repeats", 5)
    copies = next(each for each in screen.view.form.findChildren(QPushButton) if "co&mmand" in each.text())
    QTest.mouseClick(copies, Qt.MouseButton.LeftButton)
    assert copies.text() == "Copied"
    command = "python -m app experiment cnn10 -s layout=NCHW,NHWC --repeats 5 --again"
    assert QGuiApplication.clipboard().text() == command


def test_reset_is_one_change_that_is_undone(screen_on: Open) -> None:
    screen = screen_on()
    screen.choose("layout", "NCHW", "NHWC")
    QTest.mouseClick(button(screen.view.form, "Reset"), Qt.MouseButton.LeftButton)
    assert label(screen.view.form) == "Run"
    ((_, name, reversal),) = screen.recorded.calls
    assert name == "reset the form"
    assert callable(reversal)
    again = reversal()
    screen.questions.show_undone()
    assert label(screen.view.form).startswith("Run 6")
    again()
    screen.questions.show_undone()
    assert label(screen.view.form) == "Run"
    QTest.mouseClick(button(screen.view.form, "Reset"), Qt.MouseButton.LeftButton)
    assert len(screen.recorded.calls) == 1, "nothing was changed"


def test_presets_are_listed_for_this_machine_and_start_with_one_click(screen_on: Open, measured: Path) -> None:
    screen = screen_on()
    screen.wait_for_text("Not counted, because they are older than an hour: 127 stored runs of 20")
    words = screen.visible_text()
    assert "78 variants, 234 runs" in words
    assert "Here: " in words, "what is known of the answer"
    assert load_preset("quick").experiment_for(GPU_INVENTORY.machine).question in words
    QTest.mouseClick(screen.card("article-c").start, Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.plans))
    plan = screen.plans[-1]
    assert (plan.preset, len(plan.variants), plan.repeats) == ("article-c", 78, 3)


def test_a_preset_with_nothing_left_to_run_shows_its_verdict(screen_on: Open, database_path: Path) -> None:
    variants = load_preset("quick").plan(CPU_INVENTORY.machine).variants
    with Store.open(database_path) as store:
        for number, spec in enumerate(variants * 3, 1):
            keep(store, aged(result(number, spec, environment=environment_here(CPU_INVENTORY)), 60 - number))
    screen = screen_on(CPU_INVENTORY)
    screen.wait_for_text("All 6 are already stored")
    shows = screen.card("quick").start
    assert (shows.text(), screen.card("article-a").start.text()) == ("Show verdict", "Start")
    assert screen.card("article-a").start.isEnabled()
    assert screen.card("article-a-versions").start.isEnabled(), "uv installs what it needs"
    assert "about 0:00" not in screen.visible_text()
    QTest.mouseClick(shows, Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.recorded.calls))
    assert screen.recorded.calls == [("compare", [1, 3, 5, 2, 4, 6], Question())], "the runs of the baseline come first"
    assert screen.plans == [], "nothing is run"


def test_a_preset_of_another_hour_starts_anew_and_its_verdict_is_one_click_away(
    screen_on: Open, database_path: Path
) -> None:
    variants = load_preset("quick").plan(CPU_INVENTORY.machine).variants
    here = environment_here(CPU_INVENTORY)
    keep_all(database_path, (result(number, spec, environment=here) for number, spec in enumerate(variants, 1)))
    screen = screen_on(CPU_INVENTORY)
    screen.wait_for_text("Not counted, because they are older than an hour: 2 stored runs")
    assert screen.card("quick").start.text() == "Start"
    QTest.mouseClick(screen.card("quick").verdict, Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.recorded.calls))
    assert screen.recorded.calls == [("compare", [1, 2], Question())]


def test_the_reference_runs_of_a_preset_are_one_click_away(screen_on: Open, database_path: Path) -> None:
    variants = load_preset("article-c").all_plans()[0].variants[:2]
    with Store.open(database_path) as store:
        for number, spec in enumerate((*variants, *variants[::-1]), 1):
            store.library.add_tag([keep(store, result(number, spec))], "reference")
        keep(store, result(5, load_preset("article-a").all_plans()[0].variants[0]))
    screen = screen_on(CPU_INVENTORY)
    screen.wait_for_text("H200 reference: ")
    buttons = [button.text() for button in screen.gallery.findChildren(QPushButton)]
    assert buttons.count("H200 reference") == 1, "of article C alone"
    QTest.mouseClick(screen.card("article-c").reference, Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.recorded.calls))
    assert screen.recorded.calls == [("compare", [1, 4, 2, 3], Question("layout"))], "and what it asks"


def test_the_list_of_presets_fits_a_small_window(screen_on: Open) -> None:
    screen = screen_on(CPU_INVENTORY)
    screen.view.resize(1024, 660)
    screen.wait_for_text("No GPU here, so scaled down")
    start = screen.card("article-a").start
    assert start.mapTo(screen.gallery, start.rect().bottomRight()).x() < screen.gallery.width()


def test_cards_are_laid_out_before_they_are_painted_and_stay_when_more_is_known(theme: Theme, qtbot: QtBot) -> None:
    """Texts were cut in half, then all was blank, before cards were in their places."""
    gallery = GalleryView()
    qtbot.addWidget(gallery)
    theme.apply_style_sheet(gallery)
    gallery.resize(1000, 500)
    gallery.show()
    words = "Which of many, and by how much, and how sure is that on this machine with its one processor"
    lines = [PresetLine(key=key, name=key, title="Title", question=f"{words}: {key}?") for key in "abc"]
    for answer in ("", f"It is the first. {words}."):
        gallery.show_model([replace(line, answer=answer) for line in lines], busy=False)
        cards = gallery.findChildren(QuestionCard)
        texts = [label for card in cards for label in card.findChildren(QLabel) if label.isVisible()]
        assert len(texts) == 3 * (3 if answer else 2)
        assert [label.text() for label in texts if label.height() < label.heightForWidth(label.width())] == []
        assert [card.key for card in cards] == ["a", "b", "c"]


def test_the_users_own_presets_are_kept_and_a_broken_one_is_said(screen_on: Open, tmp_path: Path) -> None:
    own, broken = tmp_path / "mine.toml", tmp_path / "broken.toml"
    matrix = '[{workload = "dummy", settings = {gpus = 0, step_ms = [1, 2]}}]'
    form = f'question = "Is it mine?"\nrepeats = 2\nmatrix = {matrix}'
    own.write_text(f"[gpu]\n{form}\n[cpu]\n{form}\n", encoding="utf-8")
    broken.write_text("[gpu]\n", encoding="utf-8")
    first = screen_on(CPU_INVENTORY)
    first.wait_for_text("Quick comparison")
    first.gallery.file_chosen.emit(str(broken))
    first.wait_for_text("is not a preset")
    (problem,) = (each for each in first.gallery.findChildren(QLabel) if "is not a preset" in each.text())
    assert not problem.visibleRegion().isEmpty(), "in sight, however long the list is"
    first.gallery.file_chosen.emit(str(own))
    first.wait_for_text("Is it mine?")
    assert "is not a preset" not in first.visible_text()
    later = screen_on(CPU_INVENTORY)
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
    screen.gallery.file_chosen.emit(str(preset_of_mine))
    screen.wait_for_text("mine.py has not been read yet. Start asks before running it.")
    QTest.mouseClick(screen.card(str(preset_of_mine)).start, Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: bool(screen.plans))
    screen.view.show_live()
    screen.view.show_gallery()
    screen.wait_for_text("2 variants, 4 runs")
    preset_of_mine.with_name("mine.py").write_text(OWN.replace("units", "units: int = 1, depth"))
    screen.view.show_gallery()
    screen.wait_for_text("mine.py has not been read yet. Start asks before running it.")
    assert "2 variants, 4 runs" not in screen.visible_text()
    QTest.mouseClick(screen.card(str(preset_of_mine)).start, Qt.MouseButton.LeftButton)
    screen.qtbot.waitUntil(lambda: len(screen.plans) == 2)
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
    screen.gallery.file_chosen.emit(str(preset_of_mine))
    screen.wait_for_text("mine.py has not been read yet.")
    QTest.mouseClick(screen.card(str(preset_of_mine)).start, Qt.MouseButton.LeftButton)
    screen.wait_for_text("mine.py will be read when the run on the CPU ends …")
    close_jobs(screen.view)
    lease.release()


def test_a_preset_whose_workload_is_gone_says_so(screen_on: Open, preset_of_mine: Path) -> None:
    preset_of_mine.with_name("mine.py").unlink()
    screen = screen_on(CPU_INVENTORY)
    screen.gallery.file_chosen.emit(str(preset_of_mine))
    screen.wait_for_text("ours.toml names a workload that cannot be loaded.")
    assert "mine.py cannot be read (No such file or directory)." in screen.visible_text()


def test_while_the_queue_goes_on_all_is_added_to_it_and_stop_stops_it(screen_on: Open) -> None:
    screen = screen_on(CPU_INVENTORY)
    queued: list[RunSpec] = []
    screen.run.queue_requested.connect(queued.append)
    screen.run.show_queue(running=True)
    assert screen.view.form.queue_button.text() == "Add to queue"
    QTest.mouseClick(screen.view.form.queue_button, Qt.MouseButton.LeftButton)
    screen.run.run()
    assert [spec.workload for spec in queued] == ["cnn10", "cnn10"]
    with screen.qtbot.waitSignal(screen.run.queue_stop_requested):
        QTest.mouseClick(screen.view.form.run_button, Qt.MouseButton.LeftButton)
    screen.run.show_queue(running=False)
    assert screen.view.form.run_button.text() == "&Run"


def test_the_windows_start_waits_for_no_preset() -> None:
    code = "import sys, app.gui.app; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "app.gui.run.form" in loaded
    assert not loaded & {
        "app.gui.experiment.stored",
        "app.runs.experiment.presets",
        "app.runs.experiment.queue",
    }
