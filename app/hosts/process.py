"""The program on a host as a local process: a launcher starts it, it takes orders, and it is heard until lost."""

import contextlib
import logging
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from app.errors import UserError
from app.hosts.launchers import ENVIRONMENT, describe_wait, explain_end, explain_start
from app.hosts.messages import BEAT_S, HELLO, LOST_S, MOST_LINE_BYTES, Beat, HostHello, Order, Report, decode_report
from app.hosts.wheel import MARK, Start
from app.values import units
from app.values.fields import Sample, SlowSample
from app.values.plain import one_line, plain_text
from app.values.samples import Processes
from workloads.protocol import ProtocolError, encode

_log = logging.getLogger("variantscope.hosts")
_MOST_STDERR_LINES, _MOST_STDERR_BYTES = 200, 2_000
"""Stored lines: a launcher's reason comes before the traceback of a program that it killed."""
_MOST_GARBAGE_BYTES = 64_000
_MOST_QUEUED_BYTES = 16 * 2**20
"""Unread reports up to which more are read; beyond it the host has to wait."""
_READINGS_PER_S, _READINGS_AT_ONCE = 5_000, 20_000
"""A host that sends more counts as lost: 200 GPUs have 4,000 per second."""
_END_S, _CUT_S = 1.0, 0.4
"""How long a launcher may take to end after its stdin closes, and after SIGTERM; the program there also ends by itself.
"""
_LAST_WORDS_S = 5.0
"""How long one that closed its stdout may take to end and say why."""
_LOOK_S = 0.1
_QUIET_S = 5.0
"""The longest time that a user waits without being told for what."""
_WARN_S = 5.0
"""After this many seconds without a message a host is reported as silent."""
_STOOD_STILL_S = 2.0
"""A thread woken this late stood still with the machine, such as a sleeping laptop."""


class LinkLostError(UserError):
    """A host is lost, with the reason in one sentence."""


