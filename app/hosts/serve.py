"""The program on a host: `run --events` follows orders on stdin, and reports on stdout.

Everything ends when stdin closes, after `LOST_S` without a message, or with this process. Workers end with their
program: their stdin closes, and Linux kills them. But if the program is killed, processes that workers started would
survive, as would the scratch folder. So the first process, the guard, forks the program and only waits for it. As a
subreaper it becomes the parent of every orphan below it (prctl(2)), and kills them all. If the guard is killed, the
program sees another parent, and does the same.

A detached run is executed by the same program, whose stdin and stdout are files (`app.hosts.detached`): it ends after
its run.
"""

import contextlib
import ctypes
import fcntl
import logging
import os
import platform
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn, cast

import msgspec
import psutil

from app.errors import UserError, bug_message
from app.grants import FILE_VARIABLE as GRANTS_VARIABLE
from app.grants import order_grants, require, typed
from app.hosts import messages
from app.hosts.detached import list_runs, read_run, remove_run, stop_run
from app.log import configure_child
from app.runs.environment import host_info
from app.runs.experiment.idle_wait import IdleState
from app.runs.host import ClockAnchor, Host, RunOrder
from app.runs.jobs import run_job
from app.runs.leases import CPU, Leases
from app.runs.maker import RunMaker
from app.runs.script import place_tree
from app.runs.standby import StandbyLauncher
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage, SetRate
from app.values import units
from app.values.events import RunEnded, RunEvent
from app.values.fields import Sample, SlowSample
from app.values.samples import Processes, TelemetryGap, Waiting
from workloads.catalog import FRAMEWORKS, default_interpreter, find_python, installed_framework
from workloads.job_protocol import JobRequest, JobResult
from workloads.protocol import ProtocolError, decode, encode

_ORDERS: msgspec.json.Decoder[messages.Order] = msgspec.json.Decoder(messages.Order)
_READ_BYTES = 2**16
_PR_SET_CHILD_SUBREAPER = 36
_KILLED_S = 10.0
"""A killed process that remains this long hangs in a driver: it ends when the driver releases it."""
_LOOK_S = 0.5
_SOON_S = 0.01
READ_FILES, WRITTEN_FILE = ("weights_path", "start_path"), "path"
"""Fields of jobs that name a file; the scratch folder here names the file like the field."""
MOST_RECORDING_BYTES = 2_000_000_000
"""Longer recordings get no more telemetry."""
_RESERVED_BYTES = 8_192
"""Freed for the last lines if the disk is full, so that the end can be recorded."""
_FULL = "The recording of this run is full: from here on telemetry is not kept."
_DISK = "The host's disk was full or failed ({reason}), so the run was ended there."
_TERMINATED = "The run was asked to end on its host (SIGTERM), as when that is shut down."


def start_guard() -> tuple[Path, int]:
    """Fork the program and guard it; return only in the program, before it has threads.

    Returns:
        The program's scratch folder, and the guard's process id.
    """
    # Ctrl-C in a terminal is for the program there, which closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scratch = Path(tempfile.mkdtemp(prefix="variantscope-host-"))
    # Orders were allowed where they were given: they are granted here for the life of this process.
    os.environ[GRANTS_VARIABLE] = str(scratch / "grants" / "grants.json")
    # uv's PATH leads to the program's own Python; a user's command means the host's.
    if path := os.environ.pop(messages.PATH_VARIABLE, ""):
        os.environ["PATH"] = path
    guard = os.getpid()
    if program := os.fork():
        _guard(program, scratch)
    # A launcher may kill its process's group, which must not include both.
    os.setsid()
    return scratch, guard


def _guard(program: int, scratch: Path) -> NoReturn:
    """Forward requests to end the program, wait for it, end everything, and exit with its status."""

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended as well
            os.kill(program, signal.SIGTERM)

    with contextlib.suppress(OSError):
        os.close(0)
    _become_subreaper()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, pass_on)
    while (ended := os.waitpid(-1, 0))[0] != program:
        pass  # a worker's orphan
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP))
    exit_code = os.waitstatus_to_exitcode(ended[1])
    if exit_code < 0:
        print_error(f"The program on this host was ended by signal {-exit_code}.")
    end_everything(scratch)
    os._exit(exit_code if exit_code >= 0 else 128 - exit_code)


