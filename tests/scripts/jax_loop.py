"""A jitted step in a loop of its own."""

import jax
import jax.numpy as jnp


@jax.jit
def train(weights: jax.Array) -> jax.Array:
    return weights - 0.1 * jax.grad(lambda w: (w @ w).sum())(weights)


weights = jnp.eye(32)
step = 0
while step < 10**9:
    weights = train(weights)
    step += 1
