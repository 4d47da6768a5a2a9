"""Cleans strings from outside: from cards, workers, imported runs and untrusted files.

Each kind of output has one function: terminal and log `plain_text`, names `plain_line`, spreadsheets `cell_text`, the
names of files `file_name`; in `app.report` HTML and SVG `escape_xml`, Markdown `escape_markdown`; in `app.gui` labels,
`Face` for painted text, and `plain_tooltip`.
"""

import re

CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"
"""Control characters (ISO 6429, C0 and C1) except for tab and line feed, as a range of `re`."""
BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that change the order of neighbouring ones (https://www.unicode.org/reports/tr9, Bidi_Control)."""
_NO_BREAK = str.maketrans("\u00a0\u202f", "  ")
_LINES = "\u2028\u2029"

_NOT_PLAIN = re.compile(f"[{CONTROL}{BIDI}{_LINES}]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
_SPACES = re.compile("[ \t-\r\x1c-\x1f\x85\u2028\u2029]+")
"""White space at which a line may break, so without no-break spaces."""
_NO_NAME = re.compile(r"[^0-9a-z]+")
_MAX_NAME_CHARS = 60
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)")
"""Names of devices on Windows, whose disks WSL2 writes to (https://learn.microsoft.com/windows/win32/fileio/naming-a-file)."""


def plain_text(text: str) -> str:
    r"""Return the text with characters that control a terminal escaped, such as `\u001b`.

    JSON keeps its meaning: there such characters only occur in strings, where this is their escape.
    """
    return _NOT_PLAIN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def plain_spaces(text: str) -> str:
    """Return the text for a search or a spreadsheet, with plain instead of no-break spaces."""
    return text.translate(_NO_BREAK)


def plain_line(text: str) -> str:
    return plain_text(" ".join(text.replace("\t", " ").splitlines()))


def one_line(text: str, max_chars: int = 200) -> str:
    line = plain_text(joined_lines(text))
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def joined_lines(text: str) -> str:
    """Return all lines of the text as one; a number stays tied to its unit."""
    return " ".join(filter(None, _SPACES.split(text)))


def without_nul(text: str) -> str:
    """Return the text with U+FFFD for NUL, at which SQLite would cut it."""
    return text.replace("\0", "\ufffd")


def cell_text(text: str) -> str:
    """Return a cell's plain text, with an apostrophe if a spreadsheet would compute it.

    Beginnings of formulas: https://owasp.org/www-community/attacks/CSV_Injection
    """
    return plain_text(f"'{text}" if text.startswith(_FORMULA) else text)


def file_name(title: str) -> str:
    """Return a title as the name of a file on any system: letters, figures and hyphens."""
    name = _NO_NAME.sub("-", title.lower()).strip("-")[:_MAX_NAME_CHARS].rstrip("-") or "picture"
    return f"picture-{name}" if _RESERVED.fullmatch(name) else name
