"""A user's training script: its command, what to vary, a try, and the resulting experiment."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from PySide6.QtCore import QObject, QSignalBlocker, QTimer, Signal
from PySide6.QtWidgets import QFileDialog, QGridLayout, QLineEdit, QPushButton, QWidget

from app.analysis.intervals import DEFAULT_REPEATS
from app.errors import UserError
from app.grants import Consent, require, source_grant, typed
from app.gui.actions import Services
from app.gui.run.run_controller import RunController
from app.gui.run.screen import RunView
from app.gui.theme import GRID
from app.gui.threads import CancellableJob
from app.gui.widgets.basic import (
    STRETCH,
    BreakingLabel,
    ChecksMenu,
    button,
    clear_layout,
    make_column,
    make_row,
    plain_tooltip,
    show_text,
    text_label,
)
from app.gui.widgets.panes import Scroller
from app.gui.window_state import WindowState
from app.queries import ExperimentProgress
from app.runs.custom import stored_source
from app.runs.experiment.queue import estimate_remaining
from app.runs.script import Script, list_revisions, script_variants
from app.runs.session import RunSession
from app.storage.store import Store
from app.values import units
from app.values.plan import REPEATS_LIMIT, Plan
from app.viewmodels.experiment.preview import describe_estimate, experiment_label
from app.viewmodels.format.naming import experiment_name
from app.viewmodels.run.selection import parse_script_values, parse_settings
from workloads import catalog
from workloads.catalog import Machine, UsageError
from workloads.protocol import Command, RunSpec

PURPOSE = "a try of a script"
_TRY_S = 10.0
_LAST_LINES = 8
"""How many last lines of a failed script's output are shown below the reason."""
_SECONDS = catalog.script_workload("script:").parameter("seconds")
_ENTRIES = (
    ("command", "Command", "python train.py --batch-size 32", "As you type it today; select a word to vary it."),
    ("folder", "Folder", "", "Its folder; files that git does not ignore there are copied for all runs."),
    ("revisions", "Revisions", "the folder as it is", "Branches or commits of the folder's repository, with commas."),
    ("variables", "Environment", "NAME=A,B OTHER=C", "Variables; several values vary, an empty value unsets one."),
    ("examples", "Examples per step", "from the DataLoader", "Numbers and placeholders, as {batch_size}*4."),
    ("links", "Link", "data", "Files and folders that git ignores and the script needs."),
    ("loop", "Loop of steps", "train.py:42", "The loop whose iterations are steps, if they are not detected."),
    ("settings", "More settings", "warmup_steps=10 first_step_limit=300", "Also packages= and interpreter=."),
    ("gpus", "GPUs", "1, or the CPU", "How many GPUs the command gets; several values vary."),
    ("seconds", "Seconds", f"{_SECONDS.default:g}", "How long steps are measured."),
    ("repeats", "Repeats", str(DEFAULT_REPEATS), "Runs of each variant, in turn."),
)
"""Each line's key, label, placeholder and help."""
_OWN = ("gpus", "seconds")
_FLAG = re.compile(r"--?([A-Za-z]\w*(?:-\w+)*)")


