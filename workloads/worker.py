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

from workloads.build import approve, build, import_libraries, make_collector, needs_tensorflow
from workloads.control import ControlChannel, MessagePipe, claim_stdout, set_parent_death_signal
from workloads.dummy import ignores_stop
from workloads.errors import TrainingError, outcome_of
from workloads.flops import flops_per_step
from workloads.protocol import (
    PROTOCOL_VERSION,
    STANDBY,
    EnvironmentInfo,
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
from workloads.tensorflow.runtime import loaded_versions, preimport_libraries
from workloads.training import Loop, Report, Task, plan_of

if TYPE_CHECKING:
    from workloads.tensorflow.evidence.collector import EvidenceCollector


class Worker:
    """Runs one order from import to finish, reporting as it goes.

    `told_ns` is when the order came; `facts` is what is to be told of this process besides what the run finds.
    """

    def __init__(
        self,
        start: Start,
        report: Report,
        stopped: Callable[[], bool],
        *,
        order_ns: int,
        environment: Mapping[str, str],
    ) -> None:
        self._start = start
        self._report = report
        self._stopped = stopped
        self._order_ns = order_ns
        self._environment = environment
        self._task: Task | None = None
        self._collector: EvidenceCollector | None = None

    def run(self) -> Finished:
        """The run's last word, however it ends."""
        try:
            return self._perform()
        except Exception as error:  # noqa: BLE001 - the process's edge: the end is told in words, with its traceback
            peak_bytes = self._peak_bytes()
            self._report_evidence()
            return outcome_of(error, self._start.spec.variant, peak_bytes, self._start.source)

    def _perform(self) -> Finished:
        uuids = self._start.gpu_uuids
        spec = approve(self._start.spec, uuids)
        # In a standby that was still importing when its order came, this phase is what of that was left.
        self._report(PhaseStarted(phase="import", t_ns=self._order_ns))
        if environment := {**import_libraries(spec, uuids), **self._environment}:
            self._report(EnvironmentInfo(facts=environment))
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
            self._trace_steps(spec)
        self._report_evidence()
        self._phase("finish")
        if completed:
            self._save_weights()
            self._calibrate(spec)
        if loaded := loaded_versions():
            self._report(EnvironmentInfo(facts=loaded))
        if not completed:
            return _stopped(peak_bytes)
        return Finished(outcome="completed", t_ns=time.monotonic_ns(), allocator_peak_bytes=peak_bytes)

    def _train(self, task: Task, spec: RunSpec) -> bool:
        """Run the loop; true at its end, false when stopped."""
        plan, self._collector = plan_of(spec.variant), make_collector(spec, task)
        if self._collector is None:
            return Loop(task, plan, self._report, self._stopped).run()
        self._collector.start()
        return Loop(task, plan, self._report, self._stopped, self._collector.first_step_done).run()

    def _trace_steps(self, spec: RunSpec) -> None:
        """Trace a few more steps, where that is asked for."""
        if self._collector is not None and spec.variant["evidence"] == "trace":
            self._phase("evidence")
            self._collector.trace()

    def _report_evidence(self) -> None:
        """Tell once what is known of what ran: also of a run that was stopped or failed, if it made a first step."""
        collector, self._collector = self._collector, None
        if collector is not None and (evidence := collector.evidence()) is not None:
            self._report(evidence)

    def _save_weights(self) -> None:
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
        from workloads.tensorflow.calibration import calibrate

        uuids = self._start.gpu_uuids
        tf_device, device = ("GPU:0", uuids[0]) if uuids else ("CPU:0", "cpu")
        if (found := calibrate(tf_device, device, str(spec.variant["precision"]))) is not None:
            self._report(found)

    def _phase(self, phase: PhaseName) -> None:
        self._report(PhaseStarted(phase=phase, t_ns=time.monotonic_ns()))

    def _peak_bytes(self) -> int | None:
        return self._task.allocator_peak_bytes() if self._task is not None else None


def _stopped(peak_bytes: int | None = None) -> Finished:
    return Finished(
        outcome="stopped",
        t_ns=time.monotonic_ns(),
        reason="Stopped before its end, as asked.",
        allocator_peak_bytes=peak_bytes,
    )


def _serve(channel: ControlChannel, pipe: MessagePipe, environment: Mapping[str, str]) -> Finished:
    """Say hello, take the order, run it."""
    pipe.report(Hello(protocol=PROTOCOL_VERSION, pid=os.getpid(), t_ns=time.monotonic_ns(), utc_ns=time.time_ns()))
    line, order_ns = channel.wait_order()
    if not line:
        return _stopped()
    try:
        start = decode_start(line)
    except ProtocolError as error:
        return Finished(outcome="failed", t_ns=time.monotonic_ns(), reason=f"The worker's order is wrong: {error}.")
    if ignores_stop(start.spec.variant):
        channel.ignore_stop()
    return Worker(start, pipe.report, channel.stopped, order_ns=order_ns, environment=environment).run()


def main(arguments: Sequence[str]) -> None:
    """Run one order and be gone."""
    pipe = MessagePipe(claim_stdout())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = ControlChannel(sys.stdin.buffer, set_parent_death_signal(), lambda: pipe.send_final(_stopped()))
    channel.start()
    environment = {}
    if STANDBY in arguments:
        preimport_libraries()
        environment = {"standby": "yes"}
    pipe.send_final(_serve(channel, pipe, environment))


if __name__ == "__main__":
    main(sys.argv[1:])
