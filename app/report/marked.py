"""Markdown as text: what is not meant as markup never is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.report.markup import plain

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")


@dataclass(frozen=True, slots=True)
class Marked:
    """A text, and the pictures that lie beside it: SVG by the name of its file.

    Forges show pictures in files, and none that stand in the text.
    """

    text: str
    files: Mapping[str, str] = field(default_factory=dict)


def literal(words: str) -> str:
    """Text in one line that Markdown shows as it is, HTML in it too."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(words).split()))


def code(words: str) -> str:
    """A block that nothing in the words can end: indented, in one line."""
    return "    " + " ".join(plain(words).splitlines())


def picture(name: str, file: str) -> str:
    """A picture that lies beside the text."""
    return f"![{literal(name)}](<{file}>)"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: frozenset[int]) -> str:
    """Cells of words under their heads; `numeric` columns are right-aligned."""
    rule = ["---:" if n in numeric else "---" for n in range(len(head))]
    body = ([literal(cell) for cell in row] for row in (head, *rows))
    first, *rest = (f"| {' | '.join(line)} |" for line in body)
    return "\n".join([first, f"| {' | '.join(rule)} |", *rest])
