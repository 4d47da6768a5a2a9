"""Runs queue entries with progress on the terminal, and formats the sentences and tables of their results."""

import gc
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.analysis.comparability import throttled_pct
from app.analysis.intervals import WIDEST_KNOWN
from app.cli.compare import print_comparison, print_pivots
from app.cli.progress import ProgressSink, StatusLines, WaitLine
from app.cli.run import workload_finder
from app.cli.services import stop_on_interrupt
from app.cli.terminal import say
from app.errors import DatabaseError, UserError
from app.paths import PROGRAM
from app.queries import FINISHED_STATES, INTERRUPTED_STATES, QUEUED_STATES, EntryState, ExperimentProgress, QueueEntry
from app.report.comparison import ExperimentResult, experiment_result, runs_in_order
from app.report.render import write_report
from app.runs.experiment.estimates import Experiment, expected_resolution
from app.runs.experiment.idle_wait import WaitStatus
from app.runs.experiment.presets import publications
from app.runs.experiment.queue import ExperimentReading, read_experiment
from app.runs.experiment.queue_runner import QueueRunner
from app.runs.experiment.schedule import stopping_rule
from app.runs.experiment.session import PlannedRun, QueueListener
from app.runs.session import RunServices
from app.runs.sinks import Sink
from app.runs.weight_transfer import pending_trials
from app.storage.store import Store
from app.values import units
from app.values.environment_keys import STOOD_STILL_KEY
from app.values.plan import Plan
from app.values.records import RunHeader
from app.viewmodels.compare.pivot import make_pivots
from app.viewmodels.experiment.preview import describe_dates, describe_order, describe_resolution, describe_uncounted
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.sentences import format_time_left
from workloads.catalog import Machine, check

_SHOW_HINT = "The same command with --reuse and without --show continues from here."


def describe_reference(runs: Sequence[RunHeader]) -> list[str]:
    """Return a statement that these are reference runs, if all are; else []."""
    if not all(run.row.is_reference for run in runs):
        return []
    gpus = ", ".join(sorted({name for run in runs for name in run.row.gpu_names}))
    return [f"No run of your own is stored: these are the reference runs that come with the program, on {gpus}."]


def describe_refusals(plan: Plan, machine: Machine) -> list[str]:
    """Return which variants cannot run on this machine, one sentence per reason."""
    names = variant_names(plan.variants)
    by_reason: dict[str, list[str]] = {}
    for name, spec in zip(names, plan.variants, strict=True):
        for refusal in check(spec, machine):
            by_reason.setdefault(refusal.reason, []).append(name)
    return [f"Cannot run here: {', '.join(names)}. {reason}" for reason, names in by_reason.items()]


def describe_throttled(run: RunHeader) -> str:
    """Return that a run does not count, why, and what follows."""
    again = "it does not count and is repeated."
    if still_s := run.environment.get(STOOD_STILL_KEY):
        return f"Run {run.row.run} was suspended for {units.quantity(still_s, 's')} with this program: {again}"
    share = units.percent(throttled_pct(run.environment))
    return f"Run {run.row.run} was throttled for {share} of its measured part: {again}"


def describe_plan(stored: Experiment, ahead: ExperimentProgress) -> list[str]:
    """Return what is planned, done and left before the first run, and the smallest visible difference."""
    plan, left = stored.plan, stored.planned - stored.done
    if stored.state == "settled":
        return [f"{describe_ending(stored)} Nothing is left to run; --again repeats every run."]
    if not left:
        all_are, them = ("The only run is", "it") if stored.planned == 1 else (f"All {stored.planned} runs are", "them")
        return [f"{all_are} stored{_describe_extra_runs(stored)}: nothing is left to run. --again repeats {them}."]
    most = "" if plan.until_pct is None else " at most"
    takes = format_time_left(ahead.left)
    budget = "" if plan.budget_s is None else f", within {units.duration(plan.budget_s)}"
    planned = f"{stored.planned} {units.plural('run', stored.planned)} planned{most}"
    return [
        f"{planned}, {stored.done} done{_describe_extra_runs(stored)}, {left} left ({takes}){budget}.",
        *describe_order(plan),
        *describe_resolution(ahead.resolution, at_most=bool(most)),
    ]


def describe_ending(experiment: Experiment, *, show: bool = False, entry: int | None = None) -> str:
    """Return how far the experiment got, in this command or earlier ones.

    `show` means that the command only displays it; `entry` is its number if it stays in the queue.
    """
    goes_on = "The same command continues from here"
    goes_on += "." if entry is None else f", or `{PROGRAM} queue run {entry}`."
    sentences = [_describe_progress(experiment, goes_on, show=show), _describe_precision(experiment)]
    if show and experiment.state not in FINISHED_STATES:
        expected = expected_resolution(experiment.plan, [run.row for run in experiment.runs], (), None)
        sentences += describe_order(experiment.plan)
        sentences += describe_resolution(expected, at_most=experiment.plan.until_pct is not None)
    return " ".join(filter(None, sentences))


