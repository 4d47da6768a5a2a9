"""The cuDNN implementation: Keras's LSTM on NVIDIA's fused kernels; Keras raises where they cannot be used."""

from collections.abc import Sequence

import tensorflow as tf

from workloads.lstm.config import LstmConfig
from workloads.lstm.keras_stack import KerasStack


def stack(config: LstmConfig, initial: Sequence[tf.Tensor]) -> KerasStack:
    """Keras layers with `use_cudnn=True`."""
    return KerasStack(config, initial, True)
