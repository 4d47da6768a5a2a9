"""What a seed determines, the same for every framework: a model's initial weights, and synthetic data.

Nothing here needs a framework. Weights depend only on the seed and the sizes, a batch on the seed and its number.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from workloads import cnn, recurrent
from workloads.cnn import CLASSES, COLOURS, IMAGE_SIZE, Conv, Dense, Layer, Net, Norm, flatten
from workloads.protocol import Variant
from workloads.recurrent import RecurrentConfig
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of

Weight = NDArray[np.float32]
Item = TypeVar("Item")


def recurrent_weights(config: RecurrentConfig) -> list[Weight]:
    """Return all weights of a recurrent model in the order of `recurrent.weight_shapes`, distributed as in Keras.

    Kernels are uniform (Glorot and Bengio 2010), recurrent kernels orthogonal; each gate starts with its own bias.
    """
    named = recurrent.weight_shapes(config)
    return [_recurrent_weight(config, name, shape, number) for number, (name, shape) in enumerate(named.items())]


def _recurrent_weight(config: RecurrentConfig, name: str, shape: tuple[int, ...], number: int) -> Weight:
    if name == "head/bias":
        return np.zeros(shape, np.float32)
    if name.endswith("bias"):
        return np.broadcast_to(np.repeat(np.array(config.gate_biases, np.float32), config.units), shape)
    random = np.random.default_rng([config.seed, number])
    if name.endswith("recurrent_kernel"):
        # Orthonormal rows, no more than columns; uniformly distributed (Saxe et al. 2014).
        orthonormal, triangle = np.linalg.qr(random.standard_normal(shape[::-1]))
        return np.ascontiguousarray((orthonormal * np.sign(np.diag(triangle))).T, np.float32)
    limit = math.sqrt(6 / sum(shape))
    return random.uniform(-limit, limit, shape).astype(np.float32)


def image_weights(net: Net, seed: int) -> Iterator[tuple[Layer, list[Weight]]]:
    """Yield each layer with the values of its weights, in the order of `cnn.weight_shapes`.

    Kernels are those of He et al. 2015: normal with variance 2 / fan_in; scales are 1, offsets and biases 0.
    """
    for number, layer in enumerate(flatten(net)):
        values = [np.zeros(shape, np.float32) for shape in cnn.weight_shapes(layer)]
        if isinstance(layer, Conv | Dense):
            shape = values[0].shape
            normal = np.random.default_rng([seed, number]).standard_normal(shape, np.float32)
            values[0] = normal * np.float32(math.sqrt(2 / math.prod(shape[:-1])))
        if isinstance(layer, Norm):
            values[0] += 1
        yield layer, values


_MAX_BYTES, _MAX_BATCHES = 256 * 2**20, 64


def synthetic_batch(workload: str, variant: Variant, number: int) -> tuple[Any, Any]:
    """Return a batch of a built-in workload: the adding problem, or images in the variant's layout."""
    seed, size = int(variant["seed"]), int(variant["batch_size"])
    if workload not in RECURRENT_LAYERS:
        return synthetic_images(seed, number, size, str(variant["layout"]))
    config = config_of(workload, variant)
    sizes = (size, int(variant["timesteps"]), config.features)
    return adding_problem(seed, number, *sizes, config.sequence_lengths, running=config.all_outputs)


def map_in_threads(batch: Callable[[int], Item], numbers: Iterable[int]) -> Iterator[Item]:
    """Yield batches by number, generated in threads: drawing random numbers takes longest and releases the GIL."""
    with ThreadPoolExecutor(thread_name_prefix="batch") as threads:
        yield from threads.map(batch, numbers)


def batch_count(size_bytes: int) -> int:
    """Return how many batches stay on a device; `size_bytes` is one batch with its targets and weights."""
    return max(1, min(_MAX_BATCHES, _MAX_BYTES // max(1, size_bytes)))


_NOISE_SCALE = np.float32(0.01)
_COARSE_SIZE = 4
"""Pixels of a class's pattern before it is enlarged."""


def adding_problem(
    seed: int,
    index: int,
    batch: int,
    timesteps: int,
    features: int,
    padding: str = "fixed",
    *,
    running: bool = False,
) -> tuple[Any, NDArray[np.float32]]:
    """Return float32 sequences [batch, timesteps, features] and targets [batch, 1], the sum of the two marked values.

    Feature 0 is a value in [0, 1), feature 1 marks one step in each half, the rest is low noise. The best constant
    answer has a mean squared error of 1/6 (Hochreiter and Schmidhuber 1997, experiment 4). With `running` the targets
    are [batch, timesteps, 1]: at each step the sum of the marked values so far.

    `index` is the number of the batch; there are at least 2 features. `padding` is `fixed`, `right_padded` or
    `left_padded`. Padded sequences fill from half of the steps to all of them, the others are zero, and the inputs are
    (sequences, lengths [batch], int64).
    """
    random = np.random.default_rng([seed, index])
    values = random.random([batch, timesteps], np.float32)
    lengths = np.full(batch, timesteps)
    if padding != "fixed":
        lengths = random.integers(max(2, timesteps // 2), timesteps, batch, endpoint=True)
    starts = timesteps - lengths if padding == "left_padded" else np.zeros_like(lengths)
    half_lengths = lengths // 2
    marks = np.zeros_like(values)
    for begin, end in ((0, half_lengths), (half_lengths, lengths)):
        marks[np.arange(batch), starts + random.integers(begin, end)] = 1
    sequences = np.empty([batch, timesteps, features], np.float32)
    sequences[..., 0], sequences[..., 1] = values, marks
    sequences[..., 2:] = _NOISE_SCALE * random.standard_normal([batch, timesteps, features - 2], np.float32)
    sums = np.cumsum(values * marks, axis=1)[..., np.newaxis]
    targets = sums if running else sums[:, -1]
    if padding == "fixed":
        return sequences, targets
    steps = np.arange(timesteps) - starts[:, np.newaxis]
    sequences[(steps < 0) | (steps >= lengths[:, np.newaxis])] = 0
    return (sequences, lengths), targets


def synthetic_images(seed: int, index: int, batch: int, layout: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return float32 images [batch, 32, 32, 3] (NCHW: [batch, 3, 32, 32]) and int64 classes [batch].

    An image is its class's pattern with noise. `index` is the number of the batch. Classes are int64 because TensorFlow
    keeps int32 tensors in host memory and copies them at every step.
    """
    coarse = np.random.default_rng(seed).standard_normal([CLASSES, _COARSE_SIZE, _COARSE_SIZE, COLOURS], np.float32)
    centres = (np.arange(IMAGE_SIZE) + 0.5) * _COARSE_SIZE / IMAGE_SIZE - 0.5
    distances = np.abs(np.clip(centres, 0, _COARSE_SIZE - 1)[:, np.newaxis] - np.arange(_COARSE_SIZE))
    enlarge = np.asarray(np.maximum(0, 1 - distances), np.float32)
    patterns = np.einsum("yi,xj,kijc->kyxc", enlarge, enlarge, coarse)
    random = np.random.default_rng([seed, index])
    classes = random.integers(0, CLASSES, batch)
    images = random.standard_normal([batch, IMAGE_SIZE, IMAGE_SIZE, COLOURS], np.float32)
    images += patterns[classes]
    return (np.ascontiguousarray(images.transpose(0, 3, 1, 2)) if layout == "NCHW" else images), classes
