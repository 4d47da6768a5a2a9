"""The table of stored runs as values: one row a run, and the order and choice of rows a reader asked for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from operator import itemgetter

from app.records import RunRow
from app.viewmodels import cells
from app.viewmodels.cells import Cell, Column

MOST_COMPARED = 20
"""More runs than this no eye tells apart in one plot."""

RUNNING = "running"


COLUMNS: tuple[Column, ...] = (
    Column("Run", "Number of the run in this database"),
    Column("Started", "When the run started, in local time"),
    Column("Workload", "What was trained", numeric=False),
    Column("Variant", "What differs from the workload's defaults", numeric=False),
    Column("Devices", "What it ran on", numeric=False),
    Column("Outcome", "How the run ended", numeric=False),
    Column("As asked", "Whether what ran is what was asked, as far as its evidence tells", numeric=False),
    Column("Throughput", "Examples a second over the measured blocks"),
    Column("Step p50", "Median time of one step"),
    Column("Mean power", "Mean power of the run's GPUs together while measuring"),
    Column("Energy", "Energy for one example"),
    Column("Duration", "From the start of the run to its end"),
)
WORKLOAD_COLUMN, VARIANT_COLUMN, OUTCOME_COLUMN = 2, 3, 5


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One run as the table shows it; `source` is what it was made from, `haystack` all its words in lower case."""

    source: RunRow
    cells: tuple[Cell, ...]
    haystack: str

    @property
    def run(self) -> int:
        """The run's number."""
        return self.source.run

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.source.spec.workload

    @property
    def outcome(self) -> str:
        """The outcome's name, or `RUNNING`."""
        return self.source.outcome.name if self.source.outcome else RUNNING


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a reader asked for; empty words ask for everything. `column` is an index into `COLUMNS`."""

    text: str = ""
    workload: str = ""
    outcome: str = ""
    column: int = 0
    descending: bool = True

    def by(self, column: int) -> "Query":
        """The same query after a click on that column's head: a new one starts its natural way."""
        turned = not self.descending if column == self.column else COLUMNS[column].numeric
        return replace(self, column=column, descending=turned)

    @property
    def narrows(self) -> bool:
        """Whether some runs may be hidden."""
        return bool(self.text.strip() or self.workload or self.outcome)


def history_rows(runs: Iterable[RunRow], known: Mapping[int, HistoryRow], zone: tzinfo | None) -> list[HistoryRow]:
    """One row a run in the order given; rows in `known` (by run) whose run has not changed are taken over as they are.

    `zone` is the reader's time zone, None the system's.
    """
    rows = []
    for run in runs:
        before = known.get(run.run)
        rows.append(before if before is not None and before.source == run else _row(run, zone))
    return rows


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All stored runs, newest first, and what the screen needs to know of them as a whole.

    `widest` has for each column the longest words and the longest unit of any row, for the column's width.
    """

    rows: Sequence[HistoryRow] = ()
    workloads: Sequence[str] = ()
    outcomes: Sequence[str] = ()
    widest: Sequence[Cell] = ()

    @property
    def by_run(self) -> dict[int, HistoryRow]:
        """The rows by their run's number."""
        return {row.run: row for row in self.rows}


def history(runs: Iterable[RunRow], before: History, zone: tzinfo | None) -> History:
    """The screen's values, from those it had before; with thousands of runs too slow for the GUI thread."""
    rows = history_rows(runs, before.by_run, zone)
    there = {row.outcome for row in rows}
    return History(
        rows=rows,
        workloads=sorted({row.workload for row in rows}),
        outcomes=[name for name in cells.OUTCOMES if name in there],
        widest=[cells.widest([row.cells[n] for row in rows]) for n in range(len(COLUMNS))],
    )


def arrange(rows: Iterable[HistoryRow], query: Query) -> list[HistoryRow]:
    """The rows asked for, in the order asked for: absent values last whichever way, equal ones newest first."""
    words = query.text.lower().split()
    shown = [
        row
        for row in rows
        if (not query.workload or row.workload == query.workload)
        and (not query.outcome or row.outcome == query.outcome)
        and all(word in row.haystack for word in words)
    ]
    shown.sort(key=lambda row: row.run, reverse=True)
    keyed = [(row.cells[query.column].key, row) for row in shown]
    present = [(key, row) for key, row in keyed if key is not None]
    present.sort(key=itemgetter(0), reverse=query.descending)
    return [row for _, row in present] + [row for key, row in keyed if key is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryScreen:
    """What the screen shows: the rows asked for of all there are; `empty_text` where there is none."""

    history: History = History()
    query: Query = Query()
    rows: Sequence[HistoryRow] = ()
    empty_text: str = ""

    @classmethod
    def of(cls, found: History, query: Query) -> "HistoryScreen":
        """The screen for a query."""
        rows = arrange(found.rows, query)
        return cls(history=found, query=query, rows=rows, empty_text="" if rows else empty_text(len(found.rows), query))


def compare_label(chosen: int) -> str:
    """What the Compare button says for that many chosen runs."""
    if chosen > MOST_COMPARED:
        return f"Compare (at most {MOST_COMPARED})"
    return f"Compare {chosen} runs" if chosen > 1 else "Compare"


def can_compare(chosen: int) -> bool:
    """Whether that many runs can be compared."""
    return 2 <= chosen <= MOST_COMPARED


def count_label(shown: int, total: int, chosen: int) -> str:
    """How many runs there are, in words: "12 of 1,034 runs, 2 chosen"."""
    noun = "run" if total == 1 else "runs"
    there = f"{total:,} {noun}" if shown == total else f"{shown:,} of {total:,} {noun}"
    return f"{there} · {chosen:,} chosen" if chosen > 1 else there


def empty_text(total: int, query: Query) -> str:
    """What an empty table says; "" where it is not for want of runs or matches."""
    if total == 0:
        return "No runs yet\nPress Ctrl+1 and run one; it appears here as soon as it starts."
    if query.narrows:
        return "No run matches\nPress Escape to clear the search, or choose other filters."
    return ""


def _row(run: RunRow, zone: tzinfo | None) -> HistoryRow:
    shown = (
        cells.run_number(run),
        cells.started(run, zone),
        cells.workload(run),
        cells.variant(run.spec, run.purpose),
        cells.devices(run),
        cells.outcome(run.outcome),
        cells.as_asked(run),
        cells.throughput(run),
        cells.step_ms(run.summary.step_ms_p50),
        cells.power(run.summary.mean_power_mw),
        cells.energy(run),
        cells.duration(run),
    )
    return HistoryRow(run, shown, _haystack(shown))


def _haystack(shown: Sequence[Cell]) -> str:
    return "\n".join(f"{cell.text} {cell.unit}\n{cell.tooltip}" for cell in shown).lower()
