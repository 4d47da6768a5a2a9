"""Finding the largest batch with real workers: the dummy, which runs out of memory above a batch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.analysis.largest_batch import search_bounds
from app.runs.probes import PURPOSE, LargestBatchSession
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from tests.fakes.command_line import CommandLine, dummy_arguments
from tests.fakes.sessions import dummy, services, started_feed


@pytest.fixture(scope="module")
def feed() -> Iterator[TelemetryFeed]:
    with started_feed() as made:
        yield made


def test_each_try_is_a_run_that_is_stored_as_one(tmp_path: Path, feed: TelemetryFeed) -> None:
    spec = dummy(feed.wait_inventory(), "out_of_memory", batch_size=8, fitting_batch_size=21)
    used = services(tmp_path, feed)
    found = LargestBatchSession(spec, search_bounds(spec, 64, 4), used, lambda *_: ()).run()
    assert (found.ending, found.fits, found.fails) == ("found", 20, 24)
    assert [(one.batch_size, one.outcome) for one in found.tries] == [
        (8, "completed"), (16, "completed"), (32, "out_of_memory"), (24, "out_of_memory"), (20, "completed"),
    ]  # fmt: skip
    with Store.open(used.database) as store:
        rows = {row.run: row for row in store.list_runs()}
        reason = store.load(found.tries[2].run).row.outcome
    assert [rows[one.run].spec.variant["batch_size"] for one in found.tries] == [8, 16, 32, 24, 20]
    assert {row.purpose for row in rows.values()} == {PURPOSE}
    assert reason is not None
    assert (reason.reason or "").startswith(
        "Memory ran out at batch size 32; try a smaller batch size. This machine has"
    )


def test_any_other_end_of_a_try_ends_the_search(tmp_path: Path, feed: TelemetryFeed) -> None:
    spec = dummy(feed.wait_inventory(), "fail")
    found = LargestBatchSession(spec, search_bounds(spec, 64), services(tmp_path, feed), lambda *_: ()).run()
    assert (found.ending, found.reason) == ("broken off", "ValueError: the dummy fails, as asked")


def test_the_command_line_prints_the_answer(tmp_path: Path) -> None:
    line = CommandLine(tmp_path)
    words = dummy_arguments(behaviour="out_of_memory", batch_size=4, fitting_batch_size=9)
    document = line.read("run", *words, "--largest-batch", "--batch-limit", "100", "--batch-step", "4")
    assert (document["largest_batch"], document["smallest_that_does_not_fit"], document["ending"]) == (8, 12, "found")
    assert document["text"] == "The largest batch that fits is 8; 12 does not fit (4 tries)."
    assert [one["run"] for one in document["tries"]] == [1, 2, 3, 4]
    assert "a try for the largest batch" in line.inside("list").stdout
    refused = line.inside("run", *words, "--largest-batch")
    assert (refused.returncode, "--batch-limit" in refused.stderr) == (2, True)
