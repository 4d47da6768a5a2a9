"""Finding the largest batch that fits: each try is a short run in a fresh worker, stored as what it is."""

import threading
from collections.abc import Callable, Sequence

from app.analysis.largest_batch import Bounds, LargestBatch, Search, Try, try_of
from app.runs.session import RunServices, RunSession
from app.runs.sinks import Sink
from workloads.protocol import RunSpec

PURPOSE = "a try for the largest batch"

SinksOf = Callable[[int, int], Sequence[Sink]]
"""Who is told of a try's events, by its number, counted from 1, and its batch size."""


class LargestBatchSession:
    """One search. `run` blocks its thread until the answer; `stop` may come from any other."""

    def __init__(self, spec: RunSpec, bounds: Bounds, services: RunServices, sinks_of: SinksOf) -> None:
        self._spec = spec
        self._search = Search(bounds)
        self._services = services
        self._sinks_of = sinks_of
        # A signal's handler calls `stop` on a thread that may be inside already.
        self._lock = threading.RLock()
        self._stopped = False
        self._session: RunSession | None = None

    def stop(self) -> None:
        """Asks the try that is going on to end, and makes no other; returns at once."""
        with self._lock:
            self._stopped = True
            if self._session is not None:
                self._session.stop()

    def run(self) -> LargestBatch:
        """Tries batch sizes until the answer is known. Raises `UserError` where runs cannot be stored."""
        while (batch_size := self._search.next()) is not None:
            if (ended := self._try(batch_size)) is not None:
                return ended
        return self._search.result()

    def _try(self, batch_size: int) -> LargestBatch | None:
        """One try; the result where the search ends with it."""
        sinks = self._sinks_of(len(self._search.tries) + 1, batch_size)
        session = RunSession(try_of(self._spec, batch_size), self._services, sinks, purpose=PURPOSE)
        with self._lock:
            if self._stopped:
                return self._search.result("stopped")
            self._session = session
        outcome = session.run()
        done = Try(session.number or 0, batch_size, outcome.name)
        if self._search.told(done, outcome.reason):
            return None
        return self._search.result("stopped" if outcome.name == "stopped" else "broken off", outcome.reason)
