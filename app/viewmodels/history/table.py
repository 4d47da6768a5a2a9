"""The table of stored runs: columns, rows, experiment groups and labels, and the status line below it."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import NamedTuple

import msgspec

from app.metrics import METRICS, ListColumn, Metric
from app.queries import Common, RunQuery, SearchResult, StoredExperiment, Totals
from app.values import units
from app.values.records import RunRow
from app.viewmodels.format import cells
from app.viewmodels.format.cells import Bar, Cell, Column
from app.viewmodels.format.naming import framework_name
from app.viewmodels.plot.panels import Sparks
from workloads.catalog import FRAMEWORKS

NO_EXPERIMENT = 0
"""The group of runs without an experiment: experiments are numbered from 1."""

_NO_EXPERIMENT_LABELS = ("Without an experiment", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The line of one experiment: its name, when it began, and its matching runs, in order."""

    experiment: int
    title: str
    started: str
    runs: tuple[int, ...]

    @property
    def details(self) -> str:
        count = f"{len(self.runs):,} {units.plural('run', len(self.runs))}"
        return f"{count} · {self.started}" if self.started else count


Line = int | Group
"""A run by its number, or a group."""


def group_by_experiment(
    runs: Sequence[int], experiments: Sequence[StoredExperiment], zone: tzinfo | None
) -> tuple[Group, ...]:
    """Group runs by their experiment, of several the newest; runs without one come last.

    The experiments are newest first; `zone` is the reader's time zone, None means the system's.
    """
    experiment_of = {run: experiment.experiment for experiment in reversed(experiments) for run in experiment.runs}
    named = {stored.experiment: (stored.name, units.local_time(stored.created_utc_ns, zone)) for stored in experiments}
    labels = {**named, NO_EXPERIMENT: _NO_EXPERIMENT_LABELS}
    members: dict[int, list[int]] = {experiment: [] for experiment in labels}
    for run in runs:
        members[experiment_of.get(run, NO_EXPERIMENT)].append(run)
    return tuple(
        Group(experiment=experiment, title=title, started=begun, runs=tuple(members[experiment]))
        for experiment, (title, begun) in labels.items()
        if members[experiment]
    )


