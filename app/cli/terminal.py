"""What the command line says: results on stdout, progress on stderr, and nothing where nobody looks."""

import json
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from typing import Any

from app import units
from app.records import RunEnded, RunEvent, RunStarted, Waiting
from app.viewmodels.format.cells import OUTCOMES, example_word
from app.viewmodels.format.naming import short_name
from workloads.protocol import Block, PhaseStarted, Progress

_REPAINT_S = 0.1
_CLEAR = "\r\x1b[K"
_BETWEEN = "  │  "
_GAP = "  "
_PARTS = 3
"""The widest column of a table that is too wide for a terminal has at least one of so many parts of it."""
_HEAD = 10
"""Characters that a line of a broken head may have, however narrow the numbers below it are."""


def print_json(document: dict[str, Any], *, compact: bool = False) -> None:
    """Prints one JSON document; numbers that are not finite have no place in one."""
    text = json.dumps(document, indent=None if compact else 2, ensure_ascii=False, allow_nan=False)
    print(text, flush=compact)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> None:
    """Prints aligned columns, with a header unless it is empty; the columns in `right` are numbers.

    Where a terminal has no room for all, long heads of numbers and the words of the widest column are broken into
    lines, and the columns that are too many stand below, with the first one again.
    """
    lines = [*([list(header)] if any(header) else []), *map(list, rows)]
    if not lines:
        return
    room = _terminal_width()
    if room is not None:
        if any(header) and _excess_width(_widths(lines), room) > 0:
            lines = [*_wrap_header(header, rows, right), *map(list, rows)]
        lines = _narrow_table(lines, room, [column for column in range(len(header)) if column not in right])
    widths = _widths(lines)
    for number, piece in enumerate(_split_columns(widths, room)):
        if number:
            print()
        for line in lines:
            cells = (
                line[column].rjust(widths[column]) if column in right else line[column].ljust(widths[column])
                for column in piece
            )
            if text := _GAP.join(cells).rstrip():
                print(text)


def print_text(words: str) -> None:
    """Prints sentences, on a terminal broken between words where its line ends."""
    room = _terminal_width()
    print(*([words] if room is None else _wrap(words, room)), sep="\n")


