"""Experiment requests in the queue: enqueue, decode, export and import."""

from dataclasses import replace
from pathlib import Path
from typing import Self

import msgspec

from app.analysis.comparability import MAX_THROTTLED_PCT
from app.errors import UserError
from app.queries import QueueEntry, Repeats, Variants
from app.runs.experiment.schedule import Plan, WeightTransfer, remaining_runs
from app.runs.experiment.transfer_trials import pending_trials
from app.storage.store import Store
from app.storage.transfer.import_export import Imported, import_runs
from app.storage.transfer.progress import NO_PROGRESS, TransferProgress
from workloads.catalog import find_workload, with_defaults


def exportable_queue(store: Store) -> tuple[list[int], list[int]]:
    """All entries of the queue, and the runs that were made of them so far.

    Raises `UserError` where there is nothing, or one of it is being made.
    """
    entries = store.queue.entries()
    if not entries:
        raise UserError("The queue is empty: no experiment is unfinished.")
    for entry in entries:
        if entry.owned:
            raise UserError(f"Entry {entry.entry} of the queue, “{entry.name}”, is being made: stop it first.")
    experiments = [entry.experiment for entry in entries if entry.experiment is not None]
    runs = [run for experiment in experiments for run in store.library.runs_of_experiment(experiment)]
    return [entry.entry for entry in entries], list(dict.fromkeys(runs))


class ExperimentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and how it is to be made.

    `budget_s` is for one sitting, not for all together; `parallel` how many runs may go on at once; `gate_s` how long
    a run waits for a machine at rest at most, None as long as usual. With `again` no run counts that was made before
    it was asked for.
    """

    name: str
    variants: Variants
    repeats: Repeats
    until_pct: float | None = None
    carried: tuple[WeightTransfer, ...] = ()
    notes: tuple[str, ...] = ()
    budget_s: float | None = None
    parallel: int = 1
    again: bool = False
    gate_s: float | None = None
    max_throttled_pct: float = MAX_THROTTLED_PCT

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        *,
        budget_s: float | None = None,
        parallel: int = 1,
        again: bool = False,
        gate_s: float | None = None,
        max_throttled_pct: float = MAX_THROTTLED_PCT,
    ) -> Self:
        """What is asked for with this plan."""
        return msgspec.structs.replace(
            msgspec.convert(plan, cls, from_attributes=True),
            budget_s=budget_s,
            parallel=parallel,
            again=again,
            gate_s=gate_s,
            max_throttled_pct=max_throttled_pct,
        )

    @property
    def plan(self) -> Plan:
        """The plan itself; what an older version did not name has its default."""
        plan = msgspec.convert(self, Plan, from_attributes=True)
        return replace(plan, variants=tuple(map(with_defaults, plan.variants)))


def _identity(request: ExperimentRequest) -> tuple[object, ...]:
    """What makes it this experiment: its variants and its baseline, not how often it is asked for or in what words."""
    baseline, *others = (msgspec.json.encode(spec, order="sorted") for spec in request.plan.variants)
    return baseline, sorted(others), request.carried, request.again


def _with_more_repeats(mine: ExperimentRequest, other: ExperimentRequest) -> ExperimentRequest:
    """The one with the repeats and the width of whichever asks for more runs."""
    more = max(mine, other, key=lambda each: (each.repeats, -(each.until_pct or 0.0)))
    return msgspec.structs.replace(mine, repeats=more.repeats, until_pct=more.until_pct)


def encode_request(request: ExperimentRequest) -> str:
    """The JSON that is kept."""
    return msgspec.json.encode(request).decode()


def decode_request(entry: QueueEntry) -> ExperimentRequest:
    """What an entry asks for; raises `UserError` where another version of the program wrote what is not known here."""
    try:
        request = msgspec.json.decode(entry.plan, type=ExperimentRequest)
        unknown = {spec.workload for spec in request.plan.specs if find_workload(spec.workload) is None}
    except msgspec.MsgspecError as error:
        raise _unknown_request(entry, str(error)) from error
    if unknown:
        raise _unknown_request(entry, f"there is no workload called {', '.join(sorted(unknown))}")
    return request


def _unknown_request(entry: QueueEntry, reason: str) -> UserError:
    return UserError(
        f"What entry {entry.entry} of the queue asks for is not known here ({reason}): update the program,"
        f" or take it out with `python -m app queue remove {entry.entry}`."
    )


def add_request(store: Store, request: ExperimentRequest, preset: str | None = None) -> int:
    """Adds an entry at the end of the queue and returns its number.

    A single run is a plan of one variant and one repeat, `again`: what was stored before would count as it otherwise.
    """
    return store.queue.add(name=request.name, preset=preset, plan=encode_request(request))


def enqueue(store: Store, request: ExperimentRequest, preset: str | None = None) -> tuple[QueueEntry, bool]:
    """The entry of an experiment, and whether it is new: an unfinished one waits again, as it is asked for now.

    One that a living program makes is only asked for more repeats where it had fewer: a second entry would make runs
    twice. However many programs ask at once, they get the same one.
    """

    def is_same(entry: QueueEntry) -> bool:
        try:
            other = decode_request(entry)
        except UserError:  # what another version wrote is none of ours
            return False
        return entry.preset == preset and _identity(other) == _identity(request)

    def updated_plan(entry: QueueEntry) -> str:
        return encode_request(_with_more_repeats(decode_request(entry), request))

    return store.queue.add_or_update(
        name=request.name, preset=preset, plan=encode_request(request), is_same=is_same, merged_plan=updated_plan
    )


def import_with_queue(database: Path, file: Path, watch: TransferProgress = NO_PROGRESS) -> Imported:
    """Imports as `import_runs` does; an experiment of which every run is here then is in the queue no longer."""
    imported = import_runs(database, file, watch)
    with Store.open(database) as store:
        finished = [entry for entry in store.queue.entries() if not entry.owned and _is_complete(store, entry)]
        complete = {entry.entry for entry in finished if store.queue.finish(entry.entry, entry.plan)}
    return replace(
        imported,
        entries=tuple(entry for entry in imported.entries if entry not in complete),
        complete=tuple(sorted(complete - set(imported.entries))),
    )


def _is_complete(store: Store, entry: QueueEntry) -> bool:
    """Whether its own runs, not only stored ones of the same variants, are all that it asks for."""
    if entry.experiment is None:
        return False
    try:
        plan = decode_request(entry).plan
    except UserError:  # what another version wrote is left to it
        return False
    runs = store.library.runs_of_experiment(entry.experiment)
    if remaining_runs(plan, [row for row in store.list_runs() if row.run in runs]):
        return False
    return not (plan.carried and pending_trials(plan, [store.load(run) for run in runs]))
