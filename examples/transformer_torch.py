"""A custom workload: the Transformer of transformer.py in PyTorch.

python -m app list parameters examples/transformer_torch.py:transformer
python -m app run examples/transformer_torch.py:transformer -s width=512 -s heads=8 -s layers=6 -s precision=bfloat16
python -m app experiment examples/transformer_torch.py:transformer -s compile=false,true

Layers, sizes, sentences and loss are those of the Keras example. Other than there, initial weights are PyTorch's own
but for the embeddings, and attention does not keep its weights, so that PyTorch may fuse it.
"""

import numpy as np
import torch
from torch import nn

_EPSILON = 1e-3  # Keras's


class Attention(nn.Module):
    """Adds the attention of the values to the others, or to each other."""

    def __init__(self, width, heads, dropout, *, causal=False):
        super().__init__()
        self.norm = nn.LayerNorm(width, _EPSILON)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.causal = causal

    def forward(self, values, others=None):
        """Return [batch, words, width], as the values are."""
        normal = self.norm(values)
        others = normal if others is None else others
        mask = nn.Transformer.generate_square_subsequent_mask(values.shape[1], values.device) if self.causal else None
        found, _ = self.attention(normal, others, others, need_weights=False, attn_mask=mask, is_causal=self.causal)
        return values + self.dropout(found)


class FeedForward(nn.Module):
    """Adds the output of two dense layers."""

    def __init__(self, width, dropout):
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(width, _EPSILON),
            nn.Linear(width, 4 * width),
            nn.ReLU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, values):
        """Return [batch, words, width], as the values are."""
        return values + self.layers(values)


class Embedding(nn.Module):
    """Embeds words, with their positions as sines and cosines (section 3.5 of Vaswani et al. 2017)."""

    def __init__(self, vocabulary, width, length):
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, width)
        nn.init.uniform_(self.vectors.weight, -0.05, 0.05)
        position, number = np.mgrid[:length, :width]
        angle = position / 10_000 ** (number // 2 * 2 / width)
        encoding = np.where(number % 2, np.cos(angle), np.sin(angle))
        self.register_buffer("encoding", torch.from_numpy(encoding.astype(np.float32)))
        self.scale = width**0.5

    def forward(self, words):
        """Return [batch, words, width]."""
        return self.vectors(words) * self.scale + self.encoding


class Transformer(nn.Module):
    """An encoder, and a decoder that attends to what it made."""

    def __init__(self, layers, heads, width, length, vocabulary, dropout):
        super().__init__()
        self.given, self.begun = (Embedding(vocabulary, width, length) for _ in range(2))
        parts = [(Attention(width, heads, dropout), FeedForward(width, dropout)) for _ in range(layers)]
        self.encoder = nn.Sequential(*(part for layer in parts for part in layer), nn.LayerNorm(width, _EPSILON))
        self.decoder = nn.ModuleList(
            part
            for _ in range(layers)
            for part in (
                Attention(width, heads, dropout, causal=True),
                Attention(width, heads, dropout),
                FeedForward(width, dropout),
            )
        )
        self.head = nn.Sequential(nn.LayerNorm(width, _EPSILON), nn.Linear(width, vocabulary))

    def forward(self, given, begun):
        """Return the scores of each word of the vocabulary, [batch, words, vocabulary]."""
        encoded, decoded = self.encoder(self.given(given)), self.begun(begun)
        for number, part in enumerate(self.decoder):
            decoded = part(decoded, encoded) if number % 3 == 1 else part(decoded)
        return self.head(decoded)


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
    dictionary = np.random.default_rng(seed).permutation(vocabulary)
    # Words are as rare as their rank is high, as in languages (Zipf).
    frequency = 1 / np.arange(1, vocabulary + 1)

    def batch(step):
        rng = np.random.default_rng([seed, step])
        sentences = rng.choice(vocabulary, (batch_size, length), p=frequency / frequency.sum())
        translated = dictionary[sentences[:, ::-1]]
        # The decoder's input is the target shifted by one word; word 0 stands for the start.
        return (sentences, np.pad(translated[:, :-1], ((0, 0), (1, 0)))), translated

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    return Transformer(layers, heads, width, length, vocabulary, dropout), loss, batch
