"""Standby workers, started ahead with the framework imported, and the setting that enables them.

A standby worker holds the processor's lease while it imports, so it never imports while any program's run measures on
the CPU: it does not start during such a run, and such a run waits a few seconds for the import. Runs on GPUs share the
processor.

Several threads meet here: those of runs call `launch`, the GUI's calls `prepare`, the launcher's own thread starts the
workers, and each worker's reader threads deliver its events. `StandbyLauncher._lock` guards the list of workers,
`_StandbyWorker._lock` one worker's events and its owner. A worker's lock may be held while the launcher's is taken (a
run's end is counted), never the other way round.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice

from app.errors import UserError
from app.runs.launcher import (
    WORKER,
    Exited,
    Launcher,
    LocalWorker,
    Post,
    ProcessSpec,
    Python,
    Worker,
    WorkerEvent,
    granted_python,
    named_python,
)
from app.runs.leases import CPU, Lease, Leases
from app.values.samples import LogLine
from workloads.catalog import default_interpreter, is_script
from workloads.protocol import STANDBY, Hello, RunSpec, Start, decode_message

_log = logging.getLogger("variantscope.worker")

_IMPORT_S = 120.0
"""A longer import hangs, and would keep the processor's lease."""
_UNUSED_S = 900.0
"""A standby worker holds half a gigabyte, so it is ended if no run has used it for this long."""
_GONE_S = 5.0
_MOST_EVENTS = 500
"""Events to store until a run takes the worker: its `Hello`, and what its import prints."""
_AHEAD = 2
"""Workers for the next runs: on an H200 a run that measured 3 s took 7 s in all, and an import beside it 10 s."""
_RECENT_RUNS = 8
"""A framework or Python that none of the last runs used gets no standby worker."""

Kind = tuple[str, Python]
"""What distinguishes standby workers: the framework that they import, and the runs' Python and packages."""


class StandbyLauncher(Launcher):
    """Gives a run a standby worker if one fits, else starts one as `Launcher` does; then it starts the next.

    If enabled, two are ready for the next expected runs, or as many as run concurrently. If no run is expected, there
    is one of each recently used kind, and one of the last run's kind for each current run. A worker fits only a run
    whose own process would start in exactly the same way.

    Thread: any; `launch` as in its base.
    """

    def __init__(self, leases: Leases, is_wanted: Callable[[], bool], command: tuple[str, ...] = WORKER) -> None:
        """Create a launcher without workers.

        `is_wanted` returns whether standby workers are enabled; the launcher's thread calls it before each start.
        """
        self._importing = _ImportLease(leases)
        self._is_wanted = is_wanted
        super().__init__(command)
        # On Linux a worker dies with the thread that started it, so this thread lasts as long as the launcher.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="standby")
        self._lock = threading.Lock()
        # Guarded by the lock, like everything below: runs take workers from the list while the launcher's thread adds
        # to it.
        self._standbys: list[_StandbyWorker] = []
        self._running = 0
        self._expected: list[Kind] = []
        self._recent: deque[Kind] = deque([("tensorflow", Python(default_interpreter()))], maxlen=_RECENT_RUNS)

    def launch(self, start: Start, post: Post) -> Worker:
        """Give the order to the oldest standby worker that fits, even if it still imports, else to a new worker."""
        if is_script(start.spec.workload):
            return super().launch(start, post)
        kind = _framework(start.spec), granted_python(start)
        standby = self._take_matching(kind)
        counted_post = self._count_run(post)
        served = standby.serve(start, counted_post) if standby is not None else None
        if served is not None:
            _log.info("standby worker %d serves the run", served.pid)
        try:
            worker = served or super().launch(start, counted_post)
        except (OSError, UserError):
            self._count_end()
            raise
        with self._lock:
            self._recent.append(kind)
            if kind in self._expected:
                self._expected.remove(kind)
        self.prepare()
        return worker

    def expect(self, specs: Sequence[RunSpec]) -> None:
        """Keep the workers of the next two of these runs ready; none is expected after them."""
        with self._lock:
            self._expected = [
                (_framework(spec), named_python(spec.variant)) for spec in specs if not is_script(spec.workload)
            ]
            is_expecting = bool(self._expected)
        if is_expecting:
            self.prepare()

    def prepare(self) -> None:
        """Start missing standby workers, unless a run uses the CPU; end superfluous ones. Returns immediately."""
        # Reads the result, so that a bug is logged instead of swallowed by the future.
        self._thread.submit(self._start_missing).add_done_callback(Future.result)

    def wait_ready(self) -> bool:
        """Wait until the workers that `prepare` started have imported or ended; return whether one is ready."""
        # The thread works in order: once this is done, so is what `prepare` submitted before.
        self._thread.submit(lambda: None).result()
        with self._lock:
            standbys = list(self._standbys)
        alive = [standby.wait_ready() for standby in standbys]
        return any(alive)

    def close(self) -> None:
        """End all standby workers and start no other."""
        # Not on the launcher's thread: if Ctrl-C arrived here, a thread that is only starting would never be woken.
        self._thread.shutdown()
        self._clear()

    def _count_run(self, post: Post) -> Post:
        """Count a run that starts; return a `post` that also counts its end."""

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
        if not self._is_wanted():
            _log.debug("no standby worker is wanted")
            self._clear()
            return
        with self._lock:
            used = {*self._recent, *self._expected}
        self._clear(used)
        # Held while workers start: `launch` then waits for the one being started, and takes it.
        with self._lock:
            self._standbys = [standby for standby in self._standbys if standby.is_alive]
            needed = Counter(self._expected[: max(_AHEAD, self._running)])
            if not needed:
                needed = Counter({**dict.fromkeys(self._recent, 1), self._recent[-1]: max(1, self._running)})
            ready = Counter(standby.kind for standby in self._standbys if standby.kind in needed)
            for kind in islice((needed - ready).elements(), max(0, needed.total() - ready.total())):
                self._start(kind)

    def _start(self, kind: Kind) -> None:
        """Start one more, unless none of this kind can start now."""
        if not self._importing.begin():
            _log.info("no standby worker now: a run uses the processor")
            return
        try:
            self._standbys.append(_StandbyWorker(kind, self._process_spec(kind), self._importing.end))
        except (OSError, UserError) as error:
            _log.warning("no standby worker: %s", error)
            # The next run meets the same error, and reports it.
            self._importing.end()

    def _process_spec(self, kind: Kind) -> ProcessSpec:
        framework, python = kind
        return ProcessSpec.current((*self._command, STANDBY, framework), python)

    def _clear(self, recent: Collection[Kind] = ()) -> None:
        with self._lock:
            ended = [standby for standby in self._standbys if standby.kind not in recent]
            self._standbys = [standby for standby in self._standbys if standby.kind in recent]
        # Outside the lock: each end waits for a process.
        for standby in ended:
            standby.end()

    def _take_matching(self, kind: Kind) -> "_StandbyWorker | None":
        """Take the oldest worker that fits from the list, and end those of the kind that do not."""
        process_spec = self._process_spec(kind)
        with self._lock:
            of_kind = [standby for standby in self._standbys if standby.kind == kind]
            matching = [standby for standby in of_kind if standby.process_spec == process_spec]
            unfit = [standby for standby in of_kind if standby not in matching]
            self._standbys = [standby for standby in self._standbys if standby not in (*matching[:1], *unfit)]
        for standby in unfit:
            _log.info("a standby worker does not fit the run, which needs another environment or folder")
            standby.end()
        return matching[0] if matching else None


