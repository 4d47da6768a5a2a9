"""One run in one process: `python -m workloads.worker`, order on stdin, messages on stdout, the rest on stderr.

`python -m workloads.worker standby` imports the framework before `Hello`, for a run still unknown.
"""

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from workloads.backend import EvidenceCollector, backend_of, load_backend
from workloads.build import approve, build, import_libraries
from workloads.cnn import Conv, Dense, flatten, net_of
from workloads.control import ControlChannel, MessagePipe, claim_stdout, set_parent_death_signal
from workloads.custom.source import check_modules
from workloads.dummy import ignores_stop
from workloads.errors import TrainingError, outcome_of
from workloads.protocol import (
    MOST_NAME_CHARS,
    MOST_TEXT_CHARS,
    MOST_TEXTS,
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
    plain,
)
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of
from workloads.training import Loop, Report, Task, plan_of

_TRAINING = 3


def flops_per_step(spec: RunSpec) -> int | None:
    """Return the operations of one step over all replicas; None without a formula, as for custom workloads."""
    forward_flops = _FORWARD_FLOPS.get(spec.workload)
    if forward_flops is None:
        return None
    forward = int(spec.variant["batch_size"]) * forward_flops(spec)
    return _TRAINING * forward if spec.variant["mode"] == "train" else forward


def recurrent_forward(spec: RunSpec) -> int:
    """Return the operations of one sequence's forward pass: 2 · GU · (F + U) per layer, direction and step, plus head.

    The head reads the last output, or all. G is the number of gates in a cell, U of units, and F of the layer's inputs:
    the features, or above the first layer the units of all directions.
    """
    config = config_of(spec.workload, spec.variant)
    products = sum(config.width(depth) + config.units for depth in range(config.layers))
    step_flops = config.directions * 2 * config.gates * config.units * products
    timesteps = int(spec.variant["timesteps"])
    return timesteps * step_flops + (timesteps if config.all_outputs else 1) * 2 * config.width(config.layers)


def cnn_forward(spec: RunSpec) -> int:
    """Return the operations of one image's forward pass: 2 · K² · C_in · C_out · side² per convolution, plus head."""
    total = 0
    for layer in flatten(net_of(spec.workload, spec.variant)):
        if isinstance(layer, Conv):
            total += 2 * layer.kernel**2 * layer.channels_in * layer.channels * layer.side**2
        if isinstance(layer, Dense):
            total += 2 * layer.channels_in * layer.channels
    return total


_FORWARD_FLOPS: dict[str, Callable[[RunSpec], int]] = {
    **dict.fromkeys(RECURRENT_LAYERS, recurrent_forward),
    "cnn10": cnn_forward,
    "wrn28-10": cnn_forward,
}
"""Operations of one example's forward pass, by workload."""


