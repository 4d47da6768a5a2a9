"""The facets beside the list of runs: what there is to narrow it down by, with the number of runs of each value."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from app import units
from app.queries import FacetCounts, RunQuery, StoredExperiment
from app.viewmodels.format.cells import OUTCOMES, THIS_MACHINE
from app.viewmodels.format.naming import gpus_label, short_gpu_name
from workloads.catalog import WORKLOADS

_TITLES: Mapping[str, str] = {
    "workload": "Workload",
    "framework": "Framework",
    "implementation": "Implementation",
    "layout": "Layout",
    "precision": "Precision",
    "batch_size": "Batch size",
    "gpus": "GPUs",
    "xla": "XLA",
    "card": "Card",
    "host": "Host",
    "outcome": "Outcome",
    "day": "Date",
    "tag": "Tag",
    "experiment": "Experiment",
}
_NUMBERS = ("batch_size", "gpus")
_NEWEST_FIRST = ("day", "experiment")
_NOT_OF_ALL = ("tag", "experiment")
"""Facets of which a run may have no value, so that a single one leaves a choice too."""
OPEN_AT_FIRST = ("workload", "framework", "implementation", "outcome", "day")
"""Facets whose values show until the user folds them."""


class FacetValue(NamedTuple):
    """One value of a facet: what is queried, what is shown, how many `runs` have it, and whether it is chosen."""

    value: str
    label: str
    runs: int
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FacetGroup:
    """A facet with its values."""

    name: str
    title: str
    values: tuple[FacetValue, ...]


def facet_groups(
    counts: FacetCounts, query: RunQuery, experiments: Iterable[StoredExperiment]
) -> tuple[FacetGroup, ...]:
    """Return the facets that leave a choice: those with several values, and those of which one is chosen."""
    names = {
        str(stored.experiment): f"{stored.name} · {units.local_time(stored.created_utc_ns)}" for stored in experiments
    }
    groups = []
    for name, title in _TITLES.items():
        chosen = query.selected.get(name, ())
        totals = {**dict.fromkeys(chosen, 0), **counts.get(name, {})}
        if len(totals) > 1 or chosen or (totals and name in _NOT_OF_ALL):
            values = (FacetValue(v, _label(name, v, names), totals[v], v in chosen) for v in _ordered(name, totals))
            groups.append(FacetGroup(name=name, title=title, values=tuple(values)))
    return tuple(groups)


def choose(query: RunQuery, name: str, value: str, *, chosen: bool) -> RunQuery:
    """Return the query with a value of a facet chosen or not."""
    others = [other for other in query.selected.get(name, ()) if other != value]
    selected = {**query.selected, name: (*others, value) if chosen else tuple(others)}
    return with_choice(query, {name: values for name, values in selected.items() if values})


def with_choice(query: RunQuery, selected: Mapping[str, tuple[str, ...]]) -> RunQuery:
    """Return the query with just these values chosen."""
    return replace(query, workload="", outcome="", tag="", experiment=None, chosen=dict(selected))


def _ordered(name: str, counts: Mapping[str, int]) -> Sequence[str]:
    """Return the values of a facet: numbers from the lowest, dates and experiments from the newest, else by count."""
    if name in _NUMBERS:
        return sorted(counts, key=lambda value: float(value) if value.isdecimal() else -1.0)
    if name in _NEWEST_FIRST:
        return sorted(counts, key=lambda value: (len(value) * (name == "experiment"), value), reverse=True)
    return sorted(counts, key=lambda value: (-counts[value], value.lower()))


def _label(name: str, value: str, experiments: Mapping[str, str]) -> str:
    """Return a value as a reader knows it; one that nothing is known of as it is."""
    labellers: Mapping[str, Callable[[str], str]] = {
        "gpus": lambda count: gpus_label(int(count)) if count.isdecimal() else count,
        "xla": lambda xla: {"1": "on", "0": "off"}.get(xla, xla),
        "card": short_gpu_name,
        "host": lambda host: host or THIS_MACHINE,
        "outcome": lambda ended: f"{OUTCOMES[ended].symbol}  {OUTCOMES[ended].word}" if ended in OUTCOMES else ended,
        "experiment": lambda number: experiments.get(number, number),
    }
    return labellers[name](value) if name in labellers else _choice_label(name, value)


def _choice_label(name: str, value: str) -> str:
    """Return the label of a parameter's value, of the first workload that has it."""
    parameters = (parameter for workload in WORKLOADS for parameter in workload.parameters if parameter.name == name)
    choices = (choice for parameter in parameters for choice in parameter.choices)
    return next((choice.label for choice in choices if choice.value == value), value)
