"""`queue`: the experiments that are not finished."""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.cli.queue_go_on import go_on
from app.cli.services import opened_store
from app.cli.terminal import print_json, print_table, say
from app.queries import QueueEntry, QueueProgress
from app.report.documents import iso_utc
from app.runs.queue_progress import standings
from app.storage.queue import Queue
from app.telemetry.inventory import take_inventory
from app.viewmodels import units
from workloads.catalog import UsageError


def queue(chosen: Namespace) -> int:
    """Does what was asked for with the queue, and shows it then."""
    if (chosen.first or chosen.before is not None) and chosen.action != "move":
        raise UsageError("--first and --before go with `queue move ENTRY`.")
    if (chosen.notify or chosen.report is not None) and chosen.action != "go-on":
        raise UsageError("--notify and --report go with `queue go-on`.")
    if chosen.action == "go-on":
        return go_on(chosen)
    if chosen.action == "list" and chosen.entries:
        raise UsageError("queue list shows all there is; numbers go with go-on, move, pause, resume and remove.")
    if chosen.action != "list":
        if not chosen.entries:
            raise UsageError(f"queue {chosen.action} needs the number of an entry, as `python -m app queue` shows it.")
        with opened_store(chosen.db) as store:
            for entry in chosen.entries:
                store.queue.entry(entry)
            for entry in chosen.entries:
                _CHANGES[chosen.action](store.queue, entry, chosen)
    return _show(chosen)


def _move(queue: Queue, entry: int, chosen: Namespace) -> None:
    first = next((each.entry for each in queue.entries() if each.entry not in chosen.entries), None)
    queue.move(entry, first if chosen.first else chosen.before)


_CHANGES: Mapping[str, Callable[[Queue, int, Namespace], None]] = {
    "move": _move,
    "pause": lambda queue, entry, _: queue.set_state(entry, "paused"),
    "resume": lambda queue, entry, _: queue.set_state(entry, "waiting"),
    "remove": lambda queue, entry, _: queue.remove(entry),
}


def _show(chosen: Namespace) -> int:
    with opened_store(chosen.db) as store:
        entries = {entry.entry: entry for entry in store.queue.entries()}
        # Another program may add or remove some meanwhile.
        found = [each for each in standings(store, take_inventory()) if each.entry in entries] if entries else []
    if chosen.json:
        print_json({"queue": [_document(entries[each.entry], each) for each in found]})
    elif found:
        print_table(("entry", "name", "state", "runs", "left"), [_row(each) for each in found], right=frozenset({0, 3}))
        for words in dict.fromkeys(each.words for each in found if each.words):
            say(words)
        if known := [each for each in found if each.planned]:
            print(_together(known), file=sys.stderr)
    else:
        print("The queue is empty: no experiment is unfinished. `python -m app experiment … --queue` adds one.")
    return 0


def _row(progress: QueueProgress) -> tuple[str, ...]:
    left = "not known yet" if progress.left_s is None else f"about {units.duration(progress.left_s)}"
    return (str(progress.entry), progress.name, progress.state, f"{progress.done}/{progress.planned}", left)


def _together(found: Sequence[QueueProgress]) -> str:
    done, planned = sum(each.done for each in found), sum(each.planned for each in found)
    all_paused = all(each.state == "paused" for each in found)
    command = " ".join(["python -m app queue go-on", *(str(each.entry) for each in found if all_paused)])
    if done == planned:
        return f"{done} of {planned} runs done; `{command}` says what came of them."
    return f"{done} of {planned} runs done, {_left_words(found)}; `{command}` makes them."


def _left_words(found: Sequence[QueueProgress]) -> str:
    known = [each.left_s for each in found if each.left_s is not None]
    if not sum(known) and len(known) < len(found):
        return "time left not known yet"
    return f"{'about' if len(known) == len(found) else 'at least'} {units.duration(sum(known))} left"


def _document(entry: QueueEntry, progress: QueueProgress) -> dict[str, Any]:
    return {
        "entry": entry.entry,
        "uid": entry.uid,
        "name": entry.name,
        "preset": entry.preset,
        "state": entry.state,
        "done": progress.done,
        "planned": progress.planned,
        "left_s": progress.left_s,
        "experiment": entry.experiment,
        "added_utc": iso_utc(entry.added_utc_ns),
    }