class Worker:
    """Runs one order from import to finish, reporting as it goes."""

    def __init__(
        self,
        start: Start,
        report: Report,
        stopped: Callable[[], bool],
        finish: Callable[[Finished], object],
        *,
        order_ns: int,
        environment: Mapping[str, str],
    ) -> None:
        """Create the worker of one run.

        The order came at `order_ns`, in `time.monotonic_ns()`. `report` sends a message to the program, and `stopped`
        returns whether the program wants the run to stop. `finish` sends the last message if another process ended and
        `run` hangs. `environment` is reported in addition to what the run finds.
        """
        self._start = start
        self._backend = backend_of(start.spec)
        self._report = report
        self._stopped = stopped
        self._finish = finish
        self._order_ns = order_ns
        self._environment = environment
        self._task: Task | None = None
        self._collector: EvidenceCollector | None = None

    def run(self) -> Finished:
        try:
            return self._perform()
        except Exception as error:  # noqa: BLE001 - the process's edge: the end is reported with its traceback
            peak_bytes = self._peak_bytes()
            self._report_evidence()
            cause = None if self._backend is None else self._backend.explain_error(error)
            return outcome_of(error, self._start.spec.variant, peak_bytes, self._start.source, cause)
        finally:
            if self._task is not None:
                self._task.close()

    def _perform(self) -> Finished:
        uuids = self._start.gpu_uuids
        spec = approve(self._start.spec, uuids)
        if self._start.source is not None and self._start.source.command is not None:
            from workloads.script.runner import ScriptRun  # here: no other run needs it

            return ScriptRun(self._start, self._report, self._stopped).run()
        # A standby that receives its order while importing reports only the rest of its import as this phase.
        self._report(PhaseStarted(phase="import", t_ns=self._order_ns))
        if environment := {**import_libraries(spec, uuids), **self._environment}:
            self._report(environment_message(environment))
        completed = False
        if not self._stopped():
            self._phase("build")
            self._task = build(spec, self._start.source)
            self._task.connect(self._finish)
            if (per_step := flops_per_step(spec)) is not None:
                self._report(Flops(per_step=per_step))
            completed = self._train(self._task, spec)
            if completed and self._start.source is not None:
                check_modules(self._start.source)  # including those that batches and steps imported
        # What follows the measured part uses additional memory.
        peak_bytes = self._peak_bytes()
        if completed:
            self._look_again(spec)
        self._report_evidence()
        self._phase("finish")
        if completed:
            self._save_weights()
            self._calibrate(spec)
        if self._backend and (loaded := self._backend.loaded_versions()):
            self._report(environment_message(loaded))
        if not completed:
            return _stopped(peak_bytes)
        return Finished(outcome="completed", t_ns=time.monotonic_ns(), allocator_peak_bytes=peak_bytes)

    def _train(self, task: Task, spec: RunSpec) -> bool:
        """Run the loop; return true at its end, false when stopped."""
        plan = plan_of(spec.variant)
        if self._backend is None or spec.variant["evidence"] == "off":
            return Loop(task, plan, self._report, self._stopped).run()
        self._collector = self._backend.make_collector(spec, task)
        self._collector.start()
        return Loop(task, plan, self._report, self._stopped, self._collector.first_step_done).run()

    def _look_again(self, spec: RunSpec) -> None:
        """Trace a few more steps if the variant requests it, and inspect what the task's steps did."""
        traced = spec.variant["evidence"] == "trace"
        if self._collector is None or self._task is None or not (traced or self._task.inspection):
            return
        self._phase("evidence")
        if traced:
            self._collector.trace()
        self._collector.inspect()

    def _report_evidence(self) -> None:
        """Report once what ran, also for a run that was stopped or failed after its first step."""
        collector, self._collector = self._collector, None
        if collector is not None and (evidence := collector.evidence()) is not None:
            self._report(evidence)

    def _save_weights(self) -> None:
        """Save the weights if the order says where; raises `TrainingError` if they cannot be written."""
        if self._start.weights_path is None or self._task is None:
            return
        try:
            self._task.save_weights(self._start.spec, Path(self._start.weights_path))
        except OSError as error:
            why = f"The weights could not be saved at {self._start.weights_path} ({error.strerror})"
            raise TrainingError(f"{why}; what was measured is kept.") from error

    def _calibrate(self, spec: RunSpec) -> None:
        """Calibrate the first device in the run's precision if the order requests it."""
        if not self._start.calibrate or self._backend is None:
            return
        if (calibration := self._backend.calibrate(str(spec.variant["precision"]), self._start.gpu_uuids)) is not None:
            self._report(calibration)

    def _phase(self, phase: PhaseName) -> None:
        self._report(PhaseStarted(phase=phase, t_ns=time.monotonic_ns()))

    def _peak_bytes(self) -> int | None:
        return self._task.allocator_peak_bytes() if self._task is not None else None


def environment_message(facts: Mapping[str, str]) -> EnvironmentInfo:
    """Return the facts about the environment, cut to what a message takes: users' variables have any length."""
    texts = {plain(name[:MOST_NAME_CHARS]): plain(text[:MOST_TEXT_CHARS]) for name, text in facts.items()}
    return EnvironmentInfo(environment=dict(itertools.islice(texts.items(), MOST_TEXTS)))


def _stopped(peak_bytes: int | None = None) -> Finished:
    return Finished(
        outcome="stopped",
        t_ns=time.monotonic_ns(),
        reason="Stopped before its end, as asked.",
        allocator_peak_bytes=peak_bytes,
    )


def _serve(channel: ControlChannel, pipe: MessagePipe, environment: Mapping[str, str]) -> Finished:
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
    worker = Worker(start, pipe.report, channel.stopped, pipe.send_final, order_ns=order_ns, environment=environment)
    return worker.run()


def main(arguments: Sequence[str]) -> None:
    pipe = MessagePipe(claim_stdout())
    signal.signal(signal.SIGINT, lambda *_: None)  # in place of SIG_IGN, which a script's process would inherit
    channel = ControlChannel(sys.stdin.buffer, set_parent_death_signal(), lambda: pipe.send_final(_stopped()))
    channel.start()
    environment = {}
    if STANDBY in arguments:
        load_backend(arguments[-1]).preimport()
        environment = {"standby": "yes"}
    pipe.send_final(_serve(channel, pipe, environment))


if __name__ == "__main__":
    main(sys.argv[1:])
