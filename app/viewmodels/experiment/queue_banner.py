"""Banners above the queue: what ended, what can be resumed and how an export goes, with their actions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from app import units
from app.errors import UserError
from app.queries import EntryState, ExperimentProgress
from app.viewmodels.format.cells import Tone

BannerAction = Literal["go on", "not now", "remove", "show", "dismiss", "unfold", "stop"]
"""What a banner can be answered with."""


class StateStyle(NamedTuple):
    """How a state is shown: never by colour alone, always with a text; "" is the name of the state itself."""

    symbol: str
    tone: Tone
    text: str = ""


STATE_STYLES: dict[EntryState, StateStyle] = {
    "running": StateStyle("▶", "busy"),
    "waiting": StateStyle("○", "quiet"),
    "paused": StateStyle("‖", "quiet"),
    "complete": StateStyle("✔", "good"),
    "settled": StateStyle("✔", "good", "precision reached"),
    "stopped": StateStyle("■", "quiet"),
    "out of budget": StateStyle("◔", "warning"),
    "failed": StateStyle("✖", "bad"),
    "removed": StateStyle("■", "quiet"),
}

_MAX_NAME_LENGTH = 60
"""Characters of a name within a sentence; the name of a large matrix is longer."""
_END_PHRASES: dict[EntryState, str] = {
    "complete": "is complete",
    "settled": "has reached its target precision",
    "out of budget": "has used its time limit; resuming gives it as much again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictText:
    """The verdict on an experiment that ended: in a few words, as a sentence, and what else there is to say."""

    title: str = ""
    sentence: str = ""
    rest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Banner:
    """A sentence above the queue with its answers, the expected one first; `detail` is less important."""

    text: str
    detail: str = ""
    symbol: str
    tone: Tone
    actions: tuple[tuple[BannerAction, str], ...]
    progress: ExperimentProgress | None = None


NO_VERDICT = VerdictText()


def _format_runs_made(done: int, planned: int) -> str:
    return f"{done} of {planned} {units.plural('run', planned)} done"


def resume_banner(entries: Sequence[ExperimentProgress]) -> Banner:
    """Return the offer to resume what is unfinished."""
    done, planned = sum(entry.done for entry in entries), sum(entry.planned for entry in entries)
    imported = sum(entry.imported for entry in entries)
    resume: tuple[tuple[BannerAction, str], ...] = (("go on", "Resume"),)
    if len(entries) == 1:
        text = f"{quote_name(entries[0].name)} is unfinished: {_format_runs_made(done, planned)}."
        text = " ".join(filter(None, (text, describe_place(entries[0]))))
        other_actions: tuple[tuple[BannerAction, str], ...] = (("remove", "Remove"),)
    else:
        text = f"{len(entries)} experiments are unfinished: {_format_runs_made(done, planned)}."
        other_actions = (("unfold", "Show them"),)
        if imported:
            came, each = ("comes", "it is") if imported == 1 else ("come", "each is")
            text += (
                f" {imported} of them {came} from another database: {each} resumed by itself, once you have seen it."
            )
        resume = resume if imported < len(entries) else ()
    sentences = dict.fromkeys(entry.message for entry in entries if entry.message)
    return Banner(
        text=" ".join([text, *sentences]),
        symbol=STATE_STYLES["paused"].symbol,
        tone="busy",
        actions=(*resume, ("not now", "Not now"), *other_actions),
    )


def describe_place(progress: ExperimentProgress) -> str:
    """Return in a sentence on which host and by which Pythons its runs are made, in full; "" for the program's own."""
    host = f"on {progress.host}" if progress.host else ""
    pythons = f"by the Python {', '.join(progress.interpreters)}" if progress.interpreters else ""
    place = " ".join(filter(None, (host, pythons)))
    return f"Its runs are made {place}." if place else ""


def describe_ending(progress: ExperimentProgress) -> str:
    """Return how an entry ended, and its message."""
    if progress.state == "failed":
        runs = units.plural("run", progress.planned)
        text = f"{quote_name(progress.name)} has ended: {progress.done} of {progress.planned} {runs} gave a result."
    else:
        text = (
            f"{quote_name(progress.name)} {_END_PHRASES[progress.state]}: "
            f"{_format_runs_made(progress.done, progress.planned)}."
        )
    return " ".join(filter(None, (text, progress.message)))


def ended_banner(progress: ExperimentProgress, verdict: VerdictText = NO_VERDICT) -> Banner:
    """Return the verdict on an entry that ended, where it is known, then how it ended, with the way to its runs."""
    ending = describe_ending(progress)
    style = STATE_STYLES[progress.state]
    show: tuple[tuple[BannerAction, str], ...] = (
        ("show", "Show the run" if progress.planned == 1 else "Show verdict"),
    )
    return Banner(
        text=verdict.sentence or ending,
        detail=" ".join(filter(None, (ending, verdict.rest))) if verdict.sentence else "",
        symbol=style.symbol,
        tone=style.tone,
        actions=(*(show if progress.experiment is not None else ()), ("dismiss", "Dismiss")),
        progress=progress,
    )


def export_progress_banner(share: float) -> Banner:
    """Return how far the export of the queue is, from 0 to 1."""
    text = f"Exporting the queue … {units.percent(100 * share)}"
    return Banner(text=text, symbol=STATE_STYLES["running"].symbol, tone="busy", actions=(("stop", "Stop"),))


def export_ended_banner(text: str) -> Banner:
    """Return what was exported, and where."""
    style = STATE_STYLES["complete"]
    return Banner(text=text, symbol=style.symbol, tone=style.tone, actions=(("dismiss", "Dismiss"),))


def export_failed_banner(error: UserError) -> Banner:
    """Return why nothing was exported."""
    style = STATE_STYLES["failed"]
    return Banner(text=str(error), symbol=style.symbol, tone=style.tone, actions=(("dismiss", "Dismiss"),))


def quote_name(name: str) -> str:
    """Return a name in quotes; a long one is cut after a whole word."""
    if len(name) > _MAX_NAME_LENGTH:
        beginning = name[:_MAX_NAME_LENGTH]
        name = f"{beginning.rpartition(' ')[0] or beginning} …"
    return f"“{name}”"
