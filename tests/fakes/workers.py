"""Workers without a process: they say what a test has them say."""

from collections.abc import Callable, Sequence

from app.runs.launcher import Exited, Launcher, Post, Worker, WorkerEvent
from workloads.protocol import Start


class ScriptedWorker:
    """A worker that has begun to say its lines; it says the rest when the test lets it end, or is asked to."""

    def __init__(self, post: Post) -> None:
        self.pid = 2**22 + 1  # above every process id of Linux
        self._post = post
        self._is_over = False

    def say(self, *events: WorkerEvent) -> None:
        for event in events:
            self._post(event)

    def end(self, exit_code: int = 0) -> None:
        if not self._is_over:
            self._is_over = True
            self._post(Exited(exit_code))

    def ask_to_stop(self) -> None:
        self.end()

    def terminate(self) -> None:
        self.end(-15)

    def kill(self) -> None:
        self.end(-9)


class ScriptedLauncher(Launcher):
    """Starts scripted workers that begin with what `begin` gives when each is started."""

    def __init__(self, begin: Callable[[], Sequence[WorkerEvent]]) -> None:
        super().__init__()
        self._begin = begin
        self.workers: list[ScriptedWorker] = []

    def launch(self, start: Start, post: Post) -> Worker:
        worker = ScriptedWorker(post)
        worker.say(*self._begin())
        self.workers.append(worker)
        return worker
