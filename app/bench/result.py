"""What a benchmark finds: figures, each with its baseline of the same run where it has one, and a limit."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One figure. `ratio` is value over baseline; `limit` bounds the ratio, or the value where there is no baseline.

    `at_least` says on which side of the limit is right.
    """

    name: str
    value: float
    unit: str
    baseline: float | None = None
    limit: float | None = None
    at_least: bool = False

    @property
    def ratio(self) -> float | None:
        """Value over baseline."""
        return self.value / self.baseline if self.baseline else None

    @property
    def passed(self) -> bool | None:
        """Whether the limit is kept; None where there is none."""
        if self.limit is None:
            return None
        judged = self.value if self.ratio is None else self.ratio
        return judged >= self.limit if self.at_least else judged <= self.limit

    def document(self) -> dict[str, Any]:
        """The result as the `bench` document holds it."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "limit": self.limit,
            "pass": self.passed,
        }
