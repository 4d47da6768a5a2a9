"""An article's table of layouts and GPUs: throughput by batch size, gain of NCHW, and scaling over GPUs."""

from collections.abc import Mapping, Sequence
from typing import Any

from app import units
from app.analysis.intervals import mean, ratio
from app.analysis.verdict import throughputs
from app.records import RunRow
from app.report.article.cells import (
    cell_runs_document,
    claim_lines,
    format_figure,
    format_interval,
    format_ratio,
    source_line,
)
from app.report.documents import estimate_document
from app.report.model import ArticleSection, TextTable
from app.runs.experiment.article import LayoutTable
from app.runs.experiment.schedule import runs_of_variant
from app.viewmodels.format.naming import gpus_label
from workloads import catalog
from workloads.protocol import RunSpec

LAYOUTS = ("NHWC", "NCHW")
_BATCH = "Batch size"


def layouts_document(table: LayoutTable, variants: Sequence[RunSpec], runs: Sequence[RunRow]) -> dict[str, Any] | None:
    """Rows by batch size; None where the experiment has no variant of the table's workload.

    Of a row, `cells` are by number of GPUs and layout; `gains` are NCHW over NHWC by number of GPUs, `scaling` several
    GPUs over one by layout, both as ratios of throughput; absent figures are None.
    """
    specs = [spec for spec in variants if spec.workload == table.workload]
    if not specs:
        return None
    batches = sorted({int(spec.variant["batch_size"]) for spec in specs})
    gpus = sorted({int(spec.variant["gpus"]) for spec in specs})
    grouped = {_cell_key(spec): runs_of_variant(spec, runs) for spec in specs}
    return {
        "workload": table.workload,
        "example": catalog.workload(table.workload).example,
        "epoch_examples": table.epoch_examples,
        "gpus": gpus,
        "rows": [_row(batch, gpus, grouped, table.epoch_examples) for batch in batches],
    }


CellKey = tuple[int, int, str]
Grouped = Mapping[CellKey, list[RunRow]]


def _cell_key(spec: RunSpec) -> CellKey:
    variant = spec.variant
    return int(variant["batch_size"]), int(variant["gpus"]), str(variant["layout"])


def _row(batch: int, gpus: Sequence[int], grouped: Grouped, epoch_examples: int) -> dict[str, Any]:
    def runs(count: int, layout: str) -> list[RunRow]:
        return grouped.get((batch, count, layout), [])

    def ratio_document(many: list[RunRow], few: list[RunRow]) -> dict[str, Any]:
        return estimate_document(ratio(throughputs(many), throughputs(few)))

    larger_counts = [count for count in gpus if count > min(gpus)]
    return {
        "batch_size": batch,
        "cells": [
            {"gpus": count, "layout": layout, **_cell(runs(count, layout), epoch_examples)}
            for count in gpus
            for layout in LAYOUTS
        ],
        "gains": [{"gpus": count, **ratio_document(runs(count, "NCHW"), runs(count, "NHWC"))} for count in gpus],
        "scaling": [
            {
                "gpus": count,
                "over": min(gpus),
                "layout": layout,
                **ratio_document(runs(count, layout), runs(min(gpus), layout)),
            }
            for count in larger_counts
            for layout in LAYOUTS
        ],
    }


def _cell(runs: Sequence[RunRow], epoch_examples: int) -> dict[str, Any]:
    found = mean(throughputs(runs))
    return {
        **cell_runs_document(runs),
        "throughput": estimate_document(found),
        "epoch_s": epoch_examples / found.value if found else None,
    }


def layouts_section(table: Mapping[str, Any]) -> ArticleSection:
    """The same in words: a table of throughput, and one of seconds an epoch."""
    rate = f"Measured {units.rate_unit(table['example'])}; gains and ratios each with a 95 % interval of its own"
    epoch = (
        f"Seconds an epoch of {table['epoch_examples']:,} {units.plural(table['example'])} takes at the measured rate"
    )
    return ArticleSection(
        title=table["title"],
        tables=(
            (rate, _text_table(_throughput_rows(table))),
            (epoch, _text_table(_epoch_rows(table))),
        ),
        claims=claim_lines(table),
        source=source_line(table),
    )


def _text_table(rows: Sequence[tuple[str, ...]]) -> TextTable:
    return TextTable(head=rows[0], rows=tuple(rows[1:]), numeric=frozenset(range(len(rows[0]))))


def _throughput_rows(table: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A header, and one row a batch size: throughput of both layouts, the gain, and several GPUs over one."""
    header = [_BATCH]
    for gpus in table["gpus"]:
        header += [*_column_heads(gpus, units.rate_unit(table["example"])), f"{gpus_label(gpus)}: NCHW gain"]
    scaled = table["rows"][0]["scaling"]
    header += [f"{ratio['layout']}: {gpus_label(ratio['gpus'])} over {ratio['over'] or 'the CPU'}" for ratio in scaled]
    return [tuple(header), *(_throughput_row(row, table["gpus"]) for row in table["rows"])]


def _throughput_row(row: Mapping[str, Any], gpus: Sequence[int]) -> tuple[str, ...]:
    words = [f"{row['batch_size']:,}"]
    for count in gpus:
        words += [format_figure(cell, cell["throughput"]["value"], 4) for cell in row["cells"] if cell["gpus"] == count]
        words += [_format_gain(gain) for gain in row["gains"] if gain["gpus"] == count]
    return (*words, *(format_ratio(ratio) for ratio in row["scaling"]))


def _epoch_rows(table: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A header, and one row a batch size: seconds an epoch would take at the measured rate."""
    header = (_BATCH, *(head for gpus in table["gpus"] for head in _column_heads(gpus, "s an epoch")))
    rows = (
        (f"{row['batch_size']:,}", *(format_figure(cell, cell["epoch_s"], 3) for cell in row["cells"]))
        for row in table["rows"]
    )
    return [header, *rows]


def _column_heads(gpus: int, unit: str) -> list[str]:
    return [f"{gpus_label(gpus)} {layout}: {unit}" for layout in LAYOUTS]


def _format_gain(gain: Mapping[str, Any]) -> str:
    if gain["value"] is None:
        return units.ABSENT
    return (
        f"{_signed_percent(gain['value'])} %{format_interval([_signed_percent(end) for end in gain['interval'] or ()])}"
    )


def _signed_percent(ratio: float) -> str:
    """By how many percent a ratio is above one or below it."""
    return f"{100 * (ratio - 1):+.1f}".replace("-", "\N{MINUS SIGN}")
