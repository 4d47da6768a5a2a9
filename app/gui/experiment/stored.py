"""The Run screen's access to the database for the queue and the prepared questions.

Imported on first use, off the GUI thread, so that the window opens without the code for experiments.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from app.errors import UserError
from app.queries import NO_QUESTION, ExperimentProgress, Question, SettableState, plan_question
from app.runs.custom import UnreadFileError, resolve_workload
from app.runs.experiment.presets import (
    QUICK,
    FindWorkload,
    NamedPreset,
    list_user_preset_file,
    load_preset,
    preset_names,
    user_preset_files,
)
from app.runs.experiment.queue import (
    add_plan,
    enqueue,
    entry_plan,
    estimate_remaining,
    queue_progress,
    unfinished_entry,
)
from app.runs.experiment.reuse import current_fingerprint, largest_reference, matching_results, reusable_runs
from app.runs.experiment.schedule import RunsByVariant
from app.runs.undo import Edit
from app.storage.store import Store
from app.values.plan import Plan
from app.values.records import RunRow
from app.values.samples import Inventory
from app.viewmodels.compare.warnings import describe_disturbance
from app.viewmodels.experiment.preview import PresetLine, preset_line, preset_progress, reference_label
from app.viewmodels.experiment.queue import VerdictText
from app.viewmodels.experiment.verdict_text import ExperimentResult, experiment_result, experiment_verdict
from app.viewmodels.format.naming import differing_parameters
from workloads.catalog import Machine, UsageError


def change_queue(
    database: Path, inventory: Inventory, change: Callable[[Store], object] | None
) -> tuple[Sequence[ExperimentProgress], Edit | None]:
    """Apply any `change` to a database's queue, and return the queue with the reversal of the change.

    Other programs may change it too. Without a change there is no reversal.
    """
    reversal = None if change is None else Edit.make(database, change)[1]
    with Store.open(database) as store:
        return queue_progress(store, inventory), reversal


def add_entry(store: Store, plan: Plan) -> None:
    """Add a plan at the end, or continue the unfinished entry of the same experiment.

    A single run may be added twice; an experiment is one entry, however often it is added.
    """
    if len(plan.variants) > 1:
        enqueue(store, plan)
    else:
        add_plan(store, plan)


def set_state(store: Store, entry: int | None, state: SettableState) -> None:
    """Pause an entry, or let it wait for its turn; None means every entry.

    Imported ones, which nobody requested here, continue only when named or alone, not with all others.
    """
    entries = store.queue.entries()
    for queued in entries:
        stays = queued.imported and state == "waiting" and len(entries) > 1
        if entry == queued.entry or (entry is None and not stays):
            store.queue.set_state(queued.entry, state)


def read_verdict(store: Store, experiment: int) -> VerdictText:
    """Return Compare's verdict on an experiment; empty if all runs have one variant."""
    rows = [store.load_header(run).row for run in store.library.runs_of_experiment(experiment)]
    return experiment_verdict(rows, store.library.question_of(rows, experiment))


def read_result(
    store: Store, entry: int, experiment: int | None, disturbances: Mapping[int, str]
) -> tuple[Plan | None, ExperimentResult | None, Mapping[int, str]]:
    """Return an entry's plan and its result so far.

    Args:
        store: The database.
        entry: The entry; a finished one has left the queue, and every variant has a run.
        experiment: Its experiment, if the caller knows it.
        disturbances: What disturbed each run, "" for nothing, as far as the caller knows; it is read for the others.

    Returns:
        The plan, None if the entry was removed; the result, None with a single variant; what disturbed each run.
    """
    queued = next((queued for queued in store.queue.entries() if queued.entry == entry), None)
    experiment = experiment if queued is None else queued.experiment
    runs = store.library.runs_of_experiment(experiment) if experiment is not None else ()
    rows = [store.load_header(run).row for run in runs]
    current = {run: disturbances[run] for run in runs if run in disturbances}
    current |= {
        row.run: describe_disturbance(store.load(row.run, ("load_pct", "worker_load_pct")))
        for row in rows
        if row.run not in current and row.outcome
    }
    plan = None if queued is None else entry_plan(queued)
    variants = plan.variants if plan else [row.spec for row in rows]
    return plan, experiment_result(variants, rows, current, store.library.question_of(rows, experiment)), current


@dataclass(frozen=True, slots=True)
class _ReadPreset:
    """The line of a preset, with its content if its file is usable."""

    line: PresetLine
    preset: NamedPreset | None = None
    plan: Plan | None = None


def preset_lines(database: Path, machine: Machine) -> tuple[PresetLine, ...]:
    """Return the lines of all presets: the quick one, the others of the program, then the user's files.

    The database is not read yet.
    """
    return tuple(read.line for read in _read_presets(database, machine))


def estimated_lines(database: Path, inventory: Inventory) -> tuple[PresetLine, ...]:
    presets = _read_presets(database, inventory.machine)
    with Store.open(database) as store:
        stored = store.list_runs()
        return tuple(_with_stored(read, store, inventory, stored) for read in presets)


