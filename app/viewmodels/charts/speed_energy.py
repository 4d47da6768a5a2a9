"""Charts of speed and energy: ratios to the baseline as bars, and the Pareto frontier."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from app.analysis.effects import Effect
from app.analysis.intervals import Estimate
from app.analysis.verdict import VariantResult, work_ratio
from app.values import units
from app.viewmodels.charts import model
from app.viewmodels.charts.model import Bar, BarChart, Guide, Plot, Point, PointChart, PointSeries
from app.viewmodels.charts.sweeps import ChartVariant, drawable, format_estimate
from app.viewmodels.compare.verdict import EFFECTS_TITLE, effect_name, effect_notes, effects_method
from app.viewmodels.format.cells import group_example_word
from app.viewmodels.format.naming import variant_names, workload_title
from app.viewmodels.format.ratios import CI, Unit, describe_ratio, unit_of

_MJ_PER_J = 1000.0
_MAX_X_TICKS = 5
"""Fewer than on the vertical axis: labels next to each other need more room."""
_TOOLTIP_PAIRS = 12
"""Matched pairs that the tooltip of an effect lists."""


def frontier_chart(variants: Sequence[ChartVariant]) -> PointChart | None:
    """Return a plot for each workload with two or more variants that have a throughput and an energy."""
    measured_variants = [
        variant for variant in variants if variant.throughput is not None and variant.energy is not None
    ]
    workloads = dict.fromkeys(variant.spec.workload for variant in measured_variants)
    groups = [[variant for variant in measured_variants if variant.spec.workload == name] for name in workloads]
    plots = tuple(_frontier_plot(group) for group in groups if len(group) > 1)
    if not plots:
        return None
    return PointChart(
        key="frontier",
        title="Speed against energy",
        caption=(
            "To the right is faster, below is less energy; both axes are logarithmic. The line joins the variants that "
            "no other beats in both."
        ),
        plots=plots,
    )


def pareto_front(rates: Sequence[float], energies: Sequence[float]) -> list[int]:
    """Return the Pareto front, the fastest first: indices of pairs that no other pair beats.

    A pair beats another if it is at least as good in both and better in one.
    """
    order = sorted(range(len(rates)), key=lambda index: (-rates[index], energies[index]))
    best: list[int] = []
    for index in order:
        if not best or energies[index] < energies[best[-1]]:
            best.append(index)
    return best


def _frontier_plot(group: Sequence[ChartVariant]) -> Plot:
    example = group_example_word(group[0].result.runs)
    rates = [_measured(variant.throughput).value for variant in group]
    energies = [_measured(variant.energy).value for variant in group]
    unit, scale = ("J", _MJ_PER_J) if max(energies) >= _MJ_PER_J else ("mJ", 1.0)
    front = pareto_front(rates, energies)
    names = variant_names([variant.spec for variant in group])
    points = [
        _frontier_point(variant, name, f"{unit}/{example}", scale, on=index in front)
        for index, (variant, name) in enumerate(zip(group, names, strict=True))
    ]
    series = (
        PointSeries(label="", colour=variant.colour, points=(point,), joined=False)
        for variant, point in zip(group, points, strict=True)
    )
    x = [end for point in points for end in (point.x_low, point.x, point.x_high)]
    y = [end for point in points for end in (point.low, point.y, point.high)]
    return Plot(
        title=workload_title(group[0].spec.workload),
        x=model.log_axis(x, group[0].rate_unit, most=_MAX_X_TICKS),
        y=model.log_axis(y, f"{unit}/{example}"),
        series=tuple(series),
        guides=(Guide(label="", points=tuple((rates[i], energies[i] / scale) for i in front), dashed=False),),
    )


def _measured(estimate: Estimate | None) -> Estimate:
    assert estimate is not None, "only variants with both are drawn"
    return estimate


def _frontier_point(variant: ChartVariant, name: str, unit: str, scale: float, *, on: bool) -> Point:
    rate, energy = _measured(variant.throughput), _measured(variant.energy).scaled(1 / scale)
    return Point(
        runs=variant.numbers,
        label=name,
        tooltip=f"{name}\n{format_estimate(rate, variant.rate_unit)}\n{format_estimate(energy, unit)}",
        x=rate.value,
        x_low=rate.low,
        x_high=rate.high,
        y=energy.value,
        low=energy.low,
        high=energy.high,
        mark="full" if on else "hollow",
    )


VariantRatio = tuple[ChartVariant, Estimate]
"""A variant with its ratio."""
RatioKey = Literal["speed-up", "energy-ratio"]
_RATIOS: Mapping[RatioKey, tuple[str, str, Callable[[VariantResult], Estimate | None]]] = {
    "speed-up": ("Speed-up", "to the right is faster", lambda result: result.speedup),
    "energy-ratio": ("Energy per example", "to the left is less", lambda result: result.energy_ratio),
}
"""The title of each chart of ratios, the meaning of its direction, and the ratio of a result."""


def effects_chart(effects: Sequence[Effect]) -> BarChart | None:
    """Return the speed-up by each setting alone; those that change the amount of work come last."""
    pairs = [(effect, ratio) for effect in effects if (ratio := drawable(effect.ratio)) is not None]
    if not pairs:
        return None
    pairs.sort(key=lambda pair: pair[0].changes_work)
    unit = unit_of(ratio.value for _, ratio in pairs)
    colours = {name: n for n, name in enumerate(dict.fromkeys(effect.parameter for effect, _ in pairs))}
    return BarChart(
        key="effects",
        title=EFFECTS_TITLE,
        caption=f"{effects_method(effects)} Logarithmic axis{_describe_cut([ratio for _, ratio in pairs])}; "
        "to the right is faster.",
        bars=tuple(_effect_bar(effect, ratio, colours[effect.parameter], unit) for effect, ratio in pairs),
        axis=model.ratio_axis([ratio for _, ratio in pairs]),
        start=1.0,
    )


def _effect_bar(effect: Effect, ratio: Estimate, colour: int, unit: Unit) -> Bar:
    name, count = effect_name(effect), len(effect.pairs)
    text = f"{describe_ratio(ratio, unit)} · {count} {units.plural('pair', count)}"
    pairs = [
        f"{variant_names([pair.after[0].spec])[0]}: {describe_ratio(pair.ratio, unit)}"
        for pair in effect.pairs[:_TOOLTIP_PAIRS]
    ]
    more = [f"{count - len(pairs):,} more"] if count > len(pairs) else []
    return Bar(
        runs=tuple(row.run for pair in effect.pairs for row in (*pair.before, *pair.after)),
        label=" · ".join([name, *effect_notes(effect)]),
        tooltip="\n".join([name, text, *effect_notes(effect), *pairs, *more]),
        value=ratio.value,
        low=ratio.low,
        high=ratio.high,
        text=text,
        colour=colour,
    )


def ratio_chart(variants: Sequence[ChartVariant], key: RatioKey) -> BarChart | None:
    """Return each variant's ratio of a figure to the baseline's, best first."""
    title, meaning, read = _RATIOS[key]
    full_name, workload = next(
        (variant.name, variant.spec.workload) for variant in variants if variant.result.is_baseline
    )
    variants, elsewhere = _select_workload(variants, workload)
    base = next(variant for variant in variants if variant.result.is_baseline)
    drawn = [(variant, drawable(read(variant.result))) for variant in variants if variant is not base]
    ratios = [(variant, estimate) for variant, estimate in drawn if estimate is not None]
    if not ratios:
        return None
    ratios.sort(key=lambda pair: pair[1].value, reverse=key == "speed-up")
    # If none does the baseline's work per example, all count as the same work.
    comparable = [pair for pair in ratios if work_ratio(pair[0].result.runs, base.result.runs) is None] or ratios
    different = [pair for pair in ratios if pair not in comparable]
    without = [variant for variant, estimate in drawn if estimate is None]
    bar = partial(_ratio_bar, unit=unit_of(estimate.value for _, estimate in ratios))
    bars = [
        _variant_bar(base, "baseline", "the baseline"),
        *map(bar, comparable),
        *map(_empty_bar, without),
        *map(bar, different),
    ]
    if all(estimate.interval is None for _, estimate in ratios):
        how = "one run per variant has no interval"
    else:
        how = f"whiskers are {CI} that hold together{_describe_cut([estimate for _, estimate in ratios])}"
    return BarChart(
        key=key,
        title=f"{title} against {full_name}",
        caption=f"Ratio to the baseline on a logarithmic axis; {meaning}; "
        f"{how}.{_describe_different_work(different)}{elsewhere}",
        bars=tuple(bars),
        axis=model.ratio_axis([estimate for _, estimate in ratios]),
        start=1.0,
    )


def _select_workload(variants: Sequence[ChartVariant], workload: str) -> tuple[list[ChartVariant], str]:
    selected = [variant for variant in variants if variant.spec.workload == workload]
    names = variant_names([variant.spec for variant in selected])
    others = len(variants) - len(selected)
    note = (
        f" {others} {units.plural('variant', others)} of other workloads {'has' if others == 1 else 'have'} no ratio."
    )
    return [replace(variant, name=name) for variant, name in zip(selected, names, strict=True)], note if others else ""


def _describe_different_work(different: Sequence[VariantRatio]) -> str:
    if not different:
        return ""
    last = "The last one does" if len(different) == 1 else f"The last {len(different)} do"
    return f" {last} different work per example than the baseline."


def _describe_cut(estimates: Sequence[Estimate]) -> str:
    axis = model.ratio_axis(estimates)
    cut = any(ratio.interval and (ratio.interval[0] < axis.low or ratio.interval[1] > axis.high) for ratio in estimates)
    return " (arrow: beyond the axis)" if cut else ""


def _variant_bar(variant: ChartVariant, text: str, detail: str, ratio: Estimate | None = None) -> Bar:
    return Bar(
        runs=variant.numbers,
        label=variant.name,
        tooltip=f"{variant.name}\n{detail}",
        value=ratio.value if ratio else None,
        low=ratio.low if ratio else None,
        high=ratio.high if ratio else None,
        text=text,
        colour=variant.colour,
    )


def _ratio_bar(pair: VariantRatio, unit: Unit) -> Bar:
    variant, ratio = pair
    text, rate = describe_ratio(ratio, unit), variant.throughput
    detail = text if rate is None else f"{text}\n{format_estimate(rate, variant.rate_unit)}"
    return _variant_bar(variant, text, detail, ratio)


def _empty_bar(variant: ChartVariant) -> Bar:
    why = variant.outcome if variant.throughput is None else "not measured"
    return _variant_bar(variant, why, why)
