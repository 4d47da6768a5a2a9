"""JAX has two devices in tests: as many as it is told to make of the processor, before it first looks for them."""

import jax

jax.config.update("jax_num_cpu_devices", 2)
