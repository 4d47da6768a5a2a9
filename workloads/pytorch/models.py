"""The built-in workloads as PyTorch modules: recurrent stacks and image networks, with the weights of every framework.

Modules keep the weights of `workloads.seeding` in PyTorch's layouts; a `WeightView` converts them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from workloads import cnn, recurrent
from workloads.cnn import NORM_EPSILON, NORM_MOMENTUM, Conv, Dense, GlobalPool, Norm, Pool, Relu, Sum, flatten, net_of
from workloads.protocol import Variant
from workloads.recurrent import RecurrentConfig
from workloads.recurrent_layers import RECURRENT_LAYERS, config_of
from workloads.seeding import Weight, image_weights, recurrent_weights

_NORM_MOMENTUM = 1 - NORM_MOMENTUM
"""PyTorch's momentum is the complement."""


Read = Callable[..., Tensor]
Write = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True, slots=True)
class WeightView:
    """One trained weight in the layout that all frameworks share; one or two parameters hold it in PyTorch's layout.

    `read` converts its parameters or their gradients to this layout, `write` converts back.
    """

    name: str
    parameters: tuple[nn.Parameter, ...]
    read: Read
    write: Write

    def value(self) -> Weight:
        return _array(self.read(*(parameter.detach() for parameter in self.parameters)))

    def gradient(self) -> Weight:
        """Return its gradient, zero if the loss does not depend on it."""
        gradients = (
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
            for parameter in self.parameters
        )
        return _array(self.read(*gradients))

    def assign(self, value: Weight) -> None:
        with torch.no_grad():
            for parameter, values in zip(self.parameters, self.write(torch.from_numpy(np.array(value))), strict=True):
                parameter.copy_(values)


def _array(tensor: Tensor) -> Weight:
    return np.asarray(tensor.float().cpu().numpy(), np.float32)


class Model(nn.Module):  # type: ignore[misc] # mypy knows no PyTorch
    """A model with its loss, as a step needs it.

    Attributes:
        views: Its trained weights in the order of all frameworks.
        optimizer: Their optimizer; None means the workload's.
    """

    views: Sequence[WeightView]
    optimizer: torch.optim.Optimizer | None = None

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a batch in training mode, a float32 scalar."""
        raise NotImplementedError

    def statistics(self) -> list[Tensor]:
        """Return the running statistics that are saved with the weights, as Keras keeps them."""
        return []

    def load(self, values: Sequence[Weight]) -> None:
        """Set a model's weights and running statistics, for inference only, in the order of the file."""
        for view, value in zip(self.views, values, strict=False):
            view.assign(value)
        for statistic, value in zip(self.buffers(), values[len(self.views) :], strict=True):
            statistic.copy_(torch.from_numpy(value))


