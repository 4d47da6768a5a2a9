"""`queue`: the unfinished experiments, listed, changed and resumed."""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app import units
from app.cli.experiment_progress import (
    EndedEntry,
    describe_elsewhere,
    describe_ending,
    exit_status,
    load_compared,
    print_experiment,
    run_entries,
    write_experiment_report,
)
from app.cli.progress import run_with_notification
from app.cli.services import open_store, run_services
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.queries import QueueEntry, QueueProgress
from app.report.comparison import experiment_document
from app.report.documents import iso_utc
from app.report.render import check_writable
from app.runs.experiment.article import Article
from app.runs.experiment.presets import load_preset
from app.runs.experiment.progress import queue_progress
from app.storage.queue import Queue
from app.telemetry.inventory import take_inventory
from workloads.catalog import UsageError


def go_on(chosen: Namespace) -> int:
    """Makes entries, those named even where they are paused; with none named, all that wait.

    Then prints the verdict of each, writes what reports are asked for, and tells of the end; 0 when every run has a
    result.
    """
    if chosen.report is not None:
        check_writable(chosen.report)
    with open_store(chosen.db) as store:
        named = [store.queue.entry(entry) for entry in dict.fromkeys(chosen.entries)]
        for entry in named:
            if entry.owned:
                raise UserError(_describe_entry_elsewhere(entry))
            store.queue.set_state(entry.entry, "waiting")
        entries = store.queue.entries()
    if not any(entry.state == "waiting" for entry in entries):
        return _print_nothing_waiting(entries, as_json=chosen.json)
    if not chosen.notify:
        return _run_and_report(chosen, named)
    title = f"Experiment {named[0].name}" if len(named) == 1 else "The queue"
    return run_with_notification(f"{title} has ended", lambda: _run_and_report(chosen, named))


def _run_and_report(chosen: Namespace, named: Sequence[QueueEntry]) -> int:
    wrong: list[UserError] = []

    def fail(error: UserError) -> None:
        say(str(error))
        wrong.append(error)

    with run_services(chosen.db, chosen.sample_ms, standby=chosen.standby) as services:
        all_ended = run_entries(services, [entry.entry for entry in named] or None, fail)
    documents = [_print_ended(ended, services.database, as_json=chosen.json) for ended in all_ended]
    if chosen.json:
        print_json({"experiments": documents})
    if chosen.report is not None:
        for ended, document in zip(all_ended, documents, strict=True):
            file = chosen.report if len(named) == 1 else _entry_report_path(chosen.report, ended)
            try:
                write_experiment_report(load_compared(ended.found, services.database), document["article"], file)
            except UserError as error:  # what is wrong with one file is not with the next
                fail(error)
    return 1 if wrong else exit_status(all_ended)


def _entry_report_path(report: Path, ended: EndedEntry) -> Path:
    return report.with_stem(f"{report.stem}-{ended.entry.entry}")


def _print_nothing_waiting(entries: Sequence[QueueEntry], *, as_json: bool) -> int:
    paused = " ".join(str(entry.entry) for entry in entries if entry.state == "paused")
    how = f" What is paused goes on when it is named: `python -m app queue go-on {paused}`." if paused else ""
    say(f"Nothing waits in the queue.{how}")
    if as_json:
        print_json({"experiments": []})
    return 0


def _print_ended(ended: EndedEntry, database: Path, *, as_json: bool) -> dict[str, Any]:
    runs = load_compared(ended.found, database)
    document = experiment_document(ended.found, runs, _article(ended))
    if not as_json:
        print(f"{ended.entry.name}:")
        print_experiment(runs, document)
        say(
            _describe_entry_elsewhere(ended.entry)
            if ended.is_elsewhere
            else describe_ending(ended.found, entry=ended.queue_number)
        )
    return document


def _describe_entry_elsewhere(entry: QueueEntry) -> str:
    return describe_elsewhere(f"entry {entry.entry} of the queue at this moment")


def _article(ended: EndedEntry) -> Article | None:
    """That of the preset it was made of, where its file is here and its tables are of this experiment."""
    if ended.entry.preset is None:
        return None
    try:
        article = load_preset(ended.entry.preset).preset.article
        if article is not None:
            article.check(ended.found.plan.variants)
    except (UsageError, UserError):  # it may have been queued elsewhere, or been changed since
        return None
    return article


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
        with open_store(chosen.db) as store:
            for entry in chosen.entries:
                store.queue.entry(entry)
            for entry in chosen.entries:
                _CHANGES[chosen.action](store.queue, entry, chosen)
    return _print_queue(chosen)


def _move(queue: Queue, entry: int, chosen: Namespace) -> None:
    first = next((each.entry for each in queue.entries() if each.entry not in chosen.entries), None)
    queue.move(entry, first if chosen.first else chosen.before)


_CHANGES: Mapping[str, Callable[[Queue, int, Namespace], None]] = {
    "move": _move,
    "pause": lambda queue, entry, _: queue.set_state(entry, "paused"),
    "resume": lambda queue, entry, _: queue.set_state(entry, "waiting"),
    "remove": lambda queue, entry, _: queue.remove(entry),
}


def _print_queue(chosen: Namespace) -> int:
    with open_store(chosen.db) as store:
        entries = {entry.entry: entry for entry in store.queue.entries()}
        # Another program may add or remove some meanwhile.
        found = [each for each in queue_progress(store, take_inventory()) if each.entry in entries] if entries else []
    if chosen.json:
        print_json({"queue": [_document(entries[each.entry], each) for each in found]})
    elif found:
        print_table(("entry", "name", "state", "runs", "left"), [_row(each) for each in found], right=frozenset({0, 3}))
        for words in dict.fromkeys(each.message for each in found if each.message):
            say(words)
        if known := [each for each in found if each.planned]:
            print(_describe_total(known), file=sys.stderr)
    else:
        print("The queue is empty: no experiment is unfinished. `python -m app experiment … --queue` adds one.")
    return 0


def _row(progress: QueueProgress) -> tuple[str, ...]:
    left = "not known yet" if progress.left_s is None else f"about {units.duration(progress.left_s)}"
    return (str(progress.entry), progress.name, progress.state, f"{progress.done}/{progress.planned}", left)


def _describe_total(found: Sequence[QueueProgress]) -> str:
    done, planned = sum(each.done for each in found), sum(each.planned for each in found)
    all_paused = all(each.state == "paused" for each in found)
    command = " ".join(["python -m app queue go-on", *(str(each.entry) for each in found if all_paused)])
    if done == planned:
        return f"{done} of {planned} runs done; `{command}` says what came of them."
    return f"{done} of {planned} runs done, {_describe_left(found)}; `{command}` makes them."


def _describe_left(found: Sequence[QueueProgress]) -> str:
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
