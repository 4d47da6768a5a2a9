"""What a variant's step computes: the tape's gradients, alike on one replica and on two, in every precision."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.analysis.equality import largest_difference
from tests.cnn_answers import SIZES
from workloads.catalog import Machine, complete
from workloads.errors import RefusedError
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import RunSpec, Value
from workloads.tensorflow.backend import recipe_of
from workloads.tensorflow.runtime import Replicas

pytestmark = pytest.mark.usefixtures("unoptimized")
SMALL: dict[str, dict[str, Value]] = {
    "lstm": {"units": 4, "features": 3, "timesteps": 5, "implementation": "gemm2"},
    "cnn10": SIZES["cnn10"],
}


def spec(workload: str, **given: Value) -> RunSpec:
    return complete(workload, {"gpus": 0, "batch_size": 8, **SMALL[workload], **given}, Machine())


def compute(
    found: RunSpec, replicas: Replicas, path: Path, start: Path | None = None, parts: int = 1
) -> ComputedGradients:
    from workloads.tensorflow.gradients import compute_gradients

    request = ComputeGradients(spec=found, parts=parts, path=str(path), start_path=str(start) if start else None)
    return compute_gradients(recipe_of(found.workload)(found.variant), replicas, request)


def arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    with np.load(path) as found:
        gradients = [found[f"gradient{number}"] for number in range(len(found["names"]))]
        return dict(zip(map(str, found["names"]), gradients, strict=True))


def apart(path: Path, other: Path) -> float:
    found = arrays(path)
    return largest_difference(list(found), arrays(other).values(), list(found.values()))[0]


@pytest.mark.parametrize("workload", ["lstm", "cnn10"])
def test_they_are_the_gradients_of_the_loss_on_the_first_batch(
    replica: Replicas, workload: str, tmp_path: Path
) -> None:
    import tensorflow as tf

    found = spec(workload)
    computed = compute(found, replica, path := tmp_path / "found.npz")
    recipe = recipe_of(workload)(found.variant)
    model, (inputs, targets) = recipe.model(), recipe.batch(0)
    with tf.GradientTape() as tape:
        loss = model.loss(inputs, targets)
    expected = tape.gradient(loss, list(model.weights))
    assert computed.losses == pytest.approx((float(loss),) * 2, rel=1e-6)
    assert list(arrays(path)) == list(model.weight_names)
    for mine, theirs in zip(arrays(path).values(), expected, strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), atol=1e-6)


def test_two_replicas_compute_what_one_does_of_two_parts(replica: Replicas, pair: Replicas, tmp_path: Path) -> None:
    """Batch norm takes each replica's own statistics, so that the whole batch at once is something else."""
    found = spec("cnn10")
    compute(found, replica, in_parts := tmp_path / "in_parts.npz", parts=2)
    compute(found, pair, both := tmp_path / "both.npz", in_parts)
    compute(found, replica, whole := tmp_path / "whole.npz", in_parts)
    assert apart(in_parts, both) < 1e-4
    assert apart(in_parts, whole) > 1e-2


def test_every_variant_starts_from_the_weights_it_is_given(replica: Replicas, tmp_path: Path) -> None:
    compute(spec("lstm"), replica, start := tmp_path / "start.npz")
    other_seed = spec("lstm", seed=2, implementation="wavefront")
    recipe = recipe_of("lstm")
    from workloads.tensorflow.gradients import compute_gradients

    request = ComputeGradients(spec=spec("lstm"), path=str(tmp_path / "found.npz"), start_path=str(start))
    same_batch = recipe(spec("lstm").variant).batch
    mixed = recipe(other_seed.variant)
    mixed = type(mixed)(model=mixed.model, optimizer=mixed.optimizer, batch=same_batch)
    compute_gradients(mixed, replica, request)
    assert apart(start, tmp_path / "found.npz") < 1e-5
    with pytest.raises(RefusedError, match="its weights are of other shapes"):
        compute(spec("lstm", units=5), replica, tmp_path / "other.npz", start)


def test_float16_undoes_the_scale_of_its_loss(replica: Replicas, tmp_path: Path) -> None:
    compute(spec("lstm"), replica, exact := tmp_path / "exact.npz")
    compute(spec("lstm", precision="float16"), replica, rounded := tmp_path / "rounded.npz", exact)
    assert 1e-6 < apart(exact, rounded) < 1e-2


def test_in_inference_it_is_the_outputs(replica: Replicas, tmp_path: Path) -> None:
    found = spec("lstm", mode="inference")
    computed = compute(found, replica, path := tmp_path / "found.npz", parts=2)
    recipe = recipe_of("lstm")(found.variant)
    outputs = recipe.model().outputs(recipe.batch(0)[0])
    assert (computed.losses, list(arrays(path))) == ((), ["outputs"])
    np.testing.assert_allclose(arrays(path)["outputs"], outputs.numpy(), atol=1e-6)


def test_a_batch_is_told_from_another_whatever_the_order_of_its_axes(replica: Replicas, tmp_path: Path) -> None:
    nhwc, nchw, other = (
        compute(spec("cnn10", mode="inference", **given), replica, tmp_path / "found.npz").batch
        for given in ({"layout": "NHWC"}, {"layout": "NCHW"}, {"layout": "NCHW", "seed": 2})
    )
    assert nhwc == pytest.approx(nchw, rel=1e-9)
    assert nchw != pytest.approx(other, rel=1e-3)
