"""What an export or import did, in sentences and as a document: the same for the command line and the window."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from app.storage.reference import TAG
from app.storage.transfer import Exported, Imported
from app.viewmodels import units
from app.viewmodels.run_numbers import runs_words

_NAMED = 8
"""Runs that a sentence names one by one."""


def exported_document(done: Exported) -> dict[str, Any]:
    """The `export` document."""
    return {
        "runs": done.runs,
        "files": [str(path) for path in done.files],
        "bytes": done.bytes,
        "seconds": done.seconds,
        "weights": [str(path) for path in done.weights],
        "queue": done.entries,
    }


def imported_document(done: Imported) -> dict[str, Any]:
    """The `import` document: numbers here under `imported` and `already`, numbers there under the others."""
    return {
        "imported": list(done.runs),
        "already": [
            {"run": known.run, "differs": list(known.differs), "in_trash": known.in_trash} for known in done.already
        ],
        "unfinished": list(done.unfinished),
        "in_trash": list(done.in_trash),
        "queue": list(done.entries),
        "complete": list(done.complete),
        "seconds": done.seconds,
    }


def exported_words(done: Exported, target: Path) -> list[str]:
    """What was written and where, and what stays behind."""
    files = "" if done.files == (target,) else f"{len(done.files)} files in "
    queued = f" and {_unfinished(done.entries)}" if done.entries else ""
    words = [f"Wrote {_count(done.runs)}{queued} to {files}{target}, {units.byte_size(done.bytes)}."]
    if done.weights:
        words.append(
            "Saved weights stay where they are; to take them along, copy "
            f"{', '.join(map(str, done.weights[:_NAMED]))}{' …' if len(done.weights) > _NAMED else ''}"
        )
    return words


def imported_words(done: Imported) -> list[str]:
    """What was imported, and each reason why a run was not."""
    return list(_imported(done))


def added_words(runs: Sequence[int]) -> str:
    """What adding the reference runs came to; none are added to a database that all of them were measured with."""
    if not runs:
        return "No run of the reference was added: all of them are here as runs of your own."
    return f"The {_count(len(runs))} of the reference are here, as {runs_words(runs)}, tagged {TAG}."


def removed_words(runs: Sequence[int]) -> str:
    """What removing the reference runs came to."""
    return f"Removed {_count(len(runs))} of the reference." if runs else "No run of the reference was here."


def _imported(done: Imported) -> Iterator[str]:
    if done.entries:
        numbers = " ".join(map(str, done.entries))
        yield f"{_unfinished(len(done.entries))} came into the queue: `python -m app queue go-on {numbers}` goes on."
    if done.complete:
        experiments = f"{len(done.complete):,} {units.plural('experiment', len(done.complete))}"
        yield f"Complete with these runs, and out of the queue: {experiments}."
    if done.runs:
        yield f"Imported {_count(len(done.runs))} as {runs_words(done.runs)}."
    elif not done.entries:
        yield "Imported nothing: the file has no run that is new here."
    if done.already:
        was = "it was" if len(done.already) == 1 else "they were"
        yield f"Here already, and left as {was}: {runs_words([known.run for known in done.already])}."
    for name, words in (("note", "another note"), ("tags", "other tags")):
        if differ := [known.run for known in done.already if name in known.differs]:
            yield f"The file has {words} for {runs_words(differ)}; what is here stays."
    if deleted := [known.run for known in done.already if known.in_trash]:
        more = ["…"] if len(deleted) > _NAMED else []
        numbers, them = " ".join([*map(str, deleted[:_NAMED]), *more]), "it" if len(deleted) == 1 else "them"
        yield f"In the trash here: {runs_words(deleted)}; `python -m app restore {numbers}` takes {them} out."
    if done.unfinished:
        yield f"Left out, not ended there: {runs_words(done.unfinished)} of the file."
    if done.in_trash:
        yield f"Left out, in the trash there: {runs_words(done.in_trash)} of the file."


def _count(runs: int) -> str:
    return f"{runs:,} {units.plural('run', runs)}"


def _unfinished(entries: int) -> str:
    return f"{entries:,} unfinished {units.plural('experiment', entries)}"
