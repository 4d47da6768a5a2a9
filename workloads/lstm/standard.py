"""The standard implementation: Keras's LSTM as a loop over time steps, never the cuDNN kernels."""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.config import LstmConfig
from workloads.lstm.keras_stack import KerasStack


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> KerasStack:
    """Keras layers with `use_cudnn=False`."""
    return KerasStack(config, initial, False)
