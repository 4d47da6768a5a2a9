"""An article's table of ratios to a baseline: the article's figure and ratio beside those measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.analysis.intervals import Estimate, mean, ratio
from app.analysis.verdict import throughputs
from app.records import RunRow
from app.report.article_cells import (
    claim_lines,
    figure_words,
    runs_document,
    source_line,
    times_words,
)
from app.report.contents import Section, Table
from app.report.estimates import estimate_document
from app.runs.article import Column, Figure, Line, RatioTable
from app.runs.schedule import of_variant
from app.viewmodels import units
from app.viewmodels.flops import flops_per_s
from app.viewmodels.naming import value_text
from workloads.protocol import RunSpec

_UNITS: Mapping[Figure, str] = {"gflops": "GFLOPS", "step_ms": "ms a step"}
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
        "baseline": _baseline_words(table),
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


def _baseline_words(table: RatioTable) -> str:
    """What the ratios are to: a row's label, or the settings where no row is of it."""
    named = (line.label for line in table.rows if line.settings.items() <= table.baseline.items())
    settings = ", ".join(f"{name}={value_text(value)}" for name, value in table.baseline.items())
    return next(named, settings)


def _range(ratio: float | tuple[float, float] | None) -> list[float] | None:
    return None if ratio is None else [ratio, ratio] if isinstance(ratio, float) else list(ratio)


def _cell(
    table: RatioTable, line: Line, column: Column, variants: Sequence[RunSpec], runs: Sequence[RunRow]
) -> dict[str, Any]:
    spec, baseline = table.variant(line, column, variants), table.baseline_of(column, variants)
    own = of_variant(spec, runs) if spec else []
    base = of_variant(baseline, runs) if baseline else []
    return {
        **runs_document(own),
        "figure": estimate_document(mean(_figures(table.figure, own))),
        "ratio": estimate_document(_ratio(_speeds(table.figure, own), _speeds(table.figure, base), spec == baseline)),
    }


def _ratio(own: Sequence[float], base: Sequence[float], same: bool) -> Estimate | None:
    """The baseline is once itself, of which there is no interval."""
    found = ratio(own, base)
    return Estimate(1.0, None, None, found.n) if found and same else found


def _figures(figure: Figure, runs: Sequence[RunRow]) -> list[float]:
    speeds = _speeds(figure, runs)
    if figure == "gflops" or not speeds:
        return speeds
    return [1000 * int(runs[0].spec.variant["batch_size"]) / speed for speed in speeds]


def _speeds(figure: Figure, runs: Sequence[RunRow]) -> list[float]:
    """Billions of operations a second, or examples a second: the more the faster."""
    if figure == "step_ms":
        return throughputs(runs)
    rates = (flops_per_s(row.summary) for row in runs if throughputs([row]))
    return [rate / 1e9 for rate in rates if rate]


def ratios_section(table: Mapping[str, Any]) -> Section:
    """The same in words, in pieces of a few columns that fit on paper."""
    caption = f"Speed-ups are over “{table['baseline']}”, those measured each with a 95 % interval of its own"
    firsts = range(0, len(table["columns"]), _COLUMNS)
    captions = (caption if first == 0 else f"{caption}, continued" for first in firsts)
    pieces = (_piece(table, slice(first, first + _COLUMNS)) for first in firsts)
    return Section(
        title=table["title"],
        tables=tuple(zip(captions, pieces, strict=True)),
        claims=claim_lines(table),
        source=source_line(table),
    )


def _piece(table: Mapping[str, Any], columns: slice) -> Table:
    rows = table["rows"]
    given = [name for name in ("value", "ratio") if any(row["article"][name] is not None for row in rows)]
    figures = {"value": table["unit"], "ratio": "speed-up"}
    head = [table["head"], *(f"Article: {figures[name]}" for name in given)]
    for column in table["columns"][columns]:
        measured = ", ".join(filter(None, ("Measured", column)))
        head += [f"{measured}: {words}" for words in figures.values()]
    return Table(
        head=tuple(head),
        rows=tuple(
            (row["label"], *_article_words(row["article"], given), *_cell_words(row["cells"][columns])) for row in rows
        ),
        numeric=frozenset(range(1, len(head))),
    )


def _article_words(article: Mapping[str, Any], given: Sequence[str]) -> tuple[str, ...]:
    words = {"value": units.number(article["value"]), "ratio": _range_words(article["ratio"])}
    return tuple(words[name] for name in given)


def _range_words(ratio: Sequence[float] | None) -> str:
    return " to ".join(f"{end:g}×" for end in dict.fromkeys(ratio or ())) or units.ABSENT


def _cell_words(cells: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(
        word for cell in cells for word in (figure_words(cell, cell["figure"]["value"], 4), times_words(cell["ratio"]))
    )
