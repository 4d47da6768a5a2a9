"""The step of a variant in JAX: one program of XLA with forward pass, backward pass and update, on one or more devices.

`shard_map` runs it on each device with a part of the batch; devices exchange only the mean of the gradients.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain, cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.image_training import MOMENTUM, Schedule, learning_rate
from workloads.jax.models import Arrays, Model, build_model
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.protocol import RunSpec, Variant
from workloads.recurrent import ADAM_BETAS, ADAM_EPSILON, ADAM_RATE
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.seeding import batch_count, map_in_threads, synthetic_batch
from workloads.training import GOOD_STEPS, LOSS_SCALE, Task, do_nothing
from workloads.weights import Array, Reference, WeightsKeeper, mean_gradients, moments, read_start, write_gradients

_REPLICAS = "replicas"
_SPLIT, _COPIED = PartitionSpec(_REPLICAS), PartitionSpec()

DTYPES = {"float32": jnp.float32, "tf32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}
Batch = tuple[Any, Any]
"""Inputs and targets: arrays, or pairs of them."""
State = dict[str, Any]
"""Everything that a step changes; running statistics are each replica's, one after the other."""


def configure(variant: Variant) -> Mesh:
    """Apply a variant's settings to JAX, before its first program, and return its devices."""
    set_precision(str(variant["precision"]))
    return Mesh(np.array(jax.devices()[: replica_count(variant)]), (_REPLICAS,))


def replica_count(variant: Variant) -> int:
    """Return how many devices share a batch."""
    return max(1, int(variant["gpus"]))


def set_precision(precision: str) -> None:
    """Compute float32 in full; by default XLA uses TF32 on GPUs that have it."""
    jax.config.update("jax_default_matmul_precision", "highest" if precision == "float32" else None)


def host_batch(workload: str, variant: Variant, number: int) -> Batch:
    """Return one batch on the host, with 32-bit integers, as JAX computes."""
    batch = synthetic_batch(workload, variant, number)
    return tuple(jax.tree.map(lambda array: array.astype(np.int32) if array.dtype.kind == "i" else array, batch))


def device_batches(batches: Iterable[Batch], mesh: Mesh, precision: str) -> list[Batch]:
    sharding, dtype = NamedSharding(mesh, _SPLIT), DTYPES[precision]

    def cast(array: Any) -> Any:
        return array.astype(dtype) if array.dtype.kind == "f" else array

    return [jax.device_put((jax.tree.map(cast, inputs), targets), sharding) for inputs, targets in batches]


Optimizer = Callable[[Arrays, Any, Arrays, Any], tuple[Arrays, Any]]
"""Returns new weights and slots, given weights, slots, gradients and the step's number."""


def _adam(weights: Arrays, slots: Any, gradients: Arrays, _number: Any) -> tuple[Arrays, Any]:
    """Adam (Kingma and Ba 2015) by TensorFlow's formula, which adds epsilon before the correction."""
    moments, powers = slots[:2], [power * beta for power, beta in zip(slots[2], ADAM_BETAS, strict=True)]
    first, second = (
        [beta * average + (1 - beta) * gradient**order for average, gradient in zip(moment, gradients, strict=True)]
        for moment, beta, order in zip(moments, ADAM_BETAS, (1, 2), strict=True)
    )
    rate = ADAM_RATE * jnp.sqrt(1 - powers[1]) / (1 - powers[0])
    updated = [w - rate * m / (jnp.sqrt(v) + ADAM_EPSILON) for w, m, v in zip(weights, first, second, strict=True)]
    return updated, (first, second, powers)


def _momentum(
    rate: float | Schedule, decay: float, weights: Arrays, slots: Any, gradients: Arrays, number: Any
) -> tuple[Arrays, Any]:
    step_rate = rate.rate(number.astype(jnp.float32), jnp) if isinstance(rate, Schedule) else rate
    slopes = [
        gradient + decay * weight if decay and weight.ndim > 1 else gradient
        for weight, gradient in zip(weights, gradients, strict=True)
    ]
    sums = [MOMENTUM * total + slope for total, slope in zip(slots, slopes, strict=True)]
    return [weight - step_rate * total for weight, total in zip(weights, sums, strict=True)], sums


def _optimizer(workload: str, variant: Variant, weights: Arrays) -> tuple[Optimizer, Any]:
    """Return the optimizer of a workload, and its slots before the first step."""
    zeros = list(map(np.zeros_like, weights))
    if workload in RECURRENT_LAYERS:
        return _adam, (zeros, zeros, [np.float32(1)] * len(ADAM_BETAS))
    return partial(_momentum, learning_rate(variant), float(variant["weight_decay"])), zeros


