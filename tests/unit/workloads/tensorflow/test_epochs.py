"""Training on a tiny copy of CIFAR-10, read from its archive: it learns, on one replica and on two."""

import dataclasses
import math
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tests.fakes import cifar10 as fakes
from tests.fakes.tensorflow import build
from tests.present import present
from workloads.catalog import Machine, check, complete
from workloads.cifar10 import ImageData, load
from workloads.errors import RefusedError
from workloads.protocol import PROTOCOL_VERSION, Block, DataReady, Epoch, Message, Progress, RunSpec, Start, Value
from workloads.tensorflow.backend import recipe_of
from workloads.tensorflow.runtime import Replicas
from workloads.training import Loop, Task, plan_of
from workloads.worker import Worker

CHANCE = 0.1


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ImageData:
    folder = tmp_path_factory.mktemp("cifar10")
    content = fakes.files(ImageData(fakes.split(500, seed=1), fakes.split(90, seed=2)))
    fakes.write_archive(folder, content)
    return load(folder, fakes.checksums(folder, content))


def spec_of(**given: Value) -> RunSpec:
    small: dict[str, Value] = {"gpus": 0, "batch_size": 20, "channels": 4, "data": "cifar10"}
    return complete("cnn10", {**small, **given}, Machine(cpu_count=2))


def trained(spec: RunSpec, task: Task) -> list[Any]:
    messages: list[Message] = []
    assert Loop(task, plan_of(spec.variant), messages.append, lambda: False).run()
    return messages


def of_kind(messages: list[Any], kind: type) -> list[Any]:
    return [message for message in messages if isinstance(message, kind)]


class Linear:
    """One layer: without batch norm two replicas learn just what one does."""

    weight_names = ("kernel",)

    def __init__(self) -> None:
        import tensorflow as tf

        self.weights = [tf.Variable(tf.zeros([3 * 32 * 32, 10]))]

    def loss(self, inputs: Any, targets: Any) -> Any:
        import tensorflow as tf

        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, self.outputs(inputs)))

    def outputs(self, inputs: Any) -> Any:
        import tensorflow as tf

        return tf.matmul(tf.reshape(inputs, [inputs.shape[0], -1]), self.weights[0])


def linear_epochs(data: ImageData, replicas: Replicas, **given: Value) -> tuple[list[Epoch], list[Any]]:
    from workloads.tensorflow.optimizers import Momentum
    from workloads.tensorflow.recipe import Recipe
    from workloads.tensorflow.steps import build_task

    spec = spec_of(epochs=4, warmup_steps=3, steps=1, **given)
    recipe = Recipe(model=Linear, optimizer=lambda weights: Momentum(weights, 1e-4), elementwise=True, batch=no_batch)
    messages = trained(spec, build_task(recipe, spec.variant, replicas, data))
    return of_kind(messages, Epoch), messages


def no_batch(index: int) -> NoReturn:
    raise AssertionError("made data are not asked for")


@pytest.mark.parametrize(("layout", "xla"), [("NCHW", False), ("NHWC", True)])
def test_it_learns_over_epochs(data: ImageData, replica: Replicas, layout: str, xla: bool) -> None:
    epochs, messages = linear_epochs(data, replica, layout=layout, xla=xla)
    assert [epoch.epoch for epoch in epochs] == [1, 2, 3, 4]
    assert epochs[-1].accuracy > 8 * CHANCE
    losses = [epoch.loss for epoch in epochs if epoch.loss is not None]
    assert losses[-1] < losses[0]
    assert {(epoch.steps, epoch.examples) for epoch in epochs} == {(25, 500)}
    measured = [block for block in of_kind(messages, Block) if block.phase == "measure"]
    assert sum(block.steps for block in measured) == 4 * 25
    assert sum(block.steps for block in of_kind(messages, Block)) == 1 + 4 * 25, "steps and warm-up do not count"
    assert all(epoch.start_ns < epoch.end_ns < epoch.tested_ns for epoch in epochs)
    tests = [(epoch.end_ns, epoch.tested_ns) for epoch in epochs]
    assert not any(a < block.end_ns <= b for block in measured for a, b in tests), "testing is in no timed block"
    progress = [message.fraction for message in of_kind(messages, Progress) if message.phase == "measure"]
    assert progress == sorted(progress)
    assert progress[-1] == 1.0


def test_two_replicas_learn_what_one_does(data: ImageData, replica: Replicas, pair: Replicas) -> None:
    alone, together = (linear_epochs(data, replicas)[0] for replicas in (replica, pair))
    assert [epoch.loss for epoch in together] == pytest.approx([epoch.loss for epoch in alone], rel=1e-4)
    assert [epoch.accuracy for epoch in together] == pytest.approx([epoch.accuracy for epoch in alone], abs=1 / 90)


