"""The results that `use` computes from its tours; the tours themselves are in tests/gui/test_benchmarks.py."""

import json

import pytest

from benchmarks import window

TOURS_MB = [245.0, 220.0, 251.0, 230.0, 224.0, 231.0, 223.0, 222.0]


def test_the_memory_after_each_tour_is_held_to_the_limit_and_growth_is_found_over_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turn = {"ms": 40.0, "step": "open a run", "under_way": ""}
    feedback = {"feedback_step": "open a run", "feedback_ms": 101.0}
    figures = {"start_mb": 158.0, "tours_mb": TOURS_MB, "turns": [turn], "over": 0, "clock_ms": 60.0, **feedback}
    monkeypatch.setattr(window, "module_output", lambda *_: json.dumps(figures))
    monkeypatch.setattr(window, "add_reference", lambda _: [])
    results = {result.name: result for result in window.measure_use()}
    after = [results[f"memory after tour {number}"] for number in range(1, 9)]
    assert [each.value for each in after] == TOURS_MB
    assert [each.passed for each in after] == [mb <= 250 for mb in TOURS_MB]
    growth = results["growth after the first tour"]
    assert growth.value == pytest.approx((231 + 223 + 222) / 3 - (220 + 251 + 230) / 3)
    assert growth.passed
    assert not results["slowest feedback: open a run"].passed
