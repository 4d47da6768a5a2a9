"""The variants in charts: name, colour, runs and estimates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app import units
from app.analysis.intervals import Estimate
from app.analysis.verdict import VariantResult
from app.records import StoredRun
from app.viewmodels.charts.palette import curve_styles
from app.viewmodels.compare.verdict import Verdict
from app.viewmodels.format.cells import OUTCOMES, example_word
from app.viewmodels.format.ratios import CI
from workloads.protocol import RunSpec

_MAX_MAGNITUDE = 1e18
"""Largest rate, energy or ratio that is drawn; the smallest is its reciprocal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartVariant:
    """One variant among those compared; `colour` is that of its first run."""

    name: str
    colour: int
    result: VariantResult
    runs: tuple[StoredRun, ...]

    @property
    def spec(self) -> RunSpec:
        """Return the spec of its runs."""
        return self.result.runs[0].spec

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of its runs."""
        return tuple(row.run for row in self.result.runs)

    @property
    def outcome(self) -> str:
        """Return the outcome of its last run: `out of memory`."""
        ended = self.result.runs[-1].outcome
        return OUTCOMES[ended.name if ended else "running"].word

    @property
    def throughput(self) -> Estimate | None:
        """Return its examples/s if they can be drawn."""
        return drawable(self.result.throughput)

    @property
    def energy(self) -> Estimate | None:
        """Return its energy per example in mJ if it can be drawn."""
        return drawable(self.result.energy)

    @property
    def batch_size(self) -> int | None:
        """Return its batch size, None for a workload without one."""
        batch = self.spec.variant.get("batch_size")
        return batch if isinstance(batch, int) and batch > 0 else None

    @property
    def rate_unit(self) -> str:
        """Return the unit of its throughput: `images/s`."""
        return units.rate_unit(example_word(self.spec))


def chart_variants(
    runs: Sequence[StoredRun], verdict: Verdict, styles: Mapping[int, int] | None = None
) -> tuple[ChartVariant, ...]:
    """Return the variants of a verdict on these runs, in order.

    Args:
        runs: The runs.
        verdict: Their verdict.
        styles: Styles by run; those of the curves if not given.
    """
    by_number = {run.row.run: run for run in runs}
    style_by_run = styles or curve_styles([result.runs for result in verdict.results])
    return tuple(
        ChartVariant(
            name=name,
            colour=style_by_run.get(result.runs[0].run, index),
            result=result,
            runs=tuple(by_number[row.run] for row in result.runs),
        )
        for index, (result, name) in enumerate(zip(verdict.results, verdict.names, strict=True))
    )


def drawable(estimate: Estimate | None) -> Estimate | None:
    """Return the estimate without interval ends that no axis can show; None if its value is one of those."""
    if estimate is None or not _is_drawable(estimate.value):
        return None
    ends = estimate.interval
    return (
        estimate if ends is None or all(map(_is_drawable, ends)) else Estimate(estimate.value, None, None, estimate.n)
    )


def _is_drawable(value: float) -> bool:
    return 1 / _MAX_MAGNITUDE < value < _MAX_MAGNITUDE


def distinct_colours(colours: Sequence[int], many: int) -> tuple[int, ...]:
    """Return the colours with repeated ones replaced by the next of `many` that is free, while there is one.

    Then hues repeat: `many` times how often one is taken is added, from which a shape follows.
    """
    taken: list[int] = []
    for colour in colours:
        hues = [each % many for each in taken]
        free = (other % many for other in range(colour, colour + many) if other % many not in hues)
        taken.append(next(free, colour % many + many * hues.count(colour % many)))
    return tuple(taken)


def format_estimate(estimate: Estimate, unit: str) -> str:
    """Format an estimate: `68,899 images/s (95 % CI 68,612–69,187, 5 runs)`."""
    runs = f"{estimate.n} {units.plural('run', estimate.n)}"
    if estimate.interval is None:
        return f"{units.amount(estimate.value, unit, 4)} ({runs}, no interval)"
    return f"{units.amount(estimate.value, unit, 4)} ({CI} {units.interval(estimate.interval, 4)}, {runs})"
