"""Stored images on real GPUs: `pytest -m gpu tests/gpu/test_prefetch.py`."""

import math

import pytest

from tests.fakes import cifar10 as fakes
from tests.fakes.tensorflow import build
from workloads.catalog import Gpu, Machine, complete
from workloads.cifar10 import ImageData
from workloads.protocol import Epoch, Message, RunSpec, Value, Variant
from workloads.tensorflow.runtime import replicas_on
from workloads.training import Loop, plan_of

pytestmark = pytest.mark.gpu


def variant_of(**given: Value) -> Variant:
    machine = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name=""),), cpu_count=2)
    small: dict[str, Value] = {"gpus": 1, "batch_size": 50, "channels": 8, "data": "cifar10", "epochs": 10}
    return complete("cnn10", {**small, **given}, machine).variant


@pytest.fixture(scope="module")
def data() -> ImageData:
    return ImageData(fakes.split(500, seed=1), fakes.split(90, seed=2))


def test_batches_are_on_the_gpu_before_a_step_asks(data: ImageData) -> None:
    from workloads.tensorflow.stored_images import training_queue

    feed = training_queue(data, variant_of(), replicas_on(["GPU:0"]))
    assert all("GPU:0" in one.device for one in feed.take())


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("layout", "xla"), [("NCHW", False), ("NHWC", False), ("NCHW", True)])
def test_the_cnn_learns_from_stored_images(data: ImageData, layout: str, xla: bool, precision: str) -> None:
    variant = variant_of(layout=layout, xla=xla, precision=precision)
    messages: list[Message] = []
    task = build(RunSpec(workload="cnn10", variant=variant), replicas_on(["GPU:0"]), data)
    assert Loop(task, plan_of(variant), messages.append, lambda: False).run()
    losses = [message.loss for message in messages if isinstance(message, Epoch) and message.loss is not None]
    assert min(losses) < 0.4 * math.log(10), "chance is log 10"
