"""The table of stored runs: columns, rows, experiment groups and labels, and the status line below it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import NamedTuple

import msgspec

from app import units
from app.metrics import METRICS, ListColumn, Metric
from app.queries import FoundRuns, RunQuery, SearchWord, StoredExperiment, Totals, parse_search
from app.records import RunRow
from app.viewmodels.format import cells
from app.viewmodels.format.cells import Cell, Column
from app.viewmodels.history.search import match_cell

NO_EXPERIMENT = 0
"""The group of the runs that belong to no experiment: experiments are numbered from 1."""

_NO_EXPERIMENT_LABELS = ("Without an experiment", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The line of one experiment: its name, when it began, and those of its runs that were found, in their order."""

    experiment: int
    title: str
    started: str
    runs: tuple[int, ...]

    @property
    def details(self) -> str:
        """How many runs it has and when it began."""
        count = f"{len(self.runs):,} {units.plural('run', len(self.runs))}"
        return f"{count} · {self.started}" if self.started else count


Line = int | Group
"""A run by its number, or a group."""


def build_groups(
    runs: Sequence[int], experiment_of: Mapping[int, int], named: Mapping[int, tuple[str, str]]
) -> tuple[Group, ...]:
    """Group runs by their experiment, in the order of `named`; runs without one come last.

    `named` has name and start of each experiment, as text.
    """
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


PAGE = 48
"""How many rows are read along with the numbers of the runs: what a window shows at once, and a little more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """What rows are seen with: the reader's time zone (None is the system's), and what a search for `words` found."""

    zone: tzinfo | None
    found: FoundRuns = field(default_factory=FoundRuns)
    words: Sequence[SearchWord] = ()


class HistoryColumn(NamedTuple):
    """A column of the table: what orders by it, a cell as wide as it is expected to need, and a run's cell.

    `cell` takes the run's row, and what it is seen with. `bare_title` heads its numbers where they have no unit.
    """

    column: Column
    order: str
    expected: Cell
    cell: Callable[[RunRow, RowView], Cell]
    shown: bool = True
    bare_title: str = ""


def _metric_column(metric: Metric, listed: ListColumn) -> HistoryColumn:
    return HistoryColumn(
        Column(metric.column_title, metric.help),
        listed.order,
        Cell(text=listed.widest),
        lambda run, _view: cells.row_metric_cell(metric, run),
        listed.shown,
        _bare_title(metric.unit) if "{" in metric.unit else "",
    )


def _bare_title(unit: str) -> str:
    """Return a unit per example as a title: `Examples/s`, `mJ/example`."""
    title = unit.format(example="example", examples="examples")
    return title.capitalize() if unit.startswith("{") else title


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
        Column("Variant", "What differs from the workload's defaults", numeric=False),
        "variant",
        Cell(text=""),
        lambda run, _view: cells.variant(run.spec, run.purpose),
    ),
    HistoryColumn(
        Column("Match", "Where the search found the run, the best match first", numeric=False),
        "match",
        Cell(text="variant"),
        lambda run, view: match_cell(run, view.found.fields.get(run.run, ()), view.words),
    ),
    HistoryColumn(
        Column("Outcome", "How the run ended", numeric=False),
        "outcome",
        Cell(text="completed", symbol="✔"),
        lambda run, _view: cells.outcome(run.outcome),
    ),
    HistoryColumn(
        Column("Evidence", "Whether what was requested is what ran, as far as that could be seen", numeric=False),
        "evidence",
        Cell(text="verified in part", symbol="◐"),
        lambda run, _view: cells.verified(run),
    ),
    *(_metric_column(metric, metric.list_column) for metric in METRICS if metric.list_column),
    HistoryColumn(
        Column("Host", "The host that the run was made on; empty for this machine", numeric=False),
        "host",
        Cell(text="gpu-server-1"),
        lambda run, _view: cells.host(run),
    ),
    HistoryColumn(
        Column("Devices", "What it ran on", numeric=False),
        "devices",
        Cell(text="2× H200"),
        lambda run, _view: cells.devices(run),
    ),
    HistoryColumn(
        Column("Tags, note", "Your own words on a run: T changes its tags, N its note", numeric=False),
        "tags",
        Cell(text="baseline, warm-up"),
        lambda run, _view: cells.annotations(run),
    ),
)
COLUMNS: tuple[Column, ...] = tuple(listed.column for listed in _LISTED)
ORDERS: tuple[str, ...] = tuple(listed.order for listed in _LISTED)
DEFAULT_COLUMNS: tuple[str, ...] = tuple(listed.order for listed in _LISTED if listed.shown)
"""More columns would leave no room for the variant in a window of usual width; notes are last and take what is left."""

_CHIP_ROOM = " " * 5

VARIANT_COLUMN, MATCH_COLUMN, OUTCOME_COLUMN, EVIDENCE_COLUMN = 3, 4, 5, 6
HOST_COLUMN, DEVICES_COLUMN, ANNOTATIONS_COLUMN = len(ORDERS) - 3, len(ORDERS) - 2, len(ORDERS) - 1
BARE_TITLES: Mapping[int, str] = {n: listed.bare_title for n, listed in enumerate(_LISTED) if listed.bare_title}
"""The titles of figures that are shown without their unit, by column."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One run as the table shows it; `source` is what it was made from."""

    source: RunRow
    cells: tuple[Cell, ...]

    @property
    def run(self) -> int:
        """The run's number."""
        return self.source.run

    @property
    def workload(self) -> str:
        """The run's workload."""
        return self.source.spec.workload


