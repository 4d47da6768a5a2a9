"""What the command line says: results on stdout, progress on stderr, and nothing where nobody looks."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from app.records import RunEnded, RunEvent, RunStarted, Waiting
from app.viewmodels import units
from app.viewmodels.naming import short_name
from workloads.protocol import Block, PhaseStarted, Progress

_REPAINT_S = 0.1


def print_json(document: dict[str, Any], *, compact: bool = False) -> None:
    """Prints one JSON document; numbers that are not finite have no place in one."""
    text = json.dumps(document, indent=None if compact else 2, ensure_ascii=False, allow_nan=False)
    print(text, flush=compact)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> None:
    """Prints aligned columns, with a header unless it is empty; the columns in `right` are numbers."""
    lines = [*([list(header)] if any(header) else []), *map(list, rows)]
    if not lines:
        return
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def say(sentence: str) -> None:
    """Tells the user on stderr what goes on."""
    print(sentence, file=sys.stderr, flush=True)


class ProgressSink:
    """Shows a run's progress on stderr: one line that is painted over on a terminal, a line a phase elsewhere."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._live = sys.stderr.isatty()
        self._phase = ""
        self._rate = ""
        self._painted_s = 0.0

    def handle(self, event: RunEvent) -> None:
        """Shows what changed."""
        match event:
            case RunStarted():
                self._say(f"run {event.run}: {short_name(event.spec)}")
            case Waiting():
                self._say(event.reason)
            case PhaseStarted():
                self._phase, self._rate = event.phase, ""
                if self._live:
                    self._paint("")
                else:
                    self._say(event.phase)
            case Block() if event.phase == "measure":
                seconds = (event.end_ns - event.start_ns) / 1e9
                self._rate = f"{units.number(event.examples / seconds)} examples/s"
            case Progress() if self._live and time.monotonic() - self._painted_s > _REPAINT_S:
                self._paint(f"{100 * event.fraction:3.0f} %  {self._rate}")
            case RunEnded():
                self._clear()

    def _say(self, text: str) -> None:
        self._clear()
        print(f"{self._prefix}{text}", file=sys.stderr, flush=True)

    def _paint(self, text: str) -> None:
        self._painted_s = time.monotonic()
        print(f"\r\x1b[K{self._prefix}{self._phase:8s} {text}", end="", file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
