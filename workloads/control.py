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
    """Reserve stdout for messages and return it; whatever prints later, in Python or below, goes to stderr."""
    sys.stdout.flush()
    pipe = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(pipe, "wb")


def set_parent_death_signal() -> int:
    """Have the kernel kill this process when the thread that started it ends (Linux), and return the parent's id.

    On other systems, or if the parent ended before this call, the end of stdin ends the process (`ControlChannel`).
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    return parent


class MessagePipe:
    """Sends each message immediately; nothing follows the final one.

    When nobody reads the pipe any more, the process ends. Thread: any; a lock orders the messages.
    """

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def report(self, message: Message) -> None:
        with self._lock:
            self._send(message)

    def send_final(self, finished: Finished) -> NoReturn:
        """Send the last message and end the process without the framework's teardown, which takes half a second."""
        # Never released: a message of another thread must not follow the final one.
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
    """Reads stdin: the first line is the order; its end means "stop", or ends this process if the parent is gone.

    The loop calls `stopped` between steps. If an import, a compile or a long step keeps it from doing so, `on_timeout`
    is called after a moment. Thread: a separate one reads stdin; the methods may be called from any.
    """

    def __init__(self, stdin: BinaryIO, parent: int, on_timeout: Callable[[], None]) -> None:
        self._stdin = stdin
        self._parent = parent
        self._on_timeout = on_timeout
        self._orders: queue.SimpleQueue[tuple[bytes, int]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._ignores_stop = False

    def start(self) -> None:
        threading.Thread(target=self._watch, name="control channel", daemon=True).start()

    def wait_order(self) -> tuple[bytes, int]:
        """Wait for the order and return it with its time in `time.monotonic_ns()`; it is empty if stdin ended first."""
        return self._orders.get()

    def ignore_stop(self) -> None:
        """Ignore requests to stop from now on; the process still ends if its parent does."""
        self._ignores_stop = True

    def stopped(self) -> bool:
        return self._stop.is_set() and not self._ignores_stop

    def _watch(self) -> None:
        self._orders.put((self._stdin.readline(), time.monotonic_ns()))
        while self._stdin.read(4096):
            pass
        self._stop.set()
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        while os.getppid() == self._parent:
            # The loop did not call `stopped` in time: end the run from this thread.
            if not self._ignores_stop and time.monotonic() > deadline_s:
                self._on_timeout()
            time.sleep(_ORPHAN_CHECK_S)
        os._exit(1)
