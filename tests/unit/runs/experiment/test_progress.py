"""What an experiment has before it, judged by a real database."""

from msgspec import structs

from app.queries import ExpectedResolution, ExperimentProgress
from app.runs.experiment.queue import enqueue, estimate_remaining
from app.runs.experiment.reuse import RECENT_S
from app.storage.store import Store
from app.values.plan import Plan
from tests.fakes.experiments import aged, environment_here, result
from tests.present import present
from tests.unit.viewmodels.events import GPU_INVENTORY
from tests.unit.viewmodels.stored import keep
from workloads.catalog import complete

MACHINE = GPU_INVENTORY.machine
NCHW, NHWC, THREE_GPUS = (
    complete("cnn10", {"gpus": gpus, "layout": layout, "seconds": 10, "batch_size": 96}, MACHINE)
    for gpus, layout in ((1, "NCHW"), (1, "NHWC"), (3, "NCHW"))
)
PLAN = Plan(name="layouts", variants=(NCHW, NHWC), repeats=2, reuse=True)
HERE = environment_here(GPU_INVENTORY)


def test_without_any_run_it_takes_what_is_measured_and_the_set_up_of_other_machines(store: Store) -> None:
    before = estimate_remaining(store, PLAN, GPU_INVENTORY)
    assert 40.0 < before.left.least_s < before.left.likely_s < before.left.most_s
    assert before == ExperimentProgress(
        planned=4,
        done=0,
        left=before.left,
        timing_runs=0,
        from_other_workloads=True,
        name="layouts",
        resolution=ExpectedResolution(repeats=2, estimate=None, of_other_variants=True),
    )


def test_what_it_can_show_is_judged_by_runs_that_count_else_by_others_of_the_workload(store: Store) -> None:
    for number, (driver, rate) in enumerate((("470.1", 100.0), ("470.1", 120.0), ("470.1", 140.0)), 1):
        keep(store, result(number, NCHW, rate, environment={**HERE, "driver": driver}))
    three = structs.replace(PLAN, repeats=3)
    found = present(estimate_remaining(store, three, GPU_INVENTORY).resolution)
    assert (found.noise_runs, found.of_other_variants) == (3, True)
    for number, rate in enumerate((1000.0, 1010.0, 990.0), 4):
        keep(store, result(number, NCHW, rate, environment=HERE))
    better = present(estimate_remaining(store, three, GPU_INVENTORY).resolution)
    assert (better.noise_runs, better.of_other_variants) == (3, False)
    assert present(better.estimate).half_width < present(found.estimate).half_width / 5
    alone = structs.replace(PLAN, variants=(NCHW,))
    assert estimate_remaining(store, alone, GPU_INVENTORY).resolution is None


def test_what_is_stored_counts_and_tells_how_long_the_rest_takes(store: Store) -> None:
    keep(store, result(1, NCHW, seconds=30.0, environment=HERE))
    ahead = estimate_remaining(store, PLAN, GPU_INVENTORY)
    assert (ahead.planned, ahead.done, ahead.timing_runs, ahead.from_other_workloads) == (4, 1, 1, False)
    assert ahead.left.least_s > 3 * 10.0, "what a run takes beside measuring is known now"
    again = estimate_remaining(store, structs.replace(PLAN, again=True), GPU_INVENTORY)
    assert (again.planned, again.done) == (4, 0)
    assert again.left.likely_s > ahead.left.likely_s


def test_an_estimate_counts_what_the_unfinished_entry_of_the_same_plan_has_made(store: Store) -> None:
    plan = structs.replace(PLAN, reuse=False)
    run = keep(store, aged(result(1, NCHW, environment=HERE), 2 * RECENT_S))
    keep(store, aged(result(2, NCHW, environment=HERE), 2 * RECENT_S))
    ahead = estimate_remaining(store, plan, GPU_INVENTORY)
    assert (ahead.done, len(ahead.counted_utc_ns), len(ahead.older_utc_ns)) == (0, 0, 2)
    entry, _ = enqueue(store, plan)
    store.queue.add_runs(entry.entry, [run])
    ahead = estimate_remaining(store, plan, GPU_INVENTORY)
    assert (ahead.done, len(ahead.counted_utc_ns), len(ahead.older_utc_ns)) == (1, 1, 1)


def test_runs_of_another_driver_are_named_and_only_tell_the_time(store: Store) -> None:
    keep(store, result(1, NCHW, seconds=30.0, environment={**HERE, "driver": "470.1"}))
    ahead = estimate_remaining(store, PLAN, GPU_INVENTORY)
    assert (ahead.done, ahead.excluded, ahead.excluded_due_to, ahead.timing_runs) == (0, 1, ("driver",), 1)


def test_what_is_refused_here_takes_no_time(store: Store) -> None:
    plan = structs.replace(PLAN, variants=(NCHW, THREE_GPUS))
    ahead = estimate_remaining(store, plan, GPU_INVENTORY)
    assert ahead.planned == 3
    assert ahead.left == estimate_remaining(store, structs.replace(PLAN, variants=(NCHW,)), GPU_INVENTORY).left
