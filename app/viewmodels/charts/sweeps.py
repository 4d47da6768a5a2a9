"""Charts of throughput against batch size and against the number of GPUs.

Each workload has two plots, one per kind of scaling: one batch for all GPUs together, or one for each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from app.analysis.intervals import Estimate
from app.analysis.scaling import VARYING_PARAMETERS, GpuCountResult, Scaling, ScalingKind, scalings
from app.analysis.verdict import VariantResult
from app.values import units
from app.values.records import StoredRun
from app.viewmodels.charts import model
from app.viewmodels.charts.model import Axis, Guide, Plot, Point, PointChart, PointSeries
from app.viewmodels.charts.palette import HUES, curve_styles
from app.viewmodels.compare.verdict import Verdict
from app.viewmodels.format.cells import OUTCOMES, example_word, group_example_word
from app.viewmodels.format.naming import differing_parameters, format_setting, gpus_label, variant_names, workload_title
from app.viewmodels.format.ratios import CI
from workloads.catalog import parameter_names
from workloads.protocol import RunSpec, Value

_MAX_MAGNITUDE = 1e18
"""The largest rate, energy or ratio to draw; the smallest is its reciprocal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartVariant:
    """One of the compared variants; `colour` is that of its first run."""

    name: str
    colour: int
    result: VariantResult
    runs: tuple[StoredRun, ...]

    @property
    def spec(self) -> RunSpec:
        return self.result.runs[0].spec

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(row.run for row in self.result.runs)

    @property
    def outcome(self) -> str:
        """Return its last run's outcome: `out of memory`."""
        ended = self.result.runs[-1].outcome
        return OUTCOMES[ended.name if ended else "running"].word

    @property
    def throughput(self) -> Estimate | None:
        return drawable(self.result.throughput)

    @property
    def energy(self) -> Estimate | None:
        """Return its energy per example in mJ, if drawable."""
        return drawable(self.result.energy)

    @property
    def batch_size(self) -> int | None:
        batch = self.spec.variant.get("batch_size")
        return batch if isinstance(batch, int) and batch > 0 else None

    @property
    def rate_unit(self) -> str:
        return units.rate_unit(group_example_word(self.result.runs))


def chart_variants(
    runs: Sequence[StoredRun], verdict: Verdict, styles: Mapping[int, int] | None = None
) -> tuple[ChartVariant, ...]:
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
    """Return the estimate without interval ends that no axis can show; None if its value is beyond any axis."""
    if estimate is None or not _is_drawable(estimate.value):
        return None
    ends = estimate.interval
    return (
        estimate if ends is None or all(map(_is_drawable, ends)) else Estimate(estimate.value, None, None, estimate.n)
    )


def _is_drawable(value: float) -> bool:
    return 1 / _MAX_MAGNITUDE < value < _MAX_MAGNITUDE


def distinct_colours(colours: Sequence[int], many: int) -> tuple[int, ...]:
    """Return the colours with repeated ones replaced by the next free one of `many`, as long as there are any.

    After that hues repeat: each repetition adds `many`, which determines a shape.
    """
    distinct: list[int] = []
    for colour in colours:
        hues = [other % many for other in distinct]
        free = (other % many for other in range(colour, colour + many) if other % many not in hues)
        distinct.append(next(free, colour % many + many * hues.count(colour % many)))
    return tuple(distinct)


def format_estimate(estimate: Estimate, unit: str) -> str:
    """Format an estimate: `68,899 images/s (95 % CI 68,612–69,187, 5 runs)`."""
    runs = f"{estimate.n} {units.plural('run', estimate.n)}"
    if estimate.interval is None:
        return f"{units.amount(estimate.value, unit, 4)} ({runs}, no interval)"
    return f"{units.amount(estimate.value, unit, 4)} ({CI} {units.interval(estimate.interval, 4)}, {runs})"


_LABEL_PARAMETERS = parameter_names(lambda parameter: parameter.identifies and parameter.name != "batch_size")
BatchFamily = list[ChartVariant]
"""Variants that differ only in their batch size."""


