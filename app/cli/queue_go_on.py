"""`queue go-on`: makes what waits in the queue, and does at the end what `experiment` does."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.cli.entry_lines import Ended, exit_status, made_elsewhere_words, make_entries
from app.cli.experiment_words import ending_words, print_experiment, write_found
from app.cli.notify import with_notice
from app.cli.services import opened_store, run_services
from app.cli.terminal import print_json, say
from app.errors import UserError
from app.queries import QueueEntry
from app.report.experiment import experiment_document
from app.report.files import check_place
from app.runs.article import Article
from app.runs.presets import preset
from workloads.catalog import UsageError


def go_on(chosen: Namespace) -> int:
    """Makes entries, those named even where they are paused; with none named, all that wait.

    Then prints the verdict of each, writes what reports are asked for, and tells of the end; 0 when every run has a
    result.
    """
    if chosen.report is not None:
        check_place(chosen.report)
    with opened_store(chosen.db) as store:
        named = [store.queue.entry(entry) for entry in dict.fromkeys(chosen.entries)]
        for entry in named:
            if entry.owned:
                raise UserError(_elsewhere_words(entry))
            store.queue.set_state(entry.entry, "waiting")
        entries = store.queue.entries()
    if not any(entry.state == "waiting" for entry in entries):
        return _nothing_waits(entries, as_json=chosen.json)
    if not chosen.notify:
        return _make(chosen, named)
    title = f"Experiment {named[0].name}" if len(named) == 1 else "The queue"
    return with_notice(f"{title} has ended", lambda: _make(chosen, named))


def _make(chosen: Namespace, named: Sequence[QueueEntry]) -> int:
    wrong: list[UserError] = []

    def fail(error: UserError) -> None:
        say(str(error))
        wrong.append(error)

    with run_services(chosen.db, chosen.sample_ms, standby=chosen.standby) as services:
        all_ended = make_entries(services, [entry.entry for entry in named] or None, fail)
    documents = [_tell(ended, as_json=chosen.json) for ended in all_ended]
    if chosen.json:
        print_json({"experiments": documents})
    if chosen.report is not None:
        for ended, document in zip(all_ended, documents, strict=True):
            file = chosen.report if len(named) == 1 else _own_file(chosen.report, ended)
            try:
                write_found(ended.found, document["article"], file)
            except UserError as error:  # what is wrong with one file is not with the next
                fail(error)
    return 1 if wrong else exit_status(all_ended)


def _own_file(report: Path, ended: Ended) -> Path:
    return report.with_stem(f"{report.stem}-{ended.entry.entry}")


def _nothing_waits(entries: Sequence[QueueEntry], *, as_json: bool) -> int:
    paused = " ".join(str(entry.entry) for entry in entries if entry.state == "paused")
    how = f" What is paused goes on when it is named: `python -m app queue go-on {paused}`." if paused else ""
    say(f"Nothing waits in the queue.{how}")
    if as_json:
        print_json({"experiments": []})
    return 0


def _tell(ended: Ended, *, as_json: bool) -> dict[str, Any]:
    document = experiment_document(ended.found, _article(ended))
    if not as_json:
        print(f"{ended.entry.name}:")
        print_experiment(ended.found, document)
        say(_elsewhere_words(ended.entry) if ended.is_elsewhere else ending_words(ended.found, entry=ended.stays))
    return document


def _elsewhere_words(entry: QueueEntry) -> str:
    return made_elsewhere_words(f"entry {entry.entry} of the queue at this moment")


def _article(ended: Ended) -> Article | None:
    """That of the preset it was made of, where its file is here and its tables are of this experiment."""
    if ended.entry.preset is None:
        return None
    try:
        article = preset(ended.entry.preset).preset.article
        if article is not None:
            article.check(ended.found.plan.variants)
    except (UsageError, UserError):  # it may have been queued elsewhere, or been changed since
        return None
    return article
