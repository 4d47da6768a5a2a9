"""Tables of throughput by batch size, GPUs and layout, with the gain of NCHW and what others advise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import units
from app.analysis.verdict import decide
from app.analysis.why import step_difference
from app.records import RunRow
from app.report.article.grid import (
    Cell,
    LoadRun,
    TableContent,
    TextColumn,
    measure_columns,
    text_table,
)
from app.report.documents import combined_state, estimate_document
from app.runs.experiment.article import LAYOUTS, Advice, Grid, LayoutTable, TableRow
from app.viewmodels.compare.why_text import Figures, Pair, describe_difference
from app.viewmodels.format.cells import TextTable
from app.viewmodels.format.naming import gpus_label, variant_names
from app.viewmodels.format.ratios import CI, describe_ratio
from workloads import catalog
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True)
class _Row:
    """A row: what else than the batch size tells its variants from those of other rows, and a cell per column."""

    variant: str
    batch: TableRow
    cells: tuple[Cell, ...]

    @property
    def is_measured(self) -> bool:
        """Return whether it contains any run."""
        return any(cell.runs for cell in self.cells)


def layout_content(
    table: LayoutTable, variants: Sequence[RunSpec], runs: Sequence[RunRow], load: LoadRun | None
) -> TableContent | None:
    """Return what the runs measured for a table; None if the experiment has no variant of it.

    Once there are runs, variants that none of them is of are left out, at all batch sizes.

    `load` returns a run with its evidence, to say why layouts differ.
    """
    grid = table.grid(variants)
    if grid is None:
        return None
    columns = zip(*measure_columns(grid, runs), strict=True)
    rows = [_Row(*row) for row in zip(_row_variants(grid), grid.rows, columns, strict=True)]
    measured = {row.variant for row in rows if row.is_measured}
    measured_rows = [row for row in rows if not measured or row.variant in measured]
    explained = [row for row in measured_rows if row.batch.settings["batch_size"] == table.why_at] if load else []
    reasons = [(row, sentence) for row in explained if load and (sentence := _explain(row, load))]
    return TableContent(
        fields={
            **_fields(table, grid, measured_rows),
            "why": [{"variant": row.variant, "text": text} for row, text in reasons],
        },
        tables=_tables(table, grid, measured_rows),
        is_measured=bool(measured),
        reasons=tuple(f"{row.variant or table.workload}, batch {row.batch.label}: {text}" for row, text in reasons),
    )


def _explain(row: _Row, load: LoadRun) -> str | None:
    """Return what of a step on the fewest GPUs makes NCHW differ from NHWC; None where that is not known."""
    base, other = ([load(run.run) for run in cell.runs] for cell in row.cells[:2])
    if not base or not other:
        return None
    pair = Pair.of(other, base)
    difference = step_difference(pair.other, pair.base)
    if isinstance(difference, str):
        return None
    return describe_difference(difference, pair, Figures.of(difference, pair.example))


def _fields(table: LayoutTable, grid: Grid, rows: Sequence[_Row]) -> dict[str, Any]:
    """Return rows by batch size: `cells` by GPUs and layout, `gains` of NCHW, `scaling` over the fewest GPUs."""
    gpus = list(dict.fromkeys(column.settings["gpus"] for column in grid.columns))

    def cell_document(where: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
        epoch_s = table.epoch_examples / cell.figure.value if cell.figure else None
        return {**where, **cell.document(), "throughput": estimate_document(cell.figure), "epoch_s": epoch_s}

    documents = []
    for row in rows:
        placed = [(column.settings, cell) for column, cell in zip(grid.columns, row.cells, strict=True)]
        gains = [(where, cell.ratios["gain"]) for where, cell in placed if "gain" in cell.ratios]
        scaling = [(where, cell.ratios["scaling"]) for where, cell in placed if "scaling" in cell.ratios]
        documents.append(
            {
                "batch_size": row.batch.settings["batch_size"],
                "variant": row.variant,
                "cells": [cell_document(where, cell) for where, cell in placed],
                "gains": [{"gpus": where["gpus"], **estimate_document(estimate)} for where, estimate in gains],
                "scaling": [{"over": gpus[0], **where, **estimate_document(estimate)} for where, estimate in scaling],
                "advice": [
                    {"gpus": where["gpus"], "by": advice.by, "layout": advice.layout, "verdict": verdict}
                    for (where, nhwc), (_, nchw) in zip(placed[::2], placed[1::2], strict=True)
                    for advice in table.advice
                    if (verdict := _advice_verdict(advice, nhwc, nchw))
                ],
            }
        )
    return {
        "workload": table.workload,
        "example": catalog.workload(table.workload).example,
        "epoch_examples": table.epoch_examples,
        "gpus": gpus,
        "rows": documents,
    }


def _tables(table: LayoutTable, grid: Grid, rows: Sequence[_Row]) -> tuple[TextTable, ...]:
    """Return a table of throughput, gains and scaling, and one of seconds per epoch."""
    example = catalog.workload(table.workload).example
    unit, fewest = units.rate_unit(example), grid.columns[0].settings["gpus"]
    labels: list[TextColumn] = []
    if any(row.variant for row in rows):
        labels.append(("Variant", [row.variant for row in rows]))
    labels.append(("Batch size", [row.batch.label for row in rows]))
    rates: list[TextColumn] = []
    epochs: list[TextColumn] = []
    scaling: list[TextColumn] = []
    for index, column in enumerate(grid.columns):
        cells = [row.cells[index] for row in rows]
        gpus, layout = gpus_label(column.settings["gpus"]), column.settings["layout"]
        rates.append((f"{gpus} {layout}: {unit}", [cell.text() for cell in cells]))
        epochs.append((f"{gpus} {layout}: s per epoch", [cell.text(3, table.epoch_examples) for cell in cells]))
        if layout == LAYOUTS[-1]:
            rates.append((f"{gpus}: NCHW gain", [describe_ratio(cell.ratios["gain"]) for cell in cells]))
            for advice in table.advice if column.settings["gpus"] else ():
                verdicts = [_advice_verdict(advice, *row.cells[index - 1 : index + 1]) or units.ABSENT for row in rows]
                rates.append((f"{gpus}: {advice.by} says {advice.layout}", verdicts))
        if column.settings["gpus"] != fewest:
            head = f"{layout}: {gpus} over {fewest or 'the CPU'}"
            scaling.append((head, [describe_ratio(cell.ratios["scaling"]) for cell in cells]))
    rate_caption = f"Measured {unit}; gains and ratios are comparisons of their own, each with a {CI}"
    epoch_caption = f"Seconds per epoch of {table.epoch_examples:,} {units.plural(example)} at the measured rate"
    return (
        text_table(rate_caption, labels, [*rates, *scaling], first_number=len(labels) - 1),
        text_table(epoch_caption, labels, epochs, first_number=len(labels) - 1),
    )


def _row_variants(grid: Grid) -> list[str]:
    """Return for each row what else than its batch size tells its variants from those of other rows; "" if nothing."""
    variants = [next(cell.variant for cell in cells if cell.variant) for cells in zip(*grid.cells, strict=True)]
    settings = {"batch_size": 0, "gpus": 0, **grid.columns[0].settings}
    steps = [
        {name: value for name, value in spec.variant.items() if name not in catalog.OUTSIDE_STEP} for spec in variants
    ]
    alike = [RunSpec(workload=variants[0].workload, variant={**step, **settings}) for step in steps]
    distinct = [spec for number, spec in enumerate(alike) if spec not in alike[:number]]
    names = variant_names(distinct) if len(distinct) > 1 else [""]
    return [names[distinct.index(spec)] for spec in alike]


def _advice_verdict(advice: Advice, nhwc: Cell, nchw: Cell) -> str | None:
    """Return whether a gain confirms an advice; None where it says nothing, or a run was not what was requested."""
    gain, runs = nchw.ratios["gain"], (*nhwc.runs, *nchw.runs)
    if gain is None or not advice.is_about(runs[0].spec.variant) or combined_state(runs) == "mismatch":
        return None
    decision = decide(gain)
    if decision not in ("faster", "slower"):
        return decision
    return "confirmed" if (decision == "faster") == (advice.layout == "NCHW") else "refuted"