def list_file(database: Path, file: str, inventory: Inventory, *, listed: bool) -> tuple[PresetLine, ...]:
    """Add one of the user's presets to the list, or remove it; raises `UserError` for any other."""
    if listed:
        with contextlib.suppress(UnreadFileError):
            load_preset(file, known_workloads(database)).plan(inventory.machine)
    list_user_preset_file(database, file, listed=listed)
    return estimated_lines(database, inventory)


def quick_plan(machine: Machine) -> Plan:
    return load_preset(QUICK).plan(machine)


def known_workloads(database: Path) -> FindWorkload:
    """Return a function that finds custom workloads in files read before, and reads none."""
    return lambda word: resolve_workload(word, database, None)


def _read_presets(database: Path, machine: Machine) -> list[_ReadPreset]:
    keys = sorted(preset_names(), key=lambda name: name != QUICK) + user_preset_files(database)
    presets = (_read_preset(key, machine, known_workloads(database)) for key in keys)
    return sorted(presets, key=lambda read: not (read.line.can_start or read.line.is_users))


def _read_preset(key: str, machine: Machine, find: FindWorkload) -> _ReadPreset:
    """Return a line with the content of its file; without a size if the file is unusable."""
    try:
        preset = load_preset(key, find)
        plan = preset.plan(machine)
    except UnreadFileError as error:
        named = load_preset(key)
        question, notes = named.experiment_for(machine).question, (f"{error} Start asks before running it.",)
        return _ReadPreset(PresetLine(key=key, name=named.name, title=named.title, question=question, notes=notes))
    except (UserError, UsageError) as error:
        return _ReadPreset(PresetLine(key=key, name=Path(key).stem, title=Path(key).stem, problem=str(error)))
    question = preset.experiment_for(machine).question
    line = PresetLine(key=key, name=preset.name, title=preset.title, question=question)
    return _ReadPreset(preset_line(line, plan, machine), preset, plan)


def _with_stored(read: _ReadPreset, store: Store, inventory: Inventory, stored: Sequence[RunRow]) -> PresetLine:
    """Return a line with its stored runs, and the answer of this machine's runs, else of the reference."""
    line, preset, plan = read.line, read.preset, read.plan
    if preset is None or plan is None:
        return line
    reference, question = _reference(preset, stored)
    ahead = estimate_remaining(store, plan, inventory, stored)
    local_rows = _counted_rows(store, plan, inventory) if ahead.counted_utc_ns or ahead.older_utc_ns else []
    label = reference_label(reference)
    # Without a GPU the question may differ: the reference answers it if it varies what the plan varies.
    varied = (differing_parameters(specs) for specs in (plan.variants, [row.spec for row in reference]))
    alike = reference if set.intersection(*map(set, varied)) else ()
    answer = next(
        (
            f"{whose}: {verdict.sentence}"
            for whose, rows, asks in (
                ("Here", local_rows, plan_question(plan, local_rows)),
                (label, alike, question),
            )
            if rows and (verdict := experiment_verdict(rows, asks)).is_answer
        ),
        "",
    )
    return preset_progress(line, ahead, reference=label, answer=answer)


def preset_runs(
    database: Path, key: str, inventory: Inventory, *, of_reference: bool = False
) -> tuple[list[int], Question]:
    """Return the stored runs behind a preset's answer, the baseline's first, and its question about them."""
    named = load_preset(key, known_workloads(database))
    plan = named.plan(inventory.machine)
    with Store.open(database) as store:
        if of_reference:
            rows, question = _reference(named, store.list_runs())
        else:
            rows = _counted_rows(store, plan, inventory)
            question = plan_question(plan, rows)
    return [row.run for row in rows], question


def _counted_rows(store: Store, plan: Plan, inventory: Inventory) -> list[RunRow]:
    """Return the stored runs that count for a plan on this machine, else older ones; the baseline's first."""
    fingerprint, entry = current_fingerprint(inventory), unfinished_entry(store, plan)
    either = (
        reusable_runs(store, structs.replace(plan, reuse=reuse), fingerprint, inventory.machine, entry).runs
        for reuse in (False, True)
    )
    return _ordered_runs(plan, [run.row for run in next(filter(None, either), ())])


def reference_questions(rows: Sequence[RunRow]) -> list[tuple[str, list[RunRow], Question]]:
    """Return the title of each preset that reference runs answer, these runs, and its question about them."""
    references = ((named.title, *_reference(named, rows)) for named in map(load_preset, preset_names()))
    return [reference for reference in references if reference[1]]


def _reference(named: NamedPreset, stored: Sequence[RunRow]) -> tuple[list[RunRow], Question]:
    for plan in named.all_plans():
        if rows := _ordered_runs(plan, largest_reference(matching_results(stored, plan))):
            return rows, plan_question(plan, rows)
    return [], NO_QUESTION


def _ordered_runs(plan: Plan, rows: Sequence[RunRow]) -> list[RunRow]:
    by_variant = RunsByVariant(rows)
    return [row for spec in plan.variants for row in by_variant.runs_of(spec)]
