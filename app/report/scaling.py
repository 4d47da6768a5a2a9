"""Scaling to more GPUs as a JSON document and as sections of a report."""

from collections.abc import Iterator, Sequence
from typing import Any

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.scaling import GpuCountResult, Scaling
from app.report.charts import svg
from app.report.charts.canvas import Drawing
from app.report.documents import estimate_document
from app.values import units
from app.viewmodels.charts.palette import Palette
from app.viewmodels.compare.scaling import ScalingView, describe_cause, scaling_mismatches
from app.viewmodels.format.cells import TextTable, example_word
from app.viewmodels.format.naming import gpus_label

WIDTH, HEIGHT = 880, 200
_PARTS = (("computing", "compute_ms"), ("communicating alone", "communication_ms"), ("no kernel", "idle_ms"))
_LEFT, _TOP, _BAR_ROOM, _BAR_HEIGHT, _ROW = 150, 44, 300, 26, 52
_TEXT_PX = 13.0
_PLOT_X, _PLOT_Y, _PLOT_W, _PLOT_H = 640, 30, 210, 130


def draw_scaling(view: ScalingView, palette: Palette) -> Drawing:
    """Draw the chart of one pair, `WIDTH` by `HEIGHT` pixels."""
    parts = (*_bars(view, palette), *_legend(palette), *_plot(view.scaling, palette))
    return Drawing(f"{view.title}: {view.efficiency}", palette.surface, WIDTH, HEIGHT, parts)


def _step_colours(palette: Palette) -> tuple[str, ...]:
    """Return the colours of the parts of a step; the time without a kernel is grey."""
    return palette.curve(0), palette.curve(1), palette.curve(-1)


def _bars(view: ScalingView, palette: Palette) -> Iterator[str]:
    yield _text(0, 18, "One step on a GPU", palette.muted)
    sides = view.scaling.few, view.scaling.many
    scale = _BAR_ROOM / max(side.step_ms for side in sides)
    for number, (label, bar) in enumerate(zip(view.sides, sides, strict=True)):
        y = _TOP + number * _ROW
        yield _text(0, y + 18, label, palette.text)
        x = float(_LEFT)
        lengths = [getattr(bar.parts, name) for _, name in _PARTS] if bar.parts else [bar.step_ms]
        for length, colour in zip(lengths, _step_colours(palette) if bar.parts else [palette.line], strict=True):
            yield svg.rectangle(x, y, length * scale, _BAR_HEIGHT, colour)
            x += length * scale
        note = "" if bar.parts else ", parts not known"
        yield _text(x + 8, y + 18, f"{units.milliseconds(bar.step_ms)}{note}", palette.text)


def _legend(palette: Palette) -> Iterator[str]:
    x = _LEFT
    for (name, _), colour in zip(_PARTS, _step_colours(palette), strict=True):
        yield svg.rectangle(x, HEIGHT - 39, 12, 12, colour)
        yield _text(x + 18, HEIGHT - 28, name, palette.muted)
        x += 36 + 7 * len(name)


def _plot(scaling: Scaling, palette: Palette) -> Iterator[str]:
    """Draw throughput against GPUs with both axes from zero, so that lengths compare."""
    few, many = scaling.few, scaling.many
    most_gpus, ideal = many.gpus, few.throughput.value * many.gpus / few.gpus
    most = max(ideal, few.throughput.value, many.throughput.value)
    unit = units.rate_unit(example_word(few.runs[0].row.spec, few.runs[0].row.summary))

    def to_pixel(gpus: float, value: float) -> tuple[float, float]:
        return _PLOT_X + _PLOT_W * gpus / most_gpus, _PLOT_Y + _PLOT_H * (1 - value / most)

    yield _text(_PLOT_X, 18, f"{unit}, and the ideal line", palette.muted)
    corner, right, top = to_pixel(0, 0), to_pixel(most_gpus, 0), to_pixel(0, most)
    yield svg.line(*corner, *right, palette.line) + svg.line(*corner, *top, palette.line)
    yield svg.line(*corner, *to_pixel(most_gpus, most), palette.muted, dash="4 4")
    for point in (few, many):
        x, y = to_pixel(point.gpus, point.throughput.value)
        yield svg.circle(x, y, 3.5, palette.curve(0), palette.curve(0))
        yield _text(
            x - 8, y + 18, units.number(point.throughput.value), palette.text, "end" if point.gpus > 1 else "start"
        )
        yield _text(x, _PLOT_Y + _PLOT_H + 18, gpus_label(point.gpus), palette.muted, "middle")


def _text(x: float, y: float, content: str, colour: str, anchor: svg.Anchor = "start") -> str:
    return svg.text(x, y, content, colour, anchor, _TEXT_PX)


def scaling_document(views: Sequence[ScalingView]) -> dict[str, Any]:
    """Return every pair of runs, and which runs did not run as requested; null if all did.

    Link bytes are what one GPU sends per step, step times are in milliseconds.
    """
    return {
        "level": LEVEL,
        "mismatch": scaling_mismatches(views) or None,
        "scaling": [_scaling_entry(view.scaling) for view in views],
    }


def _scaling_entry(scaling: Scaling) -> dict[str, Any]:
    return {
        "kind": scaling.kind,
        "speedup": _estimate(scaling.speedup),
        "efficiency": _estimate(scaling.efficiency),
        "comparisons": scaling.comparisons,
        "cause": scaling.cause,
        "text": describe_cause(scaling),
        "lost_ms": scaling.lost._asdict() if scaling.lost else None,
        "few": _side(scaling.few),
        "many": _side(scaling.many),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {**estimate_document(estimate), "n": estimate.n}


def _side(side: GpuCountResult) -> dict[str, Any]:
    return {
        "gpus": side.gpus,
        "batch_size": side.batch_size,
        "runs": [run.row.run for run in side.runs],
        "throughput": _estimate(side.throughput),
        "step_ms": side.step_ms,
        "gpu_ms": side.traced.busy_ms if side.traced else None,
        "parts_ms": side.parts._asdict() if side.parts else None,
        "communication_share": side.communication_share,
        "kernels_per_step": side.traced.kernels if side.traced else None,
        "gap_us": side.gap_us,
        "imbalance": side.imbalance,
        "behind_ms": side.straggler_ms,
        "data_ms": side.data_ms,
        "nvlink_bytes_per_step": side.nvlink_bytes,
        "pcie_bytes_per_step": side.pcie_bytes,
    }


def scaling_sections(views: Sequence[ScalingView], palette: Palette) -> list[dict[str, Any]]:
    """Return the templates' values for each pair of runs that differ only in their GPUs, drawn in these colours."""
    return [
        {
            "title": view.title,
            "text": f"{efficiency_headline(view)} {view.cause}",
            "drawing": draw_scaling(view, palette),
            "figures": TextTable(head=("", *view.sides), rows=view.rows, numeric=frozenset({1, 2})),
        }
        for view in views
    ]


def efficiency_headline(view: ScalingView) -> str:
    return f"Efficiency {view.efficiency} ({view.interval}), speed-up {view.speedup}."
