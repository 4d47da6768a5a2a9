"""Speed against energy: which variants no other beats in both, the frontier; one plot a workload."""

from collections.abc import Sequence

from app.analysis.intervals import Estimate
from app.viewmodels.cells import example_word
from app.viewmodels.naming import workload_title
from app.viewmodels.pictures import axes
from app.viewmodels.pictures.subjects import Subject, estimate_words
from app.viewmodels.pictures.values import Chart, ChartPicture, Guide, Point, Series, Silence
from app.viewmodels.variants import variant_names

_KEY, _TITLE = "frontier", "Speed against energy"
_MJ_PER_J = 1000.0
_ACROSS = 5
"""Numbers side by side take more room than one above the other."""


def frontier_picture(found: Sequence[Subject]) -> ChartPicture | Silence:
    """Nothing where fewer than two variants of a workload have both a throughput and an energy."""
    known = [one for one in found if one.throughput is not None and one.energy is not None]
    workloads = dict.fromkeys(one.spec.workload for one in known)
    groups = [[one for one in known if one.spec.workload == name] for name in workloads]
    charts = tuple(_chart(group) for group in groups if len(group) > 1)
    if not charts:
        why = "Fewer than two variants have both a throughput and an energy; energy needs a GPU that tells its power."
        return Silence(key=_KEY, title=_TITLE, why=why)
    return ChartPicture(
        key=_KEY,
        title=_TITLE,
        caption=(
            "To the right is faster, below is less energy; both axes in equal factors. The line joins what no other "
            "variant beats in both."
        ),
        charts=charts,
    )


def best_in_both(rates: Sequence[float], energies: Sequence[float]) -> list[int]:
    """Indices of the pairs that no other is at least as good in both and better in one, the fastest first (Pareto)."""
    order = sorted(range(len(rates)), key=lambda index: (-rates[index], energies[index]))
    best: list[int] = []
    for index in order:
        if not best or energies[index] < energies[best[-1]]:
            best.append(index)
    return best


def _chart(group: Sequence[Subject]) -> Chart:
    example = example_word(group[0].spec)
    rates = [_of(one.throughput).value for one in group]
    energies = [_of(one.energy).value for one in group]
    unit, scale = ("J", _MJ_PER_J) if max(energies) >= _MJ_PER_J else ("mJ", 1.0)
    front = best_in_both(rates, energies)
    names = variant_names([one.spec for one in group])
    points = [
        _point(one, name, f"{unit}/{example}", scale, on=index in front)
        for index, (one, name) in enumerate(zip(group, names, strict=True))
    ]
    series = (
        Series(label="", colour=one.colour, points=(point,), joined=False)
        for one, point in zip(group, points, strict=True)
    )
    x = [end for point in points for end in (point.x_low, point.x, point.x_high)]
    y = [end for point in points for end in (point.low, point.y, point.high)]
    return Chart(
        title=workload_title(group[0].spec.workload),
        x=axes.logarithmic(x, group[0].rate_unit, most=_ACROSS),
        y=axes.logarithmic(y, f"{unit}/{example}"),
        series=tuple(series),
        guides=(Guide(label="", points=tuple((rates[i], energies[i] / scale) for i in front), dashed=False),),
    )


def _of(estimate: Estimate | None) -> Estimate:
    assert estimate is not None, "only variants with both are drawn"
    return estimate


def _point(one: Subject, name: str, unit: str, scale: float, *, on: bool) -> Point:
    rate, energy = _of(one.throughput), _scaled(_of(one.energy), scale)
    return Point(
        runs=one.numbers,
        label=name,
        words=f"{name}\n{estimate_words(rate, one.rate_unit)}\n{estimate_words(energy, unit)}",
        x=rate.value,
        x_low=rate.low,
        x_high=rate.high,
        y=energy.value,
        low=energy.low,
        high=energy.high,
        mark="full" if on else "hollow",
    )


def _scaled(found: Estimate, scale: float) -> Estimate:
    low, high = (None if end is None else end / scale for end in (found.low, found.high))
    return Estimate(found.value / scale, low, high, found.n)
