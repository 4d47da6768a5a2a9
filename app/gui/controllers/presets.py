"""What is read for the list of prepared experiments: how each fits this machine, and the stored runs of one."""

from collections.abc import Sequence
from pathlib import Path

from app.errors import UserError
from app.records import RunRow
from app.runs.ahead import look_ahead
from app.runs.counted import counted_here, results_of, surroundings_here
from app.runs.own import UnreadError, workload_called
from app.runs.presets import QUICK, Find, NamedPreset, own_files, preset, preset_names
from app.runs.schedule import ByVariant, Plan
from app.samples import Inventory
from app.storage.reference import is_reference
from app.storage.store import Store
from app.viewmodels.presets import PresetLine, preset_line, reference_words, refused_notes
from workloads.catalog import UsageError


def preset_lines(database: Path, inventory: Inventory) -> tuple[PresetLine, ...]:
    """The quick one first, then the others in the box, then the user's files."""
    keys = sorted(preset_names(), key=lambda name: name != QUICK) + own_files(database)
    with Store.open(database) as store:
        stored = store.list_runs()
        return tuple(_line(key, store, inventory, stored, known_workloads(database)) for key in keys)


def known_workloads(database: Path) -> Find:
    """Finds workloads of the user's own in files that were read before, and reads none."""
    return lambda word: workload_called(word, database, None)


def _line(key: str, store: Store, inventory: Inventory, stored: Sequence[RunRow], find: Find) -> PresetLine:
    machine = inventory.machine
    try:
        named = preset(key, find)
        plan, question = named.plan(machine), named.form(machine).question
    except UnreadError as error:
        named = preset(key)
        question, notes = named.form(machine).question, (f"{error} Start reads it.",)
        return PresetLine(key=key, name=named.name, title=named.title, question=question, notes=notes)
    except (UserError, UsageError) as error:
        return PresetLine(key=key, name=Path(key).stem, title=Path(key).stem, problem=str(error))
    return preset_line(
        PresetLine(
            key=key,
            name=plan.name,
            title=named.title,
            question=question,
            notes=(*plan.notes, *refused_notes(plan.variants, machine)),
            reference=reference_words(_reference(named, stored)),
        ),
        plan.variants,
        look_ahead(store, plan, inventory, stored=stored),
    )


def own_runs(database: Path, key: str, inventory: Inventory) -> list[int]:
    """The stored runs that count for a preset on this machine, those of its baseline first."""
    plan = preset(key, known_workloads(database)).plan(inventory.machine)
    with Store.open(database) as store:
        counted = counted_here(store, plan, surroundings_here(inventory), inventory.machine, fields=())
    return [row.run for row in _in_order(plan, [run.row for run in counted.runs])]


def reference_runs_of(database: Path, key: str) -> list[int]:
    """The reference runs of a preset that are in the database, those of its baseline first."""
    with Store.open(database) as store:
        return [row.run for row in _reference(preset(key, known_workloads(database)), store.list_runs())]


def reference_articles(rows: Sequence[RunRow]) -> list[tuple[str, list[RunRow]]]:
    """The titles of the prepared experiments that repeat an article, with the reference runs among these, if any."""
    repeating = (named for named in map(preset, preset_names()) if named.preset.article)
    found = ((named.title, _reference(named, rows)) for named in repeating)
    return [(title, reference) for title, reference in found if reference]


def _reference(named: NamedPreset, stored: Sequence[RunRow]) -> list[RunRow]:
    """Of the form for any machine, the first that there are some of."""
    rows = [row for row in stored if is_reference(row)]
    found = (_in_order(plan, results_of(rows, plan)) for plan in named.every_plan())
    return next(filter(None, found), [])


def _in_order(plan: Plan, rows: Sequence[RunRow]) -> list[RunRow]:
    made = ByVariant(rows)
    return [row for spec in plan.specs for row in made.of(spec)]
