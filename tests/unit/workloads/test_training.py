"""The loop, on tasks without TensorFlow: phases, limits, stop, and a loss that is lost."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from workloads.errors import TrainingError
from workloads.protocol import Block, DataReady, Epoch, Message, PhaseStarted, Progress
from workloads.training import Loop, Passes, Task, TrainingPlan, do_nothing


class Counter:
    """Counts steps; asks to stop after some."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.steps = 0
        self._stop_after = stop_after

    def __call__(self) -> int:
        self.steps += 1
        return self.steps

    def stopped(self) -> bool:
        return self._stop_after is not None and self.steps >= self._stop_after


class Clock:
    """Stands in for the module `time` in the loop: every step takes just so long."""

    def __init__(self, step_s: float) -> None:
        self.step_ns = round(step_s * 1e9)
        self._now_ns = 10**15

    def monotonic_ns(self) -> int:
        return self._now_ns

    def step(self) -> int:
        self._now_ns += self.step_ns
        return 1

    def wait_until(self, t_ns: int) -> None:
        self._now_ns = max(self._now_ns, t_ns)


@pytest.fixture(params=[0.0003, 0.001, 0.03, 0.2])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(request.param)
    monkeypatch.setattr("workloads.training.time", made)
    return made


def run(counter: Counter, plan: TrainingPlan, task: Task | None = None) -> tuple[bool, list[Message]]:
    messages: list[Message] = []
    made = task or Task(step=counter, fetch=float, examples=4)
    return Loop(made, plan, messages.append, counter.stopped).run(), messages


def blocks(messages: list[Message], phase: str) -> list[Block]:
    return [message for message in messages if isinstance(message, Block) and message.phase == phase]


def test_steps_are_exact_and_every_one_is_in_one_block() -> None:
    counter = Counter()
    completed, messages = run(counter, TrainingPlan(warmup_steps=7, seconds=1.0, steps=1000))
    assert completed
    assert counter.steps == 1 + 7 + 1000
    assert [sum(b.steps for b in blocks(messages, p)) for p in ("compile", "warmup", "measure")] == [1, 7, 1000]
    every = [message for message in messages if isinstance(message, Block)]
    assert [b.first_step for b in every] == [sum(b.steps for b in every[:n]) for n in range(len(every))]
    assert all(b.examples == 4 * b.steps for b in every)
    assert all(a.end_ns <= b.start_ns for a, b in itertools.pairwise(every))
    assert [m.phase for m in messages if isinstance(m, PhaseStarted)] == ["compile", "warmup", "measure"]


def test_seconds_end_the_measured_part(clock: Clock) -> None:
    task = Task(step=clock.step, fetch=float, examples=4)
    _, messages = run(Counter(), TrainingPlan(warmup_steps=0, seconds=2.0, steps=0), task)
    measured = blocks(messages, "measure")
    phases = [m for m in messages if isinstance(m, PhaseStarted)]
    assert [m.phase for m in phases] == ["compile", "measure"]
    # What is left at the end counts as nothing when it is less than half a block.
    assert 1.8 < (measured[-1].end_ns - phases[1].t_ns) / 1e9 < 2.2


def test_the_measured_part_ends_without_a_runt_of_a_block(clock: Clock) -> None:
    task = Task(step=clock.step, fetch=float, examples=4)
    _, messages = run(Counter(), TrainingPlan(warmup_steps=0, seconds=1.2, steps=0), task)
    lengths = [block.end_ns - block.start_ns for block in blocks(messages, "measure")]
    assert lengths[-1] > max(lengths) / 4
    progress = [m.fraction for m in messages if isinstance(m, Progress) and m.phase == "measure"]
    assert progress == sorted(progress)
    assert progress[-1] == 1.0
    assert len(progress) <= 6


