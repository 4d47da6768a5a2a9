"""The cuDNN implementation: Keras's LSTM on NVIDIA's fused kernels; Keras raises where they cannot be used."""

import keras


def layer(units: int, return_sequences: bool, go_backwards: bool) -> keras.layers.LSTM:
    """One direction of one layer."""
    return keras.layers.LSTM(units, return_sequences=return_sequences, go_backwards=go_backwards, use_cudnn=True)
