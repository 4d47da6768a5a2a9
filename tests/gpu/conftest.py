"""What the tests on real GPUs share."""

import os
from collections.abc import Iterator

import pytest

from app.telemetry.feed import TelemetryFeed


@pytest.fixture(scope="module")
def feed() -> Iterator[TelemetryFeed]:
    """Live telemetry of this machine."""
    live = TelemetryFeed()
    live.start()
    yield live
    live.close()


@pytest.fixture(scope="module")
def float32_on_the_gpu() -> Iterator[None]:
    """Products in full float32, memory taken as it is needed, layouts left alone."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    tf.config.optimizer.set_experimental_options({"layout_optimizer": False})
    yield
    tf.config.experimental.enable_tensor_float_32_execution(True)
