"""Output of the command line: results on stdout, in tables that fit a terminal, and messages on stderr.

All of it is plain: what is printed, by whatever code, reaches a terminal without a character that commands it.
"""

import contextlib
import json
import logging
import os
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO, cast

from app.errors import UserError
from app.grants import Grant, describe
from app.plain import plain_line, plain_text

_log = logging.getLogger("variantscope.run")

_GAP = "  "
_PARTS = 3
"""The widest column of a table that is too wide for a terminal keeps at least one of so many parts of its width."""
_HEAD = 10
"""Characters that a line of a broken head may have, however narrow the numbers below it are."""
_STYLES = {"✔": "green", "✘": "red"}
_MAX_NAME = 66


class PlainStream:
    """A text stream that what is written to it reaches plain.

    Thread: any, as the stream itself.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text without characters that command a terminal."""
        self.stream.write(plain_text(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the lines in the same way."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        """Return what the stream itself has."""
        return getattr(self.stream, name)


class MessageStream(PlainStream):
    """Stderr, whose messages are dropped once nobody can read them: a run outlives its terminal, and a full disk."""

    def write(self, text: str) -> int:
        """Write the text plain, or drop it."""
        self._try(lambda: super(MessageStream, self).write(text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or drop it."""
        self._try(self.stream.flush)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            _log.warning("messages are dropped from now on: %s", error)
            drop_output(self.stream.fileno())


def drop_output(file: int) -> None:
    """Send what an open file still holds nowhere: a flush at exit would fail again, in a traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, file)
    os.close(nowhere)


@contextlib.contextmanager
def plain_output() -> Iterator[None]:
    """Make all output plain while the body runs."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = cast(TextIO, PlainStream(sys.stdout)), cast(TextIO, MessageStream(sys.stderr))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream below, for styles and cursor movements of our own; what is written to it must be plain."""
    while isinstance(stream, PlainStream):
        stream = stream.stream
    return stream


def print_json(document: dict[str, Any], *, compact: bool = False) -> None:
    """Print one JSON document; raises `ValueError` for a number that is not finite."""
    text = json.dumps(document, indent=None if compact else 2, ensure_ascii=False, allow_nan=False)
    print(text, flush=compact)


def print_json_list(key: str, documents: Iterable[dict[str, Any]]) -> None:
    """Print the JSON document `{key: [document, …]}` as its parts come; raises `ValueError` as `print_json` does."""
    print(f'{{\n  "{key}": [', end="")
    parting = "\n"
    for document in documents:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        print(parting, textwrap.indent(text, "    "), sep="", end="")
        parting = ",\n"
    print("]\n}" if parting == "\n" else "\n  ]\n}")


def print_text(words: str) -> None:
    """Print sentences, on a terminal broken between words where its line ends."""
    width = _terminal_width()
    print(*([words] if width is None else _wrap(words, width)), sep="\n")


def elide_name(name: str) -> str:
    """Leave out the middle of a kernel's long name: both ends tell kernels apart. `--json` has it whole."""
    half = (_MAX_NAME - 1) // 2
    return name if len(name) <= _MAX_NAME else f"{name[:half]}…{name[-half:]}"


def ask_consent(grants: Sequence[Grant]) -> bool:
    """Ask whether to allow what a file or a database names; raises `UserError` where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        commands = ", ".join(f"`{grant.command}`" for grant in grants)
        raise UserError(
            f"Nobody can be asked here whether to {describe(grants)}, which was not typed on this machine: "
            f"start this in a terminal and answer, or type it once, as {commands}."
        )
    say("This was not typed on this machine. It asks to")
    for grant in grants:
        say(f"  {grant.request}")
    return ask_yes("Allow that, now and from now on?")


def ask_yes(question: str) -> bool:
    """Ask a question on the terminal; return whether the answer is yes, and not Ctrl-C."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    handler = signal.getsignal(signal.SIGINT)
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # else a command that stops politely reads on
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        return False
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


def say(sentence: str) -> None:
    """Print a message on stderr, as one line."""
    print(plain_line(sentence), file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a table: its head and cells, whose lines are parted by newlines."""

    head: str
    cells: tuple[str, ...]
    is_number: bool

    @property
    def width(self) -> int:
        return max(len(line) for text in (self.head, *self.cells) for line in text.split("\n"))

    def wrapped(self, width: int) -> "_Column":
        """Return the column with its texts broken into lines of this width, where their words allow it."""
        head, *cells = ("\n".join(_wrap(text, width, _GAP)) for text in (self.head, *self.cells))
        return replace(self, head=head, cells=tuple(cells))

    def with_wrapped_head(self) -> "_Column":
        """Return the column with its head in as many lines as make it about as wide as its numbers."""
        return replace(self, head="\n".join(_wrap(self.head, max([_HEAD, *map(len, self.cells)]))))


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    spare: Sequence[str] = (),
) -> None:
    """Print aligned columns.

    Where a terminal is too narrow, the columns of the `spare` heads are left out, the first one first; then long heads
    of numbers and the words of the widest column are broken into lines, and the columns that do not fit stand below,
    with the first one again. Elsewhere nothing is broken or left out.

    No header is printed where all heads are empty; the columns of numbers are aligned to the `right`.
    """
    if not rows and not any(header):
        return
    columns = [
        _Column(head, tuple(plain_line(row[index]) for row in rows), index in right)
        for index, head in enumerate(header)
    ]
    width = _terminal_width()
    if width is None:
        _print_plain(columns)
        return
    for head in spare:
        if _excess(columns, width) > 0:
            columns = [column for column in columns if column.head != head]
    for number, piece in enumerate(_split(_narrowed(columns, width), width)):
        if number:
            print()
        _print_styled(piece)


def is_terminal() -> bool:
    """Return whether a person reads what is printed."""
    return _terminal_width() is not None


def _print_plain(columns: Sequence[_Column]) -> None:
    heads = [column.head for column in columns]
    sides = [(str.rjust if column.is_number else str.ljust, column.width) for column in columns]
    for line in [*([heads] if any(heads) else []), *zip(*(column.cells for column in columns), strict=True)]:
        cells = (adjust(text, width) for text, (adjust, width) in zip(line, sides, strict=True))
        if text := _GAP.join(cells).rstrip():
            print(text)


def _narrowed(columns: list[_Column], width: int) -> list[_Column]:
    """Return the columns with heads and the widest texts broken as far as a terminal of this width requires it."""
    if _excess(columns, width) > 0:
        columns = [column.with_wrapped_head() if column.is_number else column for column in columns]
    excess = _excess(columns, width)
    texts = [index for index, column in enumerate(columns) if not column.is_number]
    if excess > 0 and texts:
        widest = max(texts, key=lambda index: columns[index].width)
        columns[widest] = columns[widest].wrapped(max(columns[widest].width - excess, width // _PARTS))
    return columns


def _excess(columns: Sequence[_Column], width: int) -> int:
    return sum(column.width + len(_GAP) for column in columns) - len(_GAP) - width


def _split(columns: Sequence[_Column], width: int) -> list[list[_Column]]:
    """Return the columns that fit next to each other, the first in each piece."""
    pieces = [[columns[0]]]
    for column in columns[1:]:
        if len(pieces[-1]) > 1 and _excess([*pieces[-1], column], width) > 0:
            pieces.append([columns[0]])
        pieces[-1].append(column)
    return pieces


def _print_styled(columns: Sequence[_Column]) -> None:
    """Print the columns with a bold header, unless the terminal or the user's NO_COLOR has no styles."""
    # Here, for rich takes its time, and most output goes to no terminal.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, pad_edge=False, padding=(0, len(_GAP), 0, 0), show_header=any(column.head for column in columns)
    )
    for column in columns:
        table.add_column(Text(column.head), justify="right" if column.is_number else "left", no_wrap=True)
    for line in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*(Text(text, style=_STYLES.get(text, "")) for text in line))
    console = Console(
        width=max(1, _excess(columns, 0)),  # a word that is too long for the terminal is printed whole
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(table)
    for text in captured.get().splitlines():
        if text := text.rstrip():
            print(text, file=unfiltered(sys.stdout))


def _terminal_width() -> int | None:
    """Return how many characters a line of the terminal has; None where results go elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _wrap(words: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(words, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
