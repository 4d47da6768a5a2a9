"""What `agent` measures; how much it is, is the benchmark's."""

import pytest

from benchmarks import agent


def test_agent_and_sampler_are_measured_in_the_same_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WARM_S", "_SECONDS"):
        monkeypatch.setattr(agent, name, 0.5)
    own, ratio, memory = agent.measure()
    assert own.limit == 1.0
    assert own.value == ratio.value > 0
    assert ratio.ratio == pytest.approx(own.value / (ratio.baseline or 0))
    assert memory.value > 10