def batch_chart(variants: Sequence[ChartVariant]) -> PointChart | None:
    """Return a plot for each workload with a variant that ran with several batch sizes."""
    by_rest: dict[tuple[object, ...], BatchFamily] = {}
    for variant in (variant for variant in variants if variant.batch_size is not None):
        rest = _spec_without_batch(variant.spec)
        by_rest.setdefault((rest.workload, *sorted(rest.variant.items())), []).append(variant)
    families = list(by_rest.values())
    several = [family for family in families if len({variant.batch_size for variant in family}) > 1]
    measured = [family for family in several if any(variant.throughput is not None for variant in family)]
    workloads = dict.fromkeys(family[0].spec.workload for family in measured)
    if not workloads:
        return None
    by_workload = [[family for family in families if family[0].spec.workload == name] for name in workloads]
    names = [_batch_family_names(group) for group in by_workload]
    first: dict[str, int] = {}
    for name, family in zip(chain(*names), chain(*by_workload), strict=True):
        first.setdefault(name, family[0].colour)
    colours = dict(zip(first, distinct_colours(list(first.values()), HUES), strict=True))
    plots = [_batch_plot(group, group_names, colours) for group, group_names in zip(by_workload, names, strict=True)]
    return PointChart(
        key="batch",
        title="Throughput against batch size",
        caption="The batch is the global batch over all GPUs; ✕ did not fit, or has no result for the reason next to "
        "it.",
        plots=tuple(plots),
    )


def _batch_family_names(families: Sequence[BatchFamily]) -> list[str]:
    """Return names that distinguish the families; a single one is named by its main settings except the batch."""
    specs = [_spec_without_batch(family[0].spec) for family in families]
    if len(specs) > 1:
        return variant_names(specs)
    return [
        " · ".join(format_setting(spec, name) for name in spec.variant if name in _LABEL_PARAMETERS) for spec in specs
    ]


def _spec_without_batch(spec: RunSpec) -> RunSpec:
    return RunSpec(workload=spec.workload, variant={**spec.variant, "batch_size": 1})


def _batch_plot(families: Sequence[BatchFamily], names: Sequence[str], colours: Mapping[str, int]) -> Plot:
    first = families[0][0]
    series = tuple(
        PointSeries(
            label=name,
            colour=colours[name],
            shape=colours[name] // HUES,
            points=tuple(
                _batch_point(variant, name) for variant in sorted(family, key=lambda one: one.batch_size or 0)
            ),
        )
        for family, name in zip(families, names, strict=True)
    )
    points = [point for curve in series for point in curve.points]
    return Plot(
        title=workload_title(first.spec.workload),
        x=model.doubling_axis(
            [int(point.x) for point in points], f"batch size, {units.plural(example_word(first.spec))}"
        ),
        y=model.fitting_axis([end for point in points for end in (point.low, point.y, point.high)], first.rate_unit),
        series=series,
    )


def _batch_point(variant: ChartVariant, name: str) -> Point:
    rate, batch = variant.throughput, variant.batch_size or 0
    figures = variant.outcome if rate is None else format_estimate(rate, variant.rate_unit)
    return Point(
        runs=variant.numbers,
        label=f"{batch:,}",
        tooltip=f"{name}, batch {batch:,}\n{figures}",
        x=float(batch),
        y=rate.value if rate else None,
        low=rate.low if rate else None,
        high=rate.high if rate else None,
        outcome="" if rate else variant.outcome,
    )


