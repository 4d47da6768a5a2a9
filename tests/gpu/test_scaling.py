"""Two real GPUs: every all-reduce really is what it is called, and what is lost is accounted for."""

from pathlib import Path

import pytest

from app.analysis.scaling import scalings
from app.telemetry.feed import TelemetryFeed
from tests.gpu.conftest import run
from workloads.protocol import Value

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("two_gpus")]


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("all_reduce", ["nccl", "hierarchical", "one_device"])
def test_gradients_are_exchanged_as_asked(feed: TelemetryFeed, tmp_path: Path, all_reduce: str, xla: bool) -> None:
    stored = run(feed, tmp_path, "cnn10", gpus=2, batch_size=512, all_reduce=all_reduce, xla=xla)
    assert stored.evidence is not None
    assert stored.evidence.actual.get("all_reduce") == all_reduce, stored.evidence.reason
    assert [device.device for device in stored.evidence.devices] == ["GPU:0", "GPU:1"]
    assert all(device.communication_ns > 0 for device in stored.evidence.devices)
    assert stored.row.summary.loss_first is not None
    assert stored.row.summary.loss_last is not None
    assert stored.row.summary.loss_last < stored.row.summary.loss_first


@pytest.mark.parametrize(("all_reduce", "compile"), [("nccl", False), ("nccl", True), ("data_parallel", False)])
def test_pytorch_exchanges_gradients_as_asked(
    feed: TelemetryFeed, tmp_path: Path, all_reduce: str, compile: bool
) -> None:
    settings: dict[str, Value] = {"framework": "pytorch", "layout": "NHWC", "batch_size": 512}
    stored = run(feed, tmp_path, "cnn10", gpus=2, all_reduce=all_reduce, compile=compile, **settings)
    assert stored.evidence is not None
    assert stored.evidence.match, stored.evidence.reason
    assert (stored.evidence.actual["all_reduce"], stored.evidence.actual["replicas"]) == (all_reduce, "2")
    assert [device.device for device in stored.evidence.devices] == ["GPU:0", "GPU:1"]
    assert all(device.communication_ns > 0 for device in stored.evidence.devices)
    alone = run(feed, tmp_path, "cnn10", gpus=1, compile=compile, **settings)
    assert next(scaling.cause for scaling in scalings([alone, stored])) not in ("not traced", "trace does not fit")


def test_a_small_batch_on_two_gpus_says_why_it_is_slow(feed: TelemetryFeed, tmp_path: Path) -> None:
    runs = [run(feed, tmp_path, "cnn10", gpus=gpus, batch_size=128) for gpus in (1, 2, 1, 2)]
    (pair,) = scalings(runs)
    assert pair.efficiency.value < 0.9
    assert pair.cause not in ("loss not known", "few runs", "small loss", "shorter step", "not traced")
    assert pair.lost is not None
    assert pair.many.nvlink_bytes is None or pair.many.nvlink_bytes > 0
