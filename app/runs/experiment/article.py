"""The tables and claims of a published article, as a preset's file describes them, and the variants in their cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from app.analysis.training import ACCURACY_MARGIN_POINTS
from app.analysis.verdict import SEED, group_runs, without
from app.errors import UserError
from workloads.catalog import OUTSIDE_STEP, workload
from workloads.protocol import RunSpec, Value, Variant

Settings = dict[str, Value]
RatioFigure = Literal["gflops", "step_ms"]
FurtherFigure = Literal["gpu_ms", "occupancy_pct", "traffic_mb", "power_w", "used_gib", "needed_gib"]
Figure = Literal["throughput", RatioFigure, FurtherFigure]
"""What a cell shows: examples per second, billions of operations per second, or milliseconds per step; of a traced step
the time in which kernels ran, and their occupancy; memory traffic per step; mean power; of memory the most that the
driver reports as used, and the most that the framework's allocator held."""
LAYOUTS = ("NHWC", "NCHW")
_PLACE = ("batch_size", "gpus", "layout")
"""The parameters that a table of layouts has rows and columns for."""
TrainingPlace = tuple[int, int, str]
"""Batch size, number of GPUs and layout of a training."""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A statement of an article; `about` names the figure that it is about."""

    about: str
    says: str


class Advice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The layout that somebody advises on GPUs, for variants whose parameters have one of these values each."""

    by: str
    layout: Literal["NHWC", "NCHW"]
    where: dict[str, list[Value]] = {}

    def is_about(self, variant: Variant) -> bool:
        """Return whether it says something of a variant."""
        return variant["gpus"] != 0 and all(variant[name] in values for name, values in self.where.items())


class TableRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row: variants with these settings, the article's figure, and its ratio to the baseline: a value or two ends."""

    label: str
    settings: Settings
    article: float | None = None
    article_ratio: float | tuple[float, float] | None = None


class TableColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A column of figures and ratios: variants with these settings."""

    settings: Settings
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCell:
    """The variant at one row and column (None: not in the experiment), and what it is compared with, by ratio."""

    variant: RunSpec | None
    baselines: Mapping[str, RunSpec | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table as variants: `cells` has a tuple per column with a cell per row, `figures` what each shows."""

    figures: tuple[Figure, ...]
    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    cells: tuple[tuple[GridCell, ...], ...]


class LayoutTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="layouts", tag_field="kind"):
    """Throughput of a workload by batch size, number of GPUs and layout, and seconds per epoch of so many examples.

    Variants that differ in anything else, as in their precision, have rows of their own. `advice` stands beside the
    gains, and whether they confirm it. At the batch size `why_at`, on the fewest GPUs, rows say why the layouts differ.
    """

    workload: str
    epoch_examples: int
    claims: tuple[Claim, ...] = ()
    advice: tuple[Advice, ...] = ()
    why_at: int = 0

    @property
    def title(self) -> str:
        """Return the table's title."""
        return self.workload

    def grid(self, variants: Sequence[RunSpec]) -> Grid | None:
        """Return a row per batch size and a column per number of GPUs and layout; None if no variant belongs here.

        Ratios are `gain`, of NCHW over NHWC, and `scaling`, of more GPUs over the fewest; both are of one row.
        """
        own = [spec for spec in variants if spec.workload == self.workload]
        if not own:
            return None
        names = _other_differences(own)
        rows: dict[tuple[Value, ...], Settings] = {}
        specs: dict[tuple[tuple[Value, ...], int, str], RunSpec] = {}
        for spec in own:
            batch, count, layout = (spec.variant[name] for name in _PLACE)
            others = {name: spec.variant[name] for name in names}
            row = (*others.values(), batch)
            rows[row] = {"batch_size": batch, **others}
            specs[row, int(count), str(layout)] = spec
        gpus = sorted({count for _, count, _ in specs})
        default_exchange = {"all_reduce": workload(self.workload).parameter("all_reduce").default}

        def row_of_one(row: tuple[Value, ...]) -> tuple[Value, ...]:
            """Return the row with the variant on one GPU, which has the default all-reduce as it exchanges nothing."""
            return tuple({**rows[row], **default_exchange}[name] for name in (*names, "batch_size"))

        def cell(row: tuple[Value, ...], count: int, layout: str) -> GridCell:
            baselines = {"gain": specs.get((row, count, "NHWC"))} if layout == "NCHW" else {}
            if count > gpus[0]:
                baselines["scaling"] = specs.get((row_of_one(row) if gpus[0] < 2 else row, gpus[0], layout))
            return GridCell(variant=specs.get((row, count, layout)), baselines=baselines)

        order = {others: index for index, others in enumerate(dict.fromkeys(row[:-1] for row in rows))}
        ordered = sorted(rows, key=lambda row: (order[row[:-1]], row[-1]))
        pairs = [(count, layout) for count in gpus for layout in LAYOUTS]
        return Grid(
            figures=("throughput",),
            columns=tuple(TableColumn(settings={"gpus": count, "layout": layout}) for count, layout in pairs),
            rows=tuple(TableRow(label=f"{row[-1]:,}", settings=rows[row]) for row in ordered),
            cells=tuple(tuple(cell(row, *pair) for row in ordered) for pair in pairs),
        )


