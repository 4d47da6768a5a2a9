"""`queue`: the unfinished experiments, listed, changed and resumed."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from app.cli.experiment_progress import (
    describe_elsewhere,
    describe_ending,
    describe_paused,
    exit_status,
    load_result,
    print_experiment,
    run_entries,
    write_experiment_report,
)
from app.cli.options import FILE, Verb, command, no_standby_option, notify_option, sampling_option
from app.cli.progress import run_with_notification
from app.cli.run import run_services
from app.cli.services import open_store
from app.cli.terminal import print_json, print_table, say
from app.errors import UserError
from app.paths import PROGRAM
from app.queries import ExperimentProgress, QueueEntry, TimeLeft
from app.report.comparison import experiment_document
from app.report.documents import iso_utc
from app.report.render import check_writable
from app.runs.experiment.queue import queue_progress
from app.storage.queue import Queue
from app.telemetry.sampler import take_inventory
from app.viewmodels.format.sentences import format_time_left
from workloads.catalog import UsageError

_ACTIONS = ("list", "run", "move", "pause", "resume", "remove")


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueueOptions:
    """The parameters of the command; without `entries`, `run` runs all waiting ones."""

    database: Path | None
    as_json: bool
    action: str
    entries: Sequence[int]
    first: bool
    before: int | None
    no_standby: bool
    notify: bool
    report: Path | None
    sample_ms: float

    def check(self) -> None:
        """Raise `UsageError` for wrong use."""
        if self.first and self.before is not None:
            raise UsageError("--first and --before exclude each other: give one of them.")
        if (self.first or self.before is not None) and self.action != "move":
            raise UsageError("--first and --before go with `queue move ENTRY`.")
        if (self.notify or self.report is not None) and self.action != "run":
            raise UsageError("--notify and --report go with `queue run`.")
        if self.action == "list" and self.entries:
            raise UsageError("queue list shows all entries; numbers go with run, move, pause, resume and remove.")
        if self.action not in ("list", "run") and not self.entries:
            raise UsageError(f"queue {self.action} needs the number of an entry, as `{PROGRAM} queue` shows it.")


def _run(options: _QueueOptions) -> int:
    """Run entries, named ones even if paused; return 0 if every run has a result.

    Then print the verdict of each, write the requested reports, and notify of the end.
    """
    if options.report is not None:
        check_writable(options.report)
    with open_store(options.database) as store:
        named = [store.queue.entry(entry) for entry in dict.fromkeys(options.entries)]
        for entry in named:
            if entry.owned:
                raise UserError(_describe_entry_elsewhere(entry))
            store.queue.set_state(entry.entry, "waiting")
        entries = store.queue.entries()
        database = store.path
    if not any(entry.state == "waiting" for entry in entries):
        say(f"Nothing waits in the queue. {describe_paused(database, None)}".strip())
        if options.as_json:
            print_json({"experiments": []})
        return 0
    if not options.notify:
        return _run_and_report(options, named)
    title = f"Experiment “{named[0].name}”" if len(named) == 1 else "The queue"
    return run_with_notification(f"{title} has ended", lambda: _run_and_report(options, named))


def _run_and_report(options: _QueueOptions, named: Sequence[QueueEntry]) -> int:
    wrong: list[UserError] = []

    def fail(error: UserError) -> None:
        say(str(error))
        wrong.append(error)

    with run_services(options.database, options.sample_ms, standby=not options.no_standby) as services:
        all_ended = run_entries(services, [entry.entry for entry in named] or None, fail)
    documents = []
    for ended in all_ended:
        result = load_result(ended.experiment, services.database)
        if options.as_json:
            documents.append(experiment_document(result))
        else:
            print(f"{ended.entry.name}:")
            print_experiment(result)
            say(
                _describe_entry_elsewhere(ended.entry)
                if ended.state == "running"
                else describe_ending(ended.experiment, entry=ended.queue_number)
            )
        if options.report is not None:
            stem = options.report.stem if len(named) == 1 else f"{options.report.stem}-{ended.entry.entry}"
            try:
                write_experiment_report(result, options.report.with_stem(stem))
            except UserError as error:  # other files may still succeed
                fail(error)
    # Entries out of budget were already reported.
    ended_numbers = {ended.queue_number for ended in all_ended}
    if how := describe_paused(services.database, None, ended_numbers):
        say(how)
    if options.as_json:
        print_json({"experiments": documents})
    return 1 if wrong else exit_status(all_ended)


def _describe_entry_elsewhere(entry: QueueEntry) -> str:
    return describe_elsewhere(f"entry {entry.entry} of the queue at this moment")


@command("queue", "queue", "queue run 2 --report result.html", "queue move 3 --first")
@click.argument(
    "action",
    type=Verb(_ACTIONS),
    default="list",
    metavar="[ACTION]",
    help=f"{', '.join(_ACTIONS)} (default: list).",
)
@click.argument("entries", type=click.INT, nargs=-1, metavar="[ENTRY]...", help="Their numbers in the list.")
@click.option("--first", is_flag=True, help="With move: before all others.")
@click.option("--before", type=click.INT, metavar="ENTRY", help="With move: before this one (default: to the end).")
@no_standby_option
@notify_option
@click.option(
    "--report",
    type=FILE,
    metavar="FILE",
    help="With run: also write a report, .html or .md; for several entries one file each, its"
    " number before the ending (FILE-3.html).",
)
@sampling_option
def queue(**values: Any) -> int:
    """Change the queue and print it, or run its entries."""
    options = _QueueOptions(**values)
    options.check()
    if options.action == "run":
        return _run(options)
    if options.action != "list":
        with open_store(options.database) as store:
            for entry in options.entries:
                store.queue.entry(entry)  # checks that all exist
            next_entry = options.before
            if options.first:
                staying = (queued.entry for queued in store.queue.entries() if queued.entry not in options.entries)
                next_entry = next(staying, None)
            for entry in options.entries:
                _change(store.queue, options.action, entry, next_entry)
    return _print_queue(options.database, as_json=options.as_json)


def _change(queue: Queue, action: str, entry: int, before: int | None) -> None:
    match action:
        case "move":
            queue.move(entry, before)
        case "pause":
            queue.set_state(entry, "paused")
        case "resume":
            queue.set_state(entry, "waiting")
        case "remove":
            queue.remove(entry)


def _print_queue(database: Path | None, *, as_json: bool) -> int:
    with open_store(database) as store:
        entries = {entry.entry: entry for entry in store.queue.entries()}
        # Another program may change the entries meanwhile.
        experiments = queue_progress(store, take_inventory()) if entries else []
        experiments = [progress for progress in experiments if progress.entry in entries]
    if as_json:
        print_json({"queue": [_document(entries[progress.entry], progress) for progress in experiments]})
    elif experiments:
        pythons = [", ".join(progress.interpreters) for progress in experiments]
        texts = {"host": [progress.host for progress in experiments], "Python": pythons}
        named = {head: cells for head, cells in texts.items() if any(cells)}
        header = ("entry", "name", *named, "state", "runs", "left")
        lines = [_row(progress, cells) for progress, *cells in zip(experiments, *named.values(), strict=True)]
        print_table(header, lines, right=frozenset({0, header.index("runs")}))
        for words in dict.fromkeys(progress.message for progress in experiments if progress.message):
            say(words)
        if planned := [progress for progress in experiments if progress.planned]:
            print(_describe_total(planned), file=sys.stderr)
    else:
        print(f"The queue is empty: no experiment is unfinished. `{PROGRAM} experiment … --queue` adds one.")
    return 0


def _row(progress: ExperimentProgress, cells: Sequence[str]) -> tuple[str, ...]:
    left = format_time_left(progress.left) if progress.done < progress.planned else ""
    return (str(progress.entry), progress.name, *cells, progress.state, f"{progress.done}/{progress.planned}", left)


def _describe_total(experiments: Sequence[ExperimentProgress]) -> str:
    done, planned = sum(progress.done for progress in experiments), sum(progress.planned for progress in experiments)
    all_paused = all(progress.state == "paused" for progress in experiments)
    command = " ".join([f"{PROGRAM} queue run", *(str(progress.entry) for progress in experiments if all_paused)])
    if done == planned:
        return f"{done} of {planned} runs done; `{command}` shows their results."
    left = format_time_left(TimeLeft.total(progress.left for progress in experiments))
    return f"{done} of {planned} runs done, {left} left; `{command}` runs them."


def _document(entry: QueueEntry, progress: ExperimentProgress) -> dict[str, Any]:
    return {
        "entry": entry.entry,
        "uid": entry.uid,
        "name": entry.name,
        "preset": entry.preset,
        "host": progress.host or None,
        "interpreters": list(progress.interpreters),
        "imported": entry.imported,
        "state": entry.state,
        "done": progress.done,
        "planned": progress.planned,
        "left_s": progress.left.likely_s,
        "left_range_s": [progress.left.least_s, progress.left.most_s],
        "experiment": entry.experiment,
        "added_utc": iso_utc(entry.added_utc_ns),
    }
