"""Stopping rule: an experiment may end early once every speed-up is known to the requested precision."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.analysis.intervals import LEVEL, precision_reached, ratio, sidak_level
from app.analysis.verdict import throughputs
from app.records import RunRow

MAX_REPEATS = 20
"""Largest number of repeats where only a precision was requested; `docs/statistics.md` simulates with as many."""

_PRECISION = re.compile(r"(\d+(?:\.\d+)?) ?%?")
_Values = list[float]


def parse_precision_pct(word: str) -> float:
    """Return the percent in `0.5%`, `0.5 %` or `0.5`.

    Raises:
        ValueError: The text is anything else, or not between 0 and 100.
    """
    found = _PRECISION.fullmatch(word.strip())
    value = float(found.group(1)) if found else 0.0
    if not 0 < value < 100:
        raise ValueError(f"{word!r} is not a precision such as 0.5%, above 0 and below 100")
    return value


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """The throughputs of `repeats` complete rounds: by workload, per variant; the first variant is the baseline."""

    repeats: int
    by_workload: tuple[tuple[_Values, ...], ...]

    @classmethod
    def from_runs(cls, variants: Sequence[Sequence[RunRow]]) -> "StoppingRule":
        """Return the rounds that all of these variants have completed; a round in progress does not count yet."""
        measured = [throughputs([row for row in rows if row.completed]) for rows in variants]
        repeats = min(map(len, measured), default=0)
        names = [rows[0].spec.workload for rows in variants] if repeats else []
        return cls(
            repeats,
            tuple(
                tuple(values[:repeats] for values, workload in zip(measured, names, strict=True) if workload == name)
                for name in dict.fromkeys(names)
            ),
        )

    def is_met(self, until_pct: float) -> bool:
        """Return whether every speed-up is known to ± `until_pct` percent, so that no further round is needed."""
        pairs = list(self._pairs())
        return bool(pairs) and all(precision_reached(values, base, until_pct, level) for values, base, level in pairs)

    def half_widths_pct(self) -> list[float]:
        """Return half the width of every speed-up's interval in percent; of a single round there are none."""
        found = (ratio(values, base, level) for values, base, level in self._pairs())
        half_widths = (estimate.half_width for estimate in found if estimate is not None)
        return [100 * math.expm1(half) for half in half_widths if half is not None]

    def _pairs(self) -> Iterator[tuple[_Values, _Values, float]]:
        """Yield each variant's and its baseline's values, and the level at which all of a workload's intervals hold."""
        for base, *others in self.by_workload:
            for values in others:
                yield values, base, sidak_level(LEVEL, len(others))
