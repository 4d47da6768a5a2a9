"""Cells of tables: what they are sorted by."""

import math
from dataclasses import replace

import pytest

from app.values.events import Summary
from app.viewmodels.format.cells import group_example_word, quantity
from tests.unit.viewmodels.stored import run_row
from workloads.protocol import RunSpec


@pytest.mark.parametrize(("value", "key"), [(2.5, 2.5), (math.nan, None), (math.inf, None), (None, None)])
def test_only_a_number_is_a_key_to_sort_by(value: float | None, key: float | None) -> None:
    assert quantity("2.5", value).key == key


@pytest.mark.parametrize(("examples", "word"), [(20, "step"), (21, "example")])
def test_the_word_of_a_command_s_runs_is_that_of_one_that_measured(examples: int, word: str) -> None:
    spec = RunSpec(workload="script:train.py", variant={})
    failed, measured = (
        replace(run_row(1), spec=spec, summary=summary)
        for summary in (Summary(), Summary(measured_steps=20, measured_examples=examples))
    )
    assert group_example_word([failed, measured]) == word
