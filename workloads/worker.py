"""One run in one process: `python -m workloads.worker`, order on stdin, messages on stdout, the rest on stderr."""

import os
import signal
import sys
import time
from typing import BinaryIO

from workloads.build import approve, build, import_for
from workloads.dummy import ignores_stop
from workloads.endings import ending_of
from workloads.libraries import loaded_versions
from workloads.lifeline import Lifeline, claim_stdout, die_with_parent, reporter
from workloads.protocol import (
    PROTOCOL_VERSION,
    Facts,
    Finished,
    Hello,
    PhaseName,
    PhaseStarted,
    ProtocolError,
    Start,
    decode_start,
)
from workloads.training import Loop, Report, Task, plan_of


class Worker:
    """Runs one order from import to finish, reporting as it goes."""

    def __init__(self, start: Start, report: Report, lifeline: Lifeline) -> None:
        self._start = start
        self._report = report
        self._lifeline = lifeline
        self._task: Task | None = None

    def run(self) -> Finished:
        """The run's last word, however it ends."""
        try:
            return self._perform()
        except Exception as error:  # noqa: BLE001 - the process's edge: the end is told in words, with its traceback
            return ending_of(error, self._start.spec.variant, self._peak_bytes())

    def _perform(self) -> Finished:
        uuids = self._start.gpu_uuids
        spec = approve(self._start.spec, uuids)
        self._phase("import")
        facts = import_for(spec, uuids)
        if facts:
            self._report(Facts(facts=facts))
        completed = False
        if not self._stopped():
            self._phase("build")
            self._task = build(spec)
            completed = Loop(self._task, plan_of(spec.variant), self._report, self._stopped).run()
        self._phase("finish")
        if loaded := loaded_versions():
            self._report(Facts(facts=loaded))
        return self._finished(completed=completed)

    def _finished(self, *, completed: bool) -> Finished:
        return Finished(
            outcome="completed" if completed else "stopped",
            t_ns=time.monotonic_ns(),
            reason=None if completed else "Stopped before its end, as asked.",
            allocator_peak_bytes=self._peak_bytes(),
        )

    def _stopped(self) -> bool:
        return self._lifeline.stopped() and not ignores_stop(self._start.spec.variant)

    def _phase(self, phase: PhaseName) -> None:
        self._report(PhaseStarted(phase=phase, t_ns=time.monotonic_ns()))

    def _peak_bytes(self) -> int | None:
        return self._task.allocator_peak_bytes() if self._task is not None else None


def _serve(stdin: BinaryIO, report: Report, parent: int) -> Finished:
    """Say hello, read the order, run it."""
    report(Hello(protocol=PROTOCOL_VERSION, pid=os.getpid(), t_ns=time.monotonic_ns(), utc_ns=time.time_ns()))
    line = stdin.readline()
    if not line:
        return Finished(outcome="stopped", t_ns=time.monotonic_ns(), reason="Stopped before its order came.")
    try:
        start = decode_start(line)
    except ProtocolError as error:
        return Finished(outcome="failed", t_ns=time.monotonic_ns(), reason=f"The worker's order is wrong: {error}.")
    lifeline = Lifeline(stdin, parent)
    lifeline.start()
    return Worker(start, report, lifeline).run()


def main() -> None:
    """Run one order and be gone: TensorFlow's own teardown takes half a second and tells nobody anything."""
    pipe = claim_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = die_with_parent()
    report = reporter(pipe)
    report(_serve(sys.stdin.buffer, report, parent))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
