"""How far an export or import is, on stderr, and Ctrl-C that ends it with nothing half done."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from app.cli.services import interrupts
from app.storage.transfer_watch import Watch

_QUIET_S = 1.0
"""What ends sooner needs no progress."""
_REPAINT_S = 0.1
_STEP = 0.1
"""Where stderr is no terminal: a line each tenth."""


class PercentLine:
    """The percentage that is done: one line painted over on a terminal, a line each 10 % elsewhere."""

    def __init__(self, what: str, *, is_live: bool) -> None:
        self._what = what
        self._is_live = is_live
        self._next_s = time.monotonic() + _QUIET_S
        self._next_share = 0.0
        self._painted = False

    def told(self, share: float) -> None:
        """Shows the share that is done, from 0 to 1, where it is time to."""
        if time.monotonic() < self._next_s or (not self._is_live and share < self._next_share):
            return
        text = f"{self._what} … {100 * share:3.0f} %"
        print(
            f"\r\x1b[K{text}" if self._is_live else text, end="" if self._is_live else "\n", file=sys.stderr, flush=True
        )
        self._painted = True
        self._next_s = time.monotonic() + _REPAINT_S
        self._next_share = share + _STEP

    def clear(self) -> None:
        """Takes the line away."""
        if self._is_live and self._painted:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def watched(what: str) -> Iterator[Watch]:
    """A watch that shows progress on stderr and stops at Ctrl-C."""
    stop = threading.Event()
    line = PercentLine(what, is_live=sys.stderr.isatty())
    try:
        with interrupts(stop.set):
            yield Watch(line.told, stop.is_set)
    finally:
        line.clear()
