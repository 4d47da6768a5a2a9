"""The program on a host: `run --events` and `watch --events` follow orders on stdin, and report on stdout.

Everything ends when stdin closes, after `LOST_S` without a message, or with this process. Workers end with their
program: their stdin closes, and Linux kills them. But if the program is killed, processes that workers started would
survive, as would the scratch folder. So the first process, the guard, forks the program and only waits for it. As a
subreaper it becomes the parent of every orphan below it (prctl(2)), and kills them all. If the guard is killed, the
program sees its end of a pipe close, and does the same.

A separate thread writes stdout, so that beats are answered and the end of stdin is noticed even if nobody reads; a run
that is not read waits, and readings are dropped.
"""

import contextlib
import ctypes
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
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TypeVar, cast

import msgspec
import psutil

from app.errors import TelemetryError, UserError, bug_message, write_error
from app.grants import FILE_VARIABLE as GRANTS_VARIABLE
from app.grants import order_grants, require, typed
from app.hosts.messages import (
    LOST_S,
    MOST_FILE_BYTES,
    MOST_LINE_BYTES,
    PATH_VARIABLE,
    PIECE_BYTES,
    TREE,
    Beat,
    HostFramework,
    HostHello,
    JobDone,
    JobOrder,
    Order,
    Piece,
    Refused,
    RunAnyway,
    Stop,
    Stored,
    TreeWanted,
    head_line,
)
from app.log import configure_child
from app.paths import open_private, program_version
from app.runs.environment import environment_info, host_info
from app.runs.experiment.idle_wait import IdleLimits, IdleState, IdleWait, WaitStatus
from app.runs.host import ClockAnchor, Host, RunOrder
from app.runs.jobs import JobCrashedError, JobError, run_job
from app.runs.leases import CPU, Lease, Leases
from app.runs.maker import RunMaker
from app.runs.script import place_tree
from app.runs.standby import StandbyLauncher
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage, SetRate
from app.telemetry.sampler_process import Output, claim_output
from app.values import units
from app.values.events import RunEnded, RunEvent
from app.values.fields import Sample, SlowSample
from app.values.samples import Inventory, Processes, Waiting
from workloads.catalog import FRAMEWORKS, default_interpreter, find_python, installed_framework
from workloads.job_protocol import JobResult
from workloads.protocol import ProtocolError, decode, encode

_ORDERS: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
_MOST_UNSAID_BYTES = 2**20
_CHUNK_BYTES = 2**16
_QUIET_S = 1.0
"""A shorter wait is not reported."""
_PR_SET_CHILD_SUBREAPER = 36
_KILLED_S = 10.0
"""A killed process that remains this long hangs in a driver: it ends when the driver releases it."""
_LOOK_S = 0.01
WEIGHTS = "weights.npz"
READ_FILES, WRITTEN_FILE = ("weights_path", "start_path"), "path"
"""Fields of jobs that name a file; the scratch folder here names the file like the field."""
Ordered = TypeVar("Ordered", RunOrder, JobOrder)


def start_guard() -> tuple[Path, int]:
    """Fork the program and guard it; return only in the program, before it has threads.

    Returns:
        The program's scratch folder, and the file that closes when the guard ends.
    """
    # Ctrl-C in a terminal is for the program there, which closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    scratch = Path(tempfile.mkdtemp(prefix="variantscope-host-"))
    # Orders were allowed where they were given: they are granted here for the life of this process.
    os.environ[GRANTS_VARIABLE] = str(scratch / "grants" / "grants.json")
    # uv's PATH leads to the program's own Python; a user's command means the host's.
    if path := os.environ.pop(PATH_VARIABLE, ""):
        os.environ["PATH"] = path
    read_end, write_end = os.pipe()
    if program := os.fork():
        os.close(read_end)
        with contextlib.suppress(OSError):
            os.close(0)
        _become_subreaper()
        status = _wait_for(program)
        end_everything(scratch)
        os._exit(status)
    os.close(write_end)
    # A launcher may kill its process's group, which must not include both.
    os.setsid()
    return scratch, read_end


