"""What `experiment` shows while a run waits for a machine at rest, and how the wait is ended early."""

import os
import select
import sys

from app.cli.terminal import say
from app.runs.gate import Held

_SHORT_S = 1.0


class GateLine:
    """One line on stderr: painted over on a terminal, where Enter ends the wait; said once elsewhere."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty() and sys.stdin.isatty()
        self._shown = ""
        self._said = False

    def __call__(self, held: Held) -> bool:
        """Shows what is waited for; whether to go on waiting. What lasts less than a second is not worth a line."""
        if held.waited_s >= _SHORT_S:
            if self._live:
                self._paint(held)
            elif not self._said:
                self._said = True
                say(f"Waiting, {held.limit_s:.0f} s at most: {held.words}.")
        return not self._enter()

    def clear(self) -> None:
        """Takes the line away."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def _paint(self, held: Held) -> None:
        text = f"Waiting: {held.words} ({held.waited_s:.0f} of {held.limit_s:.0f} s; Enter goes on)"
        if text != self._shown:
            self._shown = text
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def _enter(self) -> bool:
        if not (self._live and _in_foreground() and select.select([sys.stdin], [], [], 0)[0]):
            return False
        sys.stdin.readline()
        return True


def _in_foreground() -> bool:
    """Whether what is typed is for this program: reading it in the background would suspend it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False
