"""What is said before an experiment begins: what is stored of it, and how long the rest takes."""

from app.queries import Ahead
from app.viewmodels import units


def takes_words(left_s: float, learnt_from: int) -> str:
    """How long runs take; at least what they measure where no run tells how much there is beside that."""
    if learnt_from:
        return f"about {units.duration(left_s)}"
    return f"at least {units.duration(left_s)}" if left_s else "time not known yet"


def ahead_sentences(ahead: Ahead) -> list[str]:
    """What is stored already and what is left, from how much that is known, and what does not count and why."""
    left = ahead.planned - ahead.done
    stored = f"{ahead.done:,} of {ahead.planned:,} are stored already" if ahead.done else ""
    if not left:
        said = [f"All {ahead.planned:,} are stored already: nothing is left to run."]
    elif ahead.learnt_from:
        judged = f"{ahead.learnt_from:,} stored {units.plural('run', ahead.learnt_from)}"
        rest = f"{stored}; the other {left:,} take" if stored else "They take"
        said = [f"{rest} about {units.duration(ahead.left_s)}, judged by {judged}."]
    else:
        least = f"at least {units.duration(ahead.left_s)}" if ahead.left_s else "a time not known yet"
        said = [f"No run like these is stored yet: they take {least}."]
    if ahead.uncounted:
        runs = f"{ahead.uncounted:,} stored {units.plural('run', ahead.uncounted)}"
        said.append(f"Not counted: {runs} of these variants with another {', another '.join(ahead.because)}.")
    return said
