"""A residual MLP in JAX: a loop of one's own, a jitted step, the batch split over all devices."""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8192)
parser.add_argument("--width", type=int, default=4096)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--bf16", action="store_true")
args = parser.parse_args()

dtype = jnp.bfloat16 if args.bf16 else jnp.float32
mesh = Mesh(np.array(jax.devices()), ("batch",))
split, copied = NamedSharding(mesh, PartitionSpec("batch")), NamedSharding(mesh, PartitionSpec())
keys = jax.random.split(jax.random.key(0), args.layers)
shape = (args.width, args.width)
weights = jax.device_put([jax.random.normal(key, shape) / args.width**0.5 for key in keys], copied)


def loss_of(weights: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    hidden = x.astype(dtype)
    for weight in weights:
        hidden = hidden + jax.nn.relu(hidden @ weight.astype(dtype))
    return jnp.mean((hidden.astype(jnp.float32) - y) ** 2)


@jax.jit
def train_step(weights: Any, momenta: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any, jax.Array]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, x, y)
    momenta = jax.tree.map(lambda old, new: 0.9 * old + new, momenta, gradients)
    return jax.tree.map(lambda weight, momentum: weight - 1e-4 * momentum, weights, momenta), momenta, loss


rng = np.random.default_rng(0)
batches = [
    jax.device_put(rng.standard_normal((2, args.batch_size, args.width), dtype=np.float32), copied) for _ in range(4)
]
batches = [(jax.device_put(x, split), jax.device_put(y, split)) for x, y in batches]
momenta = jax.tree.map(jnp.zeros_like, weights)
for step in range(1_000_000):
    weights, momenta, loss = train_step(weights, momenta, *batches[step % len(batches)])
    if step % 200 == 0:
        print(f"step {step}: loss {float(loss):.4f}", flush=True)