def history_rows(runs: Iterable[RunRow], view: RowView) -> dict[int, HistoryRow]:
    """Return the rows of runs by their numbers, as seen with `view`."""
    return {run.run: HistoryRow(run, tuple(listed.cell(run, view) for listed in _LISTED)) for run in runs}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """What there is to choose from, whatever a query finds; `shown` are the columns, by what orders by them.

    `census` changes when a run begins, ends or is deleted; `reference` is how many reference runs are among the runs.
    """

    totals: Totals = field(default_factory=Totals)
    experiments: Sequence[StoredExperiment] = ()
    filters: Mapping[str, RunQuery] = field(default_factory=dict)
    shown: Sequence[str] = DEFAULT_COLUMNS
    census: tuple[int, ...] = ()
    reference: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a query found: the numbers of the runs in order, and the same in groups.

    `rows` are those of the first runs, or of those in view before; the others are read when they come into view.
    """

    query: RunQuery = field(default_factory=RunQuery)
    options: HistoryOptions = field(default_factory=HistoryOptions)
    found: FoundRuns = field(default_factory=FoundRuns)
    groups: Sequence[Group] = ()
    rows: Mapping[int, HistoryRow] = field(default_factory=dict)

    @property
    def runs(self) -> Sequence[int]:
        """The runs in order."""
        return self.found.runs

    @property
    def row_view(self) -> RowView:
        """What rows read later are seen with."""
        return RowView(zone=None, found=self.found, words=parse_search(self.query.text))

    def lines(self, folded: Iterable[int] | None) -> Sequence[Line]:
        """Return the table's lines: in groups, some folded, or one line per run if `folded` is None."""
        return self.runs if folded is None else build_lines(self.groups, frozenset(folded))

    @property
    def columns(self) -> Sequence[str]:
        """The columns to show: those chosen, where runs were made elsewhere the hosts', and of a search its matches."""
        shown = [name for name in self.options.shown if name not in ("host", "match")]
        hosts = ["host"] if "host" in self.options.shown and self.options.totals.other_hosts else []
        return [*shown, *hosts, *(["match"] if self.found.fields else [])]

    @property
    def filter_name(self) -> str:
        """The saved filter that is in force; "" where none is."""
        current = unordered(self.query)
        return next((name for name, query in self.options.filters.items() if unordered(query) == current), "")


def group_by_experiment(
    runs: Sequence[int], experiments: Sequence[StoredExperiment], zone: tzinfo | None
) -> tuple[Group, ...]:
    """Group runs by their experiment; a run of several is in the newest of them.

    The experiments are newest first; `zone` is the reader's time zone, None the system's.
    """
    experiment_of = {run: found.experiment for found in reversed(experiments) for run in found.runs}
    named = {found.experiment: (found.name, units.local_time(found.created_utc_ns, zone)) for found in experiments}
    return build_groups(runs, experiment_of, named)


def visible_page(runs: Sequence[int], near: Collection[int]) -> Sequence[int]:
    """Return the runs whose rows are read with all numbers: those around `near`, or the first ones."""
    known = set(near)
    first = next((n for n, run in enumerate(runs) if run in known), 0)
    return runs[max(0, first - PAGE // 4) : first + max(PAGE, len(known) + PAGE // 4)]


def toggle_order(query: RunQuery, column: int) -> RunQuery:
    """Return the query after a click on a column's header: its natural order, or the reverse."""
    order = ORDERS[column]
    turned = not query.descending if order == query.order else COLUMNS[column].numeric or order == "match"
    return replace(query, order=order, descending=turned)


def unordered(query: RunQuery) -> RunQuery:
    """Return a query without its order, and with every choice as a facet's."""
    chosen = {name: tuple(sorted(values)) for name, values in query.selected.items() if values}
    return RunQuery(text=" ".join(query.text.split()), chosen=chosen, deleted=query.deleted)


def with_text(query: RunQuery, text: str) -> RunQuery:
    """Return the query with another search: its best matches come first, unless another order was chosen."""
    if query.order == "match" and not text.strip():
        return replace(query, text=text, order="started", descending=True)
    first = not query.text.strip() and text.strip() and (query.order, query.descending) == ("started", True)
    return replace(query, text=text, order="match" if first else query.order)


def is_filtered(query: RunQuery) -> bool:
    """Return whether some runs may be hidden."""
    return unordered(query) != RunQuery(deleted=query.deleted)


def widest(rows: Iterable[HistoryRow], before: Sequence[Cell] = ()) -> tuple[Cell, ...]:
    """Return for each column a cell as wide as needed: for what is expected, for these rows and for those before."""
    shown = [
        *(row.cells for row in rows),
        [listed.expected for listed in _LISTED],
        *([before] if before else []),
    ]
    return tuple(cells.widest([_chips_as_text(row[n]) for row in shown]) for n in range(len(COLUMNS)))


def _chips_as_text(cell: Cell) -> Cell:
    """Return the cell with text in place of its chips, with room for their frames."""
    return (
        msgspec.structs.replace(cell, text=_CHIP_ROOM.join((*cell.chips, cell.text)), chips=()) if cell.chips else cell
    )
