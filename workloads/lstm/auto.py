"""Keras decides: the cuDNN kernels where they can be used, else, without a word, the loop over time steps."""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.config import LstmConfig
from workloads.lstm.keras_stack import KerasStack


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> KerasStack:
    """Keras layers with `use_cudnn="auto"`."""
    return KerasStack(config, initial, "auto")
