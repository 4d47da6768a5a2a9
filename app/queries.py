"""Queries of the database of runs, and its answers about many runs, experiments and the queue."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from app.analysis.intervals import Resolution
from app.metrics import METRICS
from app.values.plan import Plan, matching_variants
from app.values.records import RunRow
from workloads.protocol import RunSpec

TEXT_ORDERS = frozenset(("workload", "framework", "variant", "tags", "host", "devices", "outcome", "evidence"))
"""Orders that start in ascending alphabetical order; all others start in descending order."""

RUN_ORDERS: tuple[str, ...] = (
    *("run", "started", "workload", "framework", "variant", "tags", "match"),
    *("host", "devices", "outcome", "evidence"),
    *(metric.list_column.order for metric in METRICS if metric.list_column),
)
"""The orders of a list of runs; `match` is the quality of a search match, newest first without a search."""

SEARCH_FIELDS: tuple[str, ...] = (
    *("variant", "workload", "tag", "note", "card", "host", "outcome", "evidence", "started", "experiment", "reason"),
)
"""The fields that a search covers, best first; each is a column of `run_words`, and can be named: `note:cudnn`."""

FREE_TEXT = frozenset({"note", "experiment", "reason"})
"""Fields in which a plain word counts only if no earlier field contains it."""

_ALIASES = {"tags": "tag", "gpu": "card", "device": "card"}


class SearchWord(NamedTuple):
    """A word of a search as `typed`; `field` is the field that must contain it, "" for any."""

    typed: str
    field: str
    text: str


def parse_search(text: str) -> list[SearchWord]:
    return [_search_word(word) for word in dict.fromkeys(text.split())]


def _search_word(word: str) -> SearchWord:
    name, colon, term = word.partition(":")
    field = _ALIASES.get(name.lower(), name.lower())
    return SearchWord(word, field, term) if colon and field in SEARCH_FIELDS else SearchWord(word, "", word)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a query.

    Attributes:
        runs: The runs in order.
        fields: For a search, by run, the field in which each word was found, "run" for its number.
        left_out: How many more runs hold the words in free text that does not count.
        wider: The search that finds these runs.
    """

    runs: Sequence[int] = ()
    fields: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    left_out: int = 0
    wider: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What the runs found by a query have in common.

    Attributes:
        agreed: The orders in which several runs are all equal.
        largest: By workload, the largest throughput and energy per example, by order; None without any.
    """

    agreed: frozenset[str] = frozenset()
    largest: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)


FACETS: tuple[str, ...] = (
    *("workload", "framework", "implementation", "layout", "precision", "batch_size", "gpus", "xla"),
    *("card", "host", "outcome", "day", "tag", "experiment"),
)
"""The facets by which runs can be narrowed down, each with several values. A month, `2026-11`, is also a value of
`day`."""

FacetCounts = Mapping[str, Mapping[str, int]]
"""By facet, the number of runs with each value, among those that match all other choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which stored runs, in which order; empty texts and None select everything.

    Attributes:
        text: Words that must all occur in a run's `SEARCH_FIELDS`, or be its number.
        workload: Name of a workload.
        outcome: Name of an outcome, or `running`.
        tag: A tag.
        experiment: Number of an experiment.
        chosen: By facet, the values of which a run must have one.
        deleted: Select the runs in the trash instead of all others.
        order: One of `RUN_ORDERS`; absent values come last in either direction.
        descending: Whether the order is descending.
    """

    text: str = ""
    workload: str = ""
    outcome: str = ""
    tag: str = ""
    experiment: int | None = None
    chosen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deleted: bool = False
    order: str = "started"
    descending: bool = True

    def __post_init__(self) -> None:
        """Refuse an unknown order or facet, as in a stored filter of another version."""
        if self.order not in RUN_ORDERS:
            raise ValueError(f"runs have no order {self.order!r}")
        if not set(self.chosen) <= set(FACETS):
            raise ValueError(f"no facets of runs: {', '.join(self.chosen)}")

    @property
    def selected(self) -> Mapping[str, tuple[str, ...]]:
        """Return the choices by facet, including single values."""
        single = {"workload": self.workload, "outcome": self.outcome, "tag": self.tag}
        if self.experiment is not None:
            single["experiment"] = str(self.experiment)
        return {**{name: (value,) for name, value in single.items() if value}, **self.chosen}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExperiment:
    """An experiment as stored.

    Attributes:
        experiment: Its number.
        uid: The same in every database.
        name: Its name.
        preset: Key of its preset, if any.
        created_utc_ns: When it got its first run.
        plan: Its `Plan` as JSON.
        runs: Its runs in the order they ran or were reused, without those in the trash.
    """

    experiment: int
    uid: str
    name: str
    preset: str | None
    created_utc_ns: int
    plan: str
    runs: tuple[int, ...] = ()


class Question(NamedTuple):
    """The purpose of a comparison: a setting, and a run of the baseline; "" and 0 if their figures decide."""

    asked: str = ""
    baseline: int = 0


NO_QUESTION = Question()


def plan_question(plan: Plan, rows: Iterable[RunRow]) -> Question:
    """Return a plan's question about these runs of its variants."""
    chosen = (row.run for row in rows if plan.has_baseline and plan.variants[0] in matching_variants(row.spec))
    return Question(plan.asked, next(chosen, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The number of runs, or of runs in the trash, and how many of them have each tag.

    `deleted` is the number of runs in the trash in either case, `other_hosts` whether one ran on another host.
    """

    total: int = 0
    deleted: int = 0
    tags: Mapping[str, int] = field(default_factory=dict)
    other_hosts: bool = False


SettableState = Literal["waiting", "paused"]
"""States that a user or another program can give an entry of the queue."""

QueuedState = Literal[SettableState, "running"]
"""State of an entry that is in the queue."""

ExperimentState = Literal["complete", "settled", "stopped", "out of budget", "failed"]
"""The final state of an experiment.

`settled`: every speed-up is known to the target precision. `complete`: every repeat ran. `failed`: every run ended, but
some without a result; these are repeated the next time.
"""

EntryState = Literal[QueuedState, ExperimentState, "removed"]
"""State of an entry in the queue, or the way it has just ended."""

QUEUED_STATES: tuple[EntryState, ...] = get_args(QueuedState)

FINISHED_STATES: tuple[ExperimentState, ...] = ("complete", "settled")
"""States in which nothing is left to run."""

INTERRUPTED_STATES: tuple[ExperimentState, ...] = ("stopped", "out of budget")
"""States with remaining runs, so that the entry stays in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """An entry of the queue: an unfinished experiment.

    Attributes:
        entry: Its number.
        uid: The same in every database.
        name: Name of the experiment.
        preset: Key of its preset, if any.
        plan: Its `Plan` as JSON.
        state: Its state; a paused entry may still be in its last run.
        added_utc_ns: When it was added.
        experiment: Number of its experiment, None before its first run.
        owned: Whether a living process runs it now.
        imported: Whether it came from another database, and has not been requested here since.
    """

    entry: int
    uid: str
    name: str
    preset: str | None
    plan: str
    state: QueuedState
    added_utc_ns: int
    experiment: int | None
    owned: bool
    imported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedResolution:
    """The smallest difference that an experiment can show.

    Attributes:
        repeats: Repeats of each variant.
        estimate: The estimate; None if the spread is unknown, or a single repeat has no interval.
        noise_runs: The number of stored runs behind the estimate.
        of_other_variants: Whether these belong to other variants of its workload.
    """

    repeats: int
    estimate: Resolution | None
    noise_runs: int = 0
    of_other_variants: bool = False


class TimeLeft(NamedTuple):
    """The time that something takes, in seconds: at least, most likely, and at most."""

    least_s: float = 0.0
    likely_s: float = 0.0
    most_s: float = 0.0

    def plus(self, seconds: float) -> "TimeLeft":
        """Return it with that many seconds added; never below 0."""
        return TimeLeft(*(max(0.0, end_s + seconds) for end_s in self))

    @classmethod
    def total(cls, times: Iterable["TimeLeft"]) -> "TimeLeft":
        return cls(*map(sum, zip(*times, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentProgress:
    """The progress of an experiment: before it is queued, in the queue, while it runs, and after its end.

    Attributes:
        planned: The total number of runs.
        done: Runs that have a result.
        left: The expected time of the other runs.
        timing_runs: The number of stored runs behind this estimate.
        from_other_workloads: Whether these all belong to other workloads.
        excluded: Stored runs of the same variants that do not count.
        excluded_due_to: The differences of their environments.
        counted_utc_ns: When the stored runs that count were made, in order.
        older_utc_ns: When the runs that are only too old were made.
        resolution: The smallest difference that it can show; None if it compares nothing.
        entry: Number of its entry of the queue; 0 if it is not queued.
        name: Name of the experiment.
        state: State of its entry.
        position: Position of the run that began last, from 1.
        specs: Variants of the current runs, in the order they began; several with concurrent runs.
        waiting_for: What the next run waits for, "" if nothing.
        waits_for_device: Whether the next run waits for another one to end; `message` says so.
        experiment: Number of its experiment, None before its first run.
        message: A sentence on how it ended, or on runs from elsewhere.
        host: Its host, with the full address; "" is this machine.
        interpreters: The Pythons that its variants name.
        imported: Whether it came from another database.
    """

    planned: int
    done: int
    left: TimeLeft = field(default_factory=TimeLeft)
    timing_runs: int = 0
    from_other_workloads: bool = False
    excluded: int = 0
    excluded_due_to: tuple[str, ...] = ()
    counted_utc_ns: tuple[int, ...] = ()
    older_utc_ns: tuple[int, ...] = ()
    resolution: ExpectedResolution | None = None
    entry: int = 0
    name: str = ""
    state: EntryState = "waiting"
    position: int = 0
    specs: tuple[RunSpec, ...] = ()
    waiting_for: str = ""
    waits_for_device: bool = False
    experiment: int | None = None
    message: str = ""
    host: str = ""
    interpreters: tuple[str, ...] = ()
    imported: bool = False
