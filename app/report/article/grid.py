"""What runs measured for the cells of an article's table, and tables of figures with speed-ups over a baseline."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.analysis.energy import measured_means
from app.analysis.intervals import Estimate, mean
from app.analysis.summary import flops_per_s
from app.analysis.verdict import family_ratios, throughputs
from app.report.documents import combined_state, estimate_document, verification_document
from app.runs.experiment.article import Figure, Grid, GridCell, RatioTable
from app.runs.experiment.schedule import RunsByVariant, variant_key
from app.values import units
from app.values.records import RunRow, StoredRun
from app.viewmodels.charts.roofline import DRAM, memory_bandwidth
from app.viewmodels.format.cells import OUTCOMES, TextTable
from app.viewmodels.format.naming import value_text
from app.viewmodels.format.ratios import CI, describe_ratio
from workloads.protocol import OutcomeName, RunSpec

_TEXT_COLUMNS_ON_PAPER = 4
"""Columns of measured figures and ratios that fit side by side."""

LoadRun = Callable[[int], StoredRun]
"""Returns a run by its number, with its evidence, the load of its memory and its clocks."""

TextColumn = tuple[str, Sequence[str]]
"""The head of a column, and its text in each row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FigureKind:
    """A figure: its unit, its value of a run, the speed that its ratio is of (None: no ratio), and the ratio's head.

    `stored` is its value where that needs the run's measurements. `within_gpus`: GPUs of one model differ in it.
    """

    unit: str
    value: Callable[[RunRow], float | None] = lambda _: None
    speed: Callable[[RunRow], float | None] | None
    ratio: str = "speed-up"
    stored: Callable[[StoredRun], float | None] | None = None
    within_gpus: bool = False


def _rate(row: RunRow) -> float | None:
    return next(iter(throughputs([row])), None)


def _gflops(row: RunRow) -> float | None:
    rate = flops_per_s(row.summary)
    return rate / 1e9 if rate else None


def _step_ms(row: RunRow) -> float | None:
    rate = _rate(row)
    return 1000 * int(row.spec.variant["batch_size"]) / rate if rate else None


def _gpu_speed(row: RunRow) -> float | None:
    """Return the work of a step by GPU time: operations, so that four layers compare with one, else examples."""
    work = row.summary.flops_per_step or int(row.spec.variant["batch_size"])
    return work / row.summary.gpu_step_ms if row.summary.gpu_step_ms else None


def _power_w(row: RunRow) -> float | None:
    power_mw = row.summary.mean_power_mw
    return power_mw / 1e3 if power_mw else None


def _gib(size_bytes: int | None) -> float | None:
    return size_bytes / 2**30 if size_bytes else None


def _traffic_mb(run: StoredRun) -> float | None:
    """Return the memory traffic of a step of all GPUs: the share in use of their bandwidth, by time."""
    shares, bandwidth, step_ms = list(measured_means(run, DRAM)), memory_bandwidth(run.row.gpu_names), _step_ms(run.row)
    return sum(shares) / len(shares) / 100 * bandwidth * step_ms / 1e9 if shares and bandwidth and step_ms else None


