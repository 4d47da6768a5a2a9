"""One-off measurements outside experiments: device calibration and the search for the largest batch size."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from app.analysis.largest_batch import BatchSearch, BatchTrial, LargestBatch, SearchBounds, trial_spec
from app.errors import UserError
from app.runs.host import Host
from app.runs.jobs import Notify, leased
from app.runs.leases import CPU
from app.runs.session import RunServices, RunSession
from app.runs.sinks import Sink
from app.storage.store import Store
from workloads import catalog
from workloads.catalog import Machine
from workloads.job_protocol import Calibrate
from workloads.protocol import Calibration, RunSpec


class CalibrationResult(NamedTuple):
    """A device's rate as measured now and as stored before; None if it was not stored."""

    calibration: Calibration
    previous: Calibration | None


def calibrate(host: Host, store: Store, precisions: Sequence[str], notify: Notify) -> Iterator[CalibrationResult]:
    """Calibrate every GPU, or without GPUs the processor, and store each rate immediately.

    Without precisions, all that the machine has are measured. `notify` takes a sentence for the user.

    Raises:
        UserError: The machine does not have one of the precisions.
    """
    machine = host.machine
    for precision in _precisions(machine, precisions):
        for device in [gpu.uuid for gpu in machine.gpus] or [CPU]:
            notify(f"{device} in {precision} …")
            request = Calibrate(precision=precision, gpu_uuids=(device,) if machine.gpus else ())
            with leased(host.leases, [device], notify):
                calibration = host.run_job(request, Calibration)
            previous = store.calibration(calibration.device, calibration.precision)
            store.save_calibration(calibration, time.time_ns())
            yield CalibrationResult(calibration, previous)


def _precisions(machine: Machine, words: Sequence[str]) -> list[str]:
    """Return the precisions to calibrate: the given ones, else all that the machine can compute in."""
    parameter = catalog.PRECISION
    names = [str(catalog.parse(parameter, word)) for word in words] or [choice.value for choice in parameter.choices]
    reasons = {name: catalog.precision_refusal(name, machine) for name in names}
    if words and (refused := next(filter(None, reasons.values()), None)):
        raise UserError(refused)
    return [name for name in names if reasons[name] is None]


PURPOSE = "a try for the largest batch"

SinksForTry = Callable[[int, int], Sequence[Sink]]
"""Returns the sinks of a try, given its number, from 1, and its batch size."""


class LargestBatchSession:
    """The search for the largest batch size that fits. Thread: `run` blocks its thread, once; `stop` any."""

    def __init__(self, spec: RunSpec, bounds: SearchBounds, services: RunServices, sinks_for_try: SinksForTry) -> None:
        self._spec = spec
        self._search = BatchSearch(bounds)
        self._services = services
        self._sinks_for_try = sinks_for_try
        # Reentrant: a signal's handler calls `stop` on a thread that may hold the lock.
        self._lock = threading.RLock()
        self._stopped = False
        self._session: RunSession | None = None

    def stop(self) -> None:
        """Ask the current try to end, and start no more; returns immediately."""
        with self._lock:
            self._stopped = True
            if self._session is not None:
                self._session.stop()

    def run_anyway(self) -> None:
        """Start the current try although others use its device; returns immediately."""
        with self._lock:
            if self._session is not None:
                self._session.run_anyway()

    def run(self) -> LargestBatch:
        """Try batch sizes until the answer is known; raises `UserError` if runs cannot be stored."""
        while (batch_size := self._search.next_batch_size()) is not None:
            if (ended := self._try(batch_size)) is not None:
                return ended
        return self._search.result()

    def _try(self, batch_size: int) -> LargestBatch | None:
        """Run one try; return the result if the search ends with it."""
        sinks = self._sinks_for_try(len(self._search.tries) + 1, batch_size)
        session = RunSession(trial_spec(self._spec, batch_size), self._services, sinks, purpose=PURPOSE)
        with self._lock:
            if self._stopped:
                return self._search.result("stopped")
            self._session = session
        outcome = session.run()
        trial = BatchTrial(session.number or 0, batch_size, outcome.name)
        if self._search.record(trial, outcome.reason):
            return None
        return self._search.result("stopped" if outcome.name == "stopped" else "broken off", outcome.reason)
