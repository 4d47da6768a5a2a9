"""A workload of one's own: a Transformer that translates made sentences.

python -m app run examples/transformer.py:transformer --parameters
python -m app run examples/transformer.py:transformer -s width=512 -s heads=8 -s layers=6 -s precision=bfloat16
python -m app experiment examples/transformer.py:transformer -s xla=false,true

The parts are those of "Attention Is All You Need" (Vaswani et al. 2017, arxiv.org/abs/1706.03762), with normalization
before each part instead of after it, so that it trains without a warm-up of the rate (Xiong et al. 2020,
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
    """An encoder and a decoder translate made sentences, word by word from the last to the first.

    layers: Layers of the encoder, and as many of the decoder.
    heads: Heads of each attention; each has its share of the width.
    width: Numbers that stand for a word.
    length: Words of each sentence.
    vocabulary: Words of each language.
    dropout: Share of each part's results left out in training.
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
        # What the decoder has before each word is the words before it; the first word of all stands for the start.
        return (sentences, np.pad(translated[:, :-1], ((0, 0), (1, 0)))), translated

    return model, keras.losses.SparseCategoricalCrossentropy(from_logits=True), batch


def _embedded(words, vocabulary, width):
    """Words as vectors, with their places as sines and cosines (section 3.5 of the first paper)."""
    vectors = keras.layers.Embedding(vocabulary, width)(words)
    place, number = np.mgrid[: words.shape[1], :width]
    angle = place / 10_000 ** (number // 2 * 2 / width)
    places = np.where(number % 2, np.cos(angle), np.sin(angle))
    return vectors * width**0.5 + keras.ops.convert_to_tensor(places, vectors.dtype)


def _attended(values, others, heads, dropout, **how):
    """The values and what they found by looking at the others, or at each other."""
    width = values.shape[-1]
    normal = keras.layers.LayerNormalization()(values)
    found = keras.layers.MultiHeadAttention(heads, width // heads)(normal, normal if others is None else others, **how)
    return values + keras.layers.Dropout(dropout)(found)


def _fed_forward(values, dropout):
    """The values and what two dense layers make of each."""
    width = values.shape[-1]
    hidden = keras.layers.Dense(4 * width, "relu")(keras.layers.LayerNormalization()(values))
    return values + keras.layers.Dropout(dropout)(keras.layers.Dense(width)(hidden))