_FIGURES: Mapping[Figure, _FigureKind] = {
    "throughput": _FigureKind(unit="examples/s", value=_rate, speed=_rate),
    "gflops": _FigureKind(unit="GFLOPS", value=_gflops, speed=_gflops),
    "step_ms": _FigureKind(unit="ms per step", value=_step_ms, speed=_rate),
    "gpu_ms": _FigureKind(
        unit="GPU ms per step",
        value=lambda row: row.summary.gpu_step_ms,
        speed=_gpu_speed,
        ratio="speed-up by GPU time",
    ),
    "occupancy_pct": _FigureKind(unit="occupancy, %", value=lambda row: row.summary.occupancy_pct, speed=None),
    "traffic_mb": _FigureKind(unit="memory traffic, MB per step", speed=None, stored=_traffic_mb),
    "power_w": _FigureKind(
        unit="mean power, W", value=_power_w, speed=_power_w, ratio="power, ratio", within_gpus=True
    ),
    "used_gib": _FigureKind(unit="memory used, GiB", value=lambda row: _gib(row.summary.device_peak_bytes), speed=None),
    "needed_gib": _FigureKind(
        unit="memory needed, GiB", value=lambda row: _gib(row.summary.allocator_peak_bytes), speed=None
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableContent:
    """What was measured for one table: its fields in JSON, and the same as text."""

    fields: Mapping[str, Any]
    tables: tuple[TextTable, ...]
    is_measured: bool
    reasons: tuple[str, ...] = ()


def ratio_content(
    table: RatioTable, variants: Sequence[RunSpec], runs: Sequence[RunRow], load: LoadRun | None
) -> TableContent | None:
    """Return what the runs measured for a table; None if the experiment has no variant of it.

    Without `load` figures that need a run's measurements are left out.

    Raises:
        UserError: Several variants fit one cell.
    """
    grid = table.grid(variants)
    if grid is None:
        return None
    columns = measure_columns(grid, runs, load)
    return TableContent(
        fields=_ratio_fields(table, grid, columns),
        tables=_ratio_tables(table, grid, columns),
        is_measured=any(cell.runs for column in columns for cell in column),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A figure of some runs, and the ratios of their speed to that of the cell's baselines."""

    value: Estimate | None
    ratios: Mapping[str, Estimate | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The runs of one variant with their figures, the table's own first."""

    runs: tuple[RunRow, ...]
    measured: Mapping[Figure, _Measured]

    @property
    def figure(self) -> Estimate | None:
        """Return the table's own figure."""
        return next(iter(self.measured.values())).value

    @property
    def ratios(self) -> Mapping[str, Estimate | None]:
        """Return its ratios."""
        return next(iter(self.measured.values())).ratios

    @property
    def outcome(self) -> OutcomeName | None:
        """Return `completed` if any run did, else the outcome of the last; None before the first has ended."""
        names = [row.outcome.name for row in self.runs if row.outcome is not None]
        return "completed" if "completed" in names else names[-1] if names else None

    def document(self) -> dict[str, Any]:
        """Return the runs, their outcome, and what was verified of them."""
        return {"runs": [row.run for row in self.runs], "outcome": self.outcome, **verification_document(self.runs)}

    def text(self, digits: int = 4, epoch_examples: int = 0) -> str:
        """Format the figure, or the outcome without one; ✘ marks runs that did not run as requested.

        With `epoch_examples` the seconds that so many examples take stand in place of the figure.
        """
        if self.figure is None:
            return OUTCOMES[self.outcome].word if self.outcome else units.ABSENT
        value = epoch_examples / self.figure.value if epoch_examples else self.figure.value
        return units.number(value, digits) + (" ✘" if combined_state(self.runs) == "mismatch" else "")


def measure_columns(grid: Grid, runs: Sequence[RunRow], load: LoadRun | None = None) -> list[list[Cell]]:
    """Return a cell per row for each column; without `load` there are no figures that need a run's measurements."""
    kinds = {name: _with_measurements(_FIGURES[name], load) for name in grid.figures}
    by_variant = RunsByVariant(runs)
    return [_measure_column(column, kinds, by_variant) for column in grid.cells]


def _with_measurements(kind: _FigureKind, load: LoadRun | None) -> _FigureKind:
    stored = kind.stored
    return kind if load is None or stored is None else replace(kind, value=lambda row: stored(load(row.run)))


def _measure_column(column: Sequence[GridCell], kinds: Mapping[Figure, _FigureKind], runs: RunsByVariant) -> list[Cell]:
    """Return the cells of a column; its ratios to one baseline are a family, as in a comparison of its runs."""

    def measured(cell: GridCell, kind: _FigureKind) -> _Measured:
        names = cell.baselines if kind.speed else ()
        return _Measured(
            value=mean(_values(kind.value, _runs_of(cell.variant, runs))),
            ratios={name: _ratio(cell, name, kind, column, runs) for name in names},
        )

    return [
        Cell(
            runs=tuple(_runs_of(cell.variant, runs)),
            measured={name: measured(cell, kind) for name, kind in kinds.items()},
        )
        for cell in column
    ]


def _ratio(
    cell: GridCell, name: str, kind: _FigureKind, column: Sequence[GridCell], runs: RunsByVariant
) -> Estimate | None:
    """Return a cell's ratio to one of its baselines.

    The cells of `column` with the same baseline are its family.
    """
    baseline, speed = cell.baselines[name], kind.speed
    if cell.variant is None or baseline is None or speed is None:
        return None
    family = {
        variant_key(family_cell.variant): family_cell.variant
        for family_cell in column
        if family_cell.variant and family_cell.baselines.get(name) == baseline
    }
    ratios = family_ratios(
        [runs.runs_of(spec) for spec in family.values()],
        runs.runs_of(baseline),
        lambda rows: _values(speed, rows),
        within_gpus=kind.within_gpus,
    )
    return ratios[list(family).index(variant_key(cell.variant))]


def _runs_of(spec: RunSpec | None, runs: RunsByVariant) -> Sequence[RunRow]:
    return runs.runs_of(spec) if spec else ()


def _values(value: Callable[[RunRow], float | None], runs: Sequence[RunRow]) -> list[float]:
    return [number for row in runs if _rate(row) and (number := value(row))]


def text_table(
    caption: str, labels: Sequence[TextColumn], measured: Sequence[TextColumn], first_number: int = 1
) -> TextTable:
    """Return a table of what was measured, without rows and columns of dashes, numeric from `first_number` on."""
    rows = [index for index, texts in enumerate(zip(*(texts for _, texts in measured), strict=True)) if _any(texts)]
    every = ((head, [texts[index] for index in rows]) for head, texts in (*labels, *measured))
    columns = [(head, texts) for head, texts in every if _any(texts)]
    return TextTable(
        caption=caption,
        head=tuple(head for head, _ in columns),
        rows=tuple(zip(*(texts for _, texts in columns), strict=True)),
        numeric=frozenset(range(first_number, len(columns))),
    )


def _any(texts: Sequence[str]) -> bool:
    return any(text != units.ABSENT for text in texts)


def _ratio_fields(table: RatioTable, grid: Grid, columns: Sequence[Sequence[Cell]]) -> dict[str, Any]:
    """Return rows as the file has them: `article` is what the article gives, `cells` what was measured per column."""

    def cell_document(cell: Cell) -> dict[str, Any]:
        figure, over = estimate_document(cell.figure), estimate_document(cell.ratios["ratio"])
        also = [
            {
                "figure": name,
                "unit": _FIGURES[name].unit,
                "value": estimate_document(cell.measured[name].value),
                "ratio": estimate_document(cell.measured[name].ratios.get("ratio")),
            }
            for name in table.also
        ]
        return {**cell.document(), "figure": figure, "ratio": over, "also": also}

    return {
        "workload": table.workload,
        "figure": table.figure,
        "unit": _FIGURES[table.figure].unit,
        "head": table.head,
        "baseline": _baseline_label(table),
        "columns": [column.label for column in grid.columns],
        "comparisons": [_count_intervals(cells) for cells in columns],
        "rows": [
            {
                "label": row.label,
                "article": {"value": row.article, "ratio": _ends(row.article_ratio)},
                "cells": [cell_document(cell) for cell in cells],
            }
            for row, *cells in zip(grid.rows, *columns, strict=True)
        ],
    }


def _count_intervals(cells: Sequence[Cell]) -> int:
    """Return of how many intervals the family of a column is."""
    ratios = (cell.ratios["ratio"] for cell in cells)
    return sum(ratio is not None and ratio.interval is not None for ratio in ratios)


def _baseline_label(table: RatioTable) -> str:
    """Return the label of the baseline's row, a number under its head, or its settings if no row has them."""
    labels = (row.label for row in table.rows if row.settings.items() <= table.baseline.items())
    named = (f"{table.head} {label}" if label.isdigit() else label for label in labels)
    settings = ", ".join(f"{name}={value_text(value)}" for name, value in table.baseline.items())
    return next(named, settings)


def _ends(published: float | tuple[float, float] | None) -> list[float] | None:
    if published is None:
        return None
    return [published, published] if isinstance(published, float) else list(published)


def _ratio_tables(table: RatioTable, grid: Grid, columns: Sequence[Sequence[Cell]]) -> tuple[TextTable, ...]:
    """Return the article's columns with a few measured ones each, named above them, so that they fit on paper.

    A column of which nothing was measured is left out.
    """
    caption = f"Speed-ups are relative to “{_baseline_label(table)}”; the {CI}s of a measured column hold together"
    unit = _FIGURES[table.figure].unit
    published: list[TextColumn] = [(table.head, [row.label for row in table.rows])]
    if any(row.article is not None for row in table.rows):
        published.append((f"Article: {unit}", [units.number(row.article) for row in table.rows]))
    if any(row.article_ratio is not None for row in table.rows):
        published.append(("Article: speed-up", [_ends_text(_ends(row.article_ratio)) for row in table.rows]))
    parts: list[list[tuple[str, list[TextColumn]]]] = [[]]
    for column, cells in zip(grid.columns, columns, strict=True):
        if any(cell.runs for cell in cells):
            texts = list(_cell_columns(table, cells))
            if parts[-1] and sum(len(part) for _, part in parts[-1]) + len(texts) > _TEXT_COLUMNS_ON_PAPER:
                parts.append([])
            parts[-1].append((column.label, texts))
    return tuple(_ratio_table(caption, published, part) for part in parts)


def _ratio_table(
    caption: str, published: Sequence[TextColumn], part: Sequence[tuple[str, Sequence[TextColumn]]]
) -> TextTable:
    """Return a few measured columns, each under its label; that of a single one is in the caption."""
    only = part[0][0] if len(part) == 1 else ""
    heads = [f"Measured, {label}" if label and not only else "Measured" for label, _ in part]
    texts = [(f"{head}: {what}", text) for head, (_, own) in zip(heads, part, strict=True) for what, text in own]
    return text_table(f"{caption} ({only})" if only else caption, published, texts)


def _cell_columns(table: RatioTable, cells: Sequence[Cell]) -> Iterator[TextColumn]:
    """Yield the columns of one measured column: each figure with its ratio; further figures where any run has them."""
    own = _FIGURES[table.figure]
    yield own.unit, [cell.text() for cell in cells]
    yield own.ratio, [describe_ratio(cell.ratios["ratio"]) for cell in cells]
    for name in table.also:
        kind, figures = _FIGURES[name], [cell.measured[name] for cell in cells]
        if any(figure.value for figure in figures):
            yield kind.unit, [units.number(figure.value.value if figure.value else None, 3) for figure in figures]
            if kind.speed is not None:
                yield kind.ratio, [describe_ratio(figure.ratios["ratio"]) for figure in figures]


def _ends_text(ends: Sequence[float] | None) -> str:
    return f"{units.range_of(ends, lambda end: f'{end:g}')}×" if ends else units.ABSENT
