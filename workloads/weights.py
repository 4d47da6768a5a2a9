"""Files of saved weights and gradients, and the comparison of a model that loads weights with the trained one.

Besides the arrays, a file has a JSON `header`: `format`, `version` and the run's `variant`. Weights are float32.
Recurrent layers are stored gate by gate in Keras's layout, not as cuDNN's buffer, whose size and order depend on its
version. Convolutions are [height, width, in, out] in both layouts; batch norm includes its running statistics. Needs
only NumPy.
"""

import os
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads import cnn
from workloads.cifar10 import ImageData
from workloads.errors import RefusedError
from workloads.image_training import scaling_of
from workloads.job_protocol import OutputDifference
from workloads.protocol import RunSpec, Variant
from workloads.recurrent import weight_shapes
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of
from workloads.seeding import adding_problem, synthetic_images

_VERSION = 1
_HEADER, _OUTPUTS = "header", "reference/outputs"
_SEQUENCES, _LENGTHS = "reference/sequences", "reference/lengths"
_IMAGES, _MEAN, _DEVIATION = "reference/images", "scaling/mean", "scaling/deviation"
_SIZES: Variant = {
    "layers": "", "units": "", "features": "", "bidirectional": "", "activation": "tanh", "outputs": "last",
    "channels": "", "pooling": "", "depth": "", "widen": "", "bias": "",
}  # fmt: skip
"""What variants with the same weights agree in, with the values to assume if a file lacks them."""

_RERUN_HINT = "run the variant again with -s save_weights=true"

Array = NDArray[np.float32]


class WeightsError(Exception):
    """A weights file is unusable; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A few inputs to a model.

    Attributes:
        inputs: Sequences [examples, timesteps, features], or images [examples, height, width, colours] before scaling.
        lengths: The sequences' true steps, [examples]; None if there is no padding.
        scaling: The offset to subtract from each colour of an image, and the scale to divide it by, [colours] each.
    """

    inputs: Array
    lengths: NDArray[np.int64] | None = None
    scaling: tuple[Array, Array] | None = None

    def model_inputs(self, variant: Variant) -> Array:
        """Return the inputs of a variant's model: sequences, or images scaled and in its layout."""
        if self.scaling is None:
            return self.inputs
        mean, deviation = self.scaling
        values: Array = (self.inputs - mean) / deviation
        return values.transpose(0, 3, 1, 2) if variant["layout"] == "NCHW" else values


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWeights:
    """The weights of one run, and its model's outputs for some inputs.

    Attributes:
        spec: The run's workload and variant.
        weights: By name in the model's order, followed by running statistics.
        reference: Inputs to try the model with.
        outputs: The model's outputs for them: [examples, 1], or [examples, timesteps, 1] with 0 at padding; for images
            [examples, classes].
    """

    spec: RunSpec
    weights: Mapping[str, Array]
    reference: "Reference"
    outputs: Array

    @property
    def is_recurrent(self) -> bool:
        """Return whether its model reads sequences, not images."""
        return self.spec.workload in RECURRENT_LAYERS


_REFERENCE_BATCH = 1_000_000
"""A batch number that no run reaches."""

_REFERENCE_EXAMPLES = 8
_MAX_REFERENCE_BYTES = 16 * 2**20


def reference_inputs(spec: RunSpec, stored: ImageData | None) -> Reference:
    """Return a few inputs that were not trained on."""
    if spec.workload in RECURRENT_LAYERS:
        return _reference_sequences(spec.variant)
    if stored is not None:
        images = stored.test.images[:_REFERENCE_EXAMPLES].transpose(0, 2, 3, 1).astype(np.float32)
        return Reference(inputs=images, scaling=scaling_of(stored.train, str(spec.variant["scaling"])))
    images, _ = synthetic_images(int(spec.variant["seed"]), _REFERENCE_BATCH, _REFERENCE_EXAMPLES, "NHWC")
    return Reference(inputs=images, scaling=(np.zeros(3, np.float32), np.ones(3, np.float32)))


