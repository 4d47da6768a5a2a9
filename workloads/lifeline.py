"""A worker's ties to the program that started it: its message pipe, its stop request, and its death with it."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from workloads.protocol import Message, encode

_PR_SET_PDEATHSIG = 1
_ORPHAN_CHECK_S = 0.1


def claim_stdout() -> BinaryIO:
    """Take stdout for messages alone: whatever prints afterwards, in Python or below, goes to stderr."""
    sys.stdout.flush()
    pipe = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(pipe, "wb")


def die_with_parent() -> int:
    """Have the kernel kill this process when the thread that started it ends (Linux); returns the parent's id.

    Elsewhere, and for a parent lost before this call, the closing of stdin is what tells (see `Lifeline`).
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    return parent


class Lifeline:
    """Watches stdin in a thread: its end means "stop", and, where the parent is gone, the end of this process."""

    def __init__(self, stdin: BinaryIO, parent: int) -> None:
        self._stdin = stdin
        self._parent = parent
        self._stop = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def stopped(self) -> bool:
        """Whether the program asked to stop."""
        return self._stop.is_set()

    def _watch(self) -> None:
        while self._stdin.read(4096):
            pass
        self._stop.set()
        while os.getppid() == self._parent:
            time.sleep(_ORPHAN_CHECK_S)
        os._exit(1)


def reporter(pipe: BinaryIO) -> Callable[[Message], None]:
    """A function that sends a message at once; a pipe nobody reads any more ends the process."""

    def report(message: Message) -> None:
        try:
            pipe.write(encode(message))
            pipe.flush()
        except BrokenPipeError:
            os._exit(1)

    return report