def test_the_cnn_learns_from_stored_images(data: ImageData, replica: Replicas) -> None:
    """And stays as it is after the last step of a schedule."""
    from workloads.tensorflow.cnn.model import build_cnn
    from workloads.tensorflow.steps import build_task

    spec = spec_of(epochs=5, batch_size=50, images=500, schedule="cosine", learning_rate=0.1, seed=2)
    with replica.strategy.scope():
        model = build_cnn("cnn10", spec.variant)
    recipe = dataclasses.replace(recipe_of("cnn10")(spec.variant), model=lambda: model)
    task = build_task(recipe, spec.variant, replica, data)
    epochs = of_kind(trained(spec, task), Epoch)
    assert min(epoch.loss for epoch in epochs) < 0.4 * math.log(10), "chance is log 10"
    before = [weight.numpy() for weight in model.weights]
    task.fetch(task.step())
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_what_prepares_images_does_not_touch_the_evidence_of_their_layout(
    data: ImageData, replica: Replicas, layout: str
) -> None:
    from workloads.tensorflow.evidence.collector import EvidenceCollector

    spec = spec_of(layout=layout)
    task = build(spec, replica, data)
    collector = EvidenceCollector(spec, task)
    collector.start()
    task.fetch(task.step())
    collector.first_step_done()
    evidence = present(collector.evidence())
    assert (evidence.actual["layout"], evidence.match) == (layout, True)
    assert not [note for note in evidence.notes if "ranspose" in note]


def test_every_test_image_is_tried_once_also_where_batches_do_not_divide_them(data: ImageData, pair: Replicas) -> None:
    import tensorflow as tf

    from workloads.tensorflow.stored_images import Accuracy

    class Constant:
        weights = ()

        def outputs(self, inputs: Any) -> tf.Tensor:
            return tf.one_hot(tf.fill([inputs.shape[0]], 4), 10)

    accuracy = Accuracy(data, Constant(), spec_of(batch_size=28).variant, pair)  # type: ignore[arg-type]
    assert [accuracy(), accuracy()] == [pytest.approx(9 / 90)] * 2


def test_steps_on_stored_images_can_be_timed_with_their_data_ready(data: ImageData, replica: Replicas) -> None:
    spec = spec_of(steps=3, warmup_steps=1)
    (ready,) = of_kind(trained(spec, build(spec, replica, data)), DataReady)
    assert ready.steps > 0
    assert ready.time_ns > 0


def test_a_held_feed_repeats_what_is_there_and_then_goes_on(data: ImageData, replica: Replicas) -> None:
    from workloads.tensorflow.stored_images import evaluation_queue

    def classes() -> list[int]:
        numbers: list[int] = feed.take()[2].numpy().tolist()
        return numbers

    feed = evaluation_queue(data, spec_of().variant, replica)
    first = classes()
    feed.reuse_batches(True)
    held = [classes() for _ in range(4)]
    assert held[:2] == held[2:]
    assert held[0] != first
    feed.reuse_batches(False)
    after = [classes() for _ in range(2)]
    assert after == held[:2], "what was fetched already is not lost"
    known = data.test.classes.tolist()
    assert classes() == (known + [-1] * 10)[60:80]


def test_a_batch_that_the_images_do_not_fill_is_refused(data: ImageData, replica: Replicas) -> None:
    with pytest.raises(RefusedError, match=r"500 training images do not fill a batch of 501"):
        build(spec_of(batch_size=501), replica, data)


def test_a_worker_refuses_before_it_imports_anything_where_there_is_no_copy(tmp_path: Path) -> None:
    messages: list[Message] = []
    order = Start(protocol=PROTOCOL_VERSION, spec=spec_of(data_folder=str(tmp_path)))
    last = Worker(order, messages.append, lambda: False, lambda _: None, order_ns=0, environment={}).run()
    assert (last.outcome, messages) == ("refused", [])
    assert f"There is no cifar-10-python.tar.gz and no folder cifar-10-batches-py in {tmp_path}" in (last.reason or "")


@pytest.mark.parametrize(("given", "words"), [({"data": "synthetic"}, "no end"), ({"mode": "inference"}, "learns")])
def test_epochs_need_data_that_end_and_a_model_that_learns(given: dict[str, Value], words: str) -> None:
    stand_in: dict[str, Value] = {"epochs": 1, "data": "stand_in"}
    assert not check(spec_of(**stand_in), Machine(cpu_count=2))
    (refusal,) = check(spec_of(**{**stand_in, **given}), Machine(cpu_count=2))
    assert words in refusal.reason
