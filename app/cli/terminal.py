"""Output of the command line: results on stdout, in tables that fit a terminal, and messages on stderr.

All output is plain: whatever code prints it, it reaches a terminal without control characters, and pipes and files with
plain spaces, except in JSON.
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO, cast

from app.errors import UserError
from app.grants import Grant, describe
from app.values.plain import plain_line, plain_spaces, plain_text

_log = logging.getLogger("variantscope.run")

_GAP = "  "
_STYLES = {"✔": "green", "✘": "red"}
_MAX_NAME = 66


class PlainStream:
    """A text stream that makes everything written to it plain. Thread: any, as the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text without characters that control a terminal, and elsewhere without no-break spaces."""
        plain = plain_text(text)
        self.stream.write(plain if self.stream.isatty() else plain_spaces(plain))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class MessageStream(PlainStream):
    """Stderr, whose messages are dropped once nobody can read them: a run outlives its terminal, and a full disk."""

    def write(self, text: str) -> int:
        self._try(lambda: super(MessageStream, self).write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            _log.warning("messages are dropped from now on: %s", error)
            drop_output(self.stream.fileno())


def drop_output(file: int) -> None:
    """Discard what an open file still buffers: a flush at exit would fail again, with a traceback."""
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
    """Return the underlying stream, for our own styles and cursor movements; its text must be plain."""
    while isinstance(stream, PlainStream):
        stream = stream.stream
    return stream


def print_json(document: dict[str, Any], *, compact: bool = False) -> None:
    """Print one JSON document; raises `ValueError` for a number that is not finite."""
    text = json.dumps(document, indent=None if compact else 2, ensure_ascii=False, allow_nan=False)
    print(plain_text(text), file=unfiltered(sys.stdout), flush=compact)


def print_json_list(key: str, documents: Iterable[dict[str, Any]]) -> None:
    """Print the JSON document `{key: [document, …]}` part by part; raises `ValueError` like `print_json`."""
    file, parting = unfiltered(sys.stdout), "\n"
    print(f'{{\n  "{key}": [', end="", file=file)
    for document in documents:
        text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
        print(parting, textwrap.indent(plain_text(text), "    "), sep="", end="", file=file)
        parting = ",\n"
    print("]\n}" if parting == "\n" else "\n  ]\n}", file=file)


def print_text(words: str) -> None:
    """Print sentences, wrapped between words on a terminal."""
    width = _terminal_width()
    broken = [words] if width is None else textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False)
    print(*broken, sep="\n")


def elide_name(name: str) -> str:
    """Leave out the middle of a kernel's long name, because both ends distinguish kernels. `--json` has all of it."""
    half = (_MAX_NAME - 1) // 2
    return name if len(name) <= _MAX_NAME else f"{name[:half]}…{name[-half:]}"


def ask_consent(grants: Sequence[Grant]) -> bool:
    """Ask whether to allow what a file or a database names; raises `UserError` if nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        commands = ", ".join(f"`{grant.command}`" for grant in grants)
        raise UserError(
            f"There is no terminal to ask whether to {describe(grants)}, which was not typed on this machine: "
            f"start this in a terminal and answer, or type it once, as {commands}."
        )
    say("This was not typed on this machine. It asks to")
    for grant in grants:
        say(f"  {grant.request}")
    return ask_yes("Allow that, now and from now on?")


def ask_yes(question: str) -> bool:
    """Ask a question on the terminal; return whether the answer is yes; Ctrl-C means no."""
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
    print(plain_line(sentence), file=sys.stderr, flush=True)


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: frozenset[int] = frozenset(),
    spare: Sequence[str] = (),
) -> None:
    """Print aligned columns, without a header if all heads are empty. Columns in `right` are right-aligned.

    On a narrow terminal the columns with `spare` heads are left out, first one first; then texts are wrapped, and
    columns that do not fit follow below, with the first one repeated. Elsewhere nothing is wrapped or left out.
    """
    if not rows and not any(header):
        return
    columns = [[head, *(plain_line(row[n]) for row in rows)] for n, head in enumerate(header)]
    widths = [max(map(len, column)) for column in columns]
    room = _terminal_width()
    if room is None:
        for line in list(zip(*columns, strict=True))[0 if any(header) else 1 :]:
            cells = (text.rjust(widths[n]) if n in right else text.ljust(widths[n]) for n, text in enumerate(line))
            if text := _GAP.join(cells).rstrip():
                print(text)
        return
    numbers = list(range(len(columns)))
    for head in spare:
        if _length(widths, numbers) > room:
            numbers = [n for n in numbers if header[n] != head]
    # A number is never broken, its head only between words; a text is wrapped to at least a third of the terminal.
    least = [
        max(map(len, [*head.split(" "), *cells])) if n in right else min(widths[n], room // 3)
        for n, (head, *cells) in enumerate(columns)
    ]
    pieces = [numbers[:1]]
    for n in numbers[1:]:
        if len(pieces[-1]) > 1 and _length(least, [*pieces[-1], n]) > room:
            pieces.append(numbers[:1])
        pieces[-1].append(n)
    for piece in pieces:
        if piece is not pieces[0]:
            print()
        free, wide = max(0, room - _length(least, piece)), {}
        for n in piece:
            wide[n] = min(widths[n], least[n] + free)
            free -= wide[n] - least[n]
        _print_styled(columns, wide, right)


def _length(widths: Sequence[int] | Mapping[int, int], numbers: Sequence[int]) -> int:
    return sum(widths[n] + len(_GAP) for n in numbers) - len(_GAP)


def _print_styled(columns: Sequence[Sequence[str]], widths: Mapping[int, int], right: frozenset[int]) -> None:
    """Print columns of these widths with bold heads, unless the terminal or NO_COLOR disables styles."""
    # Here: rich is slow to import, and most output goes to no terminal.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None, padding=(0, len(_GAP), 0, 0), pad_edge=False, show_header=any(columns[n][0] for n in widths)
    )
    for n, width in widths.items():
        table.add_column(Text(columns[n][0]), justify="right" if n in right else "left", width=width)
    for line in list(zip(*columns, strict=True))[1:]:
        table.add_row(*(Text(line[n], style=_STYLES.get(line[n], "")) for n in widths))
    console = Console(
        width=_length(widths, list(widths)),
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(table)
    for text in captured.get().splitlines():
        if text := text.rstrip():
            print(text, file=unfiltered(sys.stdout))


def is_terminal() -> bool:
    return _terminal_width() is not None


def _terminal_width() -> int | None:
    """Return the width of the terminal in characters; None if results go elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
