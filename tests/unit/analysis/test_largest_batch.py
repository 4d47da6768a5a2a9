"""The search for the largest batch: every size that could be the answer is found, in few tries."""

import math

import pytest

from app.analysis.largest_batch import BatchSearch, BatchTrial, SearchBounds, search_bounds, trial_spec
from app.viewmodels.run.form import describe_largest_batch
from workloads.catalog import Gpu, Machine, UsageError, complete
from workloads.protocol import RunSpec, Value

THREE = Machine(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name="H200") for n in range(3)), cpu_count=8)


def searched(memory: int, bounds: SearchBounds) -> BatchSearch:
    """The search at its end, on a machine where batches up to `memory` fit."""
    search = BatchSearch(bounds)
    while (batch := search.next_batch_size()) is not None:
        search.record(BatchTrial(1 + len(search.tries), batch, "completed" if batch <= memory else "out_of_memory"))
    return search


def spec_of(**given: Value) -> RunSpec:
    return complete("cnn10", given, THREE)


@pytest.mark.parametrize("step", [1, 3, 8])
def test_whatever_fits_is_found_to_the_step(step: int) -> None:
    bounds = SearchBounds(start=24, limit=400, step=step)
    for memory in range(step, 399):
        found = searched(memory, bounds).result()
        assert found.ending == "found"
        assert found.fits is not None
        assert found.fails is not None
        assert found.fits <= memory < found.fails
        assert found.fails - found.fits <= 2 * step, "one step, and what the limit or the start is off a multiple"
        assert len(found.tries) <= 2 * math.log2(400)
        assert len({one.batch_size for one in found.tries}) == len(found.tries), "nothing is tried twice"


def test_it_doubles_first_and_ends_at_the_limit() -> None:
    bounds = SearchBounds(start=100, limit=500, step=10)
    search = searched(10_000, bounds)
    assert [one.batch_size for one in search.tries] == [100, 200, 400, 500]
    assert search.result().ending == "limit"
    assert describe_largest_batch(search.result()) == "A batch of 500, the limit, still fits (4 tries)."


def test_where_nothing_fits_it_says_so() -> None:
    found = searched(0, SearchBounds(start=64, limit=500, step=8)).result()
    assert (found.ending, found.fits, found.fails) == ("none fits", None, 8)
    assert describe_largest_batch(found) == "No batch fits: memory runs out at 8 too (4 tries)."


def test_what_fails_otherwise_does_not_fit_either_once_something_did() -> None:
    search = BatchSearch(SearchBounds(start=64, limit=500, step=32))
    assert not BatchSearch(search.bounds).record(BatchTrial(1, 64, "failed"), "Too many elements.")
    assert search.record(BatchTrial(1, 64, "completed"))
    assert search.record(BatchTrial(2, 128, "failed"), "Too many elements.")
    assert search.record(BatchTrial(3, 96, "completed"))
    assert search.next_batch_size() is None
    words = describe_largest_batch(search.result())
    assert words == "The largest batch that runs is 96; 128 fails (3 tries). Too many elements."
    assert not search.record(BatchTrial(4, 97, "refused"), "Not here.")


def test_bounds_keep_to_the_gpus() -> None:
    bounds = search_bounds(spec_of(gpus=3, batch_size=120), limit=1000)
    assert bounds == SearchBounds(start=120, limit=999, step=15)
    assert search_bounds(spec_of(gpus=3, batch_size=120), step=1).step == 3
    assert {one.batch_size % 3 for one in searched(500, bounds).tries} == {0}


def test_on_the_cpu_it_wants_a_limit() -> None:
    on_cpu = spec_of(gpus=0, batch_size=32)
    with pytest.raises(UsageError, match="--batch-limit"):
        search_bounds(on_cpu)
    assert search_bounds(on_cpu, limit=64).limit == 64
    with pytest.raises(UsageError, match="below the batch size to begin with"):
        search_bounds(on_cpu, limit=16)


def test_a_try_is_short_and_otherwise_the_variant() -> None:
    spec = spec_of(gpus=1, xla=True, seconds=60.0)
    tried = trial_spec(spec, 4096)
    changed = {name for name, value in tried.variant.items() if value != spec.variant[name]}
    assert changed == {"batch_size", "steps", "warmup_steps", "evidence"}
    assert tried.variant["batch_size"] == 4096


def test_what_ended_early_tells_what_is_known() -> None:
    search = BatchSearch(SearchBounds(start=64, limit=500, step=8))
    search.record(BatchTrial(1, 64, "completed"))
    assert describe_largest_batch(search.result("stopped")) == "The search was stopped. So far: 64 fits."
    words = describe_largest_batch(search.result("broken off", "the worker died"))
    assert words == "The search ended early: The worker died. So far: 64 fits."
    assert "No size has been tried yet" in describe_largest_batch(
        BatchSearch(SearchBounds(start=1, limit=1, step=1)).result("stopped")
    )
