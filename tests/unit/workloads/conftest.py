"""TensorFlow in this process, once, with two logical CPU devices so that two replicas can train."""

import os

import pytest

from workloads.tensorflow.runtime import Replicas, replicas_on


@pytest.fixture(scope="session", autouse=True)
def tensorflow_on_cpu() -> None:
    """Set up before the first TensorFlow operation of the session."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    # These models are tiny, and the other half of the tests needs the other core.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


@pytest.fixture(scope="session")
def one() -> Replicas:
    """One replica on the CPU."""
    return replicas_on(["CPU:0"])


@pytest.fixture(scope="session")
def pair() -> Replicas:
    """Two replicas; one strategy a process, since a second would use the same keys for its collectives."""
    return replicas_on(["CPU:0", "CPU:1"])
