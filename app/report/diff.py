"""Two runs side by side as a JSON document, and as the sections of a report."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.analysis.run_diff import DeviceMeans, paired_means
from app.metrics import METRICS, put_json
from app.records import RunRow, StoredRun
from app.report.model import TextTable
from app.report.why import why_document
from app.viewmodels.history.run_diff import DiffSection, RunDiff, run_diff, text_line

_ABSENT = object()
_INDENT = "\N{NO-BREAK SPACE}" * 4
"""Before a kernel, which stands below its class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPart:
    """A section of a report: how many values differ, what explains them, and those that differ."""

    title: str
    counts: str
    note: str
    table: TextTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffLines:
    """The lines of a text that one run has, each with the sign of its run."""

    title: str
    counts: str
    lines: str


def diff_parts(diff: RunDiff) -> tuple[DiffPart, ...]:
    """Return the sections of a report of a diff."""
    return tuple(
        DiffPart(title=each.title, counts=each.counts, note=each.note, table=_table(each, diff.labels))
        for each in diff.sections
    )


def diff_lines(diff: RunDiff) -> tuple[DiffLines, ...]:
    """Return the texts of a report of a diff."""
    return tuple(
        DiffLines(title=text.title, counts=text.counts, lines="\n".join(map(text_line, text.changes)))
        for text in diff.texts
    )


def _table(section: DiffSection, labels: tuple[str, str]) -> TextTable:
    changes = any(row.change for row in section.rows)
    rows = [(f"{_INDENT * row.kernel}{row.name}", row.first, row.second, row.change) for row in section.rows]
    return TextTable(
        head=("", *labels, *(["Change"] if changes else [])),
        rows=tuple(rows) if changes else tuple(row[:3] for row in rows),
        numeric=frozenset({1, 2, 3}) if changes else frozenset(),
    )


def diff_document(first: StoredRun, second: StoredRun) -> dict[str, Any]:
    """Return the `diff` document of two runs: of each value that differs a pair, the first run's and the second's.

    `kernels` has the parts of a step as in the `why` of a comparison with the first run as baseline; `samples` has
    means over `measure`, one entry per device; `log` has the lines that only one run has.
    """
    runs = (first, second)
    found = run_diff(first, second, None)
    return {
        "runs": [_head(run.row) for run in runs],
        "parameters": _pairs(*(run.row.spec.variant for run in runs)),
        "metrics": _metrics(*runs),
        "environment": _pairs(*(run.environment for run in runs)),
        "evidence": _pairs(*(run.evidence.actual if run.evidence else {} for run in runs)),
        "kernels": why_document([found.why])[0],
        "samples": [_means(*pair) for pair in paired_means(*runs)],
        **_texts(found),
    }


def _head(row: RunRow) -> dict[str, Any]:
    return {
        "run": row.run,
        "uid": row.uid,
        "workload": row.spec.workload,
        "outcome": row.outcome.name if row.outcome else None,
        "host": row.host,
        "gpus": list(row.gpu_names),
    }


def _pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the values that differ by name; None for a run that has none."""
    names = dict.fromkeys((*first, *second))
    differing = (name for name in names if first.get(name, _ABSENT) != second.get(name, _ABSENT))
    return {name: [first.get(name), second.get(name)] for name in differing}


def _metrics(first: StoredRun, second: StoredRun) -> dict[str, Any]:
    """Return every metric that a run has, at its path in documents of runs."""
    document: dict[str, Any] = {}
    for metric in METRICS:
        values = [metric.value(first), metric.value(second)]
        if values != [None, None]:
            put_json(document, metric, values)
    return document


def _means(first: DeviceMeans | None, second: DeviceMeans | None) -> dict[str, Any]:
    sides = (first, second)
    means = [side.means if side else {} for side in sides]
    return {
        "devices": [side.device.device if side else None for side in sides],
        "mean": {name: [side.get(name) for side in means] for name in dict.fromkeys(name for m in means for name in m)},
    }


def _texts(found: RunDiff) -> dict[str, Any]:
    return {
        text.key: {side: [c.text for c in text.changes if c.side == side] for side in ("first", "second")}
        for text in found.texts
    }
