"""Reads the list of presets: how each fits this machine, and its stored and reference runs."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from app.errors import UserError
from app.plan import Plan
from app.records import RunRow
from app.runs.custom import UnreadFileError, resolve_workload
from app.runs.experiment.presets import QUICK, FindWorkload, NamedPreset, load_preset, preset_names, user_preset_files
from app.runs.experiment.queue import estimate_remaining, unfinished_entry
from app.runs.experiment.reuse import current_fingerprint, matching_results, reusable_runs
from app.runs.experiment.schedule import RunsByVariant
from app.samples import Inventory
from app.storage.reference import is_reference
from app.storage.store import Store
from app.viewmodels.experiment.preview import PresetLine, preset_line, reference_label, refused_notes
from workloads.catalog import UsageError


def preset_lines(database: Path, inventory: Inventory) -> tuple[PresetLine, ...]:
    """Return the lines of all presets: the quick one, the others of the program, then the user's files."""
    keys = sorted(preset_names(), key=lambda name: name != QUICK) + user_preset_files(database)
    with Store.open(database) as store:
        stored = store.list_runs()
        return tuple(_read_line(key, store, inventory, stored, known_workloads(database)) for key in keys)


def known_workloads(database: Path) -> FindWorkload:
    """Return what finds custom workloads in files that were read before, and reads none."""
    return lambda word: resolve_workload(word, database, None)


def _read_line(
    key: str, store: Store, inventory: Inventory, stored: Sequence[RunRow], find: FindWorkload
) -> PresetLine:
    machine = inventory.machine
    try:
        preset = load_preset(key, find)
        plan = preset.plan(machine)
    except UnreadFileError as error:
        named = load_preset(key)
        question, notes = named.experiment_for(machine).question, (f"{error} Start asks before it runs it.",)
        return PresetLine(key=key, name=named.name, title=named.title, question=question, notes=notes)
    except (UserError, UsageError) as error:
        return PresetLine(key=key, name=Path(key).stem, title=Path(key).stem, problem=str(error))
    return preset_line(
        PresetLine(
            key=key,
            name=preset.name,
            title=preset.title,
            question=preset.experiment_for(machine).question,
            notes=(*plan.notes, *refused_notes(plan.variants, machine)),
            reference=reference_label(_reference_rows(preset, stored)),
        ),
        plan.variants,
        estimate_remaining(store, plan, inventory, stored),
        machine,
    )


def preset_runs(database: Path, key: str, inventory: Inventory) -> list[int]:
    """Return the stored runs that count for a preset on this machine, or else older ones; its baseline's first."""
    plan = load_preset(key, known_workloads(database)).plan(inventory.machine)
    with Store.open(database) as store:
        fingerprint, entry = current_fingerprint(inventory), unfinished_entry(store, plan)
        either = (
            reusable_runs(store, structs.replace(plan, reuse=reuse), fingerprint, inventory.machine, entry).runs
            for reuse in (False, True)
        )
        runs = next(filter(None, either), ())
    return [row.run for row in _ordered_runs(plan, [run.row for run in runs])]


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