class Device:
    """A device with a queue: a step is enqueued in no time, and takes its time there; `waits` has what each end found.

    Each is the steps up to that end, and the steps that were enqueued when the host began to wait for it.
    """

    def __init__(self, clock: Clock) -> None:
        self.steps = 0
        self.waits: list[tuple[int, int]] = []
        self._clock = clock
        self._ends_ns = clock.monotonic_ns()
        self._step_ns = clock.step_ns

    def step(self) -> int:
        self.steps += 1
        self._ends_ns = max(self._ends_ns, self._clock.monotonic_ns()) + self._step_ns
        return self.steps

    def mark_end(self, result: int) -> Callable[[], tuple[int, float]]:
        ends_ns = self._ends_ns

        def wait() -> tuple[int, float]:
            self.waits.append((result, self.steps))
            self._clock.wait_until(ends_ns)
            return ends_ns, float(result)

        return wait

    def fetch(self, result: int) -> float:
        return self.mark_end(result)()[1]

    def task(self, keep_weights: Callable[[], None] = do_nothing) -> Task:
        return Task(step=self.step, fetch=self.fetch, mark_end=self.mark_end, examples=4, keep_weights=keep_weights)


def test_a_device_that_tells_its_time_has_steps_to_do_while_the_host_waits(clock: Clock) -> None:
    device = Device(clock)
    _, messages = run(Counter(), TrainingPlan(warmup_steps=9, seconds=2.0, steps=0), device.task())
    measured = blocks(messages, "measure")
    ahead = [enqueued - marked for marked, enqueued in device.waits[-len(measured) :]]
    assert all(number * clock.step_ns >= 5e6 or number == 1 for number in ahead), "5 ms, or the one step that is longer"
    assert all(first.end_ns == second.start_ns for first, second in itertools.pairwise(measured))
    assert {(block.end_ns - block.start_ns) / block.steps for block in measured} == {clock.step_ns}
    assert sum(block.steps for block in measured) == device.steps - ahead[-1] - 10


def test_steps_are_exact_on_a_device_that_tells_its_time(clock: Clock) -> None:
    device = Device(clock)
    _, messages = run(Counter(), TrainingPlan(warmup_steps=7, seconds=1.0, steps=1000), device.task())
    assert device.steps == 1 + 7 + 1000
    assert sum(block.steps for block in blocks(messages, "measure")) == 1000


def test_steps_on_ready_batches_are_timed_without_those_ahead_of_the_last_block(clock: Clock) -> None:
    device = Device(clock)
    task = replace(device.task(), reuse_batches=do_nothing)
    _, messages = run(Counter(), TrainingPlan(warmup_steps=9, seconds=2.0, steps=0), task)
    (ready,) = [message for message in messages if isinstance(message, DataReady)]
    assert ready.time_ns == ready.steps * clock.step_ns


def test_no_step_follows_the_block_whose_weights_are_kept(clock: Clock) -> None:
    device, step_counts = Device(clock), list[int]()
    plan = TrainingPlan(warmup_steps=2, seconds=1.0, steps=0)
    _, messages = run(Counter(), plan, device.task(keep_weights=lambda: step_counts.append(device.steps)))
    assert step_counts == [3 + sum(block.steps for block in blocks(messages, "measure"))]


@pytest.mark.parametrize("after", [1, 3, 50])
def test_stop_is_seen_between_steps(after: int) -> None:
    counter = Counter(stop_after=after)
    completed, messages = run(counter, TrainingPlan(warmup_steps=5, seconds=60.0, steps=0))
    assert not completed
    assert counter.steps == after
    assert sum(m.steps for m in messages if isinstance(m, Block)) == after


def test_a_loss_that_is_not_finite_ends_the_run_naming_the_step() -> None:
    counter = Counter()
    task = Task(step=counter, fetch=lambda step: float("nan") if step >= 3 else 1.0, examples=1)
    messages: list[Message] = []
    with pytest.raises(TrainingError, match=r"loss was nan after step \d+"):
        Loop(task, TrainingPlan(warmup_steps=0, seconds=1.0, steps=10), messages.append, counter.stopped).run()
    assert blocks(messages, "measure")[-1].loss is None


def test_inference_has_no_loss() -> None:
    counter = Counter()
    task = Task(step=counter, fetch=float, examples=1, trains=False)
    _, messages = run(counter, TrainingPlan(warmup_steps=1, seconds=1.0, steps=5), task)
    assert all(m.loss is None for m in messages if isinstance(m, Block))