class HostProcess:
    """The program on a host; everything it sends is bounded, and checked by type. `lost` is why it is lost, else None.

    Thread: any; `next` only one. Other threads read, write and watch.
    """

    def __init__(self, start: Start, name: str, notify: Callable[[str], None] = lambda _: None) -> None:
        """Start it; `notify` gets a sentence on each wait, on any thread. Raises `UserError`."""
        self.name, self.address = name, start.address
        self.lost: str | None = None
        self.is_detached = False
        """Whether a run has started there that continues without this program."""
        self._start, self._notify = start, notify
        command = start.command()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **ENVIRONMENT},
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(explain_start(start.address, command[0], error)) from error
        self._orders: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: deque[str] = deque(maxlen=_MOST_STDERR_LINES)
        # Guards everything below.
        self._changed = threading.Condition()
        self._hello: HostHello | None = None
        self._reports: deque[tuple[Report, int]] = deque()
        self._queued_bytes = self._readings = 0
        self._offset_ns = -(2**63)
        self._heard_s = time.monotonic()
        self._waits_for, self._is_closing = "", False
        self._threads = [
            threading.Thread(target=work, name=f"{work.__name__} of {name}", daemon=True)
            for work in (self._read_stderr, self._read, self._write, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self._heard_s

    def now_ns(self) -> int:
        """Return the time on the host's monotonic clock, after its hello, minus the fastest answer's travel time."""
        return time.monotonic_ns() + self._offset_ns

    def wait_hello(self, is_cancelled: Callable[[], bool] = lambda: False) -> HostHello:
        """Wait for its hello, which may take hours in Slurm's queue.

        Raises:
            UserError: It cannot be reached or started there, or the wait was cancelled.
        """
        quiet_s = time.monotonic() + _QUIET_S
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self.lost or self._hello, _LOOK_S):
                    break
            if is_cancelled():
                raise UserError("Connecting was cancelled.")
            if time.monotonic() > quiet_s and not self._waits_for:
                self._wait_for(f"Waiting for {self.name} to answer …")
        if self._hello is None:
            raise LinkLostError(self.lost)
        return self._hello

    def send(self, order: Order) -> None:
        """Give it an order, which a lost one ignores."""
        self._orders.put(encode(order))

    def next(self, timeout_s: float | None) -> Report | None:
        """Return the next report, None after that time without one; raises `LinkLostError`."""
        with self._changed:
            self._changed.wait_for(lambda: self._reports or self.lost, timeout_s)
            if self._reports:
                report, size = self._reports.popleft()
                self._queued_bytes -= size
                self._changed.notify_all()
                return report
        if self.lost is not None:
            raise LinkLostError(self.lost)
        return None

    def silent_warning(self) -> str:
        if (silent_s := self.silent_s) < _WARN_S:
            return ""
        quiet, limit = (units.with_unit(seconds, "s") for seconds in (silent_s, LOST_S))
        return f"Nothing has come from {self.name} for {quiet}; after {limit} the run is given up."

    def close(self) -> None:
        """Close its stdin, which ends all of its work there, and wait a few seconds for that."""
        self._is_closing = True
        self._orders.put(None)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self.cut()

    def cut(self, reason: str = "") -> None:
        """Give it up: end the launcher within moments."""
        self._lose(reason or f"The link to {self.name} was closed.")
        if threading.current_thread() not in self._threads:
            end_s = time.monotonic() + _CUT_S
            for thread in self._threads:
                thread.join(max(0.0, end_s - time.monotonic()))

    def _lose(self, reason: str) -> None:
        with self._changed:
            if self.lost is None:
                self.lost = reason
                _log.log(logging.INFO if self._is_closing else logging.WARNING, "%s", reason)
            self._changed.notify_all()
        self._orders.put(None)
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_CUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _write(self) -> None:
        """Write the orders; the reading side reports why the pipe closed."""
        assert self._process.stdin is not None, "it was started with pipes"
        with contextlib.suppress(OSError), self._process.stdin as stdin:
            for lines in iter(self._orders.get, None):
                view = memoryview(lines)
                while view:
                    view = view[os.write(stdin.fileno(), view) :]

    def _read(self) -> None:
        assert self._process.stdout is not None, "it was started with pipes"
        output = b""
        try:
            with self._process.stdout as stdout:
                lines = iter(partial(stdout.readline, MOST_LINE_BYTES), b"")
                output = self._read_start(lines)
                for line in lines:
                    self._heard_s = time.monotonic()
                    if line.endswith(b"\n"):
                        self._take(decode_report(line), len(line))
                    elif len(line) >= MOST_LINE_BYTES:
                        raise ProtocolError(f"a line without an end: {one_line(line[:80].decode(errors='replace'))}")
        except UserError as error:
            self._lose(str(error))
        except ProtocolError as error:
            self._lose(f"What {self.name} says is {error}; the link was closed.")
        else:
            self._lose(self._why_ended(output))

    def _read_start(self, lines: Iterator[bytes]) -> bytes:
        """Answer the start script until the program says hello; return other output, such as a login shell's."""
        output = b""
        for line in lines:
            if line.startswith(HELLO):
                self._take(decode_report(line), len(line))
                return b""
            if line.startswith(MARK.encode()):
                self.is_detached = self._is_closing = line.split()[1:] == [b"detached"]
                self._start.answer(line.decode(errors="replace"), self.name, self._orders.put, self._notify)
                continue
            output += line
            if len(output) > _MOST_GARBAGE_BYTES:
                raise UserError(
                    f"{self.name} prints so much before a command runs that the program cannot answer; its shell should"
                    f" print nothing without a terminal: {one_line(output[:200].decode(errors='replace'))}"
                )
        return output

    def _take(self, report: Report, size: int) -> None:
        with self._changed:
            match report:
                case Beat(t_ns=t_ns):
                    self._offset_ns = max(self._offset_ns, t_ns - time.monotonic_ns())
                    return
                case HostHello(t_ns=t_ns):
                    if self._hello is None:  # later ones are those of recordings
                        self._hello, self._offset_ns = report, t_ns - time.monotonic_ns()
                        self._changed.notify_all()
                    return
                case Sample() | SlowSample() | Processes():
                    self._readings += 1
            if self._readings > _READINGS_AT_ONCE:
                raise UserError(
                    f"The program on {self.name} sends more than {_READINGS_PER_S:,} readings a second, so the link was"
                    " closed."
                )
            self._changed.wait_for(lambda: self._queued_bytes < _MOST_QUEUED_BYTES or self.lost)
            self._reports.append((report, size))
            self._queued_bytes += size
            self._changed.notify_all()

    def _why_ended(self, output: bytes) -> str:
        if self._is_closing:
            return f"The link to {self.name} was closed."
        try:
            exit_status = self._process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return f"The program on {self.name} closed its stdout; try again."
        self._threads[0].join(_LAST_WORDS_S)
        all_output = "\n".join((output.decode(errors="replace"), *self._stderr))
        return explain_end(self._start.address, exit_status, all_output)

    def _watch(self) -> None:
        """Send beats, and check how much the host sends and how long it has been silent."""
        while True:
            due_s = time.monotonic() + BEAT_S
            with self._changed:
                if self._changed.wait_for(lambda: self.lost is not None, BEAT_S):
                    return
                self._readings = max(0, self._readings - _READINGS_PER_S)
                is_late = time.monotonic() - due_s > _STOOD_STILL_S
                if self._hello is None or is_late or self._queued_bytes >= _MOST_QUEUED_BYTES:
                    self._heard_s = time.monotonic()
            if self._hello is not None:
                self.send(Beat())
            if self.silent_s >= LOST_S:
                quiet = units.with_unit(self.silent_s, "s")
                self._lose(f"The link to {self.name} was lost: nothing has come from it for {quiet}.")

    def _read_stderr(self) -> None:
        """Keep the last lines, and report each wait once."""
        assert self._process.stderr is not None, "it was started with pipes"
        with self._process.stderr as stderr:
            for line in iter(partial(stderr.readline, _MOST_STDERR_BYTES), b""):
                text = plain_text(line.decode(errors="replace").rstrip())
                waits_for = describe_wait(text)
                if waits_for is None:
                    self._stderr.append(text)
                else:
                    self._wait_for(waits_for)

    def _wait_for(self, sentence: str) -> None:
        if sentence != self._waits_for:
            self._waits_for = sentence
            self._notify(sentence)
