"""Saved weights in another implementation on another device, against the trained model's own answers."""

from pathlib import Path

import numpy as np

from workloads import weights
from workloads.build import approve, import_for, recipe_of
from workloads.errors import RefusedError
from workloads.protocol import Compared, TryWeights
from workloads.weights import Array, SavedWeights

_TOLERANCES = {"float32": 1e-5, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 1e-1}
"""How far an answer near 1 may be off by rounding: about twenty times the unit roundoff of the 16-bit formats and TF32
(2^-11, bfloat16 2^-8), since a recurrence passes its errors on; in float32 the sum's order alone differs."""


def try_weights(errand: TryWeights) -> Compared:
    """Load the weights into the errand's variant and compare; raises `WeightsError` and `RefusedError`."""
    saved = weights.read(Path(errand.weights_path), errand.trained)
    spec = approve(errand.spec, errand.gpu_uuids)
    import_for(spec, errand.gpu_uuids)
    from workloads.runtime import configure
    from workloads.saving import answers

    replicas = configure(spec.variant)
    model = recipe_of(spec.workload)(spec.variant).model()
    for weight, value in zip(model.weights, saved.weights.values(), strict=True):
        weight.assign(value)
    return compare(saved, answers(model, saved.sequences, saved.lengths, spec.variant, replicas))


def compare(saved: SavedWeights, outputs: Array) -> Compared:
    """Outputs [examples, 1] against those of the trained model; raises `RefusedError` where they are no numbers."""
    if not (np.isfinite(outputs).all() and np.isfinite(saved.outputs).all()):
        raise RefusedError("Not all answers are finite numbers: the weights were changed since they were saved.")
    max_output = float(np.abs(saved.outputs).max())
    return Compared(
        max_difference=float(np.abs(outputs - saved.outputs).max()),
        max_output=max_output,
        tolerance=_TOLERANCES[str(saved.variant["precision"])] * max(1.0, max_output),
    )
