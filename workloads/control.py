"""A worker's connection to the program that started it: message pipe, stop request, and termination with its parent."""

import ctypes
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, NoReturn

from workloads.protocol import Finished, Message, encode

_PR_SET_PDEATHSIG = 1
_ORPHAN_CHECK_S = 0.1
_STOP_TIMEOUT_S = 0.8


def claim_stdout() -> BinaryIO:
    """Take stdout for messages alone: whatever prints afterwards, in Python or below, goes to stderr."""
    sys.stdout.flush()
    pipe = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(pipe, "wb")


def set_parent_death_signal() -> int:
    """Have the kernel kill this process when the thread that started it ends (Linux); returns the parent's id.

    Elsewhere, and for a parent lost before this call, the closing of stdin is what tells (see `Lifeline`).
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    return parent


class MessagePipe:
    """Where messages go, one at a time and at once; nothing comes after the last word.

    A pipe that nobody reads any more ends the process.
    """

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def report(self, message: Message) -> None:
        """Send a message."""
        with self._lock:
            self._send(message)

    def send_final(self, finished: Finished) -> NoReturn:
        """Send it and be gone: TensorFlow's own teardown takes half a second and tells nobody anything."""
        self._lock.acquire()
        self._send(finished)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def _send(self, message: Message) -> None:
        try:
            self._pipe.write(encode(message))
            self._pipe.flush()
        except BrokenPipeError:
            os._exit(1)


class ControlChannel:
    """Reads stdin in a thread: its first line is the order; its end means "stop", and, without a parent, our end too.

    Whoever runs the steps is asked first (`stopped`); one that does not come to it, inside an import, a compile or a
    long step, is ended by `give_up` after a moment.
    """

    def __init__(self, stdin: BinaryIO, parent: int, on_timeout: Callable[[], None]) -> None:
        self._stdin = stdin
        self._parent = parent
        self._on_timeout = on_timeout
        self._orders: queue.SimpleQueue[tuple[bytes, int]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._ignores_stop = False

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def wait_order(self) -> tuple[bytes, int]:
        """The order and when it came, in `time.monotonic_ns()`; empty where stdin ended before one."""
        return self._orders.get()

    def ignore_stop(self) -> None:
        """Hear of no request to stop from now on; without a parent this process still ends."""
        self._ignores_stop = True

    def stopped(self) -> bool:
        """Whether the program asked to stop."""
        return self._stop.is_set() and not self._ignores_stop

    def _watch(self) -> None:
        self._orders.put((self._stdin.readline(), time.monotonic_ns()))
        while self._stdin.read(4096):
            pass
        self._stop.set()
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        while os.getppid() == self._parent:
            if not self._ignores_stop and time.monotonic() > deadline_s:
                self._on_timeout()
            time.sleep(_ORPHAN_CHECK_S)
        os._exit(1)
