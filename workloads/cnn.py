"""The image networks as data: one description each for implementations, operation count and evidence.

Nothing here needs a framework. Images are squares of `IMAGE_SIZE` pixels with three colours; a layer's name says where
it stands.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, cast

from workloads.protocol import Variant

IMAGE_SIZE = 32
COLOURS = 3
CLASSES = 10
NORM_EPSILON, NORM_MOMENTUM = 1e-3, 0.99
"""Keras's values."""

Images = TypeVar("Images")
Shape = tuple[int, ...]
PoolMethod = Literal["average", "max"]
Pooling = Literal["average", "max", "strided"]
"""How `cnn10` halves the images between its blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """A square convolution with zero padding; its output is `side` pixels wide and high."""

    name: str
    channels_in: int
    channels: int
    side: int
    kernel: int = 3
    stride: int = 1
    bias: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Norm:
    """Batch norm over each channel."""

    name: str
    channels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relu:
    """max(x, 0)."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Pooling 2x2 with stride 2."""

    name: str
    method: PoolMethod = "average"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalPool:
    """The mean over height and width."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """A dense layer with bias, always in float32."""

    name: str
    channels_in: int
    channels: int


Layer = Conv | Norm | Relu | Pool | GlobalPool | Dense


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """The sum of the outputs of two chains for the same images; an empty shortcut passes them on unchanged."""

    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...] = ()


Net = tuple[Layer | Sum, ...]


def flatten(net: Net) -> Iterator[Layer]:
    """Yield all layers in order, a sum's shortcut after its body."""
    for layer in net:
        if isinstance(layer, Sum):
            yield from (*layer.body, *layer.shortcut)
        else:
            yield layer


def evaluate(
    layers: Iterable[Layer | Sum],
    images: Images,
    apply: Callable[[Layer, Images], Images],
    add: Callable[[Images, Images], Images] = operator.add,
) -> Images:
    """Apply each layer in turn; a sum adds the outputs of its two chains for the same images."""
    for layer in layers:
        if isinstance(layer, Sum):
            body = evaluate(layer.body, images, apply, add)
            images = add(body, evaluate(layer.shortcut, images, apply, add))
        else:
            images = apply(layer, images)
    return images


def weight_shapes(layer: Layer) -> tuple[Shape, ...]:
    """Return the shapes of a layer's trained weights: kernel; scale and offset; kernel and bias."""
    match layer:
        case Conv():
            kernel = (layer.kernel, layer.kernel, layer.channels_in, layer.channels)
            return (kernel, (layer.channels,)) if layer.bias else (kernel,)
        case Norm():
            return ((layer.channels,), (layer.channels,))
        case Dense():
            return ((layer.channels_in, layer.channels), (layer.channels,))
    return ()


def weight_names(net: Net) -> list[str]:
    return [
        f"{layer.name}/{name}"
        for layer in flatten(net)
        for name, _ in zip(
            ("scale", "offset") if isinstance(layer, Norm) else ("kernel", "bias"), weight_shapes(layer), strict=False
        )
    ]


def saved_shapes(net: Net) -> dict[str, Shape]:
    """Return the shapes of everything saved of a network by name: its weights, then its running statistics."""
    layers = list(flatten(net))
    shapes = [shape for layer in layers for shape in weight_shapes(layer)]
    statistics = {
        f"{layer.name}/{name}": (layer.channels,)
        for layer in layers
        if isinstance(layer, Norm)
        for name in ("mean", "variance")
    }
    return {**dict(zip(weight_names(net), shapes, strict=True)), **statistics}


def net_of(workload: str, variant: Variant) -> Net:
    if workload == "cnn10":
        net = cnn10(int(variant["channels"]), cast(Pooling, variant["pooling"]))
    else:
        net = wide_resnet(int(variant["depth"]), int(variant["widen"]))
    return _with_biases(net) if variant["bias"] else net


def has_square_channels(workload: str, variant: Variant) -> bool:
    """Return whether a convolution outputs images with as many channels as they are wide."""
    layers = flatten(net_of(workload, variant))
    return any(isinstance(layer, Conv) and layer.channels == layer.side for layer in layers)


