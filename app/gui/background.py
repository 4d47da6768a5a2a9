"""Work off the GUI thread: a plain function runs on a worker thread, its result comes back to the GUI thread."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from PySide6.QtCore import QObject, Qt, Signal

from app.errors import UserError, bug_words
from workloads.catalog import UsageError

Result = TypeVar("Result")


class Background(QObject):
    """Runs functions one after another on one thread, so a database is never read by two of them at a time."""

    _ended = Signal(object, object, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._closed = False
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
        self._ended.connect(self._deliver, Qt.ConnectionType.QueuedConnection)

    def run(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], None],
        failed: Callable[[UserError], None],
    ) -> None:
        """Call `work` on the worker thread, then `done(result)` or `failed(error)` on the GUI thread.

        `UserError` and `UsageError` are told to `failed`. So is a bug, that nothing waits for what will not come, and
        then it is raised on the GUI thread. Nothing is begun once it is closed.
        """
        if self._closed:
            return
        future = self._executor.submit(work)
        future.add_done_callback(lambda ended: self._ended.emit(ended, done, failed))

    def close(self) -> None:
        """Drop what has not begun and wait for what has; nothing is delivered afterwards."""
        self._closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _deliver(self, ended: Future[Any], done: Callable[[Any], None], failed: Callable[[UserError], None]) -> None:
        if self._closed:
            return
        error = ended.exception()
        if error is None:
            done(ended.result())
            return
        failed(_told(error))
        if not isinstance(error, UserError | UsageError):
            raise error


def _told(error: BaseException) -> UserError:
    """What the user is told of it."""
    if isinstance(error, UserError):
        return error
    return UserError(str(error) if isinstance(error, UsageError) else bug_words(error))