def end_everything(scratch: Path) -> None:
    """Kill every process below this one, and remove the scratch folder."""
    _become_subreaper()
    end_s = time.monotonic() + _KILLED_S
    while (left := psutil.Process().children(recursive=True)) and time.monotonic() < end_s:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, _SOON_S)
    if left:
        numbers = ", ".join(str(process.pid) for process in left)
        print_error(f"A process started here does not end ({numbers}): it may hang in a driver.")
    shutil.rmtree(scratch, ignore_errors=True)


def print_error(sentence: str) -> None:
    """Print a sentence to stderr, which the launcher brings to the user."""
    with contextlib.suppress(OSError):
        os.write(2, f"{sentence}\n".encode(errors="replace"))


def _become_subreaper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def host_hello() -> messages.HostHello:
    """Return this process's first report about its host."""
    return messages.HostHello(
        pid=os.getpid(),
        t_ns=time.monotonic_ns(),
        utc_ns=time.time_ns(),
        environment=host_info(),
        python=(platform.python_version(), sys.executable),
        user=psutil.Process().username(),
        home=str(Path.home()),
        home_free_bytes=shutil.disk_usage(Path.home()).free,
        frameworks=tuple(
            messages.HostFramework(
                name=key,
                interpreter=str(find_python(interpreter) or interpreter or sys.executable),
                version=installed_framework(interpreter, framework),
            )
            for key, framework in FRAMEWORKS.items()
            for interpreter in [default_interpreter()]
        ),
    )


