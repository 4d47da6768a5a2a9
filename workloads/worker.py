"""One run in one process: `python -m workloads.worker`, order on stdin, messages on stdout, the rest on stderr.

`python -m workloads.worker standby` imports TensorFlow before it says hello, for whichever run it will be given.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.build import approve, build, import_for, needs_tensorflow, witness_of
from workloads.dummy import ignores_stop
from workloads.endings import ending_of
from workloads.errors import TrainingError
from workloads.flops import flops_per_step
from workloads.libraries import loaded_versions
from workloads.lifeline import Lifeline, MessagePipe, claim_stdout, die_with_parent
from workloads.protocol import (
    PROTOCOL_VERSION,
    STANDBY,
    Facts,
    Finished,
    Flops,
    Hello,
    PhaseName,
    PhaseStarted,
    ProtocolError,
    RunSpec,
    Start,
    decode_start,
)
from workloads.runtime import import_ahead
from workloads.training import Loop, Report, Task, plan_of

if TYPE_CHECKING:
    from workloads.evidence.witness import Witness


class Worker:
    """Runs one order from import to finish, reporting as it goes.

    `told_ns` is when the order came; `facts` is what is to be told of this process besides what the run finds.
    """

    def __init__(
        self, start: Start, report: Report, stopped: Callable[[], bool], *, told_ns: int, facts: Mapping[str, str]
    ) -> None:
        self._start = start
        self._report = report
        self._stopped = stopped
        self._told_ns = told_ns
        self._facts = facts
        self._task: Task | None = None
        self._witness: Witness | None = None

    def run(self) -> Finished:
        """The run's last word, however it ends."""
        try:
            return self._perform()
        except Exception as error:  # noqa: BLE001 - the process's edge: the end is told in words, with its traceback
            peak_bytes = self._peak_bytes()
            self._testify()
            return ending_of(error, self._start.spec.variant, peak_bytes, self._start.source)

    def _perform(self) -> Finished:
        uuids = self._start.gpu_uuids
        spec = approve(self._start.spec, uuids)
        # In a standby that was still importing when its order came, this phase is what of that was left.
        self._report(PhaseStarted(phase="import", t_ns=self._told_ns))
        if facts := {**import_for(spec, uuids), **self._facts}:
            self._report(Facts(facts=facts))
        completed = False
        if not self._stopped():
            self._phase("build")
            self._task = build(spec, self._start.source)
            if (per_step := flops_per_step(spec)) is not None:
                self._report(Flops(per_step=per_step))
            completed = self._train(self._task, spec)
        # What follows the measured part uses memory of its own.
        peak_bytes = self._peak_bytes()
        if completed:
            self._look_closer(spec)
        self._testify()
        self._phase("finish")
        if completed:
            self._keep_weights()
            self._calibrate(spec)
        if loaded := loaded_versions():
            self._report(Facts(facts=loaded))
        if not completed:
            return _stopped_early(peak_bytes)
        return Finished(outcome="completed", t_ns=time.monotonic_ns(), allocator_peak_bytes=peak_bytes)

    def _train(self, task: Task, spec: RunSpec) -> bool:
        """Run the loop; true at its end, false when stopped."""
        plan, self._witness = plan_of(spec.variant), witness_of(spec, task)
        if self._witness is None:
            return Loop(task, plan, self._report, self._stopped).run()
        self._witness.start()
        return Loop(task, plan, self._report, self._stopped, self._witness.first_step_done).run()

    def _look_closer(self, spec: RunSpec) -> None:
        """Trace a few more steps, where that is asked for."""
        if self._witness is not None and spec.variant["evidence"] == "trace":
            self._phase("evidence")
            self._witness.trace()

    def _testify(self) -> None:
        """Tell once what is known of what ran: also of a run that was stopped or failed, if it made a first step."""
        witness, self._witness = self._witness, None
        if witness is not None and (evidence := witness.evidence()) is not None:
            self._report(evidence)

    def _keep_weights(self) -> None:
        """Save what was learnt, where that is asked for; raises `TrainingError` where it cannot be written."""
        if self._start.weights_path is None or self._task is None:
            return
        try:
            self._task.save_weights(Path(self._start.weights_path))
        except OSError as error:
            why = f"The weights could not be saved at {self._start.weights_path} ({error.strerror})"
            raise TrainingError(f"{why}; what was measured is kept.") from error

    def _calibrate(self, spec: RunSpec) -> None:
        """Measure how fast the first device multiplies, where that is asked for."""
        if not (self._start.calibrate and needs_tensorflow(spec)):
            return
        from workloads.calibration import calibrate

        uuids = self._start.gpu_uuids
        place, device = ("GPU:0", uuids[0]) if uuids else ("CPU:0", "cpu")
        if (found := calibrate(place, device, str(spec.variant["precision"]))) is not None:
            self._report(found)

    def _phase(self, phase: PhaseName) -> None:
        self._report(PhaseStarted(phase=phase, t_ns=time.monotonic_ns()))

    def _peak_bytes(self) -> int | None:
        return self._task.allocator_peak_bytes() if self._task is not None else None


def _stopped_early(peak_bytes: int | None = None) -> Finished:
    return Finished(
        outcome="stopped",
        t_ns=time.monotonic_ns(),
        reason="Stopped before its end, as asked.",
        allocator_peak_bytes=peak_bytes,
    )


def _serve(lifeline: Lifeline, pipe: MessagePipe, facts: Mapping[str, str]) -> Finished:
    """Say hello, take the order, run it."""
    pipe.report(Hello(protocol=PROTOCOL_VERSION, pid=os.getpid(), t_ns=time.monotonic_ns(), utc_ns=time.time_ns()))
    line, told_ns = lifeline.wait_order()
    if not line:
        return _stopped_early()
    try:
        start = decode_start(line)
    except ProtocolError as error:
        return Finished(outcome="failed", t_ns=time.monotonic_ns(), reason=f"The worker's order is wrong: {error}.")
    if ignores_stop(start.spec.variant):
        lifeline.ignore_stop()
    return Worker(start, pipe.report, lifeline.stopped, told_ns=told_ns, facts=facts).run()


def main(words: Sequence[str]) -> None:
    """Run one order and be gone."""
    pipe = MessagePipe(claim_stdout())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lifeline = Lifeline(sys.stdin.buffer, die_with_parent(), lambda: pipe.last_word(_stopped_early()))
    lifeline.start()
    facts = {}
    if STANDBY in words:
        import_ahead()
        facts = {"standby": "yes"}
    pipe.last_word(_serve(lifeline, pipe, facts))


if __name__ == "__main__":
    main(sys.argv[1:])
