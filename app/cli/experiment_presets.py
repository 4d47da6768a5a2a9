"""`experiment --presets`: the prepared experiments, what each asks, and how much of it is left on this machine."""

from argparse import Namespace
from dataclasses import dataclass

from app.cli.experiment_words import takes_words
from app.cli.services import run_services
from app.cli.terminal import print_json, print_table
from app.records import Inventory
from app.runs.counted import counted_here, made_alike, surroundings_here
from app.runs.presets import preset, preset_names
from app.runs.schedule import done, left, together_s
from app.storage.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """A preset on this machine: runs planned and done, seconds for those left, and the same in words."""

    name: str
    question: str
    notes: tuple[str, ...]
    runs: int
    done: int
    left_s: float
    takes: str


def list_presets(chosen: Namespace) -> int:
    """Prints the presets in the box as this machine would make them."""
    with run_services(chosen.db) as services, Store.open(services.database) as store:
        inventory = services.feed.wait_inventory()
        listed = [_listed(name, store, inventory) for name in preset_names()]
    if chosen.json:
        print_json({"presets": [_document(each) for each in listed]})
    else:
        rows = [(each.name, str(each.runs), str(each.done), each.takes, each.question) for each in listed]
        print_table(("preset", "runs", "done", "the rest takes", "question"), rows, right=frozenset({1, 2}))
    return 0


def _listed(name: str, store: Store, inventory: Inventory) -> _Listed:
    machine, named = inventory.machine, preset(name)
    plan = named.plan(machine)
    rows = [run.row for run in counted_here(store, plan, surroundings_here(inventory), machine).runs]
    to_make, alike = left(plan, rows, machine), made_alike(store, machine)
    made = done(plan, rows)
    return _Listed(
        name=name,
        question=named.form(machine).question,
        notes=plan.notes,
        runs=made + len(to_make),
        done=made,
        left_s=together_s(to_make, alike),
        takes=takes_words(to_make, alike) if to_make else "nothing",
    )


def _document(listed: _Listed) -> dict[str, object]:
    return {
        "preset": listed.name,
        "question": listed.question,
        "notes": list(listed.notes),
        "runs": listed.runs,
        "done": listed.done,
        "left_s": listed.left_s,
    }
