"""`experiment --presets`: the prepared experiments, what each asks, and how much of it is left on this machine."""

from argparse import Namespace
from dataclasses import dataclass

from app.cli.services import run_services
from app.cli.settings import workload_finder
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.runs.ahead import look_ahead
from app.runs.presets import own_files, preset, preset_names
from app.samples import Inventory
from app.storage.store import Store
from app.viewmodels.ahead import takes_words
from workloads.catalog import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """A preset on this machine: runs planned and done, seconds for those left, and the same in words.

    `preset` is what `--preset` takes for it.
    """

    preset: str
    question: str
    notes: tuple[str, ...]
    runs: int
    done: int
    left_s: float
    takes: str


def list_presets(chosen: Namespace) -> int:
    """Prints the presets in the box, and those that the window was given, as this machine would make them."""
    with run_services(chosen.db) as services, Store.open(services.database) as store:
        inventory = services.feed.wait_inventory()
        keys = [*preset_names(), *own_files(services.database)]
        listed = [found for key in keys if (found := _listed(key, chosen, store, inventory))]
    if chosen.json:
        print_json({"presets": [_document(each) for each in listed]})
    else:
        rows = [(each.preset, str(each.runs), str(each.done), each.takes, each.question) for each in listed]
        print_table(("preset", "runs", "done", "the rest takes", "question"), rows, right=frozenset({1, 2}))
    return 0


def _listed(key: str, chosen: Namespace, store: Store, inventory: Inventory) -> _Listed | None:
    """What is listed of a preset; None, and said why, for a file that cannot be used."""
    machine = inventory.machine
    try:
        named = preset(key, workload_finder(chosen))
        plan = named.plan(machine)
    except (UserError, UsageError) as error:
        say(str(error))
        return None
    ahead = look_ahead(store, plan, inventory)
    return _Listed(
        preset=named.key,
        question=named.form(machine).question,
        notes=plan.notes,
        runs=ahead.planned,
        done=ahead.done,
        left_s=ahead.left_s,
        takes=takes_words(ahead.left_s, ahead.learnt_from) if ahead.done < ahead.planned else "nothing",
    )


def _document(listed: _Listed) -> dict[str, object]:
    return {
        "preset": listed.preset,
        "question": listed.question,
        "notes": list(listed.notes),
        "runs": listed.runs,
        "done": listed.done,
        "left_s": listed.left_s,
    }
