"""Every GRU implementation on a real GPU against an independent one: `pytest -m gpu tests/gpu/test_gru.py`."""

import functools

import pytest

from tests.lstm_answers import Answers
from tests.numerics import GOAL, Row, cases, error_of, reference, rows

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("float32_on_the_gpu")]

CASES = cases("gru")
RUNS = [(row, title) for row in rows(["gru"]) for title in CASES if row.variant(CASES[title], gpu=True)]


@functools.cache
def expected(title: str) -> Answers:
    # How many steps an iteration or a product takes changes nothing, and is not for the standard one.
    variant = Row("gru", "standard", xla=False).variant({**CASES[title], "unroll": 1, "input_steps": 0}, gpu=True)
    assert variant is not None
    return reference("gru", variant)


@pytest.mark.parametrize(("row", "title"), RUNS)
def test_it_computes_what_an_independent_one_does(row: Row, title: str) -> None:
    variant = row.variant(CASES[title], gpu=True)
    assert variant is not None
    assert error_of(variant, "gru", expected(title)) < GOAL
