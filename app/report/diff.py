"""Two runs side by side as a JSON document, and the tables of a report."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.metrics import METRICS, put_json
from app.records import RunRow, StoredRun
from app.report.why import why_document
from app.viewmodels.format.cells import TextTable
from app.viewmodels.history.run_diff import DeviceMeans, DiffRow, paired_means, run_diff
from workloads.catalog import has_parameter

_ABSENT = object()
_INDENT = "\N{NO-BREAK SPACE}" * 4
"""Before a kernel, which stands below its class."""


def diff_table(rows: Sequence[DiffRow], labels: tuple[str, str], indent: str = _INDENT) -> TextTable:
    """Return values of both runs, which these labels name, with their changes if any has one; kernels are indented."""
    changes = any(row.change for row in rows)
    texts = [(f"{indent * row.kernel}{row.name}", row.first, row.second, row.change) for row in rows]
    return TextTable(
        head=("", *labels, *(["Change"] if changes else [])),
        rows=tuple(texts) if changes else tuple(row[:3] for row in texts),
        numeric=frozenset({1, 2, 3}) if changes else frozenset(),
    )


def diff_document(first: StoredRun, second: StoredRun) -> dict[str, Any]:
    """Return the `diff` document of two runs: of each value that differs a pair, the first run's and the second's.

    `kernels` has the parts of a step as in the `why` of a comparison with the first run as baseline; `samples` has
    means over `measure`, one entry per device; `log` has the lines that only one run has.
    """
    runs = (first, second)
    differences = run_diff(first, second, None)
    specs = [run.row.spec for run in runs]
    parameters = (
        {name: value for name, value in spec.variant.items() if all(has_parameter(one, name) for one in specs)}
        for spec in specs
    )
    return {
        "runs": [_head(run.row) for run in runs],
        "parameters": _pairs(*parameters),
        "metrics": _metrics(*runs),
        "environment": _pairs(*(run.environment for run in runs)),
        "evidence": _pairs(*(run.evidence.actual if run.evidence else {} for run in runs)),
        "kernels": why_document([differences.why])[0],
        "samples": [_means(*pair) for pair in paired_means(*runs)],
        **{
            text.key: {side: [c.text for c in text.changes if c.side == side] for side in ("first", "second")}
            for text in differences.texts
        },
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
