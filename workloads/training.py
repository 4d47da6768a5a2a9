"""The training loop: first step, warm-up, measured blocks. It depends on no framework and no means of transport."""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.errors import TrainingError
from workloads.protocol import (
    Block,
    DataReady,
    Epoch,
    Finished,
    Message,
    PhaseStarted,
    Progress,
    RunSpec,
    TimedPhase,
    Variant,
)

Report = Callable[[Message], None]

LOSS_SCALE, GOOD_STEPS = 2.0**15, 2000
"""With float16: the loss's initial scale, and the number of consecutive steps with finite gradients that doubles it."""
_BLOCK_S = 0.25
_GROWTH = 4
_PROGRESS_S = 0.2
_READY_BLOCKS = 2
_AHEAD_S = 0.005
"""The time of the steps, at least one, to enqueue before the host waits for a block's end."""


def do_nothing(*_arguments: object) -> None: ...


def give_up(finished: Finished) -> None:
    """End this process and log the reason."""
    print(finished.reason, file=sys.stderr)  # noqa: T201
    os._exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Passes over stored data: the steps of one, and a function that returns the accuracy on test data, from 0 to 1."""

    steps: int
    accuracy: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of a custom model.

    Attributes:
        kind: Its class.
        layout: `channels_first` or `channels_last`; "" if its data have no channels.
        recurrent: Whether it reads sequences step by step.
        training: Whether it is in training mode; None if that does not depend on the layer.
    """

    name: str
    kind: str
    layout: str = ""
    recurrent: bool = False
    training: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """Functions through which evidence inspects a custom workload's task, outside the measured part.

    Attributes:
        eager_steps: Returns how many steps ran operation by operation in Python, instead of as a graph.
        loss: Returns the loss of the last step.
        checksums: Returns each trained weight's name and a checksum of its values.
        without_gradient: Returns the names of the trained weights on which the loss does not depend.
        frozen: Returns the number of untrainable weights, and their share of all parameters; "" for none.
        count_distinct: Returns the number of examples in the first batch, of distinct ones, and of distinct outputs for
            them.
        layers: Returns the layers as they ran, if only a step reveals their layout or mode; call it after
            `count_distinct`.
    """

    eager_steps: Callable[[], int]
    loss: Callable[[], float]
    checksums: Callable[[], Sequence[tuple[str, int]]]
    without_gradient: Callable[[], Sequence[str]]
    count_distinct: Callable[[], tuple[int, int, int]]
    frozen: Callable[[], str]
    layers: Callable[[], Sequence[Layer]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A built variant, ready to step.

    Attributes:
        step: Enqueues one step and returns what `fetch` takes.
        fetch: Waits for that step to end on all replicas and returns the loss, in inference any number that depends on
            the outputs.
        mark_end: Enqueues a block's end after the step with this result. Returns a function that waits for it and
            returns its time on `time.monotonic_ns()` with the result of `fetch`. None if only a wait gives the time.
        examples: Examples of one step over all replicas.
        trains: Whether a step updates weights.
        allocator_bytes: Returns the bytes that the allocator holds on the first device; None on the CPU.
        allocator_peak_bytes: Returns the most it held.
        keep_weights: Copies the current weights, for saving.
        save_weights: Writes the last copied weights to a file; raises `OSError`.
        reuse_batches: If data come from the host: `True` makes steps reuse the batches on the devices, `False` ends
            that.
        passes: Passes over stored data, if it trains by epochs.
        layers: The layers of a custom model.
        inspection: The inspection of a custom workload.
        connect: Before the first step, waits for the processes that compute together with this one. If one of them ends
            early, it passes how this process must end to the given function, from another thread.
        close: Ends those processes.
    """

    step: Callable[[], Any]
    fetch: Callable[[Any], float]
    examples: int
    mark_end: Callable[[Any], Callable[[], tuple[int, float]]] | None = None
    trains: bool = True
    allocator_bytes: Callable[[], int | None] = do_nothing
    allocator_peak_bytes: Callable[[], int | None] = do_nothing
    keep_weights: Callable[[], None] = do_nothing
    save_weights: Callable[[RunSpec, Path], None] = do_nothing
    reuse_batches: Callable[[bool], None] | None = None
    passes: Passes | None = None
    layers: tuple[Layer, ...] = ()
    inspection: Inspection | None = None
    connect: Callable[[Callable[[Finished], object]], None] = do_nothing
    close: Callable[[], None] = do_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """How long to run: warm-up steps after the first, then exactly `steps`, or `seconds` if `steps` is 0.

    With `epochs`, that many passes over the data instead. `keep_best` keeps the best weights so far, instead of those
    after the last measured step.
    """

    warmup_steps: int
    seconds: float
    steps: int
    epochs: int = 0
    keep_best: bool = False


def plan_of(variant: Variant) -> TrainingPlan:
    """Return the plan of a variant; with epochs, the first pass follows the first step without a warm-up."""
    epochs = int(variant.get("epochs", 0))
    return TrainingPlan(
        warmup_steps=0 if epochs else int(variant["warmup_steps"]),
        seconds=float(variant["seconds"]),
        steps=int(variant["steps"]),
        epochs=epochs,
        keep_best=variant.get("weights_from") == "best",
    )


def planned_steps(variant: Variant, images: int) -> int:
    """Return the number of steps up to the last measured one; 0 if time limits the run.

    `images` is the number of training images of an epoch.
    """
    plan = plan_of(variant)
    measured = plan.epochs * (images // int(variant["batch_size"])) or plan.steps
    return 1 + plan.warmup_steps + measured if measured else 0


@dataclass(frozen=True, slots=True)
class _Limit:
    """The end of a phase: a number of seconds if set, else of steps."""

    steps: int
    seconds: float | None = None

    def fraction(self, steps_done: int, elapsed_s: float, block_s: float) -> float:
        """Return the completed share; a remainder of less than half a block counts as none."""
        if self.seconds is None:
            return min(1.0, steps_done / self.steps)
        return 1.0 if self.seconds - elapsed_s < block_s / 2 else elapsed_s / self.seconds

    def block_steps(self, steps: int, steps_done: int, elapsed_s: float, step_s: float) -> int:
        """Return about that many steps: a remainder of less than half a block joins the last block."""
        if self.seconds is None:
            steps_left = self.steps - steps_done
        else:
            steps_left = max(1, math.ceil((self.seconds - elapsed_s) / max(step_s, 1e-9)))
        return steps_left if steps_left < 1.5 * steps else steps

    def steps_ahead(self, steps_done: int, step_s: float) -> int:
        """Return how many steps may be enqueued after that many before the host waits for these."""
        if math.isinf(step_s):
            return 0
        ahead = math.ceil(_AHEAD_S / max(step_s, 1e-9))
        return ahead if self.seconds is not None else min(ahead, self.steps - steps_done)


class Loop:
    """Runs a task to a plan and reports phases, progress and blocks; checks `stop` between steps.

    A block lasts about a quarter of a second, at least one step. If the device itself records the end's time, the next
    block's first steps are enqueued before the host waits: if its queue ran empty at each end, steps of many small
    kernels would take up to 2 % longer.
    """

    def __init__(
        self,
        task: Task,
        plan: TrainingPlan,
        report: Report,
        stop: Callable[[], bool],
        first_step_done: Callable[[], None] = do_nothing,
    ) -> None:
        """Create the loop.

        `report` sends a message; `stop` returns whether to stop. `first_step_done` is called after the first step,
        outside its timing.
        """
        self._task = task
        self._plan = plan
        self._report = report
        self._stop = stop
        self._first_step_done = first_step_done
        self._steps_done = 0
        self._step_s = math.inf
        self._block_steps = 1
        self._ahead = 0
        self._end_ns = 0
        self._result: Any = None
        self._next_progress_ns = 0
        self._best = -math.inf

    def run(self) -> bool:
        """Compile, warm up and measure. Return true at the plan's end, false when stopped; raises `TrainingError`."""
        plan, passes = self._plan, self._task.passes
        measure = _Limit(plan.steps, None if plan.steps else plan.seconds)
        completed = (
            self._compile()
            and (not plan.warmup_steps or self._run_phase("warmup", _Limit(plan.warmup_steps)))
            and (self._run_epochs(passes) if passes is not None else self._run_phase("measure", measure))
        )
        if completed and not plan.keep_best:
            self._task.keep_weights()
        if completed and self._task.reuse_batches is not None:
            self._time_ready_steps(self._task.reuse_batches)
        return completed

    def _compile(self) -> bool:
        """Run the first step; return false if stopped before."""
        completed = self._run_phase("compile", _Limit(1))
        if completed:
            self._first_step_done()
        return completed

    def _run_phase(self, phase: TimedPhase, limit: _Limit) -> bool:
        return self._begin_phase(phase) and self._run_blocks(phase, limit) is not None

    def _begin_phase(self, phase: TimedPhase) -> bool:
        if self._stop():
            return False
        self._report(PhaseStarted(phase=phase, t_ns=time.monotonic_ns()))
        return True

    def _run_epochs(self, passes: Passes) -> bool:
        """Make the planned passes over the data, all in one phase, with the accuracy after each."""
        if not self._begin_phase("measure"):
            return False
        for number in range(self._plan.epochs):
            start_ns = time.monotonic_ns()
            last_block = self._run_blocks("measure", _Limit(passes.steps), number, self._plan.epochs)
            if last_block is None or self._stop():
                return False
            accuracy = passes.accuracy()
            tested_ns = time.monotonic_ns()
            self._keep_if_best(accuracy)
            self._report(
                Epoch(
                    epoch=number + 1,
                    steps=passes.steps,
                    examples=passes.steps * self._task.examples,
                    start_ns=start_ns,
                    end_ns=last_block.end_ns,
                    tested_ns=tested_ns,
                    loss=last_block.loss,
                    accuracy=accuracy,
                )
            )
        return True

    def _run_blocks(self, phase: TimedPhase, limit: _Limit, part_number: int = 0, part_count: int = 1) -> Block | None:
        """Run blocks up to a limit, as one of several equal parts of a phase; return the last, or None when stopped."""
        start_ns = time.monotonic_ns()
        start_step, fraction, block = self._steps_done, 0.0, None
        while fraction < 1.0 and not self._stop():
            elapsed_s = (time.monotonic_ns() - start_ns) / 1e9
            steps_done = self._steps_done - start_step
            steps = max(self._ahead, limit.block_steps(self._block_steps, steps_done, elapsed_s, self._step_s))
            block = self._run_block(phase, steps, limit.steps_ahead(steps_done + steps, self._step_s))
            block_s = (block.end_ns - block.start_ns) / 1e9
            fraction = limit.fraction(self._steps_done - start_step, (block.end_ns - start_ns) / 1e9, block_s)
            self._report_progress(phase, (part_number + fraction) / part_count, block.end_ns)
        return block if fraction >= 1.0 else None

    def _time_ready_steps(self, reuse_batches: Callable[[bool], None]) -> None:
        """Time more steps on batches that are already on the devices: any longer steps waited for data."""
        reuse_batches(True)
        steps_done, steps = 0, _READY_BLOCKS * self._block_steps
        if self._ahead:  # the steps after the last block do not count
            self._task.fetch(self._result)
        start_ns = time.monotonic_ns()
        while steps_done < steps and not (steps_done and self._stop()):
            result = self._task.step()
            steps_done += 1
        self._task.fetch(result)
        self._report(DataReady(steps=steps_done, time_ns=max(1, time.monotonic_ns() - start_ns)))
        reuse_batches(False)

    def _wait_end(self, most_ahead: int) -> tuple[int, float]:
        """Return the time at which the steps so far end, and the last one's loss; meanwhile enqueue more steps."""
        mark_end, self._ahead = self._task.mark_end, 0
        if mark_end is None or self._task.keep_weights is not do_nothing:
            loss = self._task.fetch(self._result)
            return time.monotonic_ns(), loss
        wait = mark_end(self._result)
        while self._ahead < most_ahead and not self._stop():
            self._result = self._task.step()
            self._ahead += 1
        self._end_ns, loss = wait()
        return self._end_ns, loss

    def _run_block(self, phase: TimedPhase, steps: int, most_ahead: int) -> Block:
        """Time up to `steps` steps (fewer when stopped) and report them; meanwhile enqueue at most `most_ahead`."""
        first, steps_done = self._steps_done, self._ahead
        step, stop = self._task.step, self._stop
        start_ns = self._end_ns if self._ahead else time.monotonic_ns()
        while steps_done < steps and not (steps_done and stop()):
            self._result = step()
            steps_done += 1
        end_ns, loss = self._wait_end(most_ahead)
        end_ns = max(end_ns, start_ns + 1)  # even if the clock is coarse: a block without duration has no rate
        self._steps_done += steps_done
        self._adapt_block_length(phase, steps_done, (end_ns - start_ns) / 1e9)
        block = Block(
            phase=phase,
            first_step=first,
            steps=steps_done,
            examples=steps_done * self._task.examples,
            start_ns=start_ns,
            end_ns=end_ns,
            loss=loss if self._task.trains and math.isfinite(loss) else None,
            allocator_bytes=self._task.allocator_bytes(),
        )
        self._report(block)
        if not math.isfinite(loss):
            what = "loss" if self._task.trains else "output"
            raise TrainingError(
                f"The {what} was {loss} after step {self._steps_done - 1} (counted from 0); "
                "try another precision, seed or size."
            )
        if phase == "measure" and self._task.passes is None:
            self._keep_if_best(-loss)
        return block

    def _keep_if_best(self, figure: float) -> None:
        """Keep the weights if the plan keeps the best and this figure is the highest so far; outside the timed part."""
        if self._plan.keep_best and figure > self._best:
            self._best = figure
            self._task.keep_weights()

    def _adapt_block_length(self, phase: TimedPhase, steps: int, seconds: float) -> None:
        """Choose the next block's length from this one's; the first step's time does not predict the others."""
        if phase == "compile":
            return
        self._step_s = max(seconds, 1e-9) / steps
        target_steps = round(_BLOCK_S / self._step_s)
        self._block_steps = max(1, min(target_steps, self._block_steps * _GROWTH))

    def _report_progress(self, phase: TimedPhase, fraction: float, t_ns: int) -> None:
        if t_ns < self._next_progress_ns and fraction < 1.0:
            return
        self._next_progress_ns = t_ns + int(_PROGRESS_S * 1e9)
        self._report(Progress(phase=phase, fraction=fraction, t_ns=t_ns))