class Step:
    """One step of a variant, compiled on its first call into `program`."""

    def __init__(self, workload: str, variant: Variant, model: Model, batches: Iterable[Batch], mesh: Mesh) -> None:
        self.model = model
        self.mesh = mesh
        self.program: Any = None
        self._batches = cycle(device_batches(batches, mesh, str(variant["precision"])))
        self._trains = variant["mode"] == "train"
        self._scales = self._trains and variant["precision"] == "float16"
        self._seed = int(variant["seed"])
        self._update, slots = _optimizer(workload, variant, model.weights)
        self._specs = {**dict.fromkeys(("weights", "slots", "number", "scale", "good"), _COPIED), "statistics": _SPLIT}
        state = {
            "weights": model.weights,
            "statistics": [np.tile(array, mesh.size) for array in model.statistics],
            "slots": slots if self._trains else [],
            "number": np.int32(0),
            "scale": np.float32(LOSS_SCALE if self._scales else 1),
            "good": np.int32(0),
        }
        self.state: State = {
            name: jax.device_put(array, NamedSharding(mesh, self._specs[name])) for name, array in state.items()
        }

    def __call__(self) -> Any:
        """Enqueue the next step and return its loss, in inference the mean of its outputs, both on the device."""
        batch = next(self._batches)
        if self.program is None:
            step = self._on_each(self._train if self._trains else self._infer, (self._specs, _COPIED))
            self.program = jax.jit(step, donate_argnums=0).lower(self.state, *batch).compile()
        self.state, result = self.program(self.state, *batch)
        return result

    def differentiate_next(self) -> tuple[Any, Arrays]:
        """Return loss and gradients of the next batch, without changing the state."""
        loss, gradients, _ = self._gradients(self.state, *next(self._batches))
        return loss, gradients

    def infer_next(self) -> Any:
        return self._outputs(self.state, *next(self._batches))

    def saved_values(self) -> Iterator[Any]:
        """Yield the weights, then the running statistics, averaged over the devices."""
        yield from self.state["weights"]
        for statistic in self.state["statistics"]:
            yield np.asarray(statistic).reshape(self.mesh.size, -1).mean(0)

    def halve_scale(self) -> None:
        self.state["scale"] = self.state["scale"] / 2

    @cached_property
    def _gradients(self) -> Any:
        return jax.jit(self._on_each(self._differentiate, (_COPIED, _COPIED, _SPLIT)))

    @cached_property
    def _outputs(self) -> Any:
        return jax.jit(self._on_each(self._answer, _SPLIT))

    def _on_each(self, function: Callable[..., Any], out_specs: Any) -> Any:
        """Return a function of whole batches that runs `function` on each device."""
        # Unchecked, gradients are those of the device's part of the batch until `_differentiate` exchanges them.
        return jax.shard_map(
            function, mesh=self.mesh, in_specs=(self._specs, _SPLIT, _SPLIT), out_specs=out_specs, check_vma=False
        )

    def _answer(self, state: State, inputs: Any, _targets: Any) -> Any:
        return self.model.forward(state["weights"], state["statistics"], inputs, None).outputs

    def _infer(self, state: State, inputs: Any, targets: Any) -> tuple[State, Any]:
        return state, self._mean(self._answer(state, inputs, targets).mean())

    def _mean(self, values: Any) -> Any:
        return lax.pmean(values, _REPLICAS) if self.mesh.size > 1 else values

    def _differentiate(self, state: State, inputs: Any, targets: Any) -> tuple[Any, Arrays, Arrays]:
        """Return the loss, its gradients and the running statistics; dropout differs between devices."""
        key = jax.random.fold_in(jax.random.key(self._seed), state["number"])
        key = jax.random.fold_in(key, lax.axis_index(_REPLICAS))

        def scaled_loss(weights: Arrays) -> tuple[Any, tuple[Any, Arrays]]:
            outputs, statistics = self.model.forward(weights, state["statistics"], inputs, key)
            loss = self.model.loss(outputs, inputs, targets)
            return loss * state["scale"] if self._scales else loss, (loss, statistics)

        gradients, (loss, statistics) = jax.grad(scaled_loss, has_aux=True)(state["weights"])
        loss, gradients = self._mean((loss, gradients))
        if self._scales:
            gradients = [gradient / state["scale"] for gradient in gradients]
        return loss, gradients, statistics

    def _train(self, state: State, inputs: Any, targets: Any) -> tuple[State, Any]:
        loss, gradients, statistics = self._differentiate(state, inputs, targets)
        weights, slots = self._update(state["weights"], state["slots"], gradients, state["number"])
        updated = {**state, "weights": weights, "slots": slots, "statistics": statistics, "number": state["number"] + 1}
        return (_checked(state, updated, gradients) if self._scales else updated), loss


