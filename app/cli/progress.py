"""Progress on stderr: the idle wait before a run, the percentage of a transfer, and the notification at the end."""

import contextlib
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

from app import units
from app.cli.services import stop_on_interrupt
from app.cli.terminal import StatusLine, say
from app.runs.experiment.idle_wait import WaitStatus
from app.storage.transfer.progress import TransferProgress

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

    def show(self, share: float) -> None:
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
def progress_watch(what: str) -> Iterator[TransferProgress]:
    """A watch that shows progress on stderr and stops at Ctrl-C."""
    stop = threading.Event()
    line = PercentLine(what, is_live=sys.stderr.isatty())
    try:
        with stop_on_interrupt(stop.set):
            yield TransferProgress(line.show, stop.is_set)
    finally:
        line.clear()


_SHORT_S = 1.0


class WaitLine:
    """The wait of one run on stderr: a part of the status line on a terminal, where Enter ends it; said once elsewhere.

    Of several waits at once an Enter ends one.
    """

    def __init__(self, line: StatusLine | None = None) -> None:
        self._line = line or StatusLine()
        self._live = self._line.live and sys.stdin.isatty()
        self._printed = False

    def __call__(self, status: WaitStatus) -> bool:
        """Shows what is waited for; whether to go on waiting. What lasts less than a second is not worth a line."""
        if status.waited_s >= _SHORT_S:
            if self._live:
                seconds = f"{status.waited_s:.0f} of {status.limit_s:.0f} s"
                self._line.paint(self, f"Waiting: {status.reason} ({seconds}; Enter goes on)")
            elif not self._printed:
                self._printed = True
                self._line.say(f"Waiting, {status.limit_s:.0f} s at most: {status.reason}.")
        return not (self._live and self._enter_pressed())

    def clear(self) -> None:
        """Takes the line away."""
        self._line.clear(self)

    def _enter_pressed(self) -> bool:
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


_SENDER = "notify-send"
_TIMEOUT_S = 10.0


def run_with_notification(title: str, command: Callable[[], int]) -> int:
    """Makes runs, tells of the end under this title whatever comes of it, and returns the exit status."""
    began_s, words = time.monotonic(), "It ended early"
    try:
        status = command()
        words = "Every planned run has a result" if status == 0 else "Not every planned run has a result"
        return status
    finally:
        say(notify(title, f"{words}, after {units.duration(time.monotonic() - began_s)}."))


def notify(title: str, words: str) -> str:
    """Tells the user, and returns by which means, as a sentence."""
    if _send_to_desktop(title, words):
        return f"Notified through {_SENDER}."
    why = f"{_SENDER} is not installed" if shutil.which(_SENDER) is None else f"{_SENDER} reached no desktop"
    if not sys.stderr.isatty():
        return f"Nobody was notified: {why}, and there is no terminal to ring."
    sys.stderr.write("\a")
    return f"Rang the terminal's bell: {why}."


def _send_to_desktop(title: str, words: str) -> bool:
    program = shutil.which(_SENDER)
    if program is None:
        return False
    try:
        done = subprocess.run(
            [program, "--app-name=VariantScope", title, words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