def _describe_progress(experiment: Experiment, goes_on: str, *, show: bool) -> str:
    planned, extra = experiment.planned, _describe_extra_runs(experiment)
    far = f"{experiment.done} of {planned} {units.plural('run', planned)} done{extra}"
    if experiment.state == "settled":
        repeats = stopping_rule(experiment.plan, [run.row for run in experiment.runs]).repeats
        return f"Target precision reached after {repeats} repeats: {experiment.done} runs done{extra}."
    if experiment.state == "out of budget" and experiment.next_s is not None:
        budget_s = experiment.plan.budget_s
        if budget_s is not None and experiment.next_s >= budget_s:
            goes_on = f"No run fits into {units.duration(budget_s)}: give --budget more."
        takes = f", and the next one takes about {units.duration(experiment.next_s)}" if experiment.next_s else ""
        return f"Out of budget: {far}{takes}. {goes_on}"
    if experiment.state == "complete" and not experiment.measured:
        return f"Nothing was measured: none of {planned} runs completed."
    if show:
        from_reference = bool(describe_reference(experiment.runs))
        return f"{far}." if experiment.state == "complete" or from_reference else f"{far}. {_SHOW_HINT}"
    if experiment.state == "failed":
        return f"Failed: {far}; some gave no result. The same command repeats those; after an hour, add --reuse."
    return f"Complete: {far}." if experiment.state == "complete" else f"Stopped: {far}. {goes_on}"


def _describe_extra_runs(experiment: Experiment) -> str:
    """Return how many stored runs beyond the plan the verdict counts; "" without any."""
    if not experiment.surplus_runs:
        return ""
    counts = "counts" if experiment.surplus_runs == 1 else "count"
    return f" ({experiment.surplus_runs} more stored {units.plural('run', experiment.surplus_runs)} {counts} too)"


def _describe_precision(experiment: Experiment) -> str:
    """Return how precisely the speed-ups are known; "" without intervals or a requested precision."""
    half_widths = stopping_rule(experiment.plan, [run.row for run in experiment.runs]).half_widths_pct()
    if experiment.plan.until_pct is None or not half_widths:
        return ""
    target = units.plus_minus(units.exactly(experiment.plan.until_pct, "%"))
    if max(half_widths) >= 100 * WIDEST_KNOWN:
        return f"Not every speed-up is known yet; {target} was asked for."
    half_width = units.quantity(units.range_of(half_widths, lambda width: units.number(width, 2)), "%")
    return f"Speed-ups are known to {units.plus_minus(half_width)}; {target} was asked for."


def load_result(experiment: Experiment, database: Path, margin_pct: float | None = None) -> ExperimentResult:
    plan = experiment.plan
    published = publications(plan.variants, [plan.preset] if plan.preset else (), workload_finder(database, None))
    with Store.open(database) as store:
        runs = runs_in_order(experiment, store.load)
    return experiment_result(experiment, runs, published, margin_pct)


def print_experiment(result: ExperimentResult, database: Path | None = None) -> None:
    """Print the verdict, with published figures; `database` is the user's path."""
    if result.comparison.variants:
        print_comparison(result.comparison, database)
        print_pivots(make_pivots(result.comparison, result.published) if result.published else ())


