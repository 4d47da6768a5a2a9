"""Numbers of runs in words."""

import pytest

from app.viewmodels.run_numbers import runs_words


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([4], "run 4"),
        ([5, 4], "runs 4 and 5"),
        ([6, 4, 5], "runs 4–6"),
        ([12, 1, 4, 5, 6, 7], "runs 1, 4–7 and 12"),
        (range(1, 12, 2), "runs 1, 3, 5, 7, 9 and 11"),
        ([*range(1, 12, 2), 20, 21, 22], "runs 1, 3, 5, 7, 9 and 4 more"),
        ([*range(10), *range(20, 3000, 2)], "runs 0–9, 20, 22, 24, 26 and 1,486 more"),
    ],
)
def test_runs_in_order_with_neighbours_as_one_and_the_rest_counted(runs: list[int], words: str) -> None:
    assert runs_words(runs) == words
