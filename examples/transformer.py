"""A custom workload: a Transformer that translates synthetic sentences.

python -m app list parameters examples/transformer.py:transformer
python -m app run examples/transformer.py:transformer -s width=512 -s heads=8 -s layers=6 -s precision=bfloat16
python -m app experiment examples/transformer.py:transformer -s xla=false,true

The parts are those of "Attention Is All You Need" (Vaswani et al. 2017, arxiv.org/abs/1706.03762), with normalization
before each part instead of after it, so that it trains without learning-rate warm-up (Xiong et al. 2020,
arxiv.org/abs/2002.04745).
"""

import keras
import numpy as np


def transformer(
    batch_size: int = 64,
    layers: int = 2,
    heads: int = 4,
    width: int = 128,
    length: int = 64,
    vocabulary: int = 1000,
    dropout: float = 0.0,
    seed: int = 1,
):
    """An encoder and a decoder translate synthetic sentences, word by word from the last to the first.

    layers: Layers of the encoder, and of the decoder.
    heads: Attention heads; they share the width.
    width: Size of the embedding of a word.
    length: Words per sentence.
    vocabulary: Words of each language.
    dropout: Share of each part's outputs dropped in training.
    """
    given, begun = (keras.Input((length,), dtype="int64") for _ in range(2))
    encoded = _embedded(given, vocabulary, width)
    decoded = _embedded(begun, vocabulary, width)
    for _ in range(layers):
        encoded = _attended(encoded, None, heads, dropout)
        encoded = _fed_forward(encoded, dropout)
    encoded = keras.layers.LayerNormalization()(encoded)
    for _ in range(layers):
        decoded = _attended(decoded, None, heads, dropout, use_causal_mask=True)
        decoded = _attended(decoded, encoded, heads, dropout)
        decoded = _fed_forward(decoded, dropout)
    model = keras.Model((given, begun), keras.layers.Dense(vocabulary)(keras.layers.LayerNormalization()(decoded)))
    dictionary = np.random.default_rng(seed).permutation(vocabulary)
    # Words are as rare as their rank is high, as in languages (Zipf).
    frequency = 1 / np.arange(1, vocabulary + 1)

    def batch(step):
        rng = np.random.default_rng([seed, step])
        sentences = rng.choice(vocabulary, (batch_size, length), p=frequency / frequency.sum())
        translated = dictionary[sentences[:, ::-1]]
        # The decoder's input is the target shifted by one word; word 0 stands for the start.
        return (sentences, np.pad(translated[:, :-1], ((0, 0), (1, 0)))), translated

    return model, keras.losses.SparseCategoricalCrossentropy(from_logits=True), batch


def _embedded(words, vocabulary, width):
    """Embed words, with their positions as sines and cosines (section 3.5 of the first paper)."""
    vectors = keras.layers.Embedding(vocabulary, width)(words)
    position, number = np.mgrid[: words.shape[1], :width]
    angle = position / 10_000 ** (number // 2 * 2 / width)
    encoding = np.where(number % 2, np.cos(angle), np.sin(angle))
    return vectors * width**0.5 + keras.ops.convert_to_tensor(encoding, vectors.dtype)


def _attended(values, others, heads, dropout, **how):
    """Add the attention of the values to the others, or to each other."""
    width = values.shape[-1]
    normal = keras.layers.LayerNormalization()(values)
    found = keras.layers.MultiHeadAttention(heads, width // heads)(normal, normal if others is None else others, **how)
    return values + keras.layers.Dropout(dropout)(found)


def _fed_forward(values, dropout):
    """Add the output of two dense layers."""
    width = values.shape[-1]
    hidden = keras.layers.Dense(4 * width, "relu")(keras.layers.LayerNormalization()(values))
    return values + keras.layers.Dropout(dropout)(keras.layers.Dense(width)(hidden))