@dataclass(frozen=True, slots=True)
class ScriptChoices:
    """The typed lines, by key, and the placeholders' values, by name."""

    texts: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words of the command; raises `UsageError`."""
        words = self._split("command")
        if not words:
            raise UsageError("Type the command that trains, such as python train.py.")
        return words

    def _split(self, key: str) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(self.texts.get(key, "")))
        except ValueError as error:
            raise UsageError(f"The {key} cannot be parsed: {str(error).lower()}.") from error

    @property
    def placeholders(self) -> dict[str, bool]:
        """The command's placeholders except for the program's own parameters, and whether each is a switch."""
        command = Command(words=self.words, examples=self.texts.get("examples", ""))
        names = catalog.command_names(command)
        return {name: is_switch for name, is_switch in names.items() if name not in _OWN}

    def variants(self, machine: Machine, database: Path | None) -> list[RunSpec]:
        """Return the variants, frozen if there is a database; raises `UsageError` and `UserError`."""
        texts, folder = self.texts, Path(self.texts.get("folder") or Path.cwd())
        command = Command(
            words=self.words,
            loop=texts.get("loop", ""),
            examples=texts.get("examples", ""),
            links={name: str(folder.expanduser().absolute() / name) for name in self._split("links")},
        )
        settings = parse_settings(self._split("settings"), "More settings")
        settings |= {name: texts[name] for name in _OWN if texts.get(name)}
        for name, is_switch in self.placeholders.items():
            settings[name] = self.values.get(name) or ("off, on" if is_switch else "")
            if not settings[name]:
                raise UsageError(f"Give {name} a value, or several with commas.")
        variables = parse_settings(self._split("variables"), "Environment")
        revisions = tuple(filter(None, map(str.strip, texts.get("revisions", "").split(","))))
        values = {name: tuple(text.split(",")) for name, text in variables.items()}
        script = Script(command=command, folder=folder, revisions=revisions, variables=values)
        return script_variants(script, parse_script_values(command, settings), machine, database)

    def plan(self, machine: Machine, database: Path | None) -> Plan:
        """Return the experiment of the variants; raises like `variants`."""
        text = self.texts.get("repeats") or str(DEFAULT_REPEATS)
        if not text.isdecimal() or not 1 <= int(text) <= REPEATS_LIMIT:
            raise UsageError(f"Repeats are a whole number from 1 to {REPEATS_LIMIT}.")
        variants = tuple(self.variants(machine, database))
        names = (*map(catalog.placeholder_key, self.values), *variants[0].variant)
        asked = next((name for name in names if len({spec.variant.get(name) for spec in variants}) > 1), "")
        return Plan(name=experiment_name(variants), variants=variants, repeats=int(text), asked=asked, again=True)


def make_parameter(text: str, begin: int, selected: str) -> tuple[str, str, str]:
    """Return a command with the selected words as a parameter, its name, and its values: a flag becomes a switch."""
    word = selected.strip()
    begin += selected.index(word)
    flag = _FLAG.fullmatch(word)
    before = re.search(rf"{_FLAG.pattern}[= ]+$", text[:begin])
    stem = flag[1] if flag else before[1] if before else Path(word).stem
    name = re.sub(r"\W", "_", stem)
    name = name if name.isidentifier() else "value"
    changed = f"{text[:begin]}{{{name}{f'?{word}' if flag else ''}}}{text[begin + len(word) :]}"
    return changed, name, "off, on" if flag else word


def describe_try(session: RunSession) -> tuple[str, str]:
    """Return how steps were recognised, their time, and what ran, else why there are none; and the script's log."""
    run = session.stored
    log = [line.text for line in run.log] if run else []
    outcome = run.row.outcome if run else None
    if run is None or outcome is None or outcome.name != "completed":
        reason = (outcome.reason if outcome else None) or "The try did not complete."
        return "\n".join((reason, *log[-_LAST_LINES:])), "\n".join(log)
    step_ms = run.row.summary.step_ms_p50
    facts = [f"{units.with_unit(step_ms, 'ms')} a step."] if step_ms is not None else []
    if run.evidence is not None:
        ran = ", ".join(f"{name} {value}" for name, value in run.evidence.actual.items())
        facts += [f"Seen: {ran}.", *run.evidence.notes]
    return "\n".join(facts), "\n".join(log)


