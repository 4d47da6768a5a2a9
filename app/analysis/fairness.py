"""Whether a machine is at rest before a run, and whether a run was held back too much to count. Pure functions."""

from collections.abc import Iterable, Mapping, Sequence

from app.analysis.comparability import HELD_SHARE, HOLDS, Hold, held_back
from app.facts import GATE, THROTTLED_PCT
from app.records import StoredRun
from app.samples import Sample

MOST_THROTTLED_PCT = 100 * HELD_SHARE
"""Percent of its measured part that a run may be throttled and still count at once."""

QUIET_PCT = 10.0
"""A host busier than this, before a run on it, is used by others."""

BAND_C = 5
"""A GPU is at rest when it is at most so much warmer than it was before the first run."""

STEADY_S = 10.0
"""A GPU that has not become cooler for so long (NVML tells whole degrees) is as cool as it gets."""

GAVE_UP = "gave up after"
"""How the fact on a wait begins that ended with its time and not with what it waited for."""

_THROTTLED: tuple[Hold, ...] = ("heat", "hardware slowdown")
"""Being at the power limit is no such thing: for a card at full load it is normal, and a repeat would be the same."""


def throttled_facts(run: StoredRun) -> Mapping[str, str]:
    """In percent how much of its measured part a run was throttled, as a fact of it; none where it was not at all."""
    shares = held_back(run)
    share = max((shares.get(hold, 0.0) for hold in _THROTTLED), default=0.0)
    return {THROTTLED_PCT: f"{100 * share:.1f}"} if share > 0 else {}


def throttled_pct(run: StoredRun) -> float:
    """What a stored run says of that; 0 where it says nothing."""
    return float(run.environment.get(THROTTLED_PCT, 0.0))


def gave_up_on(facts: Mapping[str, str]) -> str:
    """What was still in the way when the wait before a run gave up, by the run's facts; "" where it did not."""
    how, _, words = facts.get(GATE, "").partition(": ")
    return words if how.startswith(GAVE_UP) else ""


def lowest_c(samples: Iterable[Sample]) -> int | None:
    """The lowest temperature; None where none is told."""
    return min((sample.temperature_c for sample in samples if sample.temperature_c is not None), default=None)


def is_cool(samples: Sequence[Sample], resting_c: int | None, steady_s: float = STEADY_S) -> bool:
    """Whether a GPU's samples since a wait began, oldest first, end in its resting band, or have stopped falling.

    `resting_c` is its lowest temperature before the first run; None where there was no run yet. One that tells no
    temperature is taken to be cool.
    """
    told = [(sample.t_ns, sample.temperature_c) for sample in samples if sample.temperature_c is not None]
    if not told:
        return True
    now_ns, now_c = told[-1]
    if resting_c is not None and now_c <= resting_c + BAND_C:
        return True
    earlier = [c for t_ns, c in told if t_ns <= now_ns - int(steady_s * 1e9)]
    return bool(earlier) and all(c <= now_c for _, c in told[len(earlier) - 1 :])


def is_throttled(sample: Sample) -> bool:
    """Whether a GPU holds its clocks back because of heat or a hardware slowdown at this moment."""
    bits = sum(HOLDS[hold][0] for hold in _THROTTLED)
    return bool((sample.throttle_reasons or 0) & bits)
