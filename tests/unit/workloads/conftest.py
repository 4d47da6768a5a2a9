"""TensorFlow in this process, once, with two logical CPU devices so that two replicas can train."""

import gc
import os
from collections.abc import Iterator

import pytest

from workloads import seeding
from workloads.tensorflow.backend import TensorflowBackend
from workloads.tensorflow.runtime import Replicas, replicas_on


@pytest.fixture(scope="session", autouse=True)
def tensorflow_on_cpu() -> Iterator[None]:
    """Set up before the first TensorFlow operation of the session."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    TensorflowBackend().prepare_environment(())
    # XLA's own passes are made; LLVM's, which follow, only make programs faster that run once. The older emitters of
    # fused operations compile in a third of the time; products, convolutions and loops over time steps are the same.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
    import tensorflow as tf

    # These models are tiny, and the other half of the tests needs the other core.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    # TensorFlow has listed its devices; the samplers of other tests of this process may show theirs.
    os.environ.pop("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    gc.freeze()  # a collection while a graph is traced would go through all of TensorFlow
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeding, "_MAX_BATCHES", 4)  # 64 take a quarter of the time of a test of a few steps
        yield


@pytest.fixture
def restored_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task or a job sets in the environment of its process is as before after the test."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, "-1")


@pytest.fixture
def unoptimized() -> Iterator[None]:
    """Graphs run as they were traced: TensorFlow's graph optimizer takes as long as tracing, and changes no result."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture(scope="session")
def replica() -> Replicas:
    """One replica on the CPU."""
    return replicas_on(["CPU:0"])


@pytest.fixture(scope="session")
def pair() -> Replicas:
    """Two replicas; one strategy a process, since a second would use the same keys for its collectives."""
    return replicas_on(["CPU:0", "CPU:1"])
