"""What `experiment` shows while a run waits for a machine at rest, and how the wait is ended early."""

import os
import select
import sys

from app.cli.terminal import StatusLine
from app.runs.gate import Held

_SHORT_S = 1.0


class GateLine:
    """The wait of one run on stderr: a part of the status line on a terminal, where Enter ends it; said once elsewhere.

    Of several waits at once an Enter ends one.
    """

    def __init__(self, line: StatusLine | None = None) -> None:
        self._line = line or StatusLine()
        self._live = self._line.live and sys.stdin.isatty()
        self._said = False

    def __call__(self, held: Held) -> bool:
        """Shows what is waited for; whether to go on waiting. What lasts less than a second is not worth a line."""
        if held.waited_s >= _SHORT_S:
            if self._live:
                seconds = f"{held.waited_s:.0f} of {held.limit_s:.0f} s"
                self._line.paint(self, f"Waiting: {held.words} ({seconds}; Enter goes on)")
            elif not self._said:
                self._said = True
                self._line.say(f"Waiting, {held.limit_s:.0f} s at most: {held.words}.")
        return not (self._live and self._enter())

    def clear(self) -> None:
        """Takes the line away."""
        self._line.clear(self)

    def _enter(self) -> bool:
        with self._line.keyboard:
            if not (_in_foreground() and select.select([sys.stdin], [], [], 0)[0]):
                return False
            sys.stdin.readline()
            return True


def _in_foreground() -> bool:
    """Whether what is typed is for this program: reading it in the background would suspend it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False