def _wrap(words: str, room: int, indent: str = "") -> list[str]:
    return textwrap.wrap(words, room, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _terminal_width() -> int | None:
    """How many characters a line of the terminal has; None where results go elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _excess_width(widths: Sequence[int], room: int) -> int:
    """By how much columns of these widths are too wide together."""
    return sum(widths) + len(_GAP) * (len(widths) - 1) - room


def _wrap_header(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: frozenset[int]) -> list[list[str]]:
    """The header in several lines, of which every head of numbers has as many as make it about as wide as they are."""
    parts = [
        _wrap(head, max([_HEAD, *(len(row[column]) for row in rows)])) if column in numbers else [head]
        for column, head in enumerate(header)
    ]
    height = max(map(len, parts))
    return [list(line) for line in zip(*([""] * (height - len(part)) + part for part in parts), strict=True)]


def _narrow_table(lines: list[list[str]], room: int, words: Sequence[int]) -> list[list[str]]:
    """The lines of a table with its widest column of `words` broken into what the others leave of the room."""
    widths = _widths(lines)
    over = _excess_width(widths, room)
    if over <= 0 or not words:
        return lines
    widest = max(words, key=lambda column: widths[column])
    most = max(widths[widest] - over, room // _PARTS)
    return [part for line in lines for part in _wrap_line(line, widest, most)]


def _wrap_line(line: Sequence[str], widest: int, most: int) -> list[list[str]]:
    """A line of a table as several ones, so that its widest cell is no wider."""
    first, *others = _wrap(line[widest], most, _GAP) or [""]
    below = ([other if column == widest else "" for column in range(len(line))] for other in others)
    return [[*line[:widest], first, *line[widest + 1 :]], *below]


def _split_columns(widths: Sequence[int], room: int | None) -> list[list[int]]:
    """Columns that fit beside each other, the first in each piece."""
    pieces = [[0]]
    for column in range(1, len(widths)):
        wide = sum(widths[each] + len(_GAP) for each in pieces[-1]) + widths[column]
        if room is not None and wide > room and len(pieces[-1]) > 1:
            pieces.append([0])
        pieces[-1].append(column)
    return pieces


def say(sentence: str) -> None:
    """Tells the user on stderr what goes on."""
    print(sentence, file=sys.stderr, flush=True)


class StatusLine:
    """The last line of a terminal, painted over: the texts of all that goes on at once, other lines above it.

    Where stderr is no terminal nothing is painted. Its methods may be called from any thread.
    """

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self.keyboard = threading.Lock()
        """To be held by who reads what is typed: two that see one Enter would both read, and one of them forever."""
        self._texts: dict[object, str] = {}
        self._turn = threading.Lock()

    def paint(self, owner: object, text: str) -> None:
        """Shows this text in place of the owner's last one."""
        with self._turn:
            if self.live and self._texts.get(owner) != text:
                self._texts[owner] = text
                self._repaint()

    def clear(self, owner: object) -> None:
        """Takes the owner's text away."""
        with self._turn:
            if self._texts.pop(owner, None) is not None:
                self._repaint()

    def say(self, sentence: str) -> None:
        """Prints a line of its own."""
        with self._turn:
            say(f"{_CLEAR}{sentence}" if self._texts else sentence)
            if self._texts:
                self._repaint()

    def _repaint(self) -> None:
        text = _BETWEEN.join(self._texts.values())
        width = shutil.get_terminal_size().columns - 1
        if len(text) > width:
            # It would wrap, and could not be painted over: an equal share for each.
            share = (width + len(_BETWEEN)) // len(self._texts) - len(_BETWEEN)
            text = _BETWEEN.join(each[:share] for each in self._texts.values())[:width]
        print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)


class ProgressSink:
    """Shows a run's progress on stderr: a part of the status line on a terminal, elsewhere a line a phase.

    With a `prefix` it is one run of several: of their phases only the measured one is told, and how each ended.
    """

    def __init__(self, prefix: str = "", line: StatusLine | None = None) -> None:
        self._prefix = prefix
        self._line = line or StatusLine()
        self._phase = ""
        self._rate = ""
        self._example = ""
        self._painted_s = 0.0

    def handle(self, event: RunEvent) -> None:
        """Shows what changed."""
        match event:
            case RunStarted():
                self._example = example_word(event.spec)
                self._say(f"run {event.run}: {short_name(event.spec)}")
            case Waiting():
                self._say(event.reason)
            case PhaseStarted():
                self._phase, self._rate = event.phase, ""
                if self._line.live:
                    self._paint("")
                elif not self._prefix or event.phase == "measure":
                    self._say(event.phase)
            case Block() if event.phase == "measure":
                seconds = (event.end_ns - event.start_ns) / 1e9
                self._rate = units.rate(event.examples / seconds, self._example)
            case Progress() if self._line.live and time.monotonic() - self._painted_s > _REPAINT_S:
                self._paint(f"{100 * event.fraction:3.0f} %  {self._rate}")
            case RunEnded():
                self._line.clear(self)
                if self._prefix:
                    self._say(self._ended(event))

    def _ended(self, event: RunEnded) -> str:
        name = OUTCOMES[event.outcome.name].word
        throughput = event.summary.throughput
        text = name if throughput is None else f"{units.rate(throughput, self._example)}, {name}"
        return f"{text}. {event.outcome.reason}" if event.outcome.reason else text

    def _say(self, text: str) -> None:
        self._line.say(f"{self._prefix}{text}")

    def _paint(self, text: str) -> None:
        self._painted_s = time.monotonic()
        self._line.paint(self, f"{self._prefix}{self._phase:8s} {text}")