def _checked(state: State, updated: State, gradients: Arrays) -> State:
    """Return the new state if all gradients are finite, else the old weights; with the next loss scale.

    The scale halves after infinite gradients, down to 1, and doubles after 2,000 good steps, as in TensorFlow.
    """
    finite = jnp.all(jnp.array([jnp.isfinite(gradient).all() for gradient in gradients]))
    unchanged = {
        name: jax.tree.map(lambda value, current: jnp.where(finite, value, current), updated[name], state[name])
        for name in ("weights", "slots")
    }
    scale, good = state["scale"], state["good"] + 1
    grown = good >= GOOD_STEPS
    scaling = {
        "scale": jnp.where(finite, jnp.where(grown, scale * 2, scale), jnp.maximum(scale / 2, 1)),
        "good": jnp.where(finite & ~grown, good, 0),
    }
    return {**updated, **unchanged, **scaling}


def fetch(result: Any) -> float:
    return float(jax.block_until_ready(result))


def build_task(spec: RunSpec, mesh: Mesh) -> Task:
    workload, variant = spec.workload, spec.variant
    first_batch = host_batch(workload, variant, 0)
    count = batch_count(sum(array.nbytes for array in jax.tree.leaves(first_batch)))
    batches = chain([first_batch], map_in_threads(partial(host_batch, workload, variant), range(1, count)))
    step = Step(workload, variant, build_model(workload, variant), batches, mesh)

    def memory(name: str) -> int | None:
        statistics = mesh.devices[0].memory_stats() or {}  # the CPU has none
        return None if name not in statistics else int(statistics[name])

    keeper = WeightsKeeper(step.saved_values, partial(model_outputs, mesh=mesh))
    return Task(
        step=step,
        fetch=fetch,
        examples=int(variant["batch_size"]),
        trains=variant["mode"] == "train",
        keep_weights=keeper.keep if variant["save_weights"] else do_nothing,
        save_weights=keeper.save,
        allocator_bytes=partial(memory, "bytes_in_use"),
        allocator_peak_bytes=partial(memory, "peak_bytes_in_use"),
    )


def model_outputs(spec: RunSpec, weights: Sequence[Array], reference: Reference, *, mesh: Mesh) -> Array:
    """Return the outputs of a variant's model with saved weights for reference inputs, on the first device."""
    variant: Variant = {**spec.variant, "mode": "inference"}
    model = build_model(spec.workload, variant)
    count, values, lengths = len(model.weights), reference.model_inputs(variant), reference.lengths
    model.weights, model.statistics = list(weights[:count]), list(weights[count:])
    inputs = values if lengths is None else (values, lengths.astype(np.int32))
    step = Step(spec.workload, variant, model, [(inputs, ())], Mesh(mesh.devices[:1], mesh.axis_names))
    return np.asarray(step.infer_next())


def compute_gradients(request: ComputeGradients, mesh: Mesh) -> ComputedGradients:
    """Differentiate the loss of one batch, part by part, and write the results.

    Raises:
        RefusedError: The weights to start from have other shapes, or gradients are not finite.
    """
    workload, variant = request.spec.workload, request.spec.variant
    model, batch = build_model(workload, variant), host_batch(workload, variant, 0)
    start = list(model.weights)
    if request.start_path is not None:
        model.weights, start = read_start(request.start_path, [weight.shape for weight in model.weights]), []
    parts = (
        jax.tree.map(lambda array, number=number: np.split(array, request.parts)[number], batch)
        for number in range(request.parts)
    )
    step = Step(workload, variant, model, parts, mesh)
    if variant["mode"] == "train":
        names = model.names
        gradients, losses = mean_gradients(
            lambda: jax.device_get(step.differentiate_next()), request.parts, step.halve_scale
        )
    else:
        names, losses = ["outputs"], ()
        gradients = [np.concatenate([np.asarray(step.infer_next()) for _ in range(request.parts)])]
    write_gradients(request.path, names, gradients, start)
    return ComputedGradients(losses=losses, batch=moments(jax.tree.leaves(batch)))