def _with_biases(net: Net) -> Net:
    def biased(layer: Layer) -> Layer:
        return replace(layer, bias=True) if isinstance(layer, Conv) else layer

    return tuple(
        Sum(body=tuple(map(biased, layer.body)), shortcut=tuple(map(biased, layer.shortcut)))
        if isinstance(layer, Sum)
        else biased(layer)
        for layer in net
    )


def cnn10(channels: int, pooling: Pooling = "average") -> Net:
    """Return three blocks of three convolutions with c, 2c and 4c channels, pooling between, and a dense head.

    With `strided`, the last convolution of a block has stride 2 and no pooling follows: the Strided-CNN of Springenberg
    et al. 2014, "Striving for Simplicity" (arXiv 1412.6806), with the same weights.
    """
    widths = [COLOURS, *(channels * 2**block for block in range(3))]
    layers: list[Layer | Sum] = []
    for block in range(3):
        for index in range(3):
            channels_in = widths[block] if index == 0 else widths[block + 1]
            stride = 2 if pooling == "strided" and index == 2 and block < 2 else 1
            layers += _conv_norm_relu(
                f"block{block + 1}", index + 1, channels_in, widths[block + 1], IMAGE_SIZE >> block, stride
            )
        if pooling != "strided" and block < 2:
            layers.append(Pool(name=f"block{block + 1}/pool", method=pooling))
    return (*layers, *_head(widths[-1]))


def _conv_norm_relu(
    block: str, index: int, channels_in: int, channels: int, side_in: int, stride: int
) -> tuple[Layer, ...]:
    side = side_in // stride
    return (
        Conv(name=f"{block}/conv{index}", channels_in=channels_in, channels=channels, side=side, stride=stride),
        Norm(name=f"{block}/norm{index}", channels=channels),
        Relu(name=f"{block}/relu{index}"),
    )


def wide_resnet(depth: int, widen: int) -> Net:
    """Return a wide residual network of Zagoruyko and Komodakis 2016 (arXiv 1605.07146).

    Its blocks are basic ones with norm and ReLU first. `depth` is 6n + 4, for n blocks in each of three groups with 16,
    32 and 64 times `widen` channels. Where the width changes, a 1x1 convolution of the normalised images is the
    shortcut. There is no dropout.
    """
    widths = [16, *(16 * widen * 2**group for group in range(3))]
    layers: list[Layer | Sum] = [Conv(name="stem/conv", channels_in=COLOURS, channels=widths[0], side=IMAGE_SIZE)]
    for group in range(3):
        for block in range((depth - 4) // 6):
            channels_in = widths[group] if block == 0 else widths[group + 1]
            stride = 2 if block == 0 and group > 0 else 1
            layers += _basic_block(f"group{group + 1}/block{block + 1}", channels_in, widths[group + 1], group, stride)
    return (*layers, *_norm_relu("head", "", widths[-1]), *_head(widths[-1]))


def _basic_block(name: str, channels_in: int, channels: int, group: int, stride: int) -> Net:
    side = IMAGE_SIZE >> group
    entry = _norm_relu(name, "1", channels_in)
    body = (
        Conv(name=f"{name}/conv1", channels_in=channels_in, channels=channels, side=side, stride=stride),
        *_norm_relu(name, "2", channels),
        Conv(name=f"{name}/conv2", channels_in=channels, channels=channels, side=side),
    )
    if channels_in == channels:
        return (Sum(body=(*entry, *body)),)
    shortcut = Conv(
        name=f"{name}/shortcut", channels_in=channels_in, channels=channels, side=side, kernel=1, stride=stride
    )
    return (*entry, Sum(body=body, shortcut=(shortcut,)))


def _norm_relu(prefix: str, suffix: str, channels: int) -> tuple[Layer, ...]:
    return Norm(name=f"{prefix}/norm{suffix}", channels=channels), Relu(name=f"{prefix}/relu{suffix}")


def _head(channels: int) -> tuple[Layer, ...]:
    return (
        GlobalPool(name="head/global_pool"),
        Dense(name="head/dense", channels_in=channels, channels=CLASSES),
    )
