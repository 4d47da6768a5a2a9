"""Standby workers, started ahead with the framework imported, and the setting that enables them.

While it imports it holds the lease of the processor, so it never does so while a run on the CPU measures, of whichever
program: it is not begun then, and such a run waits the few seconds until it is done. Runs on GPUs share the processor.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from app.errors import DatabaseError, TelemetryError
from app.records import LogLine
from app.runs.launcher import (
    WORKER,
    Exited,
    LocalLauncher,
    LocalWorker,
    Post,
    ProcessSpec,
    Worker,
    WorkerEvent,
    requested_interpreter,
)
from app.runs.leases import CPU, Lease, Leases
from app.telemetry.feed import TelemetryFeed
from workloads.catalog import Machine
from workloads.protocol import STANDBY, Hello, Start

_log = logging.getLogger("variantscope.worker")

_IMPORT_S = 120.0
"""An import that takes longer hangs; the processor's lease must come back."""
_UNUSED_S = 900.0
"""It holds half a gigabyte: one that nobody took for so long is thrown away."""
_GONE_S = 5.0


class StandbyLauncher:
    """Starts workers as `LocalLauncher` does, or takes one that stands by, and then begins the next.

    There are as many as runs go on at once, at least one, and only where `wanted` says so. They serve only a run whose
    own process would be started in the very same way; where none fits, or it died, the run starts cold. The workers end
    with `close` at the latest. The next one is of the Python that the last run named, so that of runs by two all have
    an import beside them alike.
    """

    def __init__(self, leases: Leases, wanted: Callable[[], bool], command: tuple[str, ...] = WORKER) -> None:
        self._importing = _ImportLease(leases)
        self._wanted = wanted
        self._command = (*command, STANDBY)
        self._cold = LocalLauncher(command)
        # A worker dies with the thread that started it (Linux), so this one lasts.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="standby")
        self._lock = threading.Lock()
        self._standbys: list[_StandbyWorker] = []
        self._running = 0
        self._interpreter = ""

    def launch(self, start: Start, post: Post) -> Worker:
        """Gives the order to the worker that stands by longest, even if it is still importing, else to a cold one."""
        interpreter = requested_interpreter(start)
        standby = self._take_matching(ProcessSpec.current(self._command, interpreter))
        counted_post = self._count_run(post)
        served = standby.serve(start, counted_post) if standby is not None else None
        if served is not None:
            _log.info("standby worker %d serves the run", served.pid)
        try:
            worker = served or self._cold.launch(start, counted_post)
        except OSError:
            self._count_end()
            raise
        self._interpreter = interpreter
        self.prepare()
        return worker

    def prepare(self) -> None:
        """Begins what is missing if it is wanted and no run on the CPU goes on, ends what is not; returns at once."""
        self._thread.submit(self._start_missing).add_done_callback(Future.result)

    def wait_ready(self) -> bool:
        """Waits until all that `prepare` began have imported or ended; whether one stands by then."""
        self._thread.submit(lambda: None).result()
        with self._lock:
            standbys = list(self._standbys)
        alive = [standby.wait_ready() for standby in standbys]
        return any(alive)

    def close(self) -> None:
        """Ends the workers that stand by, if there are any, and begins no other."""
        # Nothing is given to the thread for it: one that starts only now is never woken again where Ctrl-C comes then.
        self._thread.shutdown()
        self._clear()

    def _count_run(self, post: Post) -> Post:
        """Counts a run that begins; the post that counts its end."""

        def counted_post(event: WorkerEvent) -> None:
            if isinstance(event, Exited):
                self._count_end()
            post(event)

        with self._lock:
            self._running += 1
        return counted_post

    def _count_end(self) -> None:
        with self._lock:
            self._running -= 1

    def _start_missing(self) -> None:
        if not self._wanted():
            _log.debug("no standby worker is wanted")
            self._clear()
            return
        with self._lock:
            self._standbys = [standby for standby in self._standbys if standby.is_alive]
            while len(self._standbys) < max(1, self._running):
                if not self._importing.begin():
                    _log.info("no standby worker now: a run uses the processor")
                    return
                try:
                    self._standbys.append(
                        _StandbyWorker(ProcessSpec.current(self._command, self._interpreter), self._importing.end)
                    )
                except OSError as error:
                    _log.warning("no standby worker: %s", error)
                    # The next run's own start will meet it, and say so.
                    self._importing.end()
                    return

    def _clear(self) -> None:
        with self._lock:
            standbys, self._standbys = self._standbys, []
        for standby in standbys:
            standby.end()

    def _take_matching(self, process_spec: ProcessSpec) -> "_StandbyWorker | None":
        """The one that stands by longest; those of other surroundings end."""
        with self._lock:
            matching = [standby for standby in self._standbys if standby.process_spec == process_spec]
            others = [standby for standby in self._standbys if standby.process_spec != process_spec]
            self._standbys = matching[1:]
        for other in others:
            _log.info("a standby worker does not fit the run, which needs another environment or folder")
            other.end()
        return matching[0] if matching else None


