"""Cells of tables: what they are sorted by."""

import math

import pytest

from app.viewmodels.format.cells import quantity


@pytest.mark.parametrize(("value", "key"), [(2.5, 2.5), (math.nan, None), (math.inf, None), (None, None)])
def test_only_a_number_is_a_key_to_sort_by(value: float | None, key: float | None) -> None:
    assert quantity("2.5", value).key == key