def _framework(spec: RunSpec) -> str:
    return str(spec.variant.get("framework", "tensorflow"))


class _ImportLease:
    """The lease of the processor, held once for all current imports of this program. Thread: any."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._lock = threading.Lock()
        self._count = 0
        self._lease: Lease | None = None

    def begin(self) -> bool:
        """Return whether an import may start; each that does calls `end` once."""
        with self._lock:
            if self._count == 0:
                with suppress(UserError):  # the next run reports it
                    self._lease = self._leases.take([CPU], 1)
            if self._lease is None:
                return False
            self._count += 1
            return True

    def end(self) -> None:
        """Count an import as done; the last one releases the lease."""
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._lease is not None:
                self._lease.release()
                self._lease = None


class _StandbyWorker:
    """One standby worker; its events are stored until a run takes it.

    Thread: any. The worker's reader threads call `_receive`, timers call `end`.
    """

    def __init__(self, kind: Kind, process_spec: ProcessSpec, on_imported: Callable[[], None]) -> None:
        """Start the worker.

        `on_imported` is called once, when it has imported or ended.

        Raises:
            OSError: It cannot be started.
        """
        self.kind = kind
        self.process_spec = process_spec
        self._importing = ExitStack()
        # Guards everything below, and that stored events are posted before newer ones.
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._exited = threading.Event()
        self._events: list[WorkerEvent] = []
        self._post: Post | None = None
        self._discarded = False
        self._worker = LocalWorker(process_spec.start(), self._receive, decode_message)
        self._importing.callback(on_imported)
        self._timeout = self._start_timeout(_IMPORT_S)
        _log.info("standby worker %d launched", self._worker.pid)
        self._worker.listen()

    @property
    def is_alive(self) -> bool:
        return not self._exited.is_set()

    def wait_ready(self) -> bool:
        """Wait until it has imported or ended; return whether it is alive."""
        self._ready.wait()
        return self.is_alive

    def serve(self, start: Start, post: Post) -> Worker | None:
        """Give it an order.

        `post` gets every event, earlier ones first; if it died, the last lines of its log.

        Returns:
            The worker; None if it has ended.
        """
        if self._worker.has_exited:
            # Its watcher has not posted `Exited` yet. Not under the lock, which `_receive` needs for that.
            self._exited.wait(_GONE_S)
        with self._lock:
            self._timeout.cancel()
            self._importing.close()
            if self._discarded or not self.is_alive:
                self._log_exit(post)
                return None
            for event in self._events:
                post(event)
            self._post = post
        self._worker.send(start)
        return self._worker

    def end(self) -> None:
        """End it, unless a run uses it, and wait for its end."""
        with self._lock:
            if self._post is not None:
                return
            self._timeout.cancel()
            if self.is_alive:
                _log.info("standby worker %d discarded", self._worker.pid)
                self._discarded = True
                self._worker.kill()
        # Not under the lock, which `_receive` needs to set the event.
        self._exited.wait(_GONE_S)

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
                    self._exited.set()
                self._ready.set()
            if self._post is not None:
                self._post(event)
                return
            if not isinstance(event, LogLine | Hello | Exited) or len(self._events) >= _MOST_EVENTS:
                if not self._discarded:
                    _log.warning("standby worker %d is ended: it says what no standby worker says", self._worker.pid)
                    self._discarded = True
                    self._worker.kill()
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
                message = f"(the standby worker ended with exit status {event.exit_code}: this run started cold)"
                post(LogLine(time.monotonic_ns(), message))
