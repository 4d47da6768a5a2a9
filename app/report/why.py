"""Why variants differ as a JSON document and as sections of a report."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.analysis.why import Change, Part, WhatIf, find_cause
from app.report.charts.draw import draw_chart
from app.report.documents import estimate_document
from app.viewmodels.charts.palette import Palette
from app.viewmodels.compare.why import WhyView
from app.viewmodels.compare.why_text import CAVEAT
from app.viewmodels.format.cells import TextTable


def why_document(views: Sequence[WhyView]) -> list[dict[str, Any]]:
    """Return an entry per variant but the baseline: its step, the parts of it, and what if; times are in ms.

    `examples` is what times are of, None for one step. A part lists the kernels that changed most, with full names;
    `more_kernels` are the others together; the idle part lists its causes. `cause` is an `app.analysis.why.Cause` that
    explains most of the difference. Where it is not known why, `text` says so, and `parts` is empty.
    """
    return [_entry(view) for view in views]


def _entry(view: WhyView) -> dict[str, Any]:
    difference = view.difference
    return {
        "label": view.name,
        "runs": list(view.runs),
        "text": view.sentence,
        "notes": list(view.notes),
        "examples": difference.examples if difference else None,
        "step": _change(difference.step) if difference else None,
        "cause": asdict(cause) if difference and (cause := find_cause(difference)) else None,
        "parts": [_part(part) for part in difference.parts] if difference else [],
        "what_if": [_what_if(what_if, text) for what_if, text in zip(view.what_ifs, view.gains, strict=True)],
    }


def _change(change: Change) -> dict[str, Any]:
    difference = estimate_document(change.difference, "difference_ms", "interval_ms")
    return {"baseline_ms": change.baseline_ms, "ms": change.other_ms, **difference}


def _part(part: Part) -> dict[str, Any]:
    return {
        "kind": part.kind,
        **_change(part.change),
        "kernels": [
            {
                "name": kernel.kernel.name,
                "tensor_cores": kernel.kernel.tensor_cores,
                **_change(kernel.change),
            }
            for kernel in part.kernels
        ],
        "causes": [{"kind": cause.cause, **_change(cause.change)} for cause in part.causes],
        "more_kernels": {"count": part.more, "difference_ms": part.more_ms},
    }


def _what_if(gain: WhatIf, text: str) -> dict[str, Any]:
    return {
        "of": "baseline" if gain.of_baseline else "variant",
        "kinds": list(gain.kinds),
        "step_ms": gain.step_ms,
        **estimate_document(gain.speedup, "speedup"),
        "text": text,
    }


def why_sections(views: Sequence[WhyView], palette: Palette) -> list[dict[str, Any]]:
    """Return what the templates show of each variant, drawn in these colours; `kernels` has the parts with theirs."""
    return [
        {
            "title": f"{view.name} against {view.baseline}",
            "text": view.sentence,
            "notes": view.notes,
            "drawing": draw_chart(view.chart, palette) if view.chart else None,
            "parts": _table(view, kernels=False),
            "kernels": _table(view, kernels=True),
            "gains": view.gains,
            "caveat": CAVEAT,
        }
        for view in views
    ]


def _table(view: WhyView, *, kernels: bool) -> TextTable:
    """Return the parts alone, or with the kernels of each."""
    rows = tuple(
        ((f"– {row.label}" if row.is_detail else row.label), *row.cells)
        for row in view.rows
        if kernels or row.kind != "kernel"
    )
    return TextTable(head=("", *view.head), rows=rows, numeric=frozenset(range(1, len(view.head) + 1)))