def _wait_for(program: int) -> int:
    """Wait for the program, and forward requests to end it; return a shell's exit status for it."""

    def pass_on(_number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended as well
            os.kill(program, signal.SIGTERM)

    signals = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    for number in signals:
        signal.signal(number, pass_on)
    while (ended := os.waitpid(-1, 0))[0] != program:
        pass  # a worker's orphan
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    exit_code = os.waitstatus_to_exitcode(ended[1])
    if exit_code < 0:
        print_error(f"The program on this host was ended by signal {-exit_code}.")
    return exit_code if exit_code >= 0 else 128 - exit_code


def end_everything(scratch: Path) -> None:
    """Kill every process below this one, and remove the scratch folder."""
    _become_subreaper()
    end_s = time.monotonic() + _KILLED_S
    while left := psutil.Process().children(recursive=True):
        if time.monotonic() > end_s:
            numbers = ", ".join(str(process.pid) for process in left)
            print_error(f"A process started here does not end ( {numbers}): it may hang in a driver.")
            break
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_LOOK_S)
    shutil.rmtree(scratch, ignore_errors=True)


def print_error(sentence: str) -> None:
    """Print a sentence to stderr, which the launcher brings to the user."""
    with contextlib.suppress(OSError):
        os.write(2, f"{sentence}\n".encode(errors="replace"))


def _become_subreaper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def host_hello() -> HostHello:
    """Return this process's first report about its host."""
    return HostHello(
        pid=os.getpid(),
        t_ns=time.monotonic_ns(),
        utc_ns=time.time_ns(),
        environment=host_info(),
        python=(platform.python_version(), sys.executable),
        user=psutil.Process().username(),
        home=str(Path.home()),
        home_free_bytes=shutil.disk_usage(Path.home()).free,
        frameworks=tuple(
            HostFramework(
                name=key,
                interpreter=str(find_python(interpreter) or interpreter or sys.executable),
                version=installed_framework(interpreter, framework),
            )
            for key, framework in FRAMEWORKS.items()
            for interpreter in [default_interpreter()]
        ),
    )


class Outbox:
    """Writes reports on its own thread. Thread: any."""

    def __init__(self, output: Output) -> None:
        self._output = output
        # Guards everything below.
        self._changed = threading.Condition()
        self._urgent: deque[bytes] = deque([head_line(program_version()), encode(host_hello())])
        self._lines: deque[bytes] = deque()
        self._unsaid_bytes = 0
        self._is_writing = self._is_over = False
        threading.Thread(target=self._write, name="outbox", daemon=True).start()

    def answer(self, report: msgspec.Struct) -> None:
        """Send this next; returns immediately."""
        with self._changed:
            self._urgent.append(encode(report))
            self._changed.notify_all()

    def say(self, report: msgspec.Struct) -> None:
        """Send this after all earlier reports; waits while many are unsent."""
        self.pass_on(encode(report))

    def pass_on(self, line: bytes) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._unsaid_bytes < _MOST_UNSAID_BYTES)
            self._lines.append(line)
            self._unsaid_bytes += len(line)
            self._changed.notify_all()

    def offer(self, reading: msgspec.Struct) -> None:
        """Send this unless too much is unsent; returns immediately."""
        if self._unsaid_bytes < _MOST_UNSAID_BYTES / 4:
            self.say(reading)

    def flush(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not (self._urgent or self._lines or self._is_writing))

    def end(self) -> None:
        """Send nothing from now on: what ends now does so because this process does."""
        with self._changed:
            self._is_over = True

    def _write(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: (self._urgent or self._lines) and not self._is_over)
                lines = b"".join(self._urgent)
                self._urgent.clear()
                while self._lines and len(lines) < _CHUNK_BYTES:
                    line = self._lines.popleft()
                    self._unsaid_bytes -= len(line)
                    lines += line
                self._is_writing = True
            self._output.write_lines(lines)


