"""What `flood` makes of what its runs report; the runs themselves are the benchmark's."""

import json

import pytest

from tests.reliability import flood


def measured(monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, str]) -> None:
    def run(_module: str, name: str) -> str:
        outcome = outcomes.get(name, flood.FLOODS[name].outcome)
        return json.dumps({"outcome": outcome, "peak_mb": 200.0 if name == "blocks" else 60.0, "end_s": len(name) / 10})

    monkeypatch.setattr(flood, "module_output", run)


def test_each_flood_has_its_memory_and_the_longest_end_is_one_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, {})
    *memory, end = flood.measure()
    assert [result.name for result in memory if not result.passed] == ["memory, blocks"]
    assert len(memory) == len(flood.FLOODS)
    assert (end.value, end.passed) == (max(map(len, flood.FLOODS)) / 10, True)


def test_a_run_that_ends_otherwise_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, {"facts": "completed"})
    with pytest.raises(RuntimeError, match="a run with facts ended as completed"):
        flood.measure()
