"""Scaling to more GPUs as a JSON document, an HTML page and a Markdown page."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.scaling import GpuCountResult, Scaling, scalings
from app.records import StoredRun
from app.report import markup
from app.report.charts.canvas import LIGHT, PAGE
from app.report.charts.scaling import draw_scaling
from app.report.charts.svg import escape_xml
from app.report.documents import estimate_document
from app.report.markup import RenderedPage, escape_markdown, html_page, html_table
from app.viewmodels.compare.scaling import ScalingView, describe_cause, scaling_views


def scaling_document(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Every pair among the runs; link bytes are what one GPU sends in a step, times of a step are in milliseconds."""
    return {"level": LEVEL, "scaling": [_scaling_entry(found) for found in scalings(runs)]}


def _scaling_entry(found: Scaling) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "speedup": _estimate(found.speedup),
        "efficiency": _estimate(found.efficiency),
        "cause": found.cause,
        "text": describe_cause(found),
        "lost_ms": asdict(found.lost) if found.lost else None,
        "few": _side(found.few),
        "many": _side(found.many),
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
        "parts_ms": asdict(side.parts) if side.parts else None,
        "communication_share": side.communication_share,
        "kernels_per_step": side.kernels,
        "gap_us": side.gap_us,
        "imbalance": side.imbalance,
        "behind_ms": side.straggler_ms,
        "data_ms": side.data_ms,
        "nvlink_bytes_per_step": side.nvlink_bytes,
        "pcie_bytes_per_step": side.pcie_bytes,
    }


_TITLE = "How well it scales"


def scaling_html_page(runs: Sequence[StoredRun]) -> str:
    """Every pair among the runs."""
    return html_page(_TITLE, f"<h1>{_TITLE}</h1>" + "".join(map(scaling_html, scaling_views(runs))))


def scaling_markdown_page(runs: Sequence[StoredRun], stem: str) -> RenderedPage:
    """The same; `stem` begins the names of its pictures' files."""
    views = scaling_views(runs)
    files = scaling_files(views, stem)
    parts = [scaling_markdown(view, file) for view, file in zip(views, files, strict=True)]
    return RenderedPage("\n\n".join([f"# {_TITLE}", *parts]) + "\n", files)


def scaling_files(views: Sequence[ScalingView], stem: str) -> dict[str, str]:
    """The picture of each pair by the name of its file."""
    drawings = (draw_scaling(view, LIGHT) for view in views)
    return {f"{stem}-scaling-{n}.svg": drawing.svg(LIGHT.background) for n, drawing in enumerate(drawings, 1)}


def scaling_html(view: ScalingView) -> str:
    """One pair: its words, its picture and its table."""
    words = f"<h3>{escape_xml(view.title)}</h3><p>{escape_xml(efficiency_headline(view))} {escape_xml(view.cause)}</p>"
    figures = html_table(("", *view.sides), view.rows, frozenset({1, 2}))
    return f"{words}<figure>{draw_scaling(view, PAGE).svg()}</figure>{figures}"


def scaling_markdown(view: ScalingView, file: str) -> str:
    """One pair whose picture is in a file."""
    figures = markup.markdown_table(("", *view.sides), view.rows, frozenset({1, 2}))
    words = f"{escape_markdown(efficiency_headline(view))} {escape_markdown(view.cause)}"
    return "\n\n".join([f"### {escape_markdown(view.title)}", words, markup.markdown_image(view.title, file), figures])


def efficiency_headline(view: ScalingView) -> str:
    """The figure that matters, in a sentence."""
    return f"Efficiency {view.efficiency} ({view.interval}), {view.speedup} as fast."
