"""Throughput against batch size, one line a variant, with the batches that did not fit: one plot a workload."""

from collections.abc import Mapping, Sequence

from app.viewmodels import units
from app.viewmodels.cells import example_word
from app.viewmodels.naming import workload_title
from app.viewmodels.palette import ON_LIGHT
from app.viewmodels.pictures import axes
from app.viewmodels.pictures.subjects import Subject, apart, estimate_words
from app.viewmodels.pictures.values import Chart, ChartPicture, Point, Series, Silence
from app.viewmodels.variants import setting, variant_names
from workloads.catalog import with_defaults
from workloads.protocol import RunSpec

_KEY, _TITLE = "batch", "Throughput against batch size"
_ALONE = ("implementation", "layout", "gpus", "precision")
Family = list[Subject]
"""Variants that differ in their batch alone."""


def batch_picture(found: Sequence[Subject]) -> ChartPicture | Silence:
    """Nothing where no variant was run with several batch sizes."""
    families = _families([one for one in found if one.batch_size is not None])
    several = [family for family in families if len({one.batch_size for one in family}) > 1]
    measured = [family for family in several if any(one.throughput is not None for one in family)]
    workloads = dict.fromkeys(family[0].spec.workload for family in measured)
    if not workloads:
        return Silence(key=_KEY, title=_TITLE, why="No variant was run with several batch sizes.")
    of_workloads = [[each for each in families if each[0].spec.workload == name] for name in workloads]
    names = [_names(group) for group in of_workloads]
    colours = _colours(of_workloads, names)
    charts = [_chart(group, told, colours) for group, told in zip(of_workloads, names, strict=True)]
    return ChartPicture(
        key=_KEY,
        title=_TITLE,
        caption="The batch is that of all GPUs together; ✕ did not fit, or has no result for the reason beside it.",
        charts=tuple(charts),
    )


def _families(found: Sequence[Subject]) -> list[Family]:
    families: dict[tuple[object, ...], Family] = {}
    for one in found:
        rest = _rest(one.spec)
        families.setdefault((rest.workload, *sorted(rest.variant.items())), []).append(one)
    return list(families.values())


def _names(families: Sequence[Family]) -> list[str]:
    """What tells the families apart; of one alone what most would ask of it, for its short name has a batch in it."""
    specs = [_rest(family[0].spec) for family in families]
    if len(specs) > 1:
        return variant_names(specs)
    return [" · ".join(setting(spec, name) for name in _ALONE if name in spec.variant) for spec in specs]


def _rest(spec: RunSpec) -> RunSpec:
    """The variant as if all had one batch size."""
    return RunSpec(workload=spec.workload, variant={**with_defaults(spec).variant, "batch_size": 1})


def _colours(of_workloads: Sequence[Sequence[Family]], names: Sequence[Sequence[str]]) -> dict[str, int]:
    """A colour for each name, the same in all plots."""
    first: dict[str, int] = {}
    for families, told in zip(of_workloads, names, strict=True):
        for family, name in zip(families, told, strict=True):
            first.setdefault(name, family[0].colour)
    return dict(zip(first, apart(list(first.values()), len(ON_LIGHT)), strict=True))


def _chart(families: Sequence[Family], names: Sequence[str], colours: Mapping[str, int]) -> Chart:
    first = families[0][0]
    series = tuple(_series(family, name, colours[name]) for family, name in zip(families, names, strict=True))
    points = [point for each in series for point in each.points]
    return Chart(
        title=workload_title(first.spec.workload),
        x=axes.doubling([int(point.x) for point in points], f"batch size, {units.plural(example_word(first.spec))}"),
        y=axes.fitting([end for point in points for end in (point.low, point.y, point.high)], first.rate_unit),
        series=series,
    )


def _series(family: Family, name: str, colour: int) -> Series:
    ordered = sorted(family, key=lambda one: one.batch_size or 0)
    return Series(label=name, colour=colour, points=tuple(_point(one, name) for one in ordered))


def _point(one: Subject, name: str) -> Point:
    rate, batch = one.throughput, one.batch_size or 0
    figures = one.outcome if rate is None else estimate_words(rate, one.rate_unit)
    return Point(
        runs=one.numbers,
        label=f"{batch:,}",
        words=f"{name}, batch {batch:,}\n{figures}",
        x=float(batch),
        y=rate.value if rate else None,
        low=rate.low if rate else None,
        high=rate.high if rate else None,
        outcome="" if rate else one.outcome,
    )
