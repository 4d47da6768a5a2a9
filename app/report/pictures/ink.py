"""The colours pictures are drawn in: on light paper, on dark, or as names that a page's style sheet gives values."""

from dataclasses import dataclass

from app.viewmodels import palette


@dataclass(frozen=True, slots=True, kw_only=True)
class Ink:
    """Words, quiet words, faint lines, the paper, and the colours of runs; each is anything SVG takes as a colour."""

    text: str
    muted: str
    line: str
    paper: str
    curves: tuple[str, ...]

    def curve(self, colour: int) -> str:
        """The colour of a run or variant by its number."""
        return self.curves[colour % len(self.curves)]


LIGHT = Ink(text="#1a1d21", muted="#5b636d", line="#d9dce0", paper="#ffffff", curves=palette.ON_LIGHT)
DARK = Ink(text="#e8eaed", muted="#a0a8b2", line="#33383f", paper="#1d2024", curves=palette.ON_DARK)
PAGE = Ink(
    text="var(--text)",
    muted="var(--muted)",
    line="var(--line)",
    paper="var(--paper)",
    curves=tuple(f"var(--curve{number})" for number in range(len(palette.ON_LIGHT))),
)
"""For pictures that stand in a page: they are light or dark with it."""


def page_colours(ink: Ink) -> str:
    """The style sheet's values of `PAGE` in one ink."""
    names = {"text": ink.text, "muted": ink.muted, "line": ink.line, "paper": ink.paper}
    curves = {f"curve{number}": colour for number, colour in enumerate(ink.curves)}
    return "".join(f"--{name}:{colour};" for name, colour in {**names, **curves}.items())
