"""Suggestions of what to compare, shown while no comparison is open."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from app.analysis.verdict import group_by_variant, throughputs
from app.queries import Question, StoredExperiment
from app.values import units
from app.values.records import RunRow
from app.viewmodels.experiment.preview import reference_label
from app.viewmodels.format.naming import variant_names
from app.viewmodels.history.labels import format_run_count

OfferAction = Literal["compare", "add", "build"]
"""Compare runs, add the reference runs, or build an experiment."""

_MOST_CHOICES = 25
"""A longer menu would not fit on a small screen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One possible next step; `runs` are the runs to compare, in order; `asked` None means their experiment's."""

    action: OfferAction
    title: str
    detail: str
    runs: tuple[int, ...] = ()
    question: Question | None = None


def compare_offers(
    latest: Sequence[RunRow],
    experiments: Sequence[StoredExperiment],
    reference: Collection[int],
    questions: Sequence[tuple[str, Sequence[RunRow], Question]],
) -> tuple[Offer, ...]:
    """Return what can be compared: offers of the user's runs first, then of the reference runs.

    Runs and experiments are newest first; `questions` are titles with the reference runs that answer them and the
    question itself.
    """
    user_offers = [*_last_variants(latest), *_last_experiment(experiments, reference)]
    return (
        *user_offers,
        *_reference_offers(questions),
        *(() if user_offers else (_BUILD,)),
        *(() if reference else (_ADD,)),
    )


def experiment_choices(experiments: Sequence[StoredExperiment]) -> tuple[tuple[int, str], ...]:
    """Return the newest experiments to choose from: number and label."""
    return tuple(
        (stored.experiment, f"{stored.experiment}  {stored.name} · {format_run_count(len(stored.runs))}")
        for stored in experiments[:_MOST_CHOICES]
    )


_BUILD = Offer(
    action="build",
    title="Your own experiment",
    detail="A prepared one adapted to this machine, or any combination of values",
)
_ADD = Offer(
    action="add",
    title="Runs measured on real GPUs",
    detail="Prepared questions, answered on NVIDIA H200, as copies tagged reference next to your own runs",
)


def _last_variants(latest: Sequence[RunRow]) -> Iterator[Offer]:
    """Yield the two variants of one workload that ran last, each by its last run with measurements."""
    measured = [row for row in latest if throughputs([row])]
    for workload in dict.fromkeys(row.spec.workload for row in measured):
        groups = group_by_variant([row for row in measured if row.spec.workload == workload])
        if len(groups) > 1:
            later, earlier = groups[0][0], groups[1][0]
            earlier_name, later_name = variant_names([earlier.spec, later.spec])
            yield Offer(
                action="compare",
                title="The last two variants",
                detail=f"{workload} · {earlier_name} (run {earlier.run}) and {later_name} (run {later.run})",
                runs=(earlier.run, later.run),
            )
            return


def _last_experiment(experiments: Sequence[StoredExperiment], reference: Collection[int]) -> Iterator[Offer]:
    for last in (last for last in experiments if len(last.runs) > 1 and last.runs[0] not in reference):
        yield Offer(
            action="compare",
            title="The last experiment",
            detail=f"{last.name} · {format_run_count(len(last.runs))} · {units.local_time(last.created_utc_ns)}",
            runs=last.runs,
        )
        return


def _reference_offers(questions: Sequence[tuple[str, Sequence[RunRow], Question]]) -> Iterator[Offer]:
    for title, rows, question in questions:
        yield Offer(
            action="compare",
            title=title,
            detail=f"{reference_label(rows)} · {format_run_count(len(rows))}",
            runs=tuple(row.run for row in rows),
            question=question,
        )
