"""The program on a host as a local process: a launcher starts it, it takes orders, and it is heard until lost."""

import contextlib
import logging
import os
import queue
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
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
_READ_BYTES = 1 << 16
_READINGS_PER_S, _READINGS_AT_ONCE = 5_000, 20_000
"""A host that sends more counts as lost: 200 GPUs have 4,000 per second."""
_END_S, _CUT_S = 1.0, 0.4
"""How long a launcher may take to end after its stdin closes, and after SIGTERM; the program ends by itself, too."""
_LAST_WORDS_S = 5.0
"""How long one that closed its stdout may take to end and say why."""
_LOOK_S = 0.1
_QUIET_S = 5.0
"""The longest time that a user waits without being told for what."""
_WARN_S = 5.0
"""After this many seconds without a message a host is reported as silent."""


class LinkLostError(UserError):
    """A host is lost, with the reason in one sentence."""


class HostProcess:
    """The program on a host; everything it sends is bounded, and checked by type. `lost` is why it is lost, else None.

    What is not read waits in the pipe, and then on the host. `process` is the launcher.

    Thread: any; `wait_hello` and `next` one at a time. Others write, and read stderr.
    """

    def __init__(self, start: Start, name: str, notify: Callable[[str], None] = lambda _: None) -> None:
        """Start it; `notify` gets a sentence on each wait, on any thread. Raises `UserError`."""
        self.name, self.address = name, start.address
        self.lost: str | None = None
        self.hello: HostHello | None = None
        self.is_detached = False
        """Whether a run has started there that continues without this program."""
        self._start, self._notify = start, notify
        command = start.command()
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **ENVIRONMENT},
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(explain_start(start.address, command[0], error)) from error
        assert self.process.stdout is not None, "it was started with pipes"
        self._stdout = self.process.stdout
        self._poll = select.poll()
        self._poll.register(self._stdout, select.POLLIN)
        # Held while stdout is read, or closed.
        self._reading = threading.RLock()
        self._unread = bytearray()
        self._preamble = b""
        self._orders: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._stderr: deque[str] = deque(maxlen=_MOST_STDERR_LINES)
        self._offset_ns = -(2**63)
        self._heard_s = self._counted_s = time.monotonic()
        self._readings = 0.0
        self._waits_for, self._is_closing = "", False
        self._threads = [
            threading.Thread(target=work, name=f"{work.__name__} of {name}", daemon=True)
            for work in (self._read_stderr, self._write)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self._heard_s

    def now_ns(self) -> int:
        """Return the time on the host's monotonic clock, after its hello, minus the fastest answer's travel time."""
        return time.monotonic_ns() + self._offset_ns

    def wait_hello(self, is_cancelled: Callable[[], bool] = lambda: False) -> HostHello:
        """Wait for its hello, which may take hours in Slurm's queue, and answer its start script until then.

        Raises `LinkLostError` if it cannot be reached or started there, or the wait was cancelled.
        """
        quiet_s = time.monotonic() + _QUIET_S
        unsent = {b"wheel", b"uv", b"orders"}
        while self.hello is None:
            line = self._line(_LOOK_S)
            if is_cancelled():
                raise self._lose("Connecting was cancelled.")
            if line is None:
                if time.monotonic() > quiet_s and not self._waits_for:
                    self._tell_wait(f"Waiting for {self.name} to answer …")
            elif line.startswith(HELLO):
                report = self._decode(line)
                if isinstance(report, HostHello):
                    self.hello, self._offset_ns = report, report.t_ns - time.monotonic_ns()
            elif line.startswith(MARK.encode()):
                match line.split():
                    case [_, b"send", name] if name in unsent:
                        unsent.remove(name)
                        title, data = self._start.requested(name.decode())
                        self._notify(f"Sending {title} to {self.name} ({units.byte_size(len(data))}) …")
                        self._orders.put(data)
                    case [_, b"detached"]:
                        self.is_detached = self._is_closing = True
            else:  # such as a login shell's
                self._preamble += line
                if len(self._preamble) > _MOST_GARBAGE_BYTES:
                    beginning = one_line(self._preamble[:200].decode(errors="replace"))
                    raise self._lose(
                        f"{self.name} prints so much before a command runs that the program cannot answer; its shell"
                        f" should print nothing without a terminal: {beginning}"
                    )
        self._preamble = b""
        return self.hello

    def send(self, order: Order) -> None:
        """Give it an order, which a lost one ignores."""
        self._orders.put(encode(order))

    def next(self, timeout_s: float) -> Report | None:
        """Return the next report, None after that time without one; raises `LinkLostError`."""
        end_s = time.monotonic() + timeout_s
        while (line := self._line(max(0.0, end_s - time.monotonic()))) is not None:
            report = self._decode(line)
            if isinstance(report, Beat | HostHello | Sample | SlowSample | Processes):
                now_s = time.monotonic()
                self._readings = 1 + max(0.0, self._readings - _READINGS_PER_S * (now_s - self._counted_s))
                self._counted_s = now_s
                if self._readings > _READINGS_AT_ONCE:
                    too_many = f"more than {_READINGS_PER_S:,} readings a second, so the link was closed"
                    raise self._lose(f"The program on {self.name} sends {too_many}.")
            if isinstance(report, Beat):
                self._offset_ns = max(self._offset_ns, report.t_ns - time.monotonic_ns())
            elif not isinstance(report, HostHello):  # that of a recording
                return report
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
            self.process.wait(_END_S)
        self.cut()

    def cut(self, reason: str = "") -> None:
        """Give it up: end the launcher within moments."""
        if self.lost is None:
            self.lost = reason or f"The link to {self.name} was closed."
            _log.log(logging.INFO if self._is_closing else logging.WARNING, "%s", self.lost)
        self._orders.put(None)
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_CUT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with self._reading:
            self._stdout.close()
        for thread in self._threads:
            thread.join(_CUT_S)

    def _lose(self, reason: str) -> LinkLostError:
        """Give it up, and return the error that says why."""
        self.cut(reason)
        return LinkLostError(self.lost)

    def _line(self, timeout_s: float) -> bytes | None:
        """Return the next line, None after that time without one; raises `LinkLostError`."""
        with self._reading:
            if self.lost is not None:
                raise LinkLostError(self.lost)
            while (end := self._unread.find(b"\n") + 1) == 0:
                if len(self._unread) >= MOST_LINE_BYTES:
                    raise self._lie(f"a line without an end: {one_line(self._unread[:80].decode(errors='replace'))}")
                if not self._poll.poll(timeout_s * 1e3):
                    if self.hello is not None and self.silent_s >= LOST_S:
                        quiet = units.with_unit(self.silent_s, "s")
                        raise self._lose(f"The link to {self.name} was lost: nothing has come from it for {quiet}.")
                    return None
                data = os.read(self._stdout.fileno(), _READ_BYTES)
                if not data:
                    raise self._lose(self._why_ended())
                self._unread += data
                self._heard_s = time.monotonic()
            line = bytes(self._unread[:end])
            del self._unread[:end]
            return line

    def _decode(self, line: bytes) -> Report:
        try:
            return decode_report(line)
        except ProtocolError as error:
            raise self._lie(str(error)) from None

    def _lie(self, lie: str) -> LinkLostError:
        return self._lose(f"What {self.name} says is {lie}; the link was closed.")

    def _why_ended(self) -> str:
        if self._is_closing:
            return f"The link to {self.name} was closed."
        try:
            exit_status = self.process.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            return f"The program on {self.name} closed its stdout; try again."
        self._threads[0].join(_LAST_WORDS_S)
        preamble = b"" if self.hello is not None else self._preamble + self._unread
        all_output = "\n".join((preamble.decode(errors="replace"), *self._stderr))
        return explain_end(self.address, exit_status, all_output)

    def _write(self) -> None:
        """Write orders, and beats between them; the reading side reports why the pipe closed."""
        assert self.process.stdin is not None, "it was started with pipes"
        with contextlib.suppress(OSError), self.process.stdin as stdin:
            while True:
                try:
                    lines = self._orders.get(timeout=BEAT_S)
                except queue.Empty:
                    lines = encode(Beat()) if self.hello is not None else b""
                if lines is None:
                    return
                view = memoryview(lines)
                while view:
                    view = view[os.write(stdin.fileno(), view) :]

    def _read_stderr(self) -> None:
        """Keep the last lines, and report each wait once."""
        assert self.process.stderr is not None, "it was started with pipes"
        with self.process.stderr as stderr:
            for line in iter(partial(stderr.readline, _MOST_STDERR_BYTES), b""):
                text = plain_text(line.decode(errors="replace").rstrip())
                waits_for = describe_wait(text)
                if waits_for is None:
                    self._stderr.append(text)
                else:
                    self._tell_wait(waits_for)

    def _tell_wait(self, sentence: str) -> None:
        if sentence != self._waits_for:
            self._waits_for = sentence
            self._notify(sentence)
