"""Steps by JAX's annotation, and a profiler of its own on request: `jax_annotated.py plain` or `profiled`."""

import itertools
import sys

import jax
import jax.numpy as jnp

if sys.argv[1] == "profiled":
    jax.profiler.start_trace("own")
train = jax.jit(lambda weights: weights - 0.1 * jax.grad(lambda w: (w * w).sum())(weights))
weights = jnp.eye(32)
for number in itertools.count():
    with jax.profiler.StepTraceAnnotation("train", step_num=number):
        weights = train(weights)
