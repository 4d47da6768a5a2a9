"""`queue`: the experiments that are not finished."""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.cli.entry_lines import Ended, exit_status, make_entries
from app.cli.experiment_words import ending_words, print_experiment, write_found
from app.cli.notify import with_notice
from app.cli.services import opened_store, run_services
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.queries import QueueEntry, QueueProgress
from app.report.documents import iso_utc
from app.report.experiment import experiment_document
from app.report.files import check_ending
from app.runs.article import Article
from app.runs.presets import preset
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
        return _go_on(chosen)
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
        print(_together(found), file=sys.stderr)
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


def _go_on(chosen: Namespace) -> int:
    """Makes entries, those named even where they are paused; with none named, all that wait."""
    if chosen.report is not None:
        check_ending(chosen.report)
    with opened_store(chosen.db) as store:
        named = [store.queue.entry(entry) for entry in chosen.entries]
        for entry in named:
            if entry.owned:
                raise UserError(f"Another program makes entry {entry.entry} of the queue at this moment.")
            store.queue.set_state(entry.entry, "waiting")
        entries = store.queue.entries()
    if not any(entry.state == "waiting" for entry in entries):
        return _nothing_waits(entries, as_json=chosen.json)
    if not chosen.notify:
        return _make(chosen, named)
    title = f"Experiment {named[0].name}" if len(named) == 1 else "The queue"
    return with_notice(f"{title} has ended", lambda: _make(chosen, named))


def _make(chosen: Namespace, named: Sequence[QueueEntry]) -> int:
    with run_services(chosen.db, chosen.sample_ms, standby=chosen.standby) as services:
        all_ended = make_entries(services, [entry.entry for entry in named] or None)
    documents = [_tell(ended, as_json=chosen.json) for ended in all_ended]
    if chosen.json:
        print_json({"experiments": documents})
    if chosen.report is None:
        return exit_status(all_ended)
    are_written = [
        _is_written(ended, document["article"], chosen.report if len(named) == 1 else _own_file(chosen.report, ended))
        for ended, document in zip(all_ended, documents, strict=True)
    ]
    return exit_status(all_ended) if all(are_written) else 1


def _own_file(report: Path, ended: Ended) -> Path:
    return report.with_stem(f"{report.stem}-{ended.entry.entry}")


def _is_written(ended: Ended, tables: Sequence[Mapping[str, Any]], report: Path) -> bool:
    """Writes the report of one; what stands in its way is said, and that of the next is written all the same."""
    try:
        write_found(ended.found, tables, report)
    except UserError as error:
        say(str(error))
        return False
    return True


def _nothing_waits(entries: Sequence[QueueEntry], *, as_json: bool) -> int:
    paused = " ".join(str(entry.entry) for entry in entries if entry.state == "paused")
    how = f" What is paused goes on when it is named: `python -m app queue go-on {paused}`." if paused else ""
    say(f"Nothing waits in the queue.{how}")
    if as_json:
        print_json({"experiments": []})
    return 0


def _tell(ended: Ended, *, as_json: bool) -> dict[str, Any]:
    document = experiment_document(ended.found, _article(ended.entry))
    if not as_json:
        print(f"{ended.entry.name}:")
        print_experiment(ended.found, document)
        say(ending_words(ended.found, entry=ended.stays))
    return document


def _article(entry: QueueEntry) -> Article | None:
    """That of the preset it was made of, if that is in the box."""
    if entry.preset is None:
        return None
    try:
        return preset(entry.preset).preset.article
    except UsageError:
        return None