def pieces(path: Path, name: str) -> Iterator[Piece]:
    """Yield a file in pieces; raises `OSError`."""
    size = path.stat().st_size
    with path.open("rb") as file:
        for offset in range(0, max(1, size), PIECE_BYTES):
            yield Piece(name=name, offset=offset, size=size, data=file.read(PIECE_BYTES))


def add_piece(path: Path, piece: Piece) -> None:
    """Add the next piece to a file; the first one restarts it, the last one completes it.

    Raises:
        ProtocolError: It is not the next one.
        UserError: It cannot be written.
    """
    part, end = path.with_name(f"{path.name}.part"), piece.offset + len(piece.data)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(part, "ab" if piece.offset else "wb", opener=open_private) as file:
            if file.tell() != piece.offset or end > piece.size or piece.size > MOST_FILE_BYTES:
                raise ProtocolError("a file whose pieces do not fit together")
            file.write(piece.data)
        if end == piece.size:
            part.replace(path)
    except OSError as error:
        raise write_error(path, error) from None


def make_run(
    order: RunOrder, host: Host, emit: Callable[[RunEvent], None], weights: Path, idle_wait: IdleWait | None = None
) -> RunMaker:
    """Prepare an ordered run whose weights are saved at this path; raises `UserError`."""
    require(order_grants(order.start), typed)
    if order.start.weights_path is not None:
        start = msgspec.structs.replace(order.start, weights_path=str(weights))
        order = msgspec.structs.replace(order, start=start)

    def wait_until_idle(lease: Lease) -> Mapping[str, str]:
        noted = ""

        def go_on(status: WaitStatus) -> bool:
            nonlocal noted
            if status.reason != noted and status.waited_s > _QUIET_S:
                noted = status.reason
                limit = units.with_unit(status.limit_s, "s")
                emit(Waiting(host.now().t_ns, f"Waiting for an idle machine: {noted} ({limit} at most)."))
            return maker.may_begin

        facts = idle_wait.wait(lease.devices, go_on) if idle_wait is not None else {}
        if noted:
            emit(Waiting(host.now().t_ns, ""))
        return facts

    maker = RunMaker(order, host, emit, prepare=wait_until_idle)
    return maker


def with_tree(order: RunOrder, archive: Path, ask: Callable[[], None] = lambda: None) -> RunOrder:
    """Return an order whose command's frozen tree is on this host; `ask` requests a missing archive.

    Raises:
        UserError: There is no archive, or it cannot be unpacked.
    """
    source = order.start.source
    if source is None or source.command is None:
        return order
    if (placed := place_tree(source, archive)) is None:
        ask()
        placed = place_tree(source, archive)
    if placed is None:
        raise UserError("The host received something other than the frozen tree of the command; start it again.")
    return msgspec.structs.replace(order, start=msgspec.structs.replace(order.start, source=placed))


def ordered_host(order: RunOrder, feed: TelemetryFeed, **parts: object) -> Host:
    """Return this machine for an ordered run; its wall clock is the ordering machine's."""
    start_ns = time.monotonic_ns()

    def now() -> ClockAnchor:
        t_ns = time.monotonic_ns()
        return ClockAnchor(t_ns, order.utc_ns + t_ns - start_ns)

    return Host(telemetry=feed, now=now, describe=environment_info, **parts)  # type: ignore[arg-type]


