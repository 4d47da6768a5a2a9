"""What is said before an experiment begins: what is stored of it, and how long the rest takes."""

from collections.abc import Sequence

from app.queries import Ahead
from app.viewmodels import units
from app.viewmodels.naming import gpus_words
from workloads.catalog import Machine, runnable
from workloads.protocol import RunSpec


def takes_words(left_s: float, learnt_from: int) -> str:
    """How long runs take; at least what they measure where no run tells how much there is beside that."""
    if learnt_from:
        return f"about {units.duration(left_s)}"
    return f"at least {units.duration(left_s)}" if left_s else "time not known yet"


def ahead_sentences(ahead: Ahead, *, at_most: bool = False, budget_s: float | None = None) -> list[str]:
    """What is stored already and what is left, from how much that is known, and what does not count and why.

    `at_most`: it may end before its last repeat; `budget_s`: it ends when that is spent, and can go on later.
    """
    left = ahead.planned - ahead.done
    if not left:
        said = [f"All {ahead.planned:,} are stored already: nothing is left to run."]
    else:
        said = [_left_words(ahead, left, "at most " if at_most else "")]
    if budget_s is not None and budget_s < ahead.left_s:
        said.append(f"It stops within {units.duration(budget_s)} and can go on later.")
    return [*said, *uncounted_sentences(ahead.uncounted, ahead.because)]


def uncounted_sentences(uncounted: int, because: Sequence[str]) -> list[str]:
    """That stored runs of the same variants do not count, made with another of `because`; none where all count."""
    if not uncounted:
        return []
    runs = f"{uncounted:,} stored {units.plural('run', uncounted)}"
    return [f"Not counted: {runs} of these variants with another {', another '.join(because)}."]


def never_beside_words(specs: Sequence[RunSpec], machine: Machine) -> str:
    """Why none of these runs can go on beside another, whatever is asked for; "" where some can."""
    counts = [int(spec.variant["gpus"]) for spec in runnable(specs, machine)]
    on_gpus = sorted(count for count in counts if count)
    if not counts:
        return ""
    if not on_gpus:
        return "One run after another: they are on the CPU, which only one at a time can measure."
    if on_gpus[0] + on_gpus[min(1, len(on_gpus) - 1)] > len(machine.gpus):
        return f"One run after another: no two of them fit on the {gpus_words(len(machine.gpus))} of this machine."
    return ""


def _left_words(ahead: Ahead, left: int, most: str) -> str:
    stored = f"{ahead.done:,} of {ahead.planned:,} are stored already" if ahead.done else ""
    if not ahead.learnt_from:
        least = f"at least {units.duration(ahead.left_s)}" if ahead.left_s else "a time not known yet"
        they = f"all {left:,}" if most else "they"
        return f"No run like these is stored yet: {they} take {least}."
    rest = f"{stored}; the other {left:,} take" if stored else "They take"
    judged = f"{ahead.learnt_from:,} stored {units.plural('run', ahead.learnt_from)}"
    others = " of other workloads" if ahead.of_others else ""
    return f"{rest} {most}about {units.duration(ahead.left_s)}, judged by {judged}{others}."
