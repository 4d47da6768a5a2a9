"""What an experiment has before it: how much of it is stored, and how long the rest takes by what is stored."""

from collections.abc import Sequence

from app.queries import Ahead
from app.records import RunRow
from app.runs.counted import NO_OWN, Own, counted_here, made_alike, surroundings_here
from app.runs.repeated import Repeated
from app.runs.schedule import Plan, done, lasted, left, room_of, together_s
from app.samples import Inventory
from app.storage.store import Store
from workloads.catalog import runnable
from workloads.protocol import RunSpec


def look_ahead(
    store: Store,
    plan: Plan,
    inventory: Inventory,
    own: Own = NO_OWN,
    repeated: Repeated | None = None,
    parallel: int = 1,
    stored: Sequence[RunRow] | None = None,
) -> Ahead:
    """What is stored and left of a plan on this machine; what this machine refuses takes no time.

    `own` are the runs that it has made itself, `repeated` judges which were throttled too long to count, `parallel` is
    how many may go on at once. `stored` are all runs of the store, for who looks at many plans.
    """
    machine, stored = inventory.machine, store.list_runs() if stored is None else stored
    here = surroundings_here(inventory)
    counted = counted_here(store, plan, here, machine, repeated, own, fields=(), stored=stored)
    rows = [run.row for run in counted.runs]
    to_make, made = left(plan, rows, machine), done(plan, rows)
    possible = runnable(to_make, machine)
    alike = made_alike(stored, machine)
    return Ahead(
        planned=made + len(to_make),
        done=made,
        left_s=together_s(possible, alike, room_of(plan, machine, parallel)),
        learnt_from=learnt_from(possible, alike),
        of_others=not any(row.spec.workload == spec.workload for row in alike for spec in plan.variants),
        uncounted=counted.elsewhere,
        because=counted.because,
        brought=counted.brought,
        brought_with=counted.brought_with,
    )


def learnt_from(specs: Sequence[RunSpec], runs: Sequence[RunRow]) -> int:
    """How many runs tell how long these take: those of their workloads, else all."""
    ended = lasted(runs)
    workloads = {spec.workload for spec in specs}
    return len([row for row in ended if row.spec.workload in workloads] or ended)
