"""Reads the list of presets: how each fits this machine, and its stored and reference runs."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from app.errors import UserError
from app.plan import Plan
from app.records import RunRow
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
from app.runs.experiment.queue import estimate_remaining, unfinished_entry
from app.runs.experiment.reuse import current_fingerprint, matching_results, reusable_runs
from app.runs.experiment.schedule import RunsByVariant
from app.samples import Inventory
from app.storage.reference import is_reference
from app.storage.store import Store
from app.viewmodels.experiment.preview import PresetLine, preset_line, preset_progress, reference_label
from app.viewmodels.experiment.verdict_text import experiment_verdict
from app.viewmodels.format.naming import differing_parameters
from workloads.catalog import Machine, UsageError
from workloads.protocol import RunSpec


def preset_lines(database: Path, machine: Machine) -> tuple[PresetLine, ...]:
    """Return the lines of all presets: the quick one, the others of the program, then the user's files.

    What the database has of them is not read yet.
    """
    keys = sorted(preset_names(), key=lambda name: name != QUICK) + user_preset_files(database)
    lines = (_read_line(key, machine, known_workloads(database)) for key in keys)
    return tuple(sorted(lines, key=lambda line: not (line.can_start or line.is_users)))


def estimated_lines(database: Path, inventory: Inventory) -> tuple[PresetLine, ...]:
    """Return the lines of all presets with what is stored and left of each, and what is known of its answer."""
    find = known_workloads(database)
    with Store.open(database) as store:
        stored = store.list_runs()
        return tuple(
            _with_stored(line, store, inventory, stored, find) if line.size else line
            for line in preset_lines(database, inventory.machine)
        )


def list_file(database: Path, file: str, inventory: Inventory, *, listed: bool) -> tuple[PresetLine, ...]:
    """List one of the user's presets, or take it from the list; raises `UserError` for one that is none."""
    if listed:
        with contextlib.suppress(UnreadFileError):
            load_preset(file, known_workloads(database)).plan(inventory.machine)
    list_user_preset_file(database, file, listed=listed)
    return estimated_lines(database, inventory)


def quick_plan(machine: Machine) -> Plan:
    """Return the plan of the quick comparison."""
    return load_preset(QUICK).plan(machine)


def known_workloads(database: Path) -> FindWorkload:
    """Return what finds custom workloads in files that were read before, and reads none."""
    return lambda word: resolve_workload(word, database, None)


def _read_line(key: str, machine: Machine, find: FindWorkload) -> PresetLine:
    """Return a line with what its file says; one whose file cannot be used has no size."""
    try:
        preset = load_preset(key, find)
        plan = preset.plan(machine)
    except UnreadFileError as error:
        named = load_preset(key)
        question, notes = named.experiment_for(machine).question, (f"{error} Start asks before it runs it.",)
        return PresetLine(key=key, name=named.name, title=named.title, question=question, notes=notes)
    except (UserError, UsageError) as error:
        return PresetLine(key=key, name=Path(key).stem, title=Path(key).stem, problem=str(error))
    question = preset.experiment_for(machine).question
    line = PresetLine(key=key, name=preset.name, title=preset.title, question=question)
    return preset_line(line, plan, machine)


def _with_stored(
    line: PresetLine, store: Store, inventory: Inventory, stored: Sequence[RunRow], find: FindWorkload
) -> PresetLine:
    """Return a line with what the database has of it; the answer of this machine's runs, or else of the reference."""
    preset = load_preset(line.key, find)
    plan = preset.plan(inventory.machine)
    reference = _reference_rows(preset, stored)
    ahead = estimate_remaining(store, plan, inventory, stored)
    own = _counted_rows(store, plan, inventory) if ahead.counted_utc_ns or ahead.older_utc_ns else []
    label = reference_label(reference)
    alike = reference if _asks_alike(plan.variants, reference) else ()
    answer = next(
        (f"{whose}: {title}" for whose, rows in (("Here", own), (label, alike)) if (title := _answer(rows))), ""
    )
    return preset_progress(line, ahead, reference=label, answer=answer)


def _asks_alike(variants: Sequence[RunSpec], reference: Sequence[RunRow]) -> bool:
    """Return whether reference runs vary what a plan varies: a question may be another one without a GPU."""
    varied = (differing_parameters(specs) for specs in (variants, [row.spec for row in reference]))
    return bool(set.intersection(*map(set, varied)))


def _answer(rows: Sequence[RunRow]) -> str:
    """Return the answer of runs in a few words; "" where they have none."""
    return experiment_verdict(rows).title if rows else ""


def preset_runs(database: Path, key: str, inventory: Inventory) -> list[int]:
    """Return the stored runs that count for a preset on this machine, or else older ones; its baseline's first."""
    plan = load_preset(key, known_workloads(database)).plan(inventory.machine)
    with Store.open(database) as store:
        return [row.run for row in _counted_rows(store, plan, inventory)]


def _counted_rows(store: Store, plan: Plan, inventory: Inventory) -> list[RunRow]:
    """Return the stored runs that count for a plan on this machine, or else older ones; its baseline's first."""
    fingerprint, entry = current_fingerprint(inventory), unfinished_entry(store, plan)
    either = (
        reusable_runs(store, structs.replace(plan, reuse=reuse), fingerprint, inventory.machine, entry).runs
        for reuse in (False, True)
    )
    return _ordered_runs(plan, [run.row for run in next(filter(None, either), ())])


def preset_reference_runs(database: Path, key: str) -> list[int]:
    """Return the stored reference runs of a preset, those of its baseline first."""
    with Store.open(database) as store:
        return [row.run for row in _reference_rows(load_preset(key, known_workloads(database)), store.list_runs())]


def reference_articles(rows: Sequence[RunRow]) -> list[tuple[str, list[RunRow]]]:
    """Return the titles of the presets that replicate an article, each with its reference runs among these, if any."""
    repeating = (named for named in map(load_preset, preset_names()) if named.preset.article)
    found = ((named.title, _reference_rows(named, rows)) for named in repeating)
    return [(title, reference) for title, reference in found if reference]


def _reference_rows(named: NamedPreset, stored: Sequence[RunRow]) -> list[RunRow]:
    """Return the reference runs of the first of its plans that has some."""
    rows = [row for row in stored if is_reference(row)]
    found = (_ordered_runs(plan, matching_results(rows, plan)) for plan in named.all_plans())
    return next(filter(None, found), [])


def _ordered_runs(plan: Plan, rows: Sequence[RunRow]) -> list[RunRow]:
    by_variant = RunsByVariant(rows)
    return [row for spec in plan.specs for row in by_variant.runs_of(spec)]