@dataclass(slots=True)
class _Active:
    """A run or job in progress; `idle_wait` is the wait before a run."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    maker: RunMaker | None = None
    idle_wait: IdleWait | None = None


class Server:
    """Follows the remote program's orders: one run or job after the other, with concurrent telemetry.

    Thread: the one that reads orders; each run or job has another.
    """

    def __init__(self, scratch: Path, outbox: Outbox, feed: TelemetryFeed) -> None:
        self._scratch, self._outbox, self._feed = scratch, outbox, feed
        self._leases = Leases()
        self._idle_state = IdleState()
        self._wants_standby = False
        self._launcher = StandbyLauncher(self._leases, lambda: self._wants_standby)
        self._active: _Active | None = None
        self._tree_came = threading.Event()
        self.stored = threading.Event()
        """Set when the run sent from here is stored at the other end."""
        # The next run begins when the previous one has released its resources.
        self._one_at_a_time = threading.Lock()

    def follow(self, order: Order) -> None:
        """Execute an order; slow ones run in a separate thread."""
        active = self._active
        match order:
            case Beat():
                self._outbox.answer(Beat(t_ns=time.monotonic_ns()))
            case Piece(name=name):
                add_piece(self._scratch / Path(name).name, order)
                if name == TREE and order.offset + len(order.data) == order.size:
                    self._tree_came.set()
            case RunOrder():
                self._begin(self._run, order)
            case JobOrder():
                self._begin(self._do_job, order)
            case Stop(reason=reason) if active is not None:
                active.cancelled.set()
                if active.maker is not None:
                    active.maker.stop(reason)
            case RunAnyway() if active is not None and active.maker is not None:
                active.maker.run_anyway()
                if active.idle_wait is not None:
                    active.idle_wait.skip()
            case SetRate(hz=hz):
                self._feed.set_rate(hz)
            case Stored():
                self.stored.set()

    def _begin(self, work: Callable[[Ordered, _Active], None], order: Ordered) -> None:
        self._active = _Active()
        # On Linux a worker dies with the thread that started it; this one lasts long enough.
        threading.Thread(target=self._answer, args=(partial(work, order, self._active),), daemon=True).start()

    def _answer(self, work: Callable[[], None]) -> None:
        """Execute an order, and report why it failed."""
        try:
            with self._one_at_a_time:
                work()
        except Exception as error:  # noqa: BLE001 - the edge of the process: the program elsewhere is told, also of a bug
            refused = Refused(kind="bug", reason=bug_message(error))
            if isinstance(error, TimeoutError):
                refused = Refused(kind="cancelled", reason="It was stopped.")
            elif isinstance(error, JobError):
                kind = "job crashed" if isinstance(error, JobCrashedError) else "job error"
                refused = Refused(kind=kind, reason=str(error))  # type: ignore[arg-type]
            elif isinstance(error, UserError | OSError):
                refused = Refused(kind="user error", reason=str(error))
            else:
                traceback.print_exc()
            self._outbox.say(refused)

    def _run(self, order: RunOrder, active: _Active) -> None:
        weights = self._scratch / WEIGHTS
        weights.unlink(missing_ok=True)
        self._wants_standby = order.standby
        self._feed.set_rate(order.hz)
        self._feed.start()
        order = with_tree(order, self._scratch / TREE, partial(self._await_tree, active))
        host = ordered_host(order, self._feed, launcher=self._launcher, leases=self._leases)

        def emit(event: RunEvent) -> None:
            if isinstance(event, RunEnded) and event.outcome.name == "completed" and weights.is_file():
                for piece in pieces(weights, WEIGHTS):
                    self._outbox.say(piece)
            self._outbox.say(event)

        with closing(IdleWait(host, IdleLimits.of_plan(order.idle_wait_s), self._idle_state)) as idle_wait:
            active.idle_wait = idle_wait if order.idle_wait_s is not None else None
            active.maker = make_run(order, host, emit, weights, active.idle_wait)
            if active.cancelled.is_set():
                active.maker.stop()
            active.maker.run()

    def _await_tree(self, active: _Active) -> None:
        self._tree_came.clear()
        self._outbox.say(TreeWanted())
        while not self._tree_came.wait(_LOOK_S):
            if active.cancelled.is_set():
                raise TimeoutError

    def _do_job(self, order: JobOrder, active: _Active) -> None:
        require(order_grants(order.request), typed)
        fields = [name for name in (*READ_FILES, WRITTEN_FILE) if getattr(order.request, name, None)]
        request = msgspec.structs.replace(order.request, **{name: str(self._scratch / name) for name in fields})
        devices = getattr(request, "gpu_uuids", ()) or (CPU,)
        lease = self._leases.wait(devices, len(devices), on_wait=lambda: None, wait_for_stop=active.cancelled.wait)
        if lease is None:
            raise TimeoutError
        try:
            # The remote program knows which result it waits for.
            result = run_job(request, cast(type[JobResult], JobResult), active.cancelled.is_set)
        finally:
            lease.release()
        if WRITTEN_FILE in fields:
            for piece in pieces(self._scratch / WRITTEN_FILE, WRITTEN_FILE):
                self._outbox.say(piece)
        self._outbox.say(JobDone(result))


def serve(
    hz: float | None = None,
    *,
    once: bool = False,
    work: Callable[[Outbox, threading.Event], None] | None = None,
) -> int:
    """Follow orders until the remote program has ended, and end everything; return the exit status.

    With `hz`, telemetry is sent with that many readings per second; `once` ends after its first inventory, as does the
    end of `work`, which may wait for the event that is set when a run is stored at the other end.
    """
    scratch, guard = start_guard()
    os.set_blocking(1, True)
    outbox = Outbox(claim_output())
    configure_child()
    logging.getLogger("variantscope").addHandler(logging.NullHandler())
    feed = TelemetryFeed(hz or 20.0)
    server = Server(scratch, outbox, feed)
    end = partial(_end, scratch, outbox)
    if hz is not None:
        _say_telemetry(feed, outbox, end if once else None)
    if work is not None:
        threading.Thread(target=lambda: (work(outbox, server.stored), end()), name="work", daemon=True).start()
    complaint = _follow_all(server, guard)
    outbox.end()
    feed.close()
    if complaint:
        print_error(f"The program on {platform.node()} ends: {complaint}")
    end_everything(scratch)
    os._exit(1 if complaint else 0)


def _end(scratch: Path, outbox: Outbox) -> None:
    outbox.flush()
    end_everything(scratch)
    os._exit(0)


def _say_telemetry(feed: TelemetryFeed, outbox: Outbox, end: Callable[[], None] | None) -> None:
    """Send all telemetry, the inventory first, after which `end` is called."""

    def say(message: SamplerMessage) -> None:
        if isinstance(message, Sample | SlowSample | Processes):
            outbox.offer(message)
        else:
            outbox.answer(message)
        if end is not None and isinstance(message, Inventory) and not message.pending:
            threading.Thread(target=end, daemon=True).start()

    def say_end() -> None:
        """Report why there is no inventory, if there never is one; devices' losses show later ends."""
        try:
            feed.wait_inventory(timeout_s=None)
        except TelemetryError as error:
            outbox.answer(Refused(kind="user error", reason=str(error)))

    feed.start()
    feed.subscribe(say)
    threading.Thread(target=say_end, name="telemetry end", daemon=True).start()


def _follow_all(server: Server, guard: int) -> str:
    """Follow orders until stdin closes; return "", or why they end earlier. The file `guard` closes with the guard."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(guard, 0)
    unfinished, heard_s = b"", time.monotonic()
    try:
        while ready := poll.poll(max(0.0, heard_s + LOST_S - time.monotonic()) * 1e3):
            if any(file == guard for file, _ in ready):
                return "the process that guards it was killed."
            if not (data := os.read(0, _CHUNK_BYTES)):
                return ""
            *lines, unfinished = (unfinished + data).split(b"\n")
            if len(unfinished) >= MOST_LINE_BYTES:
                lines.append(unfinished)  # too long: decoding reports it
            for line in lines:
                server.follow(decode(_ORDERS, line, "an order"))
            heard_s = time.monotonic()
    except ProtocolError as error:
        return f"what it was told is {error}."
    except UserError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - the edge of the process: whatever happens, nothing is left here
        traceback.print_exc()
        return bug_message(error)
    quiet = units.exactly(LOST_S, "s")
    return f"it heard nothing for {quiet}, so the link is cut or the program that started it is suspended."