class _ImportLease:
    """The processor's lease, held once for all imports of one program that go on."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._lock = threading.Lock()
        self._count = 0
        self._lease: Lease | None = None

    def begin(self) -> bool:
        """Whether an import may begin; each that does must `end`."""
        with self._lock:
            if self._count == 0:
                self._lease = self._leases.take([CPU], 1)
            if self._lease is None:
                return False
            self._count += 1
            return True

    def end(self) -> None:
        """One import is done; the lease goes back with the last."""
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._lease is not None:
                self._lease.release()
                self._lease = None


class _StandbyWorker:
    """One worker that stands by: what it says is kept until a run takes it. `imported` is called when it has imported.

    Raises `OSError` where it cannot be started.
    """

    def __init__(self, process_spec: ProcessSpec, on_imported: Callable[[], None]) -> None:
        self.process_spec = process_spec
        self._importing = ExitStack()
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._gone = threading.Event()
        self._events: list[WorkerEvent] = []
        self._post: Post | None = None
        self._discarded = False
        self._worker = LocalWorker(process_spec.start(), self._receive)
        self._importing.callback(on_imported)
        self._timeout = self._start_timeout(_IMPORT_S)
        _log.info("standby worker %d launched", self._worker.pid)
        self._worker.listen()

    @property
    def is_alive(self) -> bool:
        """Whether its process is there."""
        return not self._gone.is_set()

    def wait_ready(self) -> bool:
        """Waits until it has imported or ended; whether it lives then."""
        self._ready.wait()
        return self.is_alive

    def serve(self, start: Start, post: Post) -> Worker | None:
        """Gives it the order, and `post` all that it said; None if it is gone, with its last words in the run's log."""
        if self._worker.has_exited:
            self._gone.wait(_GONE_S)
        with self._lock:
            self._timeout.cancel()
            self._importing.close()
            if not self.is_alive:
                self._log_exit(post)
                return None
            for event in self._events:
                post(event)
            self._post = post
        self._worker.send_start(start)
        return self._worker

    def end(self) -> None:
        """Throws it away, unless a run has it, and waits until it is gone."""
        with self._lock:
            if self._post is not None:
                return
            self._timeout.cancel()
            if self.is_alive:
                _log.info("standby worker %d discarded", self._worker.pid)
                self._discarded = True
                self._worker.kill()
        self._gone.wait(_GONE_S)

    def _start_timeout(self, seconds: float) -> threading.Timer:
        timeout = threading.Timer(seconds, self.end)
        timeout.daemon = True
        timeout.start()
        return timeout

    def _receive(self, event: WorkerEvent) -> None:
        with self._lock:
            if isinstance(event, Hello | Exited):
                self._timeout.cancel()
                self._importing.close()
                if isinstance(event, Exited):
                    self._gone.set()
                self._ready.set()
            if self._post is not None:
                self._post(event)
                return
            self._events.append(event)
            if isinstance(event, Hello):
                _log.info("standby worker %d is ready", self._worker.pid)
                self._timeout = self._start_timeout(_UNUSED_S)

    def _log_exit(self, post: Post) -> None:
        if self._discarded:
            return
        for event in self._events:
            if isinstance(event, LogLine):
                post(event)
            elif isinstance(event, Exited):
                message = f"(the worker that stood by ended with exit status {event.exit_code}: this run started cold)"
                post(LogLine(time.monotonic_ns(), message))


AUTOMATIC: Final = "automatic"
ON: Final = "on"
OFF: Final = "off"

STANDBY_VARIABLE: Final = "VARIANTSCOPE_STANDBY"
"""The environment variable that says `on` or `off`; anything else leaves it to the setting, or the machine."""

MIN_PROCESSORS: Final = 8
"""An import takes one of them for some seconds beside a run; with so many, runs on H200s were no slower for it."""


def environment_choice() -> str:
    """What the variable says, `on` or `off`; "" where it says nothing of use."""
    choice = os.environ.get(STANDBY_VARIABLE, "").strip().lower()
    return choice if choice in (ON, OFF) else ""


def is_standby_wanted(feed: TelemetryFeed, stored_choice: Callable[[], str | None] = lambda: None) -> bool:
    """Whether to have one: as the variable says, else as was `chosen`, else where there is room.

    Waits until it is known what machine this is. None is wanted where telemetry or the database does not answer.
    """
    try:
        choice = environment_choice() or stored_choice()
        if choice in (ON, OFF):
            return choice == ON
        return supports_standby(feed.wait_inventory().machine)
    except (TelemetryError, DatabaseError):
        return False


def supports_standby(machine: Machine) -> bool:
    """Whether a machine has one by itself."""
    return not no_standby_reason(machine)


def no_standby_reason(machine: Machine) -> str:
    """Why a machine has none by itself, in a few words; "" where it has one.

    Without a GPU no import may go on beside a run, so none would be ready for the next.
    """
    if not machine.gpus:
        return "no GPU"
    if machine.cpu_count < MIN_PROCESSORS:
        return f"fewer than {MIN_PROCESSORS} processors"
    return ""
