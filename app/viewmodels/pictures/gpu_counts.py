"""Throughput and efficiency against the number of GPUs, held against ideal scaling.

Two plots for each workload and each kind of scaling: one batch for all GPUs together, one batch for each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.analysis.intervals import Estimate
from app.analysis.scaling import Kind, Scaling, Side, scalings
from app.records import StoredRun
from app.viewmodels import ticks, units
from app.viewmodels.cells import example_word
from app.viewmodels.naming import gpus_words, workload_title
from app.viewmodels.palette import ON_LIGHT
from app.viewmodels.pictures import axes
from app.viewmodels.pictures.subjects import apart, estimate_words
from app.viewmodels.pictures.values import Axis, Chart, ChartPicture, Guide, Point, Series, Silence
from app.viewmodels.variants import differing, variant_names
from workloads.catalog import with_defaults
from workloads.protocol import RunSpec, Value

_KEY, _TITLE = "gpus", "Scaling to more GPUs"
_KINDS: Mapping[Kind, str] = {"strong": "one batch in all", "weak": "one batch a GPU"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    """One variant from its fewest GPUs to more, in order of GPUs."""

    kind: Kind
    few: Side
    more: tuple[Scaling, ...]

    @property
    def workload(self) -> str:
        return self.few.runs[0].row.spec.workload


def gpus_picture(runs: Sequence[StoredRun]) -> ChartPicture | Silence:
    """Nothing where no two runs differ in their GPUs alone."""
    families = _families(runs)
    if not families:
        why = "No two variants differ in their GPUs alone, at one global batch or at one batch a GPU."
        return Silence(key=_KEY, title=_TITLE, why=why)
    workloads = dict.fromkeys(family.workload for family in families)
    groups = [[one for one in families if (one.workload, one.kind) == (name, k)] for name in workloads for k in _KINDS]
    charts = [chart for group in groups if group for chart in _charts(group)]
    return ChartPicture(
        key=_KEY,
        title=_TITLE,
        caption="Efficiency is throughput over what that many times the fewest GPUs would give; dashed is ideal.",
        charts=tuple(charts),
    )


def _families(runs: Sequence[StoredRun]) -> list[_Family]:
    found: dict[tuple[Kind, int], list[Scaling]] = {}
    for pair in scalings(runs):
        found.setdefault((pair.kind, pair.few.runs[0].row.run), []).append(pair)
    return [
        _Family(kind=kind, few=pairs[0].few, more=tuple(sorted(pairs, key=lambda pair: pair.many.gpus)))
        for (kind, _), pairs in found.items()
    ]


def _charts(families: Sequence[_Family]) -> tuple[Chart, Chart]:
    spec = families[0].few.runs[0].row.spec
    unit = units.rate_unit(example_word(spec))
    title = f"{workload_title(spec.workload)}, {_KINDS[families[0].kind]}"
    names = _names(families)
    colours = apart(range(len(families)), len(ON_LIGHT))
    counts = sorted({side.gpus for family in families for side in _sides(family)})
    x = Axis(title="GPUs", low=0.0, high=counts[-1] * 1.08, ticks=tuple((float(n), str(n)) for n in counts))
    rates = tuple(_rates(*each, unit) for each in zip(families, names, colours, strict=True))
    shares = tuple(_shares(*each) for each in zip(families, names, colours, strict=True))
    ideal = tuple(_ideal(family, colour, counts[-1]) for family, colour in zip(families, colours, strict=True))
    reach = [end for line in rates for point in line.points for end in (point.y, point.high)]
    reach += [guide.points[-1][1] for guide in ideal]
    return (
        Chart(title=title, x=x, y=axes.from_zero(reach, unit), series=rates, guides=ideal),
        Chart(title="", x=x, y=_percent_axis(shares), series=shares, guides=(_all(counts[-1]),)),
    )


def _names(families: Sequence[_Family]) -> list[str]:
    """What tells a family from the others, its batch always."""
    specs = [_rest(family.few.runs[0].row.spec) for family in families]
    told = variant_names(specs) if differing(specs) else [""] * len(specs)
    sizes = [one.few.batch_size // (1 if one.kind == "strong" else one.few.gpus) for one in families]
    batches = [f"batch {size:,}" for size in sizes]
    return [" · ".join(filter(None, pair)) for pair in zip(told, batches, strict=True)]


def _rest(spec: RunSpec) -> RunSpec:
    """The variant as if all had the same GPUs and batch."""
    rest: dict[str, Value] = {"gpus": 1, "batch_size": 1, "devices": "", "all_reduce": ""}
    return RunSpec(workload=spec.workload, variant={**with_defaults(spec).variant, **rest})


def _sides(family: _Family) -> tuple[Side, ...]:
    return (family.few, *(pair.many for pair in family.more))


def _rates(family: _Family, name: str, colour: int, unit: str) -> Series:
    points = tuple(
        _point(side, name, side.throughput, estimate_words(side.throughput, unit)) for side in _sides(family)
    )
    return Series(label=name, colour=colour, points=points)


def _shares(family: _Family, name: str, colour: int) -> Series:
    points = [
        _point(pair.many, name, share := _times(pair.efficiency, 100.0), estimate_words(share, "%"))
        for pair in family.more
    ]
    first = _point(family.few, name, Estimate(100.0, None, None, family.few.throughput.n), "what efficiency is of")
    return Series(label=name, colour=colour, points=(first, *points))


def _times(found: Estimate, factor: float) -> Estimate:
    low, high = (None if end is None else end * factor for end in (found.low, found.high))
    return Estimate(found.value * factor, low, high, found.n)


def _point(side: Side, name: str, estimate: Estimate, figures: str) -> Point:
    label = gpus_words(side.gpus)
    return Point(
        runs=tuple(run.row.run for run in side.runs),
        label=label,
        words=f"{name}, {label}\n{figures}",
        x=float(side.gpus),
        y=estimate.value,
        low=estimate.low,
        high=estimate.high,
    )


def _ideal(family: _Family, colour: int, most: int) -> Guide:
    a_gpu = family.few.throughput.value / family.few.gpus
    return Guide(label="", colour=colour, points=((0.0, 0.0), (float(most), a_gpu * most)))


def _all(most: int) -> Guide:
    return Guide(label="", points=((0.0, 100.0), (float(most), 100.0)))


def _percent_axis(lines: Sequence[Series]) -> Axis:
    ends = [end for line in lines for point in line.points for end in (point.y, point.high) if end is not None]
    high = max(110.0, *ends)
    marks = tuple((value, f"{text} %") for value, text in ticks.linear(0.0, high))
    return Axis(title="efficiency", low=0.0, high=high, ticks=marks)
