"""`experiment --presets`: the prepared experiments with the runs and the time that each takes on this machine."""

from pathlib import Path

from app.cli.runs import run_services, workload_finder
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.runs.experiment.presets import preset_names, user_preset_files
from app.runs.experiment.progress import PresetStatus, preset_status
from app.storage.store import Store
from app.viewmodels.experiment.preview import format_estimate
from workloads.catalog import UsageError


def list_presets(database: Path | None, *, as_json: bool) -> int:
    """Print the program's presets, and those that the window was given, as this machine would make them."""
    listed: list[PresetStatus] = []
    with run_services(database) as services, Store.open(services.database) as store:
        inventory = services.host.inventory()
        find, stored = workload_finder(database, None), store.list_runs()
        for key in (*preset_names(), *user_preset_files(services.database)):
            try:
                listed.append(preset_status(key, find, store, inventory, stored))
            except (UserError, UsageError) as error:  # the others are listed all the same
                say(str(error))
    if as_json:
        print_json({"presets": [_preset_document(each) for each in listed]})
    else:
        header = ("preset", "runs", "done", "the rest takes", "question")
        print_table(header, [_preset_row(each) for each in listed], right=frozenset({1, 2}))
    return 0


def _preset_row(status: PresetStatus) -> tuple[str, ...]:
    left = status.remaining
    takes = format_estimate(left.left_s, left.timing_runs) if left.done < left.planned else "nothing"
    return status.preset.key, str(left.planned), str(left.done), takes, status.question


def _preset_document(status: PresetStatus) -> dict[str, object]:
    return {
        "preset": status.preset.key,
        "question": status.question,
        "notes": list(status.plan.notes),
        "runs": status.remaining.planned,
        "done": status.remaining.done,
        "older": len(status.remaining.older_utc_ns),
        "left_s": status.remaining.left_s,
    }
