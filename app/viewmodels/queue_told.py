"""What is told and offered above the queue, as sentences with the answers that they can be given."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.errors import UserError
from app.queries import EntryState, QueueProgress
from app.records import RunRow
from app.viewmodels import units
from app.viewmodels.cells import Tone
from app.viewmodels.compare import usual_baseline
from app.viewmodels.verdict import verdict_of
from workloads.catalog import with_defaults

Act = Literal["go on", "not now", "remove", "show", "dismiss", "unfold", "stop"]
"""What the line above the queue can be answered with."""


class Look(NamedTuple):
    """How a state is shown: never by colour alone, always with its word, which is the state itself."""

    symbol: str
    tone: Tone


LOOKS: dict[EntryState, Look] = {
    "running": Look("▶", "busy"),
    "waiting": Look("○", "quiet"),
    "paused": Look("‖", "quiet"),
    "complete": Look("✔", "good"),
    "settled": Look("✔", "good"),
    "stopped": Look("■", "quiet"),
    "out of budget": Look("◔", "warning"),
    "failed": Look("✖", "bad"),
    "removed": Look("■", "quiet"),
}

_MOST_CALLED = 60
"""Characters of a name within a sentence: that of a large matrix is longer than what is said of it."""
_ENDS: dict[EntryState, str] = {
    "complete": "is complete",
    "settled": "is settled, every speed-up known as narrowly as was asked",
    "out of budget": "is out of budget; going on gives it as much again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Telling:
    """A sentence above the queue with the answers it can be given, the first the one to be expected."""

    words: str
    symbol: str
    tone: Tone
    acts: tuple[tuple[Act, str], ...]
    progress: QueueProgress | None = None


def _runs_made(done: int, planned: int) -> str:
    return f"{done} of {planned} {units.plural('run', planned)} made"


def offer(entries: Sequence[QueueProgress]) -> Telling:
    """The offer to go on with what is unfinished."""
    done, planned = sum(entry.done for entry in entries), sum(entry.planned for entry in entries)
    if len(entries) == 1:
        words = f"{_called(entries[0].name)} is unfinished: {_runs_made(done, planned)}."
        rest: tuple[tuple[Act, str], ...] = (("remove", "Remove"),)
    else:
        words = f"{len(entries)} experiments are unfinished: {_runs_made(done, planned)}."
        rest = (("unfold", "Show them"),)
    sentences = dict.fromkeys(entry.words for entry in entries if entry.words)
    return Telling(
        words=" ".join([words, *sentences]),
        symbol=LOOKS["paused"].symbol,
        tone="busy",
        acts=(("go on", "Go on"), ("not now", "Not now"), *rest),
    )


def ending_words(progress: QueueProgress, verdict: str = "") -> str:
    """How an entry ended, what else there is to say, and its verdict where it is known."""
    if progress.state == "failed":
        runs = units.plural("run", progress.planned)
        words = f"{_called(progress.name)} has ended: {progress.done} of {progress.planned} {runs} gave a result."
    else:
        words = f"{_called(progress.name)} {_ENDS[progress.state]}: {_runs_made(progress.done, progress.planned)}."
    return " ".join(filter(None, (words, progress.words, verdict)))


def experiment_verdict(rows: Sequence[RunRow]) -> str:
    """What the runs of an experiment say, as Compare does; "" where they are all of one variant."""
    specs = [with_defaults(row.spec) for row in rows]
    if all(spec == specs[0] for spec in specs):
        return ""
    return verdict_of(rows, usual_baseline(rows)).text


def ending(progress: QueueProgress) -> Telling:
    """How an entry ended, with the way to its runs."""
    look = LOOKS[progress.state]
    show: tuple[tuple[Act, str], ...] = (("show", "Show the run" if progress.planned == 1 else "Show verdict"),)
    return Telling(
        words=ending_words(progress),
        symbol=look.symbol,
        tone=look.tone,
        acts=(*(show if progress.experiment is not None else ()), ("dismiss", "Dismiss")),
        progress=progress,
    )


def export_going(share: float) -> Telling:
    """How far the export of the queue is, of 1."""
    words = f"Exporting the queue … {100 * share:.0f} %"
    return Telling(words=words, symbol=LOOKS["running"].symbol, tone="busy", acts=(("stop", "Stop"),))


def export_ended(words: str) -> Telling:
    """What was written, and where."""
    look = LOOKS["complete"]
    return Telling(words=words, symbol=look.symbol, tone=look.tone, acts=(("dismiss", "Dismiss"),))


def export_failed(error: UserError) -> Telling:
    """Why nothing was written."""
    look = LOOKS["failed"]
    return Telling(words=str(error), symbol=look.symbol, tone=look.tone, acts=(("dismiss", "Dismiss"),))


def _called(name: str) -> str:
    """A name in quotes; a long one ends after a whole word of it, where it has several."""
    if len(name) > _MOST_CALLED:
        begins = name[:_MOST_CALLED]
        name = f"{begins.rpartition(' ')[0] or begins} …"
    return f"“{name}”"
