"""`experiment --presets`: the prepared experiments with the runs and the time that each takes on this machine."""

from dataclasses import dataclass
from pathlib import Path

from app.cli.runs import run_services, workload_finder
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.runs.experiment.presets import FindWorkload, load_preset, preset_names, user_preset_files
from app.runs.experiment.progress import estimate_remaining
from app.samples import Inventory
from app.storage.store import Store
from app.viewmodels.experiment.preview import format_estimate
from workloads.catalog import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class _PresetRow:
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


def list_presets(database: Path | None, *, as_json: bool) -> int:
    """Print the program's presets, and those that the window was given, as this machine would make them."""
    with run_services(database) as services, Store.open(services.database) as store:
        inventory = services.feed.wait_inventory()
        find = workload_finder(database)
        keys = [*preset_names(), *user_preset_files(services.database)]
        listed = [found for key in keys if (found := _preset_row(key, find, store, inventory))]
    if as_json:
        print_json({"presets": [_preset_document(each) for each in listed]})
    else:
        rows = [(each.preset, str(each.runs), str(each.done), each.takes, each.question) for each in listed]
        print_table(("preset", "runs", "done", "the rest takes", "question"), rows, right=frozenset({1, 2}))
    return 0


def _preset_row(key: str, find: FindWorkload, store: Store, inventory: Inventory) -> _PresetRow | None:
    """Return what is listed of a preset; None, with the reason on stderr, for a file that cannot be used."""
    machine = inventory.machine
    try:
        named = load_preset(key, find)
        plan = named.plan(machine)
    except (UserError, UsageError) as error:
        say(str(error))
        return None
    ahead = estimate_remaining(store, plan, inventory)
    return _PresetRow(
        preset=named.key,
        question=named.experiment_for(machine).question,
        notes=plan.notes,
        runs=ahead.planned,
        done=ahead.done,
        left_s=ahead.left_s,
        takes=format_estimate(ahead.left_s, ahead.timing_runs) if ahead.done < ahead.planned else "nothing",
    )


def _preset_document(listed: _PresetRow) -> dict[str, object]:
    return {
        "preset": listed.preset,
        "question": listed.question,
        "notes": list(listed.notes),
        "runs": listed.runs,
        "done": listed.done,
        "left_s": listed.left_s,
    }