class ScriptView(QWidget):
    """Shows the lines of a script and of its parameters; `edited` is emitted at every key."""

    edited = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.lines = {key: QLineEdit(placeholderText=unset) for key, _, unset, _ in _ENTRIES}
        self.values: dict[str, QLineEdit] = {}
        self.parameter_button = button("Make it a &parameter", "Let the selected words vary", small=True)
        self.folder_button = button("Choose …", "Choose the folder", small=True)
        self.revisions_button = button("+", "Branches and latest commits of the folder", flat=True)
        self.revisions_button.setAccessibleName("More revisions")
        self.try_button = button("&Try it", "Run it for a few seconds to see what a step is and how long it takes")
        self.run_button = button("Run", primary=True)
        self.log_button = button("Show &log", "What the script printed, with the traceback", flat=True)
        self.log = ""
        self.problem = BreakingLabel("problem")
        self.detail, self.result = BreakingLabel("caption"), BreakingLabel("")
        self.placeholders, self._scroller = QGridLayout(), Scroller(horizontal=False)
        self._selection = (0, "")
        self._build()

    @property
    def choices(self) -> ScriptChoices:
        texts = {key: line.text() for key, line in self.lines.items()}
        return ScriptChoices(texts, {name: line.text() for name, line in self.values.items()})

    def show_choices(self, choices: ScriptChoices) -> None:
        for key, line in self.lines.items():
            with QSignalBlocker(line):
                line.setText(choices.texts.get(key, ""))
        self.show_placeholders(choices)

    def show_result(self, text: str, log: str = "") -> None:
        """Show the result of a try, scrolled into view, and offer its log."""
        show_text(self.result, text)
        self.log = log
        self.log_button.setVisible(bool(log))
        if text:
            QTimer.singleShot(0, self, lambda: self._scroller.ensureWidgetVisible(self.result))

    def show_placeholders(self, choices: ScriptChoices) -> None:
        """Show a line for each placeholder; the lines stay while the names do, as one may be in use."""
        try:
            names = choices.placeholders
        except UsageError:
            return
        if list(names) == list(self.values):
            return
        clear_layout(self.placeholders)
        self.values = {}
        for row, (name, is_switch) in enumerate(names.items()):
            line = QLineEdit(choices.values.get(name, ""), placeholderText="off, on" if is_switch else "32, 64")
            line.setAccessibleName(name)
            line.textEdited.connect(lambda _: self.edited.emit())
            self.values[name] = line
            self.placeholders.addWidget(text_label(name, "heading"), row, 0)
            self.placeholders.addWidget(line, row, 1)

    def _note_selection(self) -> None:
        line = self.lines["command"]
        if line.hasSelectedText():
            self._selection = line.selectionStart(), line.selectedText()
        elif line.hasFocus():
            self._selection = 0, ""
        self.parameter_button.setEnabled(bool(self._selection[1].strip()))

    def _make_parameter(self) -> None:
        line, (begin, selected) = self.lines["command"], self._selection
        if not selected.strip() or line.text()[begin : begin + len(selected)] != selected:
            return
        text, name, values = make_parameter(line.text(), begin, selected)
        line.setText(text)
        self._selection = 0, ""
        self.parameter_button.setEnabled(False)
        self.show_placeholders(replace(self.choices, values={**self.choices.values, name: values}))
        if name in self.values:
            self.values[name].setFocus()
        self.edited.emit()

    def _choose_folder(self) -> None:
        dialog = QFileDialog(self, "Folder of the script", self.lines["folder"].text())
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.fileSelected.connect(self.lines["folder"].setText)
        dialog.fileSelected.connect(lambda _: self.edited.emit())
        dialog.open()

    def _build(self) -> None:
        grid = QGridLayout()
        line_buttons: Mapping[str, QPushButton] = {
            "command": self.parameter_button,
            "folder": self.folder_button,
            "revisions": self.revisions_button,
        }
        for row, (key, label, _, meaning) in enumerate(_ENTRIES, 1):
            line, title = self.lines[key], text_label(label, "muted")
            title.setBuddy(line)
            line.setAccessibleName(label)
            line.setObjectName(f"script.{key}")
            line.setToolTip(plain_tooltip(meaning))
            line.textEdited.connect(lambda _: self.edited.emit())
            grid.addWidget(title, 2 * row, 0)
            grid.addWidget(line, 2 * row, 1)
            if key in line_buttons:
                grid.addWidget(line_buttons[key], 2 * row, 2)
        grid.addLayout(self.placeholders, 3, 1)  # below the command
        for placed in (grid, self.placeholders):
            placed.setSpacing(GRID // 2)
            placed.setColumnStretch(1, 1)
        self.lines["command"].selectionChanged.connect(self._note_selection)
        self.parameter_button.setEnabled(False)
        self.parameter_button.clicked.connect(self._make_parameter)
        self.folder_button.clicked.connect(self._choose_folder)
        content = QWidget()
        parts = (text_label("Your script", "title"), grid, self.result, STRETCH)
        make_column(*parts, parent=content, margins=(3 * GRID, 3 * GRID, 3 * GRID, 0), spacing=GRID)
        self._scroller.setWidget(content)
        buttons = make_row(self.run_button, self.try_button, self.log_button, STRETCH, spacing=GRID)
        footer = make_column(self.problem, self.detail, buttons, margins=(3 * GRID, GRID, 3 * GRID, GRID), spacing=GRID)
        make_column((self._scroller, 1), footer, parent=self, margins=0, spacing=0)


class ScriptController(QObject):
    """Plans the experiment of the lines, tries it, and queues it.

    Thread: GUI only; another thread reads, freezes and grants folders.
    """

    def __init__(self, view: ScriptView, run_view: RunView, run: RunController, services: Services) -> None:
        super().__init__(view)
        self._view, self._run_view, self._run, self._services = view, run_view, run, services
        self._state = WindowState("script", run_view)
        self._job = CancellableJob(self)
        self._is_reading = self._is_trying = self._is_typed = False
        self._menu = ChecksMenu(view.revisions_button)
        view.edited.connect(self._edit)
        view.lines["command"].textEdited.connect(lambda _: self._mark_typed())
        view.run_button.clicked.connect(self._submit)
        view.try_button.clicked.connect(self._try)
        view.revisions_button.clicked.connect(self._offer_revisions)
        view.log_button.clicked.connect(lambda: run_view.show_log(view.log))
        view.show_result("")
        view.show_choices(self._state.read("choices", ScriptChoices({"folder": str(Path.cwd())})))
        run.ended.connect(self._end_try)
        self.read()

    def open(self, path: Path | None = None) -> None:
        if path is not None:
            self._is_typed = False
            command = shlex.join(("python", path.name))
            self._view.show_choices(ScriptChoices({"command": command, "folder": str(path.absolute().parent)}))
            self._edit()
        self._run_view.show_script(self._view)
        self._view.lines["command"].setFocus()

    def run(self) -> None:
        self._view.run_button.click()

    def read(self) -> None:
        """Plan and estimate the lines' experiment, without running the script or storing anything."""
        if self._is_reading:
            return
        self._is_reading = True
        choices, services = self._view.choices, self._services

        def look() -> tuple[Plan, ExperimentProgress]:
            inventory = services.inventory()
            plan = choices.plan(inventory.machine, None)
            with Store.open(services.database) as store:
                return plan, estimate_remaining(store, plan, inventory)

        def show(answer: "tuple[Plan, ExperimentProgress] | None", problem: str = "") -> None:
            self._is_reading = False
            if choices != self._view.choices:
                self.read()
                return
            label, detail = "Run", ""
            if answer is not None:
                plan, ahead = answer
                count = len(plan.variants)
                label = experiment_label(count * plan.repeats, ahead, most=False)
                size = units.sentence(f"{count:,} {units.plural('variant', count)}")
                detail = " ".join((size, *describe_estimate(ahead)))
            self._view.run_button.setText(label)
            self._view.run_button.setEnabled(answer is not None)
            self._view.try_button.setEnabled(answer is not None)
            show_text(self._view.problem, problem if choices.texts.get("command") else "")
            show_text(self._view.detail, detail)

        self._job.run(lambda _: look(), show, lambda error: show(None, str(error)))

    def _edit(self) -> None:
        self._view.show_placeholders(self._view.choices)
        self._state.keep("choices", self._view.choices)
        if not self._is_trying:
            self._view.show_result("")  # it belonged to something else
        self.read()

    def _mark_typed(self) -> None:
        self._is_typed = True

    def _freeze(self) -> "tuple[ScriptChoices, Consent]":
        self._view.run_button.setEnabled(False)
        self._view.try_button.setEnabled(False)
        show_text(self._view.problem, "")
        show_text(self._view.detail, "Copying the folder …")
        return self._view.choices, typed if self._is_typed else self._services.consent

    def _submit(self) -> None:
        choices, consent = self._freeze()

        def submit(plan: Plan) -> None:
            self.read()
            self._run.plan_requested.emit(plan)

        self._job.run(lambda _: self._granted(choices, consent), submit, self._fail)

    def _try(self) -> None:
        if self._is_trying:
            self._run.stop()
            return
        choices, consent = self._freeze()
        view = self._view
        view.show_result("")

        def begin(plan: Plan) -> None:
            self.read()
            try:
                self._run.try_once(plan.variants[0], PURPOSE, lambda session: view.show_result(*describe_try(session)))
            except UserError as error:
                self._fail(error)
                return
            self._is_trying = True
            view.try_button.setText("Stop")
            view.show_result("Trying the first values …")
            self._run_view.show_script(self._view)

        short = replace(choices, texts={**choices.texts, "seconds": f"{_TRY_S:g}"})
        self._job.run(lambda _: self._granted(short, consent, most=1), begin, self._fail)

    def _granted(self, choices: ScriptChoices, consent: Consent, most: int | None = None) -> Plan:
        """Freeze the folder, and return the plan, once the user allows its variants, or the first of them, to run."""
        database = self._services.database
        plan = choices.plan(self._services.inventory().machine, database)
        sources = ((stored_source(spec, database), spec.variant) for spec in plan.variants[:most])
        require((source_grant(source, variant) for source, variant in sources if source), consent)
        return plan

    def _end_try(self) -> None:
        if self._is_trying:
            self._is_trying = False
            self._view.try_button.setText("&Try it")
            self._view.show_result("")
            self._run_view.show_script(self._view)

    def _fail(self, error: UserError) -> None:
        self.read()
        self._view.show_result(str(error))

    def _offer_revisions(self) -> None:
        folder = Path(self._view.lines["folder"].text() or Path.cwd())
        self._job.run(lambda _: list_revisions(folder), self._fill_menu, self._fail)

    def _fill_menu(self, revisions: Mapping[str, str]) -> None:
        line, menu = self._view.lines["revisions"], self._menu
        menu.clear()
        chosen = [name.strip() for name in line.text().split(",") if name.strip()]

        def tick(name: str) -> None:
            names = [other for other in chosen if other != name]
            chosen[:] = names if name in chosen else [*names, name]
            line.setText(", ".join(chosen))
            self._edit()

        for name, subject in revisions.items():
            entry = menu.addAction(f"{name}\t{subject}".replace("&", "&&"))
            entry.setCheckable(True)
            entry.setChecked(name in chosen)
            entry.toggled.connect(lambda _, name=name: tick(name))
        if not revisions:
            menu.addAction("This folder has no commits").setEnabled(False)
        below = self._view.revisions_button
        menu.popup(below.mapToGlobal(below.rect().bottomLeft()))