class CellLoop(nn.Module):  # type: ignore[misc]
    """One layer as a loop of PyTorch's cells over the time steps, each direction by itself."""

    def __init__(self, config: RecurrentConfig, depth: int) -> None:
        super().__init__()
        cell = nn.LSTMCell if config.keras_name == "LSTM" else nn.GRUCell
        width = config.width(depth)
        self.cells = nn.ModuleList(cell(width, config.units) for _ in range(config.directions))
        self._is_lstm = config.keras_name == "LSTM"
        self._relu = config.activation == "relu"
        self._recurrent_dropout = config.recurrent_dropout

    def forward(self, inputs: Tensor, valid: Tensor | None) -> Tensor:
        """Return the outputs [batch, timesteps, directions * units] in the order of time.

        `valid` marks the steps that are not padding, [batch, timesteps]; padding changes no state.
        """
        return torch.cat(
            [self._run(cell, inputs, valid, backwards=bool(number)) for number, cell in enumerate(self.cells)], -1
        )

    def _run(self, cell: nn.Module, inputs: Tensor, valid: Tensor | None, *, backwards: bool) -> Tensor:
        batch, steps, _ = inputs.shape
        output = memory = inputs.new_zeros([batch, int(cell.hidden_size)])
        mask = _dropout_mask(output, self._recurrent_dropout) if self.training else None
        outputs = []
        for step in reversed(range(steps)) if backwards else range(steps):
            masked, state = output if mask is None else output * mask, (output, memory)
            if self._is_lstm:
                output, memory = self._lstm_step(cell, inputs[:, step], masked, memory)
            else:
                output = self._gru_step(cell, inputs[:, step], masked, output)
            if valid is not None:
                states = zip((output, memory), state, strict=True)  # a GRU has no memory, so it passes through
                output, memory = (
                    value if value is previous else torch.where(valid[:, step, None], value, previous)
                    for value, previous in states
                )
            outputs.append(output)
        return torch.stack(outputs[::-1] if backwards else outputs, 1)

    def _lstm_step(self, cell: nn.Module, inputs: Tensor, output: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        if not self._relu:
            output, memory = cell(inputs, (output, memory))
            return output, memory
        gates = functional.linear(inputs, cell.weight_ih, cell.bias_ih) + functional.linear(output, cell.weight_hh)
        enter, forget, candidate, leave = gates.chunk(4, -1)
        memory = forget.sigmoid() * memory + enter.sigmoid() * candidate.relu()
        return leave.sigmoid() * memory.relu(), memory

    def _gru_step(self, cell: nn.Module, inputs: Tensor, masked: Tensor, output: Tensor) -> Tensor:
        """Return the next output; the recurrent products read a masked copy of the last one, if any is masked."""
        if not self._relu and masked is output:
            return cell(inputs, output)
        entering = functional.linear(inputs, cell.weight_ih, cell.bias_ih).chunk(3, -1)
        repeated = functional.linear(masked, cell.weight_hh, cell.bias_hh).chunk(3, -1)
        reset, update = (
            (entering_gate + repeated_gate).sigmoid()
            for entering_gate, repeated_gate in zip(entering[:2], repeated[:2], strict=True)
        )
        activation = torch.relu if self._relu else torch.tanh
        return update * output + (1 - update) * activation(entering[2] + reset * repeated[2])


def _dropout_mask(example: Tensor, share: float) -> Tensor | None:
    """Return the factors of a tensor that zero a share of it and scale the rest; None if the share is 0."""
    return functional.dropout(torch.ones_like(example), share) if share else None


class RecurrentModel(Model):
    """A stack of recurrent layers and a dense head in float32, on the last output or on all.

    `standard` is a loop of cells, `cudnn` one `nn.LSTM` or `nn.GRU` per layer, `cudnn_stack` one for all layers.
    """

    def __init__(self, workload: str, variant: Variant) -> None:
        super().__init__()
        config = self._config = config_of(workload, variant)
        layer_type = nn.LSTM if config.keras_name == "LSTM" else nn.GRU
        options: dict[str, Any] = {"batch_first": True, "bidirectional": config.bidirectional}
        width, units = config.width, config.units
        match variant["implementation"]:
            case "standard":
                layers: list[nn.Module] = [CellLoop(config, depth) for depth in range(config.layers)]
            case "cudnn":
                layers = [layer_type(width(depth), units, **options) for depth in range(config.layers)]
            case _:
                layers = [layer_type(width(0), units, config.layers, dropout=config.dropout, **options)]
        self.layers = nn.ModuleList(layers)
        self._drops_inputs = config.dropout if variant["implementation"] != "cudnn_stack" else 0.0
        self.head_kernel = nn.Parameter(torch.empty(width(config.layers), 1))
        self.head_bias = nn.Parameter(torch.empty(1))
        self.views = list(self._views())
        for view, value in zip(self.views, recurrent_weights(config), strict=True):
            view.assign(value)

    def _views(self) -> Iterator[WeightView]:
        """Yield the layers' own parameters as weights; an LSTM's second bias stays zero, because Keras has one."""
        torch_order = self._config.cudnn_gates
        keras_order = [torch_order.index(number) for number in range(len(torch_order))]

        def read_matrix(matrix: Tensor) -> Tensor:
            return _reordered(matrix, keras_order).T

        def write_matrix(kernel: Tensor) -> Sequence[Tensor]:
            return (_reordered(kernel.T, torch_order),)

        def read_biases(*biases: Tensor) -> Tensor:
            ordered = [_reordered(bias, keras_order) for bias in biases]
            return ordered[0] if len(ordered) == 1 else torch.stack(ordered)

        def write_biases(bias: Tensor) -> Sequence[Tensor]:
            return [_reordered(gates, torch_order) for gates in bias.reshape(self._config.bias_count, -1)]

        for depth in range(self._config.layers):
            for number, direction in enumerate(recurrent.DIRECTIONS[: self._config.directions]):
                prefix = f"layer{depth}/{direction}"
                kernel, recurrent_kernel, *biases = self._direction(depth, backward=bool(number))
                for unused in biases[self._config.bias_count :]:
                    unused.requires_grad_(requires_grad=False)
                    unused.data.zero_()
                yield WeightView(f"{prefix}/kernel", (kernel,), read_matrix, write_matrix)
                yield WeightView(f"{prefix}/recurrent_kernel", (recurrent_kernel,), read_matrix, write_matrix)
                trained = tuple(biases[: self._config.bias_count])
                yield WeightView(f"{prefix}/bias", trained, read_biases, write_biases)
        yield WeightView("head/kernel", (self.head_kernel,), _same, _alone)
        yield WeightView("head/bias", (self.head_bias,), _same, _alone)

    def _direction(self, depth: int, *, backward: bool) -> Sequence[nn.Parameter]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        layer = self.layers[min(depth, len(self.layers) - 1)]
        if isinstance(layer, CellLoop):
            return [getattr(layer.cells[int(backward)], name) for name in names]
        inner = depth if len(self.layers) < self._config.layers else 0
        return [getattr(layer, f"{name}_l{inner}{'_reverse' if backward else ''}") for name in names]

    def forward(self, inputs: Any) -> Tensor:
        """Return the outputs: [batch, 1], or for all steps [batch, timesteps, 1] with 0 at padding.

        Inputs are sequences, or (sequences, lengths [batch]) if their lengths differ, which only loops can read.
        """
        valid = self._valid(inputs)
        inputs = inputs if valid is None else inputs[0]
        for layer in self.layers:
            mask = _dropout_mask(inputs[:, :1], self._drops_inputs) if self.training else None
            masked = inputs if mask is None else inputs * mask
            inputs = layer(masked, valid) if isinstance(layer, CellLoop) else _by_cudnn(layer, masked)
        if not self._config.all_outputs:
            units = self._config.units
            ends = [inputs[:, -1, :units]] + ([inputs[:, 0, units:]] if self._config.bidirectional else [])
            inputs = torch.cat(ends, -1)
        with torch.autocast(inputs.device.type, enabled=False):
            answers = inputs.float() @ self.head_kernel + self.head_bias
        return answers if valid is None or not self._config.all_outputs else answers * valid[..., None]

    def loss(self, inputs: Any, targets: Tensor) -> Tensor:
        """Return the mean squared error; for all outputs, each sequence's mean over its true steps, averaged."""
        valid = self._valid(inputs)
        if valid is None or not self._config.all_outputs:
            return functional.mse_loss(self(inputs), targets)
        errors = (self(inputs) - targets) ** 2 * valid[..., None]
        return (errors.sum(1) / valid.sum(1, keepdim=True)).mean()

    def _valid(self, inputs: Any) -> Tensor | None:
        """Return which steps of sequences are not padding, [batch, timesteps]; None without padding."""
        if isinstance(inputs, Tensor):
            return None
        sequences, lengths = inputs
        timesteps = sequences.shape[1]
        positions = torch.arange(timesteps, device=lengths.device)
        return positions >= timesteps - lengths[:, None] if self._config.left_padded else positions < lengths[:, None]


def _by_cudnn(layer: nn.Module, inputs: Tensor) -> Tensor:
    """Return the outputs of PyTorch's own layers in autocast's type: for bfloat16, too, they compute in float16."""
    device = inputs.device.type
    if not torch.is_autocast_enabled(device) or torch.get_autocast_dtype(device) is not torch.bfloat16:
        return layer(inputs)[0]
    weights = {name: weight.bfloat16() for name, weight in layer.named_parameters()}
    with torch.autocast(device, enabled=False):
        return torch.func.functional_call(layer, weights, inputs.bfloat16())[0]


def _reordered(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Return a weight whose first axis holds all gates, with the gates in another order."""
    gates = tensor.chunk(len(order), 0)
    return torch.cat([gates[number] for number in order], 0)


class ImageModel(Model):
    """An image network of `workloads.cnn` on images [batch, colours, height, width], whatever their memory format.

    `prepare` converts a step's inputs to these images.
    """

    def __init__(self, workload: str, variant: Variant) -> None:
        super().__init__()
        self._net = net_of(workload, variant)
        self._counts = _normalised_values(self._net, int(variant["batch_size"]))
        self._trains = variant["mode"] == "train"
        self.prepare: nn.Module = nn.Identity()
        self.parts = nn.ModuleDict()
        views, names = [], iter(cnn.weight_names(self._net))
        for layer, values in image_weights(self._net, int(variant["seed"])):
            module = self.parts[_module_name(layer.name)] = nn.ParameterList()
            for value in values:
                is_kernel = isinstance(layer, Conv) and value.ndim == 4
                read, write = (_read_kernel, _write_kernel) if is_kernel else (_same, _alone)
                (initial,) = write(torch.from_numpy(value))
                module.append(nn.Parameter(initial))
                views.append(WeightView(next(names), (module[-1],), read, write))
            if isinstance(layer, Norm):
                module.register_buffer("mean", torch.zeros(layer.channels))
                module.register_buffer("variance", torch.full([layer.channels], 1 / self._bias(layer)))
        self.views = views

    def _bias(self, norm: Norm) -> float:
        """Return the factor that corrects the running variance of a training model.

        Keras keeps the biased variance, PyTorch N / (N - 1) times that, for N values per channel.
        """
        count = self._counts[norm.name]
        return (count - 1) / count if self._trains else 1.0

    def statistics(self) -> list[Tensor]:
        """Return mean and biased variance of each batch norm."""
        norms = ((norm, self.parts[_module_name(norm.name)]) for norm in flatten(self._net) if isinstance(norm, Norm))
        return [value for norm, part in norms for value in (part.mean, part.variance * self._bias(norm))]

    def forward(self, inputs: Any) -> Tensor:
        return cnn.evaluate(self._net, self.prepare(inputs), self._layer)

    def loss(self, inputs: Any, targets: Tensor) -> Tensor:
        return functional.cross_entropy(self(inputs), targets)

    def _layer(self, layer: cnn.Layer, images: Tensor) -> Tensor:
        weights = self.parts[_module_name(layer.name)]
        match layer:
            case Conv():
                return _convolution(images, layer, weights)
            case Norm():
                return self._norm(images, layer, weights)
            case Relu():
                return functional.relu(images)
            case Pool():
                pool = functional.max_pool2d if layer.method == "max" else functional.avg_pool2d
                return pool(images, 2)
            case GlobalPool():
                return images.mean((2, 3))
            case Dense():
                kernel, bias = weights[0], weights[1]
                with torch.autocast(images.device.type, enabled=False):
                    return images.float() @ kernel + bias

    def _norm(self, images: Tensor, layer: Norm, weights: nn.Module) -> Tensor:
        scale, offset = weights[0], weights[1]
        mean, variance = weights.mean, weights.variance
        if self.training:
            return functional.batch_norm(images, mean, variance, scale, offset, True, _NORM_MOMENTUM, NORM_EPSILON)
        if self._trains:
            variance = variance * self._bias(layer)
        return functional.batch_norm(images, mean, variance, scale, offset, False, 0.0, NORM_EPSILON)


def _normalised_values(net: Iterable[cnn.Layer | Sum], batch: int, side: int = cnn.IMAGE_SIZE) -> dict[str, int]:
    """Return the number of values in each norm's mean of a channel; `side` is the images' size before the net."""
    sizes: dict[str, int] = {}
    for layer in net:
        match layer:
            case Sum():
                for chain in (layer.body, layer.shortcut):
                    sizes |= _normalised_values(chain, batch, side)
                side = next(conv.side for conv in reversed(layer.body) if isinstance(conv, Conv))
            case Conv():
                side = layer.side
            case Pool():
                side //= 2
            case Norm():
                sizes[layer.name] = batch * side**2
    return sizes


def _same(weight: Tensor) -> Tensor:
    return weight


def _alone(weight: Tensor) -> Sequence[Tensor]:
    return (weight.clone(),)


def _read_kernel(kernel: Tensor) -> Tensor:
    return kernel.permute(2, 3, 1, 0)


def _write_kernel(kernel: Tensor) -> Sequence[Tensor]:
    return (kernel.permute(3, 2, 0, 1).contiguous(),)


def _module_name(name: str) -> str:
    return name.replace("/", "_")


def _convolution(images: Tensor, layer: Conv, weights: nn.Module) -> Tensor:
    """Convolve with TensorFlow's zero padding, which a stride of 2 puts only at the far sides."""
    kernel, bias = weights[0], weights[1] if layer.bias else None  # indexed: Dynamo of 2.11 unpacks no list of weights
    if layer.stride == 1:
        return functional.conv2d(images, kernel, bias, padding=layer.kernel // 2)
    far = layer.kernel - layer.stride
    padded = functional.pad(images, (0, far, 0, far)) if far > 0 else images
    return functional.conv2d(padded, kernel, bias, layer.stride)


def build_model(workload: str, variant: Variant) -> Model:
    return (RecurrentModel if workload in RECURRENT_LAYERS else ImageModel)(workload, variant)