def _other_differences(specs: Sequence[RunSpec]) -> list[str]:
    """Return the parameters that make steps differ, other than those of a table of layouts."""
    names = [name for name in specs[0].variant if name not in _PLACE and name not in OUTSIDE_STEP]
    return [name for name in names if len({spec.variant[name] for spec in specs}) > 1]


class RatioTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ratios", tag_field="kind"):
    """A figure and its ratio to a baseline, by row and column.

    A cell's variant has the settings of the table, its column and its row. Its baseline is the variant with `baseline`
    over those of the table and the column. `head` names the rows. `also` are figures beside `figure`.
    """

    title: str
    workload: str
    figure: RatioFigure
    head: str
    rows: tuple[TableRow, ...]
    columns: tuple[TableColumn, ...]
    baseline: Settings
    settings: Settings = {}
    claims: tuple[Claim, ...] = ()
    also: tuple[FurtherFigure, ...] = ()

    def grid(self, variants: Sequence[RunSpec]) -> Grid | None:
        """Return the file's rows and those columns that have a variant, with `ratio` to the baseline; None without any.

        Raises:
            UserError: Several variants fit one cell.
        """
        columns = tuple(
            column for column in self.columns if any(self.variant(row, column, variants) for row in self.rows)
        )
        if not columns:
            return None

        def cells(column: TableColumn) -> tuple[GridCell, ...]:
            baselines = {"ratio": self.baseline_of(column, variants)}
            return tuple(
                GridCell(variant=self.variant(row, column, variants), baselines=baselines) for row in self.rows
            )

        figures = (self.figure, *self.also)
        return Grid(figures=figures, columns=columns, rows=self.rows, cells=tuple(map(cells, columns)))

    def variant(self, row: TableRow, column: TableColumn, variants: Sequence[RunSpec]) -> RunSpec | None:
        """Return the variant of a cell, None if none fits; raise `UserError` if several do."""
        return self._find_variant({**self.settings, **column.settings, **row.settings}, variants)

    def baseline_of(self, column: TableColumn, variants: Sequence[RunSpec]) -> RunSpec | None:
        """Return the variant that a column's ratios refer to."""
        return self._find_variant({**self.settings, **column.settings, **self.baseline}, variants)

    def _find_variant(self, settings: Settings, variants: Sequence[RunSpec]) -> RunSpec | None:
        matching = [
            spec for spec in variants if spec.workload == self.workload and settings.items() <= spec.variant.items()
        ]
        if len(matching) > 1:
            described = ", ".join(f"{name}={value}" for name, value in settings.items())
            raise UserError(
                f"Several variants fit a cell of the table {self.title!r} ({described}): give it more settings."
            )
        return matching[0] if matching else None


class PortabilityTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="portability", tag_field="kind"):
    """How far saved weights answer differently elsewhere, for every run whose weights the preset transfers."""

    title: str
    claims: tuple[Claim, ...] = ()


class TrainingTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="training", tag_field="kind"):
    """Time and accuracy of whole trainings by batch size, number of GPUs and layout, all seeds of a variant together.

    Attributes:
        settings: Those of its variants.
        margin_points: Accuracies that differ by less, in percentage points, count as the same.
        claims: What the article says of it.
    """

    title: str
    workload: str
    settings: Settings = {}
    margin_points: float = ACCURACY_MARGIN_POINTS
    claims: tuple[Claim, ...] = ()

    def cells(self, variants: Sequence[RunSpec]) -> dict[TrainingPlace, list[RunSpec]]:
        """Return the variants of each cell, one for each seed.

        Raises:
            UserError: A cell has variants that differ in more than their seed.
        """
        cells: dict[TrainingPlace, list[RunSpec]] = {}
        for spec in variants:
            if spec.workload == self.workload and self.settings.items() <= spec.variant.items():
                cell = (int(spec.variant["batch_size"]), int(spec.variant["gpus"]), str(spec.variant["layout"]))
                cells.setdefault(cell, []).append(spec)
        for batch, gpus, layout in (
            cell for cell, specs in cells.items() if len(group_runs(specs, lambda spec: without(spec, SEED))) > 1
        ):
            described = f"batch_size={batch}, gpus={gpus}, layout={layout}"
            raise UserError(
                f"Variants that differ in more than their seed fit a cell of the table {self.title!r} ({described}): "
                "give the table more settings."
            )
        return cells


ArticleTable = LayoutTable | RatioTable | PortabilityTable | TrainingTable


class Article(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An article that a preset repeats: where it appeared, its tables, and the machine it measured on if it says so."""

    title: str
    tables: tuple[ArticleTable, ...]
    machine: str = ""

    def check(self, variants: Sequence[RunSpec]) -> None:
        """Raise `UserError` if a cell of a table could be one of several variants."""
        for table in self.tables:
            if isinstance(table, RatioTable):
                table.grid(variants)
            if isinstance(table, TrainingTable):
                table.cells(variants)
