"""The roofline: operations per second against arithmetic intensity, below what the GPU can do.

Williams, Waterman and Patterson (2009), "Roofline: an insightful visual performance model for multicore architectures",
Communications of the ACM 52. Operations follow from a formula, and the flat ceilings are measured rates of a matrix
product. Bytes are the used share of the GPU's memory bandwidth that the driver reports (GPM's DRAM_BW_UTIL in nvml.h,
of the theoretical maximum), times the bandwidth in NVIDIA's data sheet. The slanted ceiling is that full bandwidth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from app.analysis.energy import DRAM, measured_means, memory_bandwidth
from app.analysis.summary import flops_per_s
from app.analysis.verdict import throughputs
from app.values import units
from app.viewmodels.charts import model
from app.viewmodels.charts.model import Axis, Guide, Plot, Point, PointChart, PointSeries
from app.viewmodels.charts.sweeps import ChartVariant
from app.viewmodels.format.naming import choice_label, gpus_label

_KEY = "roofline"
_GIGA, _TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComputeRate:
    """A variant's rate and its ceiling in operations/s, and its used memory bandwidth in bytes/s."""

    variant: ChartVariant
    rate: float
    peak: float
    memory_share: float | None
    bandwidth: float | None

    @property
    def share_pct(self) -> float:
        return 100 * self.rate / self.peak

    @property
    def name(self) -> str:
        variant = self.variant.spec.variant
        where = gpus_label(variant.get("gpus", 0))
        return f"{choice_label(self.variant.spec, 'precision', variant.get('precision', 'float32'))}, {where}"


def roofline_chart(variants: Sequence[ChartVariant]) -> PointChart | None:
    """Return the roofline of variants with known operations, peak and memory traffic; None without any."""
    placed = [
        speed for variant in variants if (speed := _compute_rate(variant)) and speed.memory_share and speed.bandwidth
    ]
    return _roofline(placed) if placed else None


def _compute_rate(variant: ChartVariant) -> _ComputeRate | None:
    """Return medians over the runs that measured, as in the table; for the memory's load, the mean."""
    runs = [run for run in variant.runs if throughputs([run.row])]
    rates = [rate for run in runs if (rate := flops_per_s(run.row.summary)) and rate > 0]
    peaks = [peak for run in runs if (peak := run.row.summary.peak_flops_per_s) and peak > 0]
    if not rates or not peaks:
        return None
    busy = [share for run in runs for share in measured_means(run, DRAM) if share > 0]
    return _ComputeRate(
        variant=variant,
        rate=median(rates),
        peak=median(peaks),
        memory_share=float(np.mean(busy)) / 100 if busy else None,
        bandwidth=memory_bandwidth(runs[0].row.gpu_names),
    )


def _roofline(speeds: Sequence[_ComputeRate]) -> PointChart:
    points = [_point(speed) for speed in speeds]
    ceilings: dict[str, _ComputeRate] = {}
    for speed in sorted(speeds, key=lambda speed: speed.peak):
        ceilings[speed.name] = speed
    ridges = [speed.peak / (speed.bandwidth or 1.0) for speed in ceilings.values()]
    x = model.log_axis([*(point.x for point in points), *ridges], "Arithmetic intensity (FLOP/byte)", 2.0)
    tops = [speed.peak / _GIGA for speed in ceilings.values()]
    y = model.log_axis([*(point.y for point in points), *tops], "Performance (GFLOPS)", 1.6)
    roofs = [_ceiling_guide(speed, x, y) for speed in ceilings.values()]
    series = tuple(
        PointSeries(label="", colour=speed.variant.colour, points=(point,), joined=False)
        for speed, point in zip(speeds, points, strict=True)
    )
    return PointChart(
        key=_KEY,
        title="Roofline",
        caption=(
            "Flat: the measured rate of a large matrix product. Slanted: all of the memory bandwidth in the GPU's data "
            "sheet. Points near it are bound by memory, points far below both wait for something else."
        ),
        plots=(Plot(title="", x=x, y=y, series=series, guides=tuple(roofs)),),
    )


def _ceiling_guide(speed: _ComputeRate, x: Axis, y: Axis) -> Guide:
    """Return the ceiling, from where its slanted part enters the plot to its flat end."""
    assert speed.bandwidth, "only these are placed"
    top, slope = speed.peak / _GIGA, speed.bandwidth / _GIGA
    start = max(x.low, y.low / slope)
    corners = [(start, start * slope), (top / slope, top), (x.high, top)]
    return Guide(label=f"{speed.name}: {units.number(top)}", points=tuple(corners), dashed=False)


def _point(speed: _ComputeRate) -> Point:
    assert speed.memory_share, "only these are placed"
    assert speed.bandwidth, "only these are placed"
    intensity = speed.rate / (speed.memory_share * speed.bandwidth)
    return Point(
        runs=speed.variant.numbers,
        label=speed.variant.name,
        tooltip=(
            f"{speed.variant.name}\n{units.gflops(speed.rate)}, {units.percent(speed.share_pct, 1)} of {speed.name}\n"
            f"{units.amount(intensity, 'FLOP/byte')}, {units.percent(100 * speed.memory_share, 1)} of "
            f"{units.amount(speed.bandwidth / _TERA, 'TB/s', 2)} of memory bandwidth in use"
        ),
        x=intensity,
        y=speed.rate / _GIGA,
    )
