"""Questions to the database of runs, and its answers about many runs together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from app.metrics import METRICS
from workloads.protocol import RunSpec

TEXT_ORDERS = frozenset(("workload", "variant", "tags", "devices", "outcome", "as_asked"))
"""What orders runs from A to Z at first; all else orders them from the highest down."""

RUN_ORDERS: tuple[str, ...] = (
    *("run", "started", "workload", "variant", "tags", "devices", "outcome", "as_asked"),
    *(metric.list_column.order for metric in METRICS if metric.list_column),
)
"""What a list of runs can be ordered by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which stored runs, in which order; empty words and None ask for everything; `order` is one of `RUN_ORDERS`.

    `text` is words, each of which is somewhere in a run's note, tags, parameters, outcome, GPUs or experiments, be it
    part of a longer word, or is its number. `outcome` is an outcome's name or `running`, `experiment` a number.
    `deleted` asks for the runs in the trash instead of all others. Absent values come last whichever way.
    """

    text: str = ""
    workload: str = ""
    outcome: str = ""
    tag: str = ""
    experiment: int | None = None
    deleted: bool = False
    order: str = "started"
    descending: bool = True

    def __post_init__(self) -> None:
        """Refuse an order that there is none of: a saved filter may be another program's."""
        if self.order not in RUN_ORDERS:
            raise ValueError(f"no order of runs: {self.order!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredExperiment:
    """An experiment as it is kept: `runs` in the order they were made or counted, those in the trash left out.

    `uid` is the same in every database; `preset` is the prepared experiment it was made from, if any; `plan` what was
    asked, as JSON.
    """

    experiment: int
    uid: str
    name: str
    preset: str | None
    created_utc_ns: int
    plan: str
    runs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """What there is to choose from among all runs, or all in the trash: by name, how many runs have it.

    `deleted` is how many runs are in the trash in either case.
    """

    total: int
    deleted: int
    workloads: Mapping[str, int]
    outcomes: Mapping[str, int]
    tags: Mapping[str, int]


SettableState = Literal["waiting", "paused"]
"""What anybody may make of an entry of the queue."""

QueuedState = Literal[SettableState, "running"]
"""Where an entry stands that is in the queue."""

ExperimentState = Literal["complete", "settled", "stopped", "out of budget", "failed"]
"""How far an experiment came.

`settled` is where every speed-up is known as narrowly as was asked, `complete` where every repeat was made; `failed`
where every run was made and some gave no result: they are made again the next time.
"""

EntryState = Literal[QueuedState, ExperimentState, "removed"]
"""Where an entry of the queue stands, or how it ended just now."""

QUEUED_STATES: tuple[EntryState, ...] = get_args(QueuedState)

FINISHED_STATES: tuple[ExperimentState, ...] = ("complete", "settled")
"""States in which nothing is left to run."""

INTERRUPTED_STATES: tuple[ExperimentState, ...] = ("stopped", "out of budget")
"""States in which some runs were not made yet, so that its entry stays in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """An experiment of the queue: one that is not finished.

    `uid` is the same in every database; `plan` what was asked, as JSON; `experiment` its number once it has runs;
    `owned` whether a living process makes it at this moment. One that is running is paused when its run has ended.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgress:
    """How far an entry of the queue is: `done` of `planned` runs have a result, the `place`th began last.

    `specs` are the variants whose runs go on, in the order they began, more than one where runs go on at once.
    `left_s` is how long the others are expected to take, None where nothing like them was run; `waiting_for` what the
    next run waits for, in words; `experiment` its number once it has runs; `words` a sentence on how it ended or on
    runs that came from elsewhere.
    """

    entry: int
    name: str
    state: EntryState
    done: int
    planned: int
    position: int = 0
    left_s: float | None = None
    specs: tuple[RunSpec, ...] = ()
    waiting_for: str = ""
    experiment: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingWork:
    """What an experiment has before it on a machine: `done` of `planned` runs are stored and count.

    The others take `left_s` seconds, judged by `learnt_from` stored runs, all of other workloads with `of_others`;
    where there is none they take at least that.
    `uncounted` stored runs of the same variants do not count, as they were made with another of `because`; `brought`
    do although they were made with another of `brought_with`, as they are the experiment's own.
    """

    planned: int
    done: int
    left_s: float
    timing_runs: int
    from_other_workloads: bool = False
    excluded: int = 0
    excluded_due_to: tuple[str, ...] = ()
    imported: int = 0
    imported_differences: tuple[str, ...] = ()
