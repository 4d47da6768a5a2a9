"""A worker started ahead: TensorFlow is imported by the time a run needs it, and no GPU is touched before that.

While it imports it holds the lease of the processor, so it never does so while a run on the CPU measures, of whichever
program: it is not begun then, and such a run waits the few seconds until it is done. Runs on GPUs share the processor.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from app.records import LogLine
from app.runs.launcher import (
    WORKER,
    Birth,
    Exited,
    LocalLauncher,
    LocalWorker,
    Post,
    Worker,
    WorkerEvent,
    interpreter_of,
)
from app.runs.leases import CPU, Leases
from workloads.protocol import STANDBY, Hello, Start

_IMPORT_S = 120.0
"""An import that takes longer hangs; the processor's lease must come back."""
_UNUSED_S = 900.0
"""It holds half a gigabyte: one that nobody took for so long is thrown away."""
_GONE_S = 5.0


class StandbyLauncher:
    """Starts workers as `LocalLauncher` does, or takes the one that stands by, and then begins the next.

    There is one at most, and only where `wanted` says so. It serves only a run whose own process would be started in
    the very same way; where it does not fit, or died, the run starts cold. The workers end with `close` at the latest.
    The next one is of the Python that the last run named, so that of runs by two all have an import beside them alike.
    """

    def __init__(self, leases: Leases, wanted: Callable[[], bool], command: tuple[str, ...] = WORKER) -> None:
        self._leases = leases
        self._wanted = wanted
        self._command = (*command, STANDBY)
        self._cold = LocalLauncher(command)
        # A worker dies with the thread that started it (Linux), so this one lasts.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="standby")
        self._turn = threading.Lock()
        self._standby: _Standby | None = None
        self._interpreter = ""

    def launch(self, start: Start, post: Post) -> Worker:
        """Gives the order to the worker that stands by, even if it is still importing, else to a cold one."""
        standby, interpreter = self._take(), interpreter_of(start)
        self._interpreter = interpreter
        served = standby.serve(start, post) if standby is not None and self._fits(standby, interpreter) else None
        worker = served or self._cold.launch(start, post)
        self.prepare()
        return worker

    def prepare(self) -> None:
        """Begins a standby where there is none, it is wanted, and no run on the CPU goes on; returns at once."""
        self._thread.submit(self._begin).add_done_callback(Future.result)

    def wait_ready(self) -> bool:
        """Waits until what `prepare` began has imported or ended; whether a worker stands by then."""
        self._thread.submit(lambda: None).result()
        with self._turn:
            standby = self._standby
        return standby is not None and standby.wait_ready()

    def close(self) -> None:
        """Ends the worker that stands by, if there is one, and begins no other."""
        if (standby := self._thread.submit(self._take).result()) is not None:
            standby.end()
        self._thread.shutdown()

    def _begin(self) -> None:
        if not self._wanted():
            return
        with self._turn:
            if self._standby is not None and self._standby.lives:
                return
            if (lease := self._leases.take([CPU], 1)) is None:
                return
            try:
                self._standby = _Standby(Birth.now(self._command, self._interpreter), lease.release)
            except OSError:
                # The next run's own start will meet it, and say so.
                lease.release()

    def _take(self) -> "_Standby | None":
        with self._turn:
            standby, self._standby = self._standby, None
            return standby

    def _fits(self, standby: "_Standby", interpreter: str) -> bool:
        if standby.birth == Birth.now(self._command, interpreter):
            return True
        standby.end()
        return False


class _Standby:
    """One worker that stands by: what it says is kept until a run takes it. `imported` is called when it has imported.

    Raises `OSError` where it cannot be started.
    """

    def __init__(self, birth: Birth, imported: Callable[[], None]) -> None:
        self.birth = birth
        self._importing = ExitStack()
        self._turn = threading.Lock()
        self._settled = threading.Event()
        self._gone = threading.Event()
        self._said: list[WorkerEvent] = []
        self._post: Post | None = None
        self._thrown_away = False
        self._worker = LocalWorker(birth.start(), self._hear)
        self._importing.callback(imported)
        self._limit = self._limit_to(_IMPORT_S)
        self._worker.listen()

    @property
    def lives(self) -> bool:
        """Whether its process is there."""
        return not self._gone.is_set()

    def wait_ready(self) -> bool:
        """Waits until it has imported or ended; whether it lives then."""
        self._settled.wait()
        return self.lives

    def serve(self, start: Start, post: Post) -> Worker | None:
        """Gives it the order, and `post` all that it said; None if it is gone, with its last words in the run's log."""
        if self._worker.ended:
            self._gone.wait(_GONE_S)
        with self._turn:
            self._limit.cancel()
            self._importing.close()
            if not self.lives:
                self._tell_end(post)
                return None
            for event in self._said:
                post(event)
            self._post = post
        self._worker.order(start)
        return self._worker

    def end(self) -> None:
        """Throws it away, unless a run has it, and waits until it is gone."""
        with self._turn:
            if self._post is not None:
                return
            self._limit.cancel()
            if self.lives:
                self._thrown_away = True
                self._worker.kill()
        self._gone.wait(_GONE_S)

    def _limit_to(self, seconds: float) -> threading.Timer:
        limit = threading.Timer(seconds, self.end)
        limit.daemon = True
        limit.start()
        return limit

    def _hear(self, event: WorkerEvent) -> None:
        with self._turn:
            if isinstance(event, Hello | Exited):
                self._limit.cancel()
                self._importing.close()
                if isinstance(event, Exited):
                    self._gone.set()
                self._settled.set()
            if self._post is not None:
                self._post(event)
                return
            self._said.append(event)
            if isinstance(event, Hello):
                self._limit = self._limit_to(_UNUSED_S)

    def _tell_end(self, post: Post) -> None:
        if self._thrown_away:
            return
        for event in self._said:
            if isinstance(event, LogLine):
                post(event)
            elif isinstance(event, Exited):
                words = f"(the worker that stood by ended with exit status {event.exit_code}: this run started cold)"
                post(LogLine(time.monotonic_ns(), words))
