"""The tables and claims of a published article, as a preset's file describes them."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from app.errors import UserError
from workloads.protocol import RunSpec, Value

Settings = dict[str, Value]
TableMetric = Literal["gflops", "step_ms"]
"""What a table of ratios shows beside them: billions of operations a second, or milliseconds a step."""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing an article says; `about` names the figure it is beside."""

    about: str
    says: str


class LayoutTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="layouts", tag_field="kind"):
    """Throughput of one workload by batch size, layout and number of GPUs, and seconds an epoch of so many examples."""

    workload: str
    epoch_examples: int
    claims: tuple[Claim, ...] = ()


class TableRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row: the variants with these settings, the article's figure and its ratio, one or from one to another."""

    label: str
    settings: Settings
    article: float | None = None
    article_ratio: float | tuple[float, float] | None = None


class TableColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One column of figures and ratios: the variants with these settings."""

    settings: Settings
    label: str = ""


class RatioTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="ratios", tag_field="kind"):
    """A figure and its ratio to a baseline, by row and column.

    A cell's variant has the settings of the table, its column and its row. Its baseline is the variant with `baseline`
    over those of the table and the column. `head` names the rows.
    """

    title: str
    workload: str
    figure: TableMetric
    head: str
    rows: tuple[TableRow, ...]
    columns: tuple[TableColumn, ...]
    baseline: Settings
    settings: Settings = {}
    claims: tuple[Claim, ...] = ()

    def variant(self, row: TableRow, column: TableColumn, variants: Sequence[RunSpec]) -> RunSpec | None:
        """The variant of a cell, None where none fits; raises `UserError` where several do."""
        return self._find_variant({**self.settings, **column.settings, **row.settings}, variants)

    def baseline_of(self, column: TableColumn, variants: Sequence[RunSpec]) -> RunSpec | None:
        """The variant that a column's ratios are to."""
        return self._find_variant({**self.settings, **column.settings, **self.baseline}, variants)

    def measured_variants(self, variants: Sequence[RunSpec]) -> Iterator[RunSpec]:
        """The variants of all cells and baselines."""
        for column in self.columns:
            specs = (self.baseline_of(column, variants), *(self.variant(line, column, variants) for line in self.rows))
            yield from (spec for spec in specs if spec is not None)

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
    """How much the answers of saved weights differ elsewhere, of every run whose weights the preset tries."""

    title: str
    claims: tuple[Claim, ...] = ()


ArticleTable = LayoutTable | RatioTable | PortabilityTable


class Article(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An article that a preset repeats: where it appeared, its tables, and what it measured on where it says so."""

    title: str
    tables: tuple[ArticleTable, ...]
    machine: str = ""

    def check(self, variants: Sequence[RunSpec]) -> None:
        """Raises `UserError` where a cell of a table could be one of several variants."""
        for table in self.tables:
            if isinstance(table, RatioTable):
                list(table.measured_variants(variants))
