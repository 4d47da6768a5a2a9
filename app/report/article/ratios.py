"""An article's table of ratios to a baseline: published figures next to measured ones."""

from collections.abc import Mapping, Sequence
from typing import Any

from app import units
from app.analysis.intervals import Estimate, mean, ratio
from app.analysis.verdict import throughputs
from app.records import RunRow
from app.report.article.cells import cell_runs_document, claim_lines, format_figure, format_ratio, source_line
from app.report.documents import estimate_document
from app.report.model import ArticleSection, TextTable
from app.runs.experiment.article import RatioTable, TableColumn, TableMetric, TableRow
from app.runs.experiment.schedule import runs_of_variant
from app.viewmodels.format.derived import flops_per_s
from app.viewmodels.format.naming import value_text
from workloads.protocol import RunSpec

_UNITS: Mapping[TableMetric, str] = {"gflops": "GFLOPS", "step_ms": "ms a step"}
_COLUMNS = 2
"""Columns of figures and ratios beside each other."""


def ratios_document(table: RatioTable, variants: Sequence[RunSpec], runs: Sequence[RunRow]) -> dict[str, Any] | None:
    """Rows as the file has them, of the columns that the experiment has a variant of; None where it has none at all.

    Of a row, `article` is what the article gives, its `ratio` from one number to another; `cells` are what was
    measured, one a column: `figure` in the table's unit, `ratio` of speed to the baseline's, which `baseline` names.
    """
    columns = [each for each in table.columns if any(table.variant(line, each, variants) for line in table.rows)]
    if not columns:
        return None
    return {
        "workload": table.workload,
        "figure": table.figure,
        "unit": _UNITS[table.figure],
        "head": table.head,
        "baseline": _baseline_label(table),
        "columns": [column.label for column in columns],
        "rows": [
            {
                "label": line.label,
                "article": {"value": line.article, "ratio": _range(line.article_ratio)},
                "cells": [_cell(table, line, column, variants, runs) for column in columns],
            }
            for line in table.rows
        ],
    }


def _baseline_label(table: RatioTable) -> str:
    """What the ratios are to: a row's label, or the settings where no row is of it."""
    named = (line.label for line in table.rows if line.settings.items() <= table.baseline.items())
    settings = ", ".join(f"{name}={value_text(value)}" for name, value in table.baseline.items())
    return next(named, settings)


def _range(ratio: float | tuple[float, float] | None) -> list[float] | None:
    return None if ratio is None else [ratio, ratio] if isinstance(ratio, float) else list(ratio)


def _cell(
    table: RatioTable, line: TableRow, column: TableColumn, variants: Sequence[RunSpec], runs: Sequence[RunRow]
) -> dict[str, Any]:
    spec, baseline = table.variant(line, column, variants), table.baseline_of(column, variants)
    variant_runs = runs_of_variant(spec, runs) if spec else []
    baseline_runs = runs_of_variant(baseline, runs) if baseline else []
    return {
        **cell_runs_document(variant_runs),
        "figure": estimate_document(mean(_figures(table.figure, variant_runs))),
        "ratio": estimate_document(
            _ratio(_speeds(table.figure, variant_runs), _speeds(table.figure, baseline_runs), spec == baseline)
        ),
    }


def _ratio(values: Sequence[float], baseline: Sequence[float], same: bool) -> Estimate | None:
    """The baseline is once itself, of which there is no interval."""
    found = ratio(values, baseline)
    return Estimate(1.0, None, None, found.n) if found and same else found


def _figures(figure: TableMetric, runs: Sequence[RunRow]) -> list[float]:
    speeds = _speeds(figure, runs)
    if figure == "gflops" or not speeds:
        return speeds
    return [1000 * int(runs[0].spec.variant["batch_size"]) / speed for speed in speeds]


def _speeds(figure: TableMetric, runs: Sequence[RunRow]) -> list[float]:
    """Billions of operations a second, or examples a second: the more the faster."""
    if figure == "step_ms":
        return throughputs(runs)
    rates = (flops_per_s(row.summary) for row in runs if throughputs([row]))
    return [rate / 1e9 for rate in rates if rate]


def ratios_section(table: Mapping[str, Any]) -> ArticleSection:
    """The same in words, in pieces of a few columns that fit on paper."""
    caption = f"Speed-ups are over “{table['baseline']}”, those measured each with a 95 % interval of its own"
    firsts = range(0, len(table["columns"]), _COLUMNS)
    captions = (caption if first == 0 else f"{caption}, continued" for first in firsts)
    pieces = (_columns_table(table, slice(first, first + _COLUMNS)) for first in firsts)
    return ArticleSection(
        title=table["title"],
        tables=tuple(zip(captions, pieces, strict=True)),
        claims=claim_lines(table),
        source=source_line(table),
    )


def _columns_table(table: Mapping[str, Any], columns: slice) -> TextTable:
    rows = table["rows"]
    article_columns = [name for name in ("value", "ratio") if any(row["article"][name] is not None for row in rows)]
    figures = {"value": table["unit"], "ratio": "speed-up"}
    head = [table["head"], *(f"Article: {figures[name]}" for name in article_columns)]
    for column in table["columns"][columns]:
        measured = ", ".join(filter(None, ("Measured", column)))
        head += [f"{measured}: {words}" for words in figures.values()]
    return TextTable(
        head=tuple(head),
        rows=tuple(
            (row["label"], *_article_cells(row["article"], article_columns), *_measured_cells(row["cells"][columns]))
            for row in rows
        ),
        numeric=frozenset(range(1, len(head))),
    )


def _article_cells(article: Mapping[str, Any], columns: Sequence[str]) -> tuple[str, ...]:
    words = {"value": units.number(article["value"]), "ratio": _format_range(article["ratio"])}
    return tuple(words[name] for name in columns)


def _format_range(ratio: Sequence[float] | None) -> str:
    return " to ".join(f"{end:g}×" for end in dict.fromkeys(ratio or ())) or units.ABSENT


def _measured_cells(cells: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(
        word
        for cell in cells
        for word in (format_figure(cell, cell["figure"]["value"], 4), format_ratio(cell["ratio"]))
    )