def write_experiment_report(result: ExperimentResult, path: Path) -> None:
    """Write a report of the comparison.

    Raises:
        UserError: There is nothing to report yet, or the file cannot be written.
    """
    if not result.comparison.variants:
        raise UserError("No run of this experiment has a result yet, so there is nothing to report.")
    write_report(path, result.comparison, time.time_ns(), make_pivots(result.comparison, result.published))
    say(f"Written to {path}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedEntry:
    """A queue entry that ran here, and its result.

    `state` is its state in the queue, or how it left the queue; `running` if another program continues it.
    """

    entry: QueueEntry
    state: EntryState
    experiment: Experiment

    @property
    def queue_number(self) -> int | None:
        return self.entry.entry if self.state in (*QUEUED_STATES, *INTERRUPTED_STATES) else None


class EntryReporter(QueueListener):
    """Reports the progress of queue entries on stderr."""

    def __init__(self) -> None:
        self._ended: dict[int, tuple[EndedEntry, tuple[int, ...]]] = {}
        self._line = StatusLines()
        self._waits: dict[int, WaitLine] = {}

    def entry_started(self, reading: ExperimentReading) -> None:
        ahead = reading.progress
        for sentence in (
            *describe_dates(ahead.counted_utc_ns, ahead.older_utc_ns),
            *(["--reuse counts them."] if ahead.older_utc_ns else []),
            *describe_uncounted(ahead.excluded, ahead.excluded_due_to),
            *filter(None, [ahead.message]),
            *describe_refusals(reading.experiment.plan, reading.machine),
            *describe_plan(reading.experiment, ahead),
        ):
            say(sentence)

    def sinks(self, planned_run: PlannedRun) -> Sequence[Sink]:
        return (ProgressSink(f"[{planned_run.position}/{planned_run.total}] ", self._line),)

    def may_wait(self, planned_run: PlannedRun, status: WaitStatus | None) -> bool:
        if status is not None:
            return self._waits.setdefault(planned_run.position, WaitLine(self._line))(status)
        if (line := self._waits.pop(planned_run.position, None)) is not None:
            line.clear()
        return True

    def run_rejected(self, run: RunHeader) -> None:
        self._line.say(describe_throttled(run))

    def message(self, sentence: str) -> None:
        self._line.say(sentence)

    def entry_ended(self, entry: QueueEntry, state: EntryState, experiment: Experiment) -> None:
        """Store the result; an entry that was overtaken, or whose plan was extended, ends more than once.

        Only the numbers of its runs are kept, because a night's queue has thousands.
        """
        ended = EndedEntry(entry=entry, state=state, experiment=replace(experiment, runs=()))
        self._ended.pop(entry.entry, None)
        self._ended[entry.entry] = (ended, tuple(run.row.run for run in experiment.runs))
        # Python would not collect the garbage of a night's runs before there are thousands of objects.
        gc.collect()

    def all_ended(self, store: Store) -> list[EndedEntry]:
        """Return the entries in the order of their last endings, with their stored runs."""
        return [
            replace(ended, experiment=replace(ended.experiment, runs=tuple(map(store.load_header, runs))))
            for ended, runs in self._ended.values()
        ]


def run_entries(
    services: RunServices, only: Sequence[int] | None = None, failed: Callable[[UserError], object] | None = None
) -> list[EndedEntry]:
    """Run entries of the queue with their progress on stderr, and return those that ended; Ctrl-C ends it.

    An entry left early for another one is returned in its final state.

    `only` has the numbers of the entries, None for all waiting ones. `failed` gets the error of an entry that cannot
    run, and the others continue.

    Raises:
        UserError: An entry cannot run, and `failed` is None.
    """
    lines = EntryReporter()
    runner = QueueRunner(services, lines)
    with stop_on_interrupt(runner.stop):
        try:
            runner.run(only, failed)
        except DatabaseError:
            raise  # paused entries stay in it
        except UserError as error:
            raise UserError(f"{error} {describe_paused(services.database, only)}".strip()) from error
    with Store.open(services.database) as store:
        all_ended = lines.all_ended(store)
    return [_refreshed(ended, services) for ended in all_ended]


def describe_paused(database: Path, only: Sequence[int] | None, excluding: Collection[int | None] = ()) -> str:
    """Return how to resume paused entries of the queue; "" if none is paused.

    `only` has the numbers of relevant entries, None for all, except those in `excluding`.
    """
    with Store.open(database) as store:
        paused = [entry.entry for entry in store.queue.entries() if entry.state == "paused"]
    named = " ".join(str(entry) for entry in paused if (only is None or entry in only) and entry not in excluding)
    return f"To resume a paused experiment, name it: `{PROGRAM} queue run {named}`." if named else ""


def _refreshed(ended: EndedEntry, services: RunServices) -> EndedEntry:
    """Return the entry's current state: another program may be running it, or have finished it."""
    if ended.queue_number is None:
        return ended
    with Store.open(services.database) as store:
        queued = next((entry for entry in store.queue.entries() if entry.entry == ended.queue_number), None)
        if queued is not None:
            return replace(ended, state="running") if queued.owned else ended
        host = services.host
        experiment = read_experiment(
            store, ended.experiment.plan, host.inventory(), ended.entry, environment=host.environment()
        ).experiment
    state = experiment.state if experiment.state in FINISHED_STATES else "removed"
    return replace(ended, experiment=experiment, state=state)


def describe_elsewhere(what: str) -> str:
    """Return that another program runs an entry, and how to see its progress."""
    return f"Another program runs {what}: `{PROGRAM} queue` shows how far it is."


def exit_status(all_ended: Sequence[EndedEntry]) -> int:
    """Return 0 if every planned run has a result, at least one of them figures, and every trial took place.

    Entries that another program continues do not count.
    """
    return 0 if all(ended.state == "running" or _is_complete(ended) for ended in all_ended) else 1


def _is_complete(ended: EndedEntry) -> bool:
    return (
        ended.experiment.measured
        and ended.experiment.state in FINISHED_STATES
        and not pending_trials(ended.experiment.plan, ended.experiment.runs)
    )
