"""How many steps are traced: by the seconds that a step takes under the profiler, and its events."""

import pytest

from workloads.evidence import trace_steps
from workloads.trace import Trace


@pytest.mark.parametrize(
    ("events", "step_s", "traced"),
    [
        (0, 0.1, [1, 10]),
        (300, 0.1, [1, 10]),
        (301, 0.1, [1, 9]),
        (1_000, 0.1, [1, 3]),
        (100_000, 0.1, [1, 3]),
        (100_000, 0.34, [1, 2]),
        (0, 0.5, [1, 2]),
        (0, 0.51, [1]),
        (100_000, 30.0, [1]),
    ],
)
def test_ten_steps_are_traced_or_as_many_as_a_second_and_three_thousand_events_hold(
    events: int, step_s: float, traced: list[int]
) -> None:
    asked = []

    def profile(steps: int) -> tuple[Trace, float]:
        asked.append(steps)
        return Trace(steps=steps, events=steps * events), step_s

    assert trace_steps(profile).steps == traced[-1]
    assert asked == traced
