"""A run's passes over stored data as a table, with their totals, and what it waited for data."""

from typing import NamedTuple

from app.analysis.summary import waiting_pct
from app.records import StoredRun, Summary
from app.viewmodels import units
from workloads.protocol import Epoch

HEADER = ("", "accuracy", "loss", "s", "test s", "waiting")


class Totals(NamedTuple):
    """All passes together: seconds of training and of testing, the last accuracy and the best one, from 0 to 1."""

    seconds: float
    testing_seconds: float
    accuracy: float
    best_accuracy: float
    best_epoch: int


def seconds(epoch: Epoch) -> float:
    """How long an epoch trained."""
    return (epoch.end_ns - epoch.start_ns) / 1e9


def testing_seconds(epoch: Epoch) -> float:
    """How long testing took after it."""
    return (epoch.tested_ns - epoch.end_ns) / 1e9


def waiting(epoch: Epoch, summary: Summary) -> float | None:
    """What an epoch's steps waited for data, in percent of its training."""
    return waiting_pct(summary.ready_step_ms, epoch.steps, seconds(epoch))


def totals(run: StoredRun) -> Totals | None:
    """All epochs together; None for a run without any."""
    if not run.epochs:
        return None
    best = max(run.epochs, key=lambda epoch: epoch.accuracy)
    return Totals(
        seconds=sum(map(seconds, run.epochs)),
        testing_seconds=sum(map(testing_seconds, run.epochs)),
        accuracy=run.epochs[-1].accuracy,
        best_accuracy=best.accuracy,
        best_epoch=best.epoch,
    )


def total_words(run: StoredRun) -> str:
    """The same in one line; "" for a run without any."""
    found = totals(run)
    if found is None:
        return ""
    count = f"{len(run.epochs):,} {units.plural('epoch', len(run.epochs))}"
    training, testing = (units.with_unit(spent, "s", 1) for spent in (found.seconds, found.testing_seconds))
    best = f"best {accuracy(found.best_accuracy)} after epoch {found.best_epoch}"
    return f"{count} in {training} of training and {testing} of testing; accuracy {accuracy(found.accuracy)}, {best}"


def cells(run: StoredRun) -> tuple[tuple[str, ...], ...]:
    """A row an epoch, as `HEADER` names its cells."""
    return tuple(
        (
            str(epoch.epoch),
            accuracy(epoch.accuracy),
            units.number(epoch.loss),
            f"{seconds(epoch):,.2f}",
            f"{testing_seconds(epoch):,.2f}",
            units.percent(waiting(epoch, run.row.summary), 1),
        )
        for epoch in run.epochs
    )


def accuracy(share: float | None) -> str:
    """A share from 0 to 1 as `91.27 %`."""
    return units.percent(None if share is None else 100 * share, 2)
