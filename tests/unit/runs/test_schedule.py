"""An experiment's order: every variant equally often, and no variant always later than another."""

from hypothesis import given
from hypothesis import strategies as st

from app.runs.schedule import interleaved


def test_forwards_and_backwards_in_turn() -> None:
    assert interleaved(2, 3) == [0, 1, 1, 0, 0, 1]
    assert interleaved(3, 2) == [0, 1, 2, 2, 1, 0]
    assert interleaved(1, 2) == [0, 0]


@given(st.integers(1, 12), st.integers(1, 12))
def test_every_variant_runs_as_often_as_asked_and_drift_falls_on_all_alike(variants: int, repeats: int) -> None:
    order = interleaved(variants, repeats)
    places = [[place for place, index in enumerate(order) if index == variant] for variant in range(variants)]
    assert [len(where) for where in places] == [repeats] * variants
    if repeats % 2 == 0:
        assert len({sum(where) for where in places}) == 1, "the same mean place for all"
