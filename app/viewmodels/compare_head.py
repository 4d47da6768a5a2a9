"""What stands above the table of a comparison: the verdict, and under it every reason to doubt it."""

from dataclasses import dataclass

from app.viewmodels.compare import Comparison
from app.viewmodels.doubts import EVIDENCE, Doubt, Severity

_SIGNS: dict[Severity, str] = {"warning": "▲", "note": "·"}
_MEANING = "So the verdict is about what ran, not about what was asked."
"""What runs that are not what they say they are mean for the verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The verdict's `first` sentence and the `rest`; `lines` are doubts and notes, each with how much it matters.

    `method` says how intervals were made; `copied` is the verdict with its doubts for the clipboard, a line each.
    """

    first: str
    rest: str
    method: str
    lines: tuple[tuple[str, Severity], ...]
    copied: str


def head_of(comparison: Comparison) -> Head:
    """What is said of a comparison above its table."""
    first, *rest = comparison.sentences or ("",)
    others = [doubt.sentence for doubt in comparison.doubts if doubt.key != EVIDENCE]
    doubts = [(_line(doubt), doubt.severity) for doubt in comparison.doubts]
    notes: list[tuple[str, Severity]] = [(note, "note") for note in comparison.notes]
    return Head(
        first=first,
        rest=" ".join(rest),
        method=comparison.method,
        lines=(*doubts, *notes),
        # The verdict says already what the doubt about evidence does.
        copied="\n".join([comparison.verdict, *others]),
    )


def _line(doubt: Doubt) -> str:
    words = f"{_SIGNS[doubt.severity]}  {doubt.sentence}"
    return f"{words} {_MEANING}" if doubt.key == EVIDENCE else words