_KIND_TITLES: Mapping[ScalingKind, str] = {"strong": "one batch in all", "weak": "one batch per GPU"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _GpuFamily:
    """One variant on its fewest GPUs, and on more, in ascending order."""

    kind: ScalingKind
    few: GpuCountResult
    more: tuple[Scaling, ...]

    @property
    def sides(self) -> tuple[GpuCountResult, ...]:
        return (self.few, *(pair.many for pair in self.more))

    @property
    def workload(self) -> str:
        return self.few.runs[0].row.spec.workload


def gpu_count_chart(runs: Sequence[StoredRun]) -> PointChart | None:
    """Return throughput and efficiency against the number of GPUs, for runs that differ only in their GPUs."""
    families = _gpu_families(runs)
    if not families:
        return None
    workloads = dict.fromkeys(family.workload for family in families)
    groups = [
        [variant for variant in families if (variant.workload, variant.kind) == (name, k)]
        for name in workloads
        for k in _KIND_TITLES
    ]
    plots = [chart for group in groups if group for chart in _gpu_plots(group)]
    return PointChart(
        key="gpus",
        title="Scaling to more GPUs",
        caption="Efficiency is throughput divided by that of perfect scaling from the fewest GPUs; dashed is ideal.",
        plots=tuple(plots),
    )


def _gpu_families(runs: Sequence[StoredRun]) -> list[_GpuFamily]:
    families: dict[tuple[ScalingKind, int], list[Scaling]] = {}
    for pair in scalings(runs):
        families.setdefault((pair.kind, pair.few.runs[0].row.run), []).append(pair)
    return [
        _GpuFamily(kind=kind, few=pairs[0].few, more=tuple(sorted(pairs, key=lambda pair: pair.many.gpus)))
        for (kind, _), pairs in families.items()
    ]


def _gpu_plots(families: Sequence[_GpuFamily]) -> tuple[Plot, Plot]:
    spec = families[0].few.runs[0].row.spec
    unit = units.rate_unit(example_word(spec))
    title = f"{workload_title(spec.workload)}, {_KIND_TITLES[families[0].kind]}"
    alike: dict[str, Value] = {**dict.fromkeys(VARYING_PARAMETERS, ""), "gpus": 1, "batch_size": 1}
    firsts = [family.few.runs[0].row.spec for family in families]
    specs = [RunSpec(workload=spec.workload, variant={**spec.variant, **alike}) for spec in firsts]
    labels = variant_names(specs) if differing_parameters(specs) else [""] * len(specs)
    sizes = [variant.few.batch_size // (1 if variant.kind == "strong" else variant.few.gpus) for variant in families]
    batches = [f"batch {size:,}" for size in sizes]
    names = [" · ".join(filter(None, pair)) for pair in zip(labels, batches, strict=True)]
    counts = sorted({side.gpus for family in families for side in family.sides})
    most = float(counts[-1])
    x = Axis(title="GPUs", low=0.0, high=most * 1.08, ticks=tuple((float(n), str(n)) for n in counts))
    rates, shares, ideal = [], [], []
    for family, name, colour in zip(families, names, distinct_colours(range(len(families)), HUES), strict=True):
        series = partial(PointSeries, label=name, colour=colour, shape=colour // HUES)
        measured = [(side, side.throughput) for side in family.sides]
        rates.append(
            series(points=tuple(_gpu_point(side, name, rate, format_estimate(rate, unit)) for side, rate in measured))
        )
        full = Estimate(100.0, None, None, family.few.throughput.n)
        efficiencies = [(pair.many, pair.efficiency.scaled(100.0)) for pair in family.more]
        points = [_gpu_point(side, name, share, format_estimate(share, "%")) for side, share in efficiencies]
        shares.append(series(points=(_gpu_point(family.few, name, full, "efficiency is relative to this"), *points)))
        per_gpu = family.few.throughput.value / family.few.gpus
        ideal.append(Guide(label="", colour=colour, points=((0.0, 0.0), (most, per_gpu * most))))
    reach = [end for line in rates for point in line.points for end in (point.y, point.high)]
    reach += [guide.points[-1][1] for guide in ideal]
    high = max(110.0, *(end for line in shares for point in line.points for end in (point.y, point.high) if end))
    percent = Axis(title="efficiency", low=0.0, high=high, ticks=model.percent_ticks(high))
    all_of_it = Guide(label="", points=((0.0, 100.0), (most, 100.0)))
    return (
        Plot(title=title, x=x, y=model.zero_based_axis(reach, unit), series=tuple(rates), guides=tuple(ideal)),
        Plot(title="", x=x, y=percent, series=tuple(shares), guides=(all_of_it,)),
    )


def _gpu_point(side: GpuCountResult, name: str, estimate: Estimate, figures: str) -> Point:
    label = gpus_label(side.gpus)
    return Point(
        runs=tuple(run.row.run for run in side.runs),
        label=label,
        tooltip=f"{name}, {label}\n{figures}",
        x=float(side.gpus),
        y=estimate.value,
        low=estimate.low,
        high=estimate.high,
    )
