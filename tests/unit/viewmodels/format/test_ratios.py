"""Verbs of sentences on variants, whose names may be plurals."""

import pytest

from app.viewmodels.format.ratios import agree


@pytest.mark.parametrize(
    ("name", "predicate", "sentence"),
    [
        ("NCHW", "takes 1 ms", "NCHW takes 1 ms"),
        ("1 GPU", "does 2.00×", "1 GPU does 2.00×"),
        ("2 GPUs", "takes 1 ms", "2 GPUs take 1 ms"),
        ("2 GPUs", "does 2.00×", "2 GPUs do 2.00×"),
        ("2 GEMMs", "took 1 ms", "2 GEMMs took 1 ms"),
    ],
)
def test_a_verb_agrees_with_the_name_of_a_variant(name: str, predicate: str, sentence: str) -> None:
    assert agree(name, predicate) == sentence