def build_lines(groups: Sequence[Group], folded: Collection[int]) -> tuple[Line, ...]:
    """Return every group with its runs below it unless it is folded."""
    lines: list[Line] = []
    for group in groups:
        lines.append(group)
        if group.experiment not in folded:
            lines += group.runs
    return tuple(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """The context of rows: the reader's time zone (None means the system's), and the matches of a search for `words`.

    `common` is what the runs have in common; bars are relative to its largest figures.
    """

    zone: tzinfo | None
    common: Common = field(default_factory=Common)


class HistoryColumn(NamedTuple):
    """A column: its order, a cell of the expected width, and `cell`, which returns a row's cell in a context."""

    column: Column
    order: str
    expected: Cell
    cell: Callable[[RunRow, RowView], Cell]
    is_default: bool = True


def _metric_column(metric: Metric, listed: ListColumn) -> HistoryColumn:
    """Return the column of a metric, with the unit per "example" in the head, as workloads have different words."""
    plot = metric.key in ("throughput", _POWER)
    unit = re.sub(r"/\{example\}", "", metric.unit).replace("{examples}", "1")
    in_head = plot or unit != metric.unit

    def cell(run: RunRow, view: RowView) -> Cell:
        metric_cell = cells.row_metric_cell(metric, run)
        largest, value = view.common.largest.get(run.spec.workload, {}).get(listed.order), metric.row_value(run)
        bar = Bar(value / largest, leads=plot and value >= largest) if value is not None and largest else None
        return msgspec.structs.replace(metric_cell, unit="" if in_head else metric_cell.unit, bar=bar)

    title = f"{metric.column_title}, {unit}" if in_head else metric.column_title
    column = Column(title, metric.help, has_spark=plot, shrink="plot" if plot else "")
    return HistoryColumn(column, listed.order, Cell(text=listed.widest), cell, listed.is_default)


_POWER = "mean_power"


_LISTED: tuple[HistoryColumn, ...] = (
    HistoryColumn(
        Column("Run", "Number of the run in this database"),
        "run",
        Cell(text="10000"),
        lambda run, _view: cells.run_number(run),
    ),
    HistoryColumn(
        Column("Started", "When the run started, in local time"),
        "started",
        Cell(text="2026-10-30 20:48"),
        lambda run, view: cells.started(run, view.zone),
    ),
    HistoryColumn(
        Column("Workload", "What was trained", numeric=False),
        "workload",
        Cell(text="wrn28-10"),
        lambda run, _view: cells.workload(run),
    ),
    HistoryColumn(
        Column("Framework", "What trained it", numeric=False),
        "framework",
        Cell(text="TensorFlow"),
        lambda run, _view: cells.text_cell(
            FRAMEWORKS[run.framework].name if run.framework in FRAMEWORKS else framework_name(run.spec)
        ),
    ),
    HistoryColumn(
        Column("Variant", "What differs from the workload's defaults", numeric=False, shrink="name"),
        "variant",
        Cell(text=""),
        lambda run, _view: cells.variant(run.spec, run.purpose),
    ),
    HistoryColumn(
        Column("Outcome", "How the run ended", numeric=False, shrink="symbol"),
        "outcome",
        Cell(text="completed", symbol="✔"),
        lambda run, _view: cells.outcome(run.outcome),
    ),
    HistoryColumn(
        Column(
            "Evidence",
            "Whether the run executed what was requested, as far as could be observed",
            numeric=False,
            shrink="symbol",
        ),
        "evidence",
        Cell(text="verified in part", symbol="◐"),
        lambda run, _view: cells.verified(run),
    ),
    *(_metric_column(metric, metric.list_column) for metric in METRICS if metric.list_column),
    HistoryColumn(
        Column("Host", "The host that the run took place on; empty for this machine", numeric=False, most=192),
        "host",
        Cell(text="gpu-server-1"),
        lambda run, _view: cells.host(run),
    ),
    HistoryColumn(
        Column("Devices", "What it ran on", numeric=False, most=192),
        "devices",
        Cell(text="2× H200"),
        lambda run, _view: cells.devices(run),
    ),
    HistoryColumn(
        Column(
            "Tags, note",
            "Your own words on a run: T changes its tags, N its note",
            numeric=False,
            shrink="text",
            least=88,
            most=136,
        ),
        "tags",
        Cell(text="baseline, warm-up"),
        lambda run, _view: cells.annotations(run),
    ),
)
COLUMNS: tuple[Column, ...] = tuple(listed.column for listed in _LISTED)
ORDERS: tuple[str, ...] = tuple(listed.order for listed in _LISTED)
DEFAULT_COLUMNS: tuple[str, ...] = tuple(listed.order for listed in _LISTED if listed.is_default)
"""More columns would leave no room for the variant in a window of usual width; notes come last and take the rest."""

_CHIP_ROOM = " " * 5

VARIANT_COLUMN, OUTCOME_COLUMN, DEVICES_COLUMN, ANNOTATIONS_COLUMN = map(
    ORDERS.index, ("variant", "outcome", "devices", "tags")
)
_THROUGHPUT_COLUMN, _POWER_COLUMN = ORDERS.index("throughput"), ORDERS.index(_POWER)


def history_cells(run: RunRow, view: RowView) -> tuple[Cell, ...]:
    return tuple(listed.cell(run, view) for listed in _LISTED)


def with_sparks(row: Sequence[Cell], sparks: Sparks) -> tuple[Cell, ...]:
    drawn = {_THROUGHPUT_COLUMN: sparks.throughput, _POWER_COLUMN: sparks.power}
    return tuple(msgspec.structs.replace(cell, spark=drawn[n]) if drawn.get(n) else cell for n, cell in enumerate(row))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """The choices, whatever a query finds; `columns` are those to show, by their orders.

    `census` changes when a run begins, ends or is deleted; `reference` is the number of reference runs.
    """

    totals: Totals = field(default_factory=Totals)
    experiments: Sequence[StoredExperiment] = ()
    columns: Sequence[str] = DEFAULT_COLUMNS
    census: tuple[int, ...] = ()
    reference: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The result of a query: the numbers of the runs in order, and in groups.

    `rows` counts all runs, or all in the trash, whatever the query finds.
    """

    query: RunQuery = field(default_factory=RunQuery)
    options: HistoryOptions = field(default_factory=HistoryOptions)
    matches: SearchResult = field(default_factory=SearchResult)
    common: Common = field(default_factory=Common)
    groups: Sequence[Group] = ()
    rows: Mapping[int, RunRow] = field(default_factory=dict)

    @property
    def runs(self) -> Sequence[int]:
        return self.matches.runs

    @property
    def row_view(self) -> RowView:
        return RowView(zone=None, common=self.common)

    def lines(self, folded: Iterable[int] | None) -> Sequence[Line]:
        """Return the table's lines: in groups, some folded, or one line per run if `folded` is None."""
        return self.runs if folded is None else build_lines(self.groups, frozenset(folded))

    @property
    def columns(self) -> Sequence[str]:
        """Return the columns to show: the chosen ones in which runs differ."""
        folded = {*self.common.agreed, *([] if self.options.totals.other_hosts else ["host"])}
        return [name for name in self.options.columns if name not in folded]

    @property
    def agreed(self) -> str:
        """Return what all runs agree on in chosen columns that are not shown: `lstm · all completed · on H200`."""
        rows = (history_cells(self.rows[run], self.row_view) for run in self.runs[:1] if run in self.rows)
        texts = (
            cells.agreed_text(order, COLUMNS[n], row[n])
            for row in rows
            for n, order in enumerate(ORDERS)
            if order in self.common.agreed
        )
        return " · ".join(filter(None, texts))


def toggle_order(query: RunQuery, column: int) -> RunQuery:
    """Return the query after a click on a column's header: natural order, or reversed."""
    order = ORDERS[column]
    turned = not query.descending if order == query.order else COLUMNS[column].numeric
    return replace(query, order=order, descending=turned)


def with_text(query: RunQuery, text: str) -> RunQuery:
    """Return the query with another search, best matches first unless another order was chosen."""
    if query.order == "match" and not text.strip():
        return replace(query, text=text, order="started", descending=True)
    first = not query.text.strip() and text.strip() and (query.order, query.descending) == ("started", True)
    return replace(query, text=text, order="match" if first else query.order)


def is_filtered(query: RunQuery) -> bool:
    """Return whether some runs may be hidden."""
    return bool(query.text.strip()) or any(query.selected.values())


EXPECTED: tuple[Cell, ...] = tuple(listed.expected for listed in _LISTED)
"""A row of the expected width."""


def widest(rows: Iterable[Sequence[Cell]]) -> tuple[Cell, ...]:
    """Return a cell for each column as wide as these rows need; chips take the room of words."""

    def as_text(cell: Cell) -> Cell:
        return msgspec.structs.replace(cell, text=_CHIP_ROOM.join((*cell.chips, cell.text)), chips=())

    return tuple(cells.widest(list(map(as_text, column))) for column in zip(*rows, strict=True))
