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
from app.runs.leases import CPU, Lease, Leases
from workloads.protocol import STANDBY, Hello, Start

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
        self._importing = _Importing(leases)
        self._wanted = wanted
        self._command = (*command, STANDBY)
        self._cold = LocalLauncher(command)
        # A worker dies with the thread that started it (Linux), so this one lasts.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="standby")
        self._turn = threading.Lock()
        self._standbys: list[_Standby] = []
        self._going = 0
        self._interpreter = ""

    def launch(self, start: Start, post: Post) -> Worker:
        """Gives the order to the worker that stands by longest, even if it is still importing, else to a cold one."""
        interpreter = interpreter_of(start)
        standby = self._take(Birth.now(self._command, interpreter))
        heard = self._begun(post)
        served = standby.serve(start, heard) if standby is not None else None
        try:
            worker = served or self._cold.launch(start, heard)
        except OSError:
            self._ended()
            raise
        self._interpreter = interpreter
        self.prepare()
        return worker

    def prepare(self) -> None:
        """Begins what is missing if it is wanted and no run on the CPU goes on, ends what is not; returns at once."""
        self._thread.submit(self._begin).add_done_callback(Future.result)

    def wait_ready(self) -> bool:
        """Waits until all that `prepare` began have imported or ended; whether one stands by then."""
        self._thread.submit(lambda: None).result()
        with self._turn:
            standbys = list(self._standbys)
        lives = [standby.wait_ready() for standby in standbys]
        return any(lives)

    def close(self) -> None:
        """Ends the workers that stand by, if there are any, and begins no other."""
        # Nothing is given to the thread for it: one that starts only now is never woken again where Ctrl-C comes then.
        self._thread.shutdown()
        self._clear()

    def _begun(self, post: Post) -> Post:
        """Counts a run that begins; the post that counts its end."""

        def heard(event: WorkerEvent) -> None:
            if isinstance(event, Exited):
                self._ended()
            post(event)

        with self._turn:
            self._going += 1
        return heard

    def _ended(self) -> None:
        with self._turn:
            self._going -= 1

    def _begin(self) -> None:
        if not self._wanted():
            self._clear()
            return
        with self._turn:
            self._standbys = [standby for standby in self._standbys if standby.lives]
            while len(self._standbys) < max(1, self._going):
                if not self._importing.begin():
                    return
                try:
                    self._standbys.append(_Standby(Birth.now(self._command, self._interpreter), self._importing.end))
                except OSError:
                    # The next run's own start will meet it, and say so.
                    self._importing.end()
                    return

    def _clear(self) -> None:
        with self._turn:
            standbys, self._standbys = self._standbys, []
        for standby in standbys:
            standby.end()

    def _take(self, birth: Birth) -> "_Standby | None":
        """The one that stands by longest; those of other surroundings end."""
        with self._turn:
            fitting = [standby for standby in self._standbys if standby.birth == birth]
            others = [standby for standby in self._standbys if standby.birth != birth]
            self._standbys = fitting[1:]
        for other in others:
            other.end()
        return fitting[0] if fitting else None


class _Importing:
    """The processor's lease, held once for all imports of one program that go on."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._turn = threading.Lock()
        self._count = 0
        self._lease: Lease | None = None

    def begin(self) -> bool:
        """Whether an import may begin; each that does must `end`."""
        with self._turn:
            if self._count == 0:
                self._lease = self._leases.take([CPU], 1)
            if self._lease is None:
                return False
            self._count += 1
            return True

    def end(self) -> None:
        """One import is done; the lease goes back with the last."""
        with self._turn:
            self._count -= 1
            if self._count == 0 and self._lease is not None:
                self._lease.release()
                self._lease = None


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
