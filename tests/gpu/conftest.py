"""What the tests on real GPUs share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.runs.host import Host
from app.runs.session import RunServices
from app.telemetry.feed import TelemetryFeed
from app.values.records import StoredRun
from tests.fakes.sessions import run_through
from workloads import catalog
from workloads.protocol import Value


@pytest.fixture(scope="module")
def feed() -> Iterator[TelemetryFeed]:
    live = TelemetryFeed()
    live.start()
    yield live
    live.close()


@pytest.fixture
def two_gpus(feed: TelemetryFeed) -> None:
    if len(feed.wait_inventory().machine.gpus) < 2:
        pytest.skip("this machine has fewer than two GPUs")


def ended(feed: TelemetryFeed, folder: Path, workload: str, **given: Value) -> StoredRun:
    """A run of three seconds, in a framework that is installed."""
    if framework := given.get("framework"):
        pytest.importorskip({"pytorch": "torch"}.get(str(framework), str(framework)))
    spec = catalog.complete(workload, {"seconds": 3.0, **given}, feed.wait_inventory().machine)
    _, _, stored = run_through(spec, RunServices(database=folder / "gpu.db", host=Host(telemetry=feed)))
    assert stored.row.outcome is not None
    return stored


def run(feed: TelemetryFeed, folder: Path, workload: str, **given: Value) -> StoredRun:
    stored = ended(feed, folder, workload, **given)
    assert stored.row.outcome is not None
    assert stored.row.outcome.name == "completed", stored.row.outcome
    return stored


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