def _reference_sequences(variant: Variant) -> Reference:
    """Return a few sequences of the run's problem, with their lengths if those differ."""
    timesteps, features = int(variant["timesteps"]), int(variant["features"])
    count = max(1, min(_REFERENCE_EXAMPLES, _MAX_REFERENCE_BYTES // (4 * timesteps * features)))
    padding = str(variant["sequence_lengths"])
    inputs, _ = adding_problem(int(variant["seed"]), _REFERENCE_BATCH, count, timesteps, features, padding)
    sequences, lengths = inputs if isinstance(inputs, tuple) else (inputs, None)
    return Reference(inputs=sequences, lengths=lengths)


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    version: int
    variant: Variant


def write(saved: SavedWeights, path: Path) -> None:
    """Write the file completely or not at all; raises `OSError`."""
    header = msgspec.json.encode(
        _Header(format=_format(saved.spec), version=_VERSION, variant=saved.spec.variant)
    ).decode()
    arrays = {**saved.weights, _HEADER: np.array(header), _OUTPUTS: saved.outputs}
    reference = saved.reference
    arrays[_SEQUENCES if saved.is_recurrent else _IMAGES] = reference.inputs
    if reference.lengths is not None:
        arrays[_LENGTHS] = reference.lengths
    if reference.scaling is not None:
        arrays[_MEAN], arrays[_DEVIATION] = reference.scaling
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary_path = path.with_name(f"{path.name}.part")
    try:
        # Only the user may read it, as with the database next to it.
        with open(temporary_path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary_path.replace(path)
    finally:
        temporary_path.unlink(missing_ok=True)


def read(path: Path, spec: RunSpec) -> SavedWeights:
    """Return the content if the file is complete and fits this workload in these sizes; raises `WeightsError`."""
    arrays = _arrays(path)
    header = _header(path, arrays, spec)
    recurrent = spec.workload in RECURRENT_LAYERS
    _check_sizes(path, header.variant, spec.variant)
    expected = saved_shapes(spec)
    inputs = _SEQUENCES if recurrent else _IMAGES
    reference_names = (inputs, _OUTPUTS) if recurrent else (inputs, _OUTPUTS, _MEAN, _DEVIATION)
    if missing := [name for name in (*expected, *reference_names) if name not in arrays]:
        raise WeightsError(f"{path} lacks {', '.join(missing)}; {_RERUN_HINT}.")
    of_reference = _reference_shapes(arrays, header.variant) if recurrent else {}
    for name, shape in {**expected, **of_reference}.items():
        if arrays[name].shape != shape:
            raise WeightsError(f"{name} in {path} has the shape {arrays[name].shape}, not {shape}; {_RERUN_HINT}.")
    return SavedWeights(
        spec=RunSpec(workload=spec.workload, variant=header.variant),
        weights={name: arrays[name] for name in expected},
        reference=Reference(
            inputs=arrays[inputs],
            lengths=arrays.get(_LENGTHS),
            scaling=None if recurrent else (arrays[_MEAN], arrays[_DEVIATION]),
        ),
        outputs=arrays[_OUTPUTS],
    )


def saved_shapes(spec: RunSpec) -> Mapping[str, tuple[int, ...]]:
    """Return the shape of everything saved of a model by name, in the model's order."""
    if spec.workload in RECURRENT_LAYERS:
        return weight_shapes(config_of(spec.workload, spec.variant))
    return cnn.saved_shapes(cnn.net_of(spec.workload, spec.variant))


def _reference_shapes(arrays: Mapping[str, NDArray[Any]], variant: Variant) -> dict[str, tuple[int, ...]]:
    examples, timesteps = arrays[_OUTPUTS].shape[:1], int(variant.get("timesteps", 0))
    steps = (timesteps,) if variant.get("outputs") == "all" else ()
    shapes = {
        _SEQUENCES: (*examples, timesteps, int(variant.get("features", 0))),
        _LENGTHS: examples,
        _OUTPUTS: (*examples, *steps, 1),
    }
    return {name: shape for name, shape in shapes.items() if name in arrays}


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read everything in the file now: only reading reveals a truncated file."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            return {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except FileNotFoundError:
        where = "they were moved or deleted. Give their path with --weights PATH"
        raise WeightsError(f"There are no saved weights at {path}: {where}, or {_RERUN_HINT}.") from None
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}.") from None
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError) as error:
        raise WeightsError(
            f"{path} is damaged, or no .npz file ({error}). Use a copy of it, or {_RERUN_HINT}."
        ) from None


def _header(path: Path, arrays: Mapping[str, NDArray[Any]], spec: RunSpec) -> _Header:
    try:
        header = msgspec.json.decode(str(arrays.get(_HEADER)), type=_Header)
    except (msgspec.MsgspecError, RecursionError):
        names = ", ".join(list(arrays)[:5]) or "nothing"
        raise WeightsError(
            f"{path} was not written by this program: it has no header, but {names}. Its own come when you "
            f"{_RERUN_HINT}."
        ) from None
    if header.version > _VERSION:
        raise WeightsError(
            f"{path} is {header.format}, version {header.version}, and this program reads them up to version "
            f"{_VERSION}: update the program."
        )
    if header.format != _format(spec):
        raise WeightsError(f"{path} is {header.format}, and the run is one of {spec.workload}: it is another run's.")
    return header


def _format(spec: RunSpec) -> str:
    return f"variantscope {spec.workload} weights"


def _check_sizes(path: Path, stored: Variant, expected: Variant) -> None:
    """Raise `WeightsError` naming the sizes in which two variants differ."""
    stored, expected = {**_SIZES, **stored}, {**_SIZES, **expected}
    differ = [name for name in _SIZES if stored[name] != expected[name]]
    if differ:
        stored_sizes, expected_sizes = (
            ", ".join(f"{name}={variant[name]}" for name in differ) for variant in (stored, expected)
        )
        raise WeightsError(
            f"{path} holds weights of {stored_sizes}, and the run has {expected_sizes}: it is another run's file."
        )


class WeightsKeeper:
    """Keeps a copy of a model's weights in host memory, and writes the last one with a few outputs to a file."""

    def __init__(
        self,
        values: Callable[[], Iterable[Any]],
        outputs: Callable[[RunSpec, Sequence[Array], Reference], Array],
        stored: ImageData | None = None,
    ) -> None:
        """Create a keeper; without `stored` images the model trains on synthetic data.

        `values` returns the current weights, then running statistics, in the order of the file. `outputs` returns the
        outputs of a variant's model with such values for reference inputs.
        """
        self._values = values
        self._outputs = outputs
        self._stored = stored
        self._copies: list[Array] = []

    def keep(self) -> None:
        self._copies = [np.array(value) for value in self._values()]

    def save(self, spec: RunSpec, path: Path) -> None:
        """Write the last copied weights, or the current ones, and the model's outputs with them; raises `OSError`.

        The inputs are stored too, because a seed gives different ones on different kinds of device.
        """
        if not self._copies:
            self.keep()
        reference = reference_inputs(spec, self._stored)
        outputs = self._outputs(spec, self._copies, reference)
        named = dict(zip(saved_shapes(spec), self._copies, strict=True))
        write(SavedWeights(spec=spec, weights=named, reference=reference, outputs=outputs), path)


_TOLERANCES = {"float32": 1e-5, "tf32": 1e-2, "float16": 1e-2, "bfloat16": 1e-1}
"""The largest rounding error of an output near 1: about twenty times the unit roundoff of the 16-bit formats and TF32
(2^-11, bfloat16 2^-8), because a recurrence accumulates errors; in float32 only the order of the sums differs."""
_IMAGE_TOLERANCES = {**_TOLERANCES, "float32": 1e-4}
"""For image networks: a convolution sums more numbers, and Winograd's algorithm rounds more."""


def compare_outputs(saved: SavedWeights, outputs: Array) -> OutputDifference:
    """Compare outputs with those of the trained model; raises `RefusedError` if they are not finite."""
    outputs = _without_padding(saved, outputs)
    if not (np.isfinite(outputs).all() and np.isfinite(saved.outputs).all()):
        raise RefusedError("Not all answers are finite numbers: the weights were changed since they were saved.")
    max_output = float(np.abs(saved.outputs).max())
    tolerances = _TOLERANCES if saved.is_recurrent else _IMAGE_TOLERANCES
    return OutputDifference(
        max_difference=float(np.abs(outputs - saved.outputs).max()),
        max_output=max_output,
        tolerance=tolerances[str(saved.spec.variant["precision"])] * max(1.0, max_output),
    )


def _without_padding(saved: SavedWeights, outputs: Array) -> Array:
    """Return outputs of all steps with 0 at padding, where a model's outputs are undefined."""
    lengths = saved.reference.lengths
    if lengths is None or outputs.ndim < 3:
        return outputs
    steps = np.arange(outputs.shape[1])[np.newaxis]
    if config_of(saved.spec.workload, saved.spec.variant).left_padded:
        steps = steps[:, ::-1]
    return np.where((steps < lengths[:, np.newaxis])[..., np.newaxis], outputs, np.float32(0))


def read_start(path: str, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return the starting weights that `write_gradients` wrote, for a variant whose weights have these shapes.

    Raises:
        RefusedError: They have other shapes.
    """
    with np.load(path, allow_pickle=False) as stored:
        values = [stored[f"start{number}"] for number in range(sum(name.startswith("start") for name in stored))]
    if [value.shape for value in values] != list(shapes):
        raise RefusedError("its weights are of other shapes")
    return values


def write_gradients(path: str, names: Sequence[str], gradients: Sequence[NDArray[Any]], start: Sequence[Array]) -> None:
    """Write gradients or outputs by name, with the weights, if any, from which another variant is to start.

    Raises:
        RefusedError: A number is not finite.
    """
    if not all(np.isfinite(gradient).all() for gradient in gradients):
        raise RefusedError("what it computes is not finite")
    arrays: dict[str, Any] = {
        f"gradient{number}": gradient.astype(np.float32) for number, gradient in enumerate(gradients)
    }
    arrays |= {f"start{number}": weight for number, weight in enumerate(start)}
    np.savez(Path(path), **arrays, names=np.array(names))


_MAX_ROUNDS = 16
"""How often float16 may halve its loss scale, from 2^15, until every gradient is finite."""


def mean_gradients(
    differentiate: Callable[[], tuple[float, Sequence[NDArray[Any]]]],
    parts: int,
    halve_scale: Callable[[], object],
) -> tuple[list[NDArray[Any]], tuple[float, ...]]:
    """Return the mean gradients of the parts of a batch, and their mean loss, computed twice.

    `differentiate` returns loss and gradients of the next part, starting over after the last one. As long as a gradient
    is not finite, `halve_scale` is called before the next round.

    Raises:
        RefusedError: A gradient is never finite.
    """
    for _ in range(_MAX_ROUNDS):
        losses, gradients = zip(*(differentiate() for _ in range(parts)), strict=True)
        if all(np.isfinite(gradient).all() for part in gradients for gradient in part):
            break
        halve_scale()
    else:
        raise RefusedError("its gradients are not finite")
    second_losses = [differentiate()[0] for _ in range(parts)]
    means = [np.mean(weight_gradients, axis=0) for weight_gradients in zip(*gradients, strict=True)]
    return means, (float(np.mean(losses)), float(np.mean(second_losses)))


def moments(tensors: Iterable[NDArray[Any]]) -> tuple[float, ...]:
    """Return mean and mean square of each tensor, which do not depend on the order of its axes."""
    values = [np.asarray(tensor, np.float64) for tensor in tensors]
    return tuple(float(number) for value in values for number in (value.mean(), np.square(value).mean()))
