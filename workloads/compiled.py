"""Functions as graphs, compiled by XLA or not."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def compiled(function: Callable[..., Any], *, xla: bool = True) -> Any:
    """The function as a graph; AutoGraph has nothing to convert, and leaves files where a process ends at once."""
    return tf.function(function, jit_compile=xla, autograph=False)
