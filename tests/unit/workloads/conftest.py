"""TensorFlow in this process, once; for the tests of the other frameworks in one of its own."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.tensorflow import FEW_BATCHES, TensorflowProcess, set_up_tensorflow, tensorflow_process
from workloads import seeding
from workloads.tensorflow.runtime import Replicas, replicas_on

HERE = Path(__file__).parent


def _has_pytorch(item: pytest.Item) -> bool:
    return any(item.path.is_relative_to(path) for path in (HERE / "pytorch", HERE / "test_frameworks.py"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with PyTorch: where one process tests all frameworks, Triton must be imported before TensorFlow."""
    items.sort(key=lambda item: not _has_pytorch(item))


@pytest.fixture(scope="session", autouse=True)
def _quick() -> Iterator[None]:
    # XLA's own passes are made; LLVM's, which follow, only make programs faster that run once. The older emitters of
    # fused operations compile in a third of the time; products, convolutions and loops over time steps are the same.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeding, "_MAX_BATCHES", FEW_BATCHES)
        yield


@pytest.fixture(scope="session")
def tensorflow_on_cpu() -> None:
    """Set up before the first TensorFlow operation of the session."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    set_up_tensorflow()
    # TensorFlow has listed its devices; the samplers of other tests of this process may show theirs.
    os.environ.pop("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    gc.freeze()  # a collection while a graph is traced would go through all of TensorFlow


@pytest.fixture(autouse=True)
def _one_framework(request: pytest.FixtureRequest) -> None:
    """Set up TensorFlow; for PyTorch see that it is not in this process."""
    if _has_pytorch(request.node):
        has_tensorflow = "tensorflow" in sys.modules
        assert not has_tensorflow
    elif not request.node.path.is_relative_to(HERE / "jax"):
        request.getfixturevalue("tensorflow_on_cpu")


@pytest.fixture(scope="session")
def tensorflow() -> Iterator[TensorflowProcess]:
    with tensorflow_process() as process:
        yield process


@pytest.fixture
def restored_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task or a job sets in the environment of its process is as before after the test."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "XLA_PYTHON_CLIENT_PREALLOCATE"):
        monkeypatch.setenv(name, "-1")


@pytest.fixture
def unoptimized(tensorflow_on_cpu: None) -> Iterator[None]:
    """Graphs run as they were traced: TensorFlow's graph optimizer takes as long as tracing, and changes no result."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})


@pytest.fixture(scope="session")
def replica(tensorflow_on_cpu: None) -> Replicas:
    return replicas_on(["CPU:0"])


@pytest.fixture(scope="session")
def pair(tensorflow_on_cpu: None) -> Replicas:
    """Two replicas; one strategy a process, since a second would use the same keys for its collectives."""
    return replicas_on(["CPU:0", "CPU:1"])