def test_the_first_steps_end_is_told_between_its_block_and_the_next() -> None:
    counter, calls = Counter(), list[int]()
    messages: list[Message] = []
    task = Task(step=counter, fetch=float, examples=4)
    plan = TrainingPlan(warmup_steps=2, seconds=1.0, steps=5)
    Loop(task, plan, messages.append, counter.stopped, lambda: calls.append(len(blocks(messages, "compile")))).run()
    assert calls == [1]
    assert counter.steps == 8


def epochs_of(counter: Counter, epochs: int, messages: list[str]) -> tuple[bool, list[Message]]:
    def accuracy() -> float:
        messages.append(f"tested after {counter.steps} steps")
        return 0.5

    task = Task(
        step=counter,
        fetch=float,
        examples=4,
        reuse_batches=lambda reused: messages.append(f"hold {reused} after {counter.steps} steps"),
        passes=Passes(steps=10, accuracy=accuracy),
    )
    return run(counter, TrainingPlan(warmup_steps=0, seconds=0.1, steps=3, epochs=epochs), task)


def test_epochs_are_passes_of_equal_steps_each_tested_at_its_end() -> None:
    counter, calls = Counter(), list[str]()
    completed, messages = epochs_of(counter, 3, calls)
    assert completed
    assert calls[:4] == [*(f"tested after {1 + 10 * n} steps" for n in (1, 2, 3)), "hold True after 31 steps"]
    epochs = [message for message in messages if isinstance(message, Epoch)]
    assert [(epoch.epoch, epoch.steps, epoch.examples, epoch.loss) for epoch in epochs] == [
        (n, 10, 40, 1.0 + 10 * n) for n in (1, 2, 3)
    ]
    assert [message.phase for message in messages if isinstance(message, PhaseStarted)] == ["compile", "measure"]
    measured = [m.fraction for m in messages if isinstance(m, Progress) and m.phase == "measure"]
    assert measured == sorted(measured)
    assert measured[-1] == 1.0
    (ready,) = [message for message in messages if isinstance(message, DataReady)]
    assert calls[4:] == [f"hold False after {31 + ready.steps} steps"]


def test_a_stopped_epoch_is_not_tested() -> None:
    counter, calls = Counter(stop_after=25), list[str]()
    completed, messages = epochs_of(counter, 5, calls)
    assert not completed
    assert [message.epoch for message in messages if isinstance(message, Epoch)] == [1, 2]
    assert calls == ["tested after 11 steps", "tested after 21 steps"], "nor timed with its data ready"


@pytest.mark.parametrize(("keep_best", "saved_after"), [(True, [1 + 5, 1 + 15]), (False, [1 + 20])])
def test_the_weights_of_the_most_accurate_epoch_are_kept_or_the_last_ones(
    keep_best: bool, saved_after: list[int]
) -> None:
    """An accuracy that is as high as the best so far changes nothing."""
    counter, saved, accuracies = Counter(), [], iter([0.2, 0.1, 0.4, 0.4])
    task = Task(
        step=counter,
        fetch=float,
        examples=4,
        keep_weights=lambda: saved.append(counter.steps),
        passes=Passes(steps=5, accuracy=lambda: next(accuracies)),
        reuse_batches=lambda reuse: None,
    )
    plan = TrainingPlan(warmup_steps=0, seconds=1.0, steps=0, epochs=4, keep_best=keep_best)
    assert run(counter, plan, task)[0]
    assert saved == saved_after


def test_without_epochs_the_lowest_loss_of_a_measured_block_decides(clock: Clock) -> None:
    counter, saved = Counter(), []

    def step() -> int:
        clock.step()
        return counter()

    task = Task(
        step=step,
        fetch=lambda number: abs(number - 20.0) if number > 12 else 0.0,
        examples=4,
        keep_weights=lambda: saved.append(counter.steps),
    )
    messages = run(counter, TrainingPlan(warmup_steps=11, seconds=1.0, steps=300, keep_best=True), task)[1]
    measured = blocks(messages, "measure")
    losses = [block.loss or 0.0 for block in measured]
    best = measured[losses.index(min(losses))]
    assert saved[-1] == best.first_step + best.steps
    assert len(saved) == sum(loss < min(losses[:number], default=math.inf) for number, loss in enumerate(losses))
