"""The rate of matrix products against a plain timing, and a device that cannot do it."""

import time

import pytest

from tests.present import present
from workloads.job_protocol import Calibrate, JobFailed
from workloads.jobs import perform
from workloads.protocol import Calibration
from workloads.tensorflow.backend import TensorflowBackend

GONE = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL")
"""What a job sets in its process's environment."""


def plain_rate(size: int) -> float:
    """Operations a second of the fastest of three products."""
    import tensorflow as tf

    pair = tf.random.stateless_normal([2, size, size], [1, 1])
    seconds = []
    for _ in range(3):
        start_s = time.monotonic()
        tf.linalg.matmul(pair[0], pair[1])
        seconds.append(time.monotonic() - start_s)
    return float(2 * size**3 / min(seconds))


def test_the_rate_is_that_of_plain_products_and_takes_a_moment() -> None:
    start_s = time.monotonic()
    calibration = present(TensorflowBackend().calibrate("float32", ()))
    assert time.monotonic() - start_s < 30.0, "under a second where nothing else runs"
    assert (calibration.device, calibration.precision) == ("cpu", "float32")
    assert calibration.size in (512, 1024, 2048, 4096, 8192)
    # Whatever else runs here may slow one of the two down.
    assert any(0.2 < calibration.flops_per_s / plain_rate(calibration.size) < 5 for _ in range(5))


def test_sixteen_bits_are_timed_in_sixteen_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    types = set()
    product = tf.linalg.matmul

    def noting(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
        types.add((left.dtype.name, right.dtype.name))
        return product(left, right)

    monkeypatch.setattr(tf.linalg, "matmul", noting)
    assert TensorflowBackend().calibrate("bfloat16", ()) is not None
    assert types == {("bfloat16", "bfloat16")}


def test_a_device_that_cannot_is_no_failure_but_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import tensorflow as tf

    def full(*_: tf.Tensor) -> tf.Tensor:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(tf.linalg, "matmul", full)
    assert TensorflowBackend().calibrate("float32", ()) is None
    assert "No calibration of cpu in float32: ResourceExhaustedError: OOM" in capsys.readouterr().err


@pytest.mark.parametrize(("precision", "answer_type"), [("float32", Calibration), ("tf32", JobFailed)])
def test_the_job_answers(monkeypatch: pytest.MonkeyPatch, precision: str, answer_type: type) -> None:
    for name in GONE:
        monkeypatch.setenv(name, "before")
    answer = perform(Calibrate(precision=precision))
    assert isinstance(answer, answer_type)
    if isinstance(answer, JobFailed):
        assert "TF32 is a tensor-core format of NVIDIA GPUs" in answer.reason
