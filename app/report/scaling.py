"""How well runs scale to more GPUs, as a JSON document, and as a page of HTML or Markdown with its pictures."""

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import Any

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.scaling import Scaling, Side, scalings
from app.records import StoredRun
from app.report.scaling_picture import picture
from app.viewmodels.scaling import ScalingView, cause_words, scaling_views

_TITLE = "How well it scales"
_STYLE = (
    "body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#1f2328;background:#fff}"
    "td,th{text-align:right;font-weight:normal;padding:.15em 1.5em .15em 0}"
    "td:first-child{text-align:left;color:#59636e}"
)


def scaling_document(runs: Sequence[StoredRun]) -> dict[str, Any]:
    """Every pair among the runs; link bytes are what one GPU sends in a step, times of a step are in milliseconds."""
    return {"level": LEVEL, "scaling": [_document(found) for found in scalings(runs)]}


def _document(found: Scaling) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "speedup": _estimate(found.speedup),
        "efficiency": _estimate(found.efficiency),
        "cause": found.cause,
        "text": cause_words(found),
        "lost_ms": asdict(found.lost) if found.lost else None,
        "few": _side(found.few),
        "many": _side(found.many),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "interval": estimate.interval, "n": estimate.n}


def _side(side: Side) -> dict[str, Any]:
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
        "behind_ms": side.behind_ms,
        "data_ms": side.data_ms,
        "nvlink_bytes_per_step": side.nvlink_bytes,
        "pcie_bytes_per_step": side.pcie_bytes,
    }


def scaling_page(runs: Sequence[StoredRun], *, markdown: bool) -> str:
    """The same for a reader; in Markdown the pictures stand in the text as HTML, which most readers of it show."""
    views = scaling_views(runs)
    if markdown:
        return "\n".join([f"# {_TITLE}", *(_markdown(view) for view in views)])
    body = "".join(_html(view) for view in views)
    head = f'<meta charset="utf-8"><title>{_TITLE}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{_TITLE}</h1>{body}</body></html>\n'


def _headline(view: ScalingView) -> str:
    return f"Efficiency {view.efficiency} ({view.interval}), {view.speedup} as fast."


def _markdown(view: ScalingView) -> str:
    rows = [("", *view.sides), ("---", "---:", "---:"), *view.rows]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"\n## {view.title}\n\n{_headline(view)} {view.cause}\n\n{picture(view)}\n\n{table}\n"


def _html(view: ScalingView) -> str:
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in view.rows)
    head = "".join(f"<th>{escape(cell)}</th>" for cell in ("", *view.sides))
    words = f"<h2>{escape(view.title)}</h2><p>{escape(_headline(view))} {escape(view.cause)}</p>"
    return f"{words}{picture(view)}<table><tr>{head}</tr>{rows}</table>"