class Reports:
    """Writes reports to stdout; other output, in Python or below, goes to stderr. Thread: any."""

    def __init__(self, scratch: Path) -> None:
        self._lock, self._scratch, self._is_full = threading.Lock(), scratch, False
        self._output = os.dup(1)
        os.dup2(2, 1)
        os.set_blocking(self._output, True)

    def say(self, report: msgspec.Struct | bytes) -> None:
        """Send this, or an encoded one; waits while nobody reads. Raises `UserError` if a recording's disk is full."""
        with self._lock:
            self._write(report if isinstance(report, bytes) else encode(report))

    def offer(self, report: msgspec.Struct) -> None:
        """Send this unless nobody reads; returns soon."""
        if self._lock.acquire(timeout=_SOON_S):
            try:
                if select.select([], [self._output], [], 0.0)[1]:
                    self._write(encode(report))
            finally:
                self._lock.release()

    def record(self, event: RunEvent) -> None:
        """Send an event of a detached run; a very long recording gets no more samples."""
        if isinstance(event, Sample | SlowSample) and os.fstat(self._output).st_size > MOST_RECORDING_BYTES:
            if self._is_full:
                return
            self._is_full = True
            event = TelemetryGap(t_ns=event.t_ns, reason=_FULL)
        self.say(event)

    def end(self) -> None:
        """Send nothing from now on: what ends now does so because this process does."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._output)

    def _write(self, line: bytes) -> None:
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._output, view) :]
        except BrokenPipeError:
            end_everything(self._scratch)  # the guard may have been killed
            os._exit(0)
        except OSError as error:
            # The line is incomplete, and what follows needs space.
            os.ftruncate(self._output, max(0, os.fstat(self._output).st_size - _RESERVED_BYTES))
            os.write(self._output, messages.CUT)
            raise UserError(_DISK.format(reason=error.strerror)) from None


class Server:
    """Follows orders: one run or job after the other, or telemetry.

    Thread: the one that reads orders; each run or job has another.
    """

    def __init__(self, scratch: Path, guard: int, *, is_detached: bool) -> None:
        self._scratch, self._guard, self._is_detached = scratch, guard, is_detached
        self._reports = Reports(scratch)
        self._feed = TelemetryFeed()
        self._leases = Leases()
        self._idle_state = IdleState()
        self._wants_standby = self._is_over = False
        self._launcher = StandbyLauncher(self._leases, lambda: self._wants_standby)
        # Those of the latest run or job.
        self.stop: Callable[[str], None] = lambda _: None
        self._run_anyway: Callable[[], None] = lambda: None
        # The next run begins when the previous one has released its resources.
        self._one_at_a_time = threading.Lock()

    def follow_all(self) -> str:
        """Follow orders until stdin closes, or a detached run is over; return "", or why they end earlier."""
        unfinished, heard_s = b"", time.monotonic()
        try:
            self._reports.say(host_hello())
            while not self._is_over:
                is_ready = select.select([0], [], [], _LOOK_S)[0]
                if os.getppid() != self._guard:
                    return "the process that guards it was killed."
                if data := os.read(0, _READ_BYTES) if is_ready else b"":
                    *lines, unfinished = (unfinished + data).split(b"\n")
                    if len(unfinished) >= messages.MOST_LINE_BYTES:
                        lines.append(unfinished)  # too long: decoding reports it
                    for line in lines:
                        self._follow(decode(_ORDERS, line, "an order"))
                    heard_s = time.monotonic()
                elif self._is_detached:
                    time.sleep(_LOOK_S)  # a file may grow
                elif is_ready:
                    return ""
                elif time.monotonic() > heard_s + messages.LOST_S:
                    quiet = units.exactly(messages.LOST_S, "s")
                    cause = "so the link is cut or the program that started it is suspended"
                    return f"it heard nothing for {quiet}, {cause}."
            return "" if self._is_detached else "it was asked to (SIGTERM)."
        except ProtocolError as error:
            return f"what it was told is {error}."
        except Exception as error:  # noqa: BLE001 - the edge of the process: whatever happens, nothing is left here
            return _reason(error)
        finally:
            # What ends now does so because this process does.
            self._reports.end()
            self._feed.close()

    def terminate(self) -> None:
        """End a detached run, or all at once, which the guard may no longer do: a link that is cut kills it soon."""
        if self._is_detached:
            self.stop(_TERMINATED)
        else:
            self._reports.end()  # a worker that dies of the same signal is no crash
            self._is_over = True

    def _follow(self, order: messages.Order) -> None:
        match order:
            case messages.Beat():
                self._reports.offer(messages.Beat(t_ns=time.monotonic_ns()))
            case messages.Piece(name=name):
                messages.add_piece(self._scratch / Path(name).name, order)
            case RunOrder():
                self._run(order)
            case messages.DetachedOrder():
                self._begin(partial(self._serve_detached, order))
            case SetRate(hz=hz):
                self._feed.set_rate(hz)
                self._begin(self._tell_telemetry)
            case messages.Stop(reason=reason):
                self.stop(reason)
            case messages.RunAnyway():
                self._run_anyway()
            case _:
                cancelled = threading.Event()
                self.stop = lambda _: cancelled.set()
                self._begin(partial(self._do_job, order, cancelled))

    def _begin(self, work: Callable[[], None]) -> None:
        """Execute a slow order in another thread, and report why it failed."""

        def answer() -> None:
            try:
                with self._one_at_a_time:
                    work()
            except Exception as error:  # noqa: BLE001 - the edge of the process: the program elsewhere is told, also of a bug
                refused = messages.Refused(kind=type(error).__name__, reason=_reason(error))
                self._reports.say(Waiting(time.monotonic_ns(), refused.reason) if self._is_detached else refused)
            self._is_over = self._is_detached

        # On Linux a worker dies with the thread that started it; this one lasts long enough.
        threading.Thread(target=answer, daemon=True).start()

    def _run(self, order: RunOrder) -> None:
        """Begin a run, which can be stopped from now on."""
        anchor, weights = ClockAnchor(time.monotonic_ns(), order.utc_ns), self._scratch / messages.WEIGHTS
        send = self._reports.record if self._is_detached else self._reports.say

        def now() -> ClockAnchor:
            """Return this machine's time, with the ordering machine's wall clock."""
            t_ns = time.monotonic_ns()
            return ClockAnchor(t_ns, anchor.utc_at(t_ns))

        def emit(event: RunEvent) -> None:
            if isinstance(event, RunEnded) and event.outcome.name == "completed" and weights.is_file():
                for piece in messages.pieces(weights, messages.WEIGHTS):
                    self._reports.say(piece)
            send(event)

        def run() -> None:
            start, source = order.start, order.start.source
            weights.unlink(missing_ok=True)
            if source is not None and source.command is not None:
                source = place_tree(source, self._scratch / messages.TREE)
                if source is None:
                    self._reports.say(messages.TreeWanted())
                    return
            saved = None if start.weights_path is None else str(weights)
            start = msgspec.structs.replace(start, source=source, weights_path=saved)
            require(order_grants(start), typed)
            maker.order = msgspec.structs.replace(order, start=start)
            self._wants_standby = order.standby
            self._feed.set_rate(order.hz)
            self._feed.start()
            maker.run()

        host = Host(telemetry=self._feed, launcher=self._launcher, leases=self._leases, now=now)
        maker = RunMaker(order, host, emit, idle_state=self._idle_state)
        self.stop, self._run_anyway = maker.stop, maker.run_anyway
        self._begin(run)

    def _do_job(self, ordered: JobRequest, cancelled: threading.Event) -> None:
        require(order_grants(ordered), typed)
        fields = [name for name in (*READ_FILES, WRITTEN_FILE) if getattr(ordered, name, None)]
        request = msgspec.structs.replace(ordered, **{name: str(self._scratch / name) for name in fields})
        devices = getattr(request, "gpu_uuids", ()) or (CPU,)
        lease = self._leases.wait(devices, len(devices), on_wait=lambda: None, wait_for_stop=cancelled.wait)
        if lease is None:
            raise TimeoutError
        try:
            # The remote program knows which result it waits for.
            result = run_job(request, cast(type[JobResult], JobResult), cancelled.is_set)
        finally:
            lease.release()
        if WRITTEN_FILE in fields:
            for piece in messages.pieces(self._scratch / WRITTEN_FILE, WRITTEN_FILE):
                self._reports.say(piece)
        self._reports.say(result)

    def _tell_telemetry(self) -> None:
        """Send all telemetry from now on, the inventory first; raises `UserError` if there never is one."""

        def tell(message: SamplerMessage) -> None:
            is_reading = isinstance(message, Sample | SlowSample | Processes)
            (self._reports.offer if is_reading else self._reports.say)(message)

        self._feed.start()
        self._feed.subscribe(tell)
        self._feed.wait_inventory(timeout_s=None)

    def _serve_detached(self, order: messages.DetachedOrder) -> None:
        match order.action:
            case "list":
                for run in list_runs():
                    self._reports.say(run)
            case "stop":
                stop_run(order.uid)
            case "fetch":
                for line in read_run(order.uid):
                    self._reports.say(line)
            case "remove":
                remove_run(order.uid)
        self._reports.say(messages.DetachedEnd())


def _reason(error: Exception) -> str:
    if isinstance(error, UserError | OSError):
        return str(error)
    traceback.print_exc()
    return bug_message(error)


def serve(*, is_detached: bool) -> NoReturn:
    """Follow orders until the remote program has ended, or a detached run, and end everything."""
    if is_detached:
        fcntl.flock(1, fcntl.LOCK_EX)  # until this program and its guard have ended
    scratch, guard = start_guard()
    server = Server(scratch, guard, is_detached=is_detached)
    configure_child()
    logging.getLogger("variantscope").addHandler(logging.NullHandler())
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    if complaint := server.follow_all():
        print_error(f"The program on {platform.node()} ends: {complaint}")
    end_everything(scratch)
    os._exit(1 if complaint else 0)
