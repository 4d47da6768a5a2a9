"""`note`, `tag`, `delete` and `restore`: what a user keeps on runs, and the trash."""

from argparse import Namespace
from collections.abc import Sequence

from app.cli.services import opened_store
from app.cli.terminal import print_json
from app.report.documents import list_document
from app.storage.library import Library
from app.viewmodels import units
from workloads.catalog import UsageError


def note(chosen: Namespace) -> int:
    """Keeps a note on a run, or prints the one there is."""
    with opened_store(chosen.db) as store:
        if chosen.text is not None:
            store.library.set_note(chosen.run, chosen.text)
        row = store.load(chosen.run, fields=()).row
    if chosen.json:
        print_json(list_document([row]))
    else:
        print(row.note or f"Run {row.run} has no note.")
    return 0


def tag(chosen: Namespace) -> int:
    """Gives tags to runs or takes them off, and prints the tags each has now."""
    if not (chosen.add or chosen.remove):
        raise UsageError("tag needs --add TAG or --remove TAG.")
    with opened_store(chosen.db) as store:
        for word in chosen.add:
            store.library.add_tag(chosen.runs, word)
        for word in chosen.remove:
            store.library.remove_tag(chosen.runs, word)
        rows = store.library.run_rows(chosen.runs)
    if chosen.json:
        print_json(list_document(rows))
    else:
        for row in rows:
            print(f"run {row.run}: {', '.join(row.tags) or 'no tags'}")
    return 0


def delete(chosen: Namespace) -> int:
    """Puts runs into the trash; with `for_good`, deletes those that are in it."""
    with opened_store(chosen.db) as store:
        if chosen.for_good:
            store.library.purge(chosen.runs)
            done = f"{_runs(chosen.runs)} deleted for good; later runs fill the space in the file."
            return _tell(store.library, [], done, chosen)
        moved = store.library.delete(chosen.runs)
        undo = f"`python -m app restore {' '.join(map(str, moved))}` undoes it."
        done = f"{_runs(moved)} put into the trash. {undo}" if moved else "Nothing to do: in the trash already."
        return _tell(store.library, moved, done, chosen)


def restore(chosen: Namespace) -> int:
    """Takes runs out of the trash."""
    with opened_store(chosen.db) as store:
        moved = store.library.restore(chosen.runs)
        done = f"{_runs(moved)} taken out of the trash." if moved else "Nothing to do: not in the trash."
        return _tell(store.library, moved, done, chosen)


def _tell(library: Library, moved: Sequence[int], done: str, chosen: Namespace) -> int:
    if chosen.json:
        print_json(list_document(library.run_rows(moved)))
    else:
        print(done)
    return 0


def _runs(runs: Sequence[int]) -> str:
    return f"{len(runs):,} {units.plural('run', len(runs))}"
