"""`prune`: the samples and log lines of old runs deleted, their figures kept."""

import sys
from argparse import Namespace
from typing import Any

from app.cli.services import opened_store
from app.cli.terminal import print_json
from app.storage.retention import Pruned, prune
from app.viewmodels import units


def prune_runs(chosen: Namespace) -> int:
    """Prunes and prints what that did, or would do."""
    with opened_store(chosen.db) as store:
        path = store.path
    if not (chosen.dry_run or chosen.json):
        print("Deleting samples and packing the file; about a second for each 100 MB …", file=sys.stderr)
    done = prune(path, chosen.older_than, dry_run=chosen.dry_run)
    if chosen.json:
        print_json(_document(done, dry_run=chosen.dry_run))
    else:
        print(told(done, dry_run=chosen.dry_run))
    return 0


def _document(done: Pruned, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "runs": list(done.runs),
        "rows": done.rows,
        "before_bytes": done.before_bytes,
        "after_bytes": done.after_bytes,
        "seconds": done.seconds,
        "packed": done.packed,
    }


def told(done: Pruned, *, dry_run: bool) -> str:
    """What was done in a sentence or two."""
    if not done.runs:
        return "No run is old enough: nothing to delete."
    runs = f"{len(done.runs):,} {units.plural('run', len(done.runs))}"
    if dry_run:
        return f"Would delete {done.rows:,} samples and log lines of {runs}; figures, phases and blocks stay."
    sizes = f"The database took {units.byte_size(done.before_bytes)}, now {units.byte_size(done.after_bytes)}."
    packed = "" if done.packed else " There is no room to pack the file: later runs fill the space."
    return f"Deleted {done.rows:,} samples and log lines of {runs} in {units.seconds(done.seconds)}. {sizes}{packed}"
