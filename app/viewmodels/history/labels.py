"""The texts around the list of runs: buttons, counts, the database's size, questions before pruning; tags and notes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from app.queries import FREE_TEXT, RUN_ORDERS, FacetCounts, RunQuery, SearchResult, StoredExperiment, parse_search
from app.storage.retention import Pruned
from app.values import units
from app.values.plain import one_line
from app.values.records import RunRow
from app.viewmodels.charts.palette import MAX_COMPARED
from app.viewmodels.format.cells import OUTCOMES, THIS_MACHINE
from app.viewmodels.format.naming import gpus_label, short_gpu_name
from app.viewmodels.history.table import Listing, is_filtered
from workloads.catalog import FRAMEWORKS, WORKLOADS

_SEARCH_LETTERS = 40
"""The most characters of a search to repeat if nothing matches it."""
_COLUMNS: Mapping[str, str] = {"tag": "tags", "note": "tags", "card": "devices"}
"""The columns that show a field of a search, if their names differ."""


def compare_label(chosen: int) -> str:
    if chosen > MAX_COMPARED:
        return f"Compare (at most {MAX_COMPARED})"
    return f"Compare {chosen} runs" if chosen > 1 else "Compare"


def can_compare(chosen: int) -> bool:
    return 2 <= chosen <= MAX_COMPARED


def answer_hint(chosen: int, *, deleted: bool) -> str:
    """Return the text in the place of the answer to that many checked runs."""
    if deleted:
        return ""
    if chosen > MAX_COMPARED:
        return f"At most {MAX_COMPARED} runs are compared."
    return f"Comparing {chosen} runs …" if chosen > 1 else "Check two or more runs to see which is faster."


def restore_label(chosen: int) -> str:
    return f"Restore {format_run_count(chosen)}" if chosen else "Restore"


def count_label(listing: Listing, chosen: int, elsewhere: int) -> str:
    """Return the number of runs: "12 of 1,034 runs · 2 checked, 1 more out of sight"."""
    count, total = len(listing.runs), listing.options.totals.total
    noun = "deleted " if listing.query.deleted else ""
    total_text = f"{total:,} {noun}{units.plural('run', total)}"
    count_text = total_text if count == total else f"{count:,} of {total_text}"
    # Deleted runs are out of sight as well, but nobody looks for them.
    hidden = f", {elsewhere:,} more out of sight" if elsewhere and is_filtered(listing.query) else ""
    return f"{count_text} · {chosen:,} checked{hidden}" if chosen > 1 or hidden else count_text


def deleted_label(runs: Sequence[int]) -> str:
    return f"{f'Run {runs[0]}' if len(runs) == 1 else format_run_count(len(runs))} deleted"


def format_run_count(count: int) -> str:
    return f"{count:,} {units.plural('run', count)}"


def offers_reference(listing: Listing) -> bool:
    """Return whether an empty table offers the reference runs: only if there are no runs."""
    return not listing.options.totals.total and not listing.query.deleted


def empty_text(listing: Listing) -> str:
    """Return the text of an empty table, with the heading as its first line; "" if there are runs."""
    if listing.runs:
        return ""
    if is_filtered(listing.query) and listing.options.totals.total:
        return _no_match_text(listing.query)
    if listing.query.deleted:
        return "Nothing is deleted\nRuns you delete come here and can be restored. Press Escape to see all runs."
    return (
        "No runs yet\nPress Ctrl+1 and start one; it appears here immediately. "
        "To add the runs of another database, use View, Import runs.\n"
        "Until then, look at runs measured on real GPUs: copies are added, tagged reference, "
        "and View removes them again."
    )


def _no_match_text(query: RunQuery) -> str:
    """Return the text if no run matches: what was searched, and each way back."""
    searched = one_line(query.text, _SEARCH_LETTERS)
    deleted = "deleted " if query.deleted else ""
    sought = [f"“{searched}”"] if searched else []
    ways = ["change the search"] if searched else []
    if query.selected:
        sought.append("these filters")
        ways.append("untick values under Filter by")
    return (
        f"No {deleted}run matches {' and '.join(sought)}\n"
        f"{units.sentence(', '.join([*ways, f'or press Escape to show all {deleted}runs']))}"
    )


RETENTION_CHOICES: tuple[int | None, ...] = (None, 7, 30, 90, 365)
"""Choices of days to keep samples; None means forever."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLine:
    """The database's size, the free space on its disk and its retention; `note` is what was deleted last."""

    path: Path
    size_bytes: int
    free_bytes: int | None
    retention_days: int | None
    note: str = ""

    @property
    def text(self) -> str:
        """Return the line: `profiles.db · 12.4 MiB · 212 GiB free on disk · keep samples of the last 30 days`."""
        free = "" if self.free_bytes is None else f"{units.byte_size(self.free_bytes)} free on disk"
        stored = "" if self.retention_days is None else retention_label(self.retention_days).lower()
        return " · ".join(filter(None, (self.path.name, units.byte_size(self.size_bytes), free, stored, self.note)))


def retention_label(days: int | None) -> str:
    if days is None:
        return "Keep all samples"
    return "Keep samples of the last year" if days == 365 else f"Keep samples of the last {days} days"


def prune_question(pruning: Pruned, days: int) -> str:
    runs = f"{len(pruning.runs):,} {units.plural('run', len(pruning.runs))}"
    return f"Delete the samples and logs of {runs} that ended more than {days} days ago?"


def prune_consequence(pruning: Pruned) -> str:
    seconds = max(1.0, pruning.before_bytes / 100e6)
    return (
        f"{pruning.rows:,} samples and log lines would be deleted; figures, phases and blocks stay. "
        f"Compacting the file takes about {units.duration(seconds)} for this database."
    )


def prune_result(pruned: Pruned) -> str:
    freed = max(0, pruned.before_bytes - pruned.after_bytes)
    return f"{units.byte_size(freed)} given back in {units.seconds(pruned.seconds)}" if pruned.runs else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """Tags and notes of chosen runs. `tags` has every tag there is: whether all of them have it, None if only some.

    `note` is what all of them say, None if they differ.
    """

    runs: tuple[int, ...]
    tags: dict[str, bool | None]
    note: str | None

    @property
    def runs_label(self) -> str:
        return runs_label(self.runs)


def runs_label(runs: Sequence[int]) -> str:
    """Return runs in words: `run 12`, `3 runs`."""
    return f"run {runs[0]}" if len(runs) == 1 else format_run_count(len(runs))


def collect_annotations(rows: Sequence[RunRow], known_tags: Iterable[str]) -> Annotations:
    having = {tag: sum(tag in row.tags for row in rows) for tag in known_tags}
    notes = {row.note for row in rows}
    return Annotations(
        runs=tuple(row.run for row in rows),
        tags={tag: count == len(rows) if count in (0, len(rows)) else None for tag, count in having.items()},
        note=notes.pop() if len(notes) == 1 else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TagChange:
    """Tags to add to some runs, and tags to remove."""

    runs: tuple[int, ...]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def parse_tags(text: str) -> tuple[str, ...]:
    """Return the comma-separated tags of a text, each once regardless of case."""
    tags: dict[str, str] = {}
    for word in filter(None, map(str.strip, text.split(","))):
        tags.setdefault(word.lower(), word)
    return tuple(tags.values())


def marked_terms(text: str) -> dict[str, tuple[str, ...]]:
    """Return the words of a search to highlight, by the column's order; "" is every column."""
    terms: dict[str, tuple[str, ...]] = {}
    for word in parse_search(text):
        if word.text:
            column = _COLUMNS.get(word.field, word.field if word.field in RUN_ORDERS else "")
            terms[column] = (*terms.get(column, ()), word.text.lower())
    return terms


def describe_left_out(matches: SearchResult) -> str:
    """Return how many more runs a wider search finds: `148 more in notes`; "" without any."""
    if not matches.left_out:
        return ""
    named = [name for name in FREE_TEXT if f"{name}:" in matches.wider]
    return f"{matches.left_out:,} more in {' and '.join(f'{name}s' for name in sorted(named))}"


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
"""Facets for which a run may have no value, so that even a single value leaves a choice."""
OPEN_AT_FIRST = ("workload", "framework", "implementation", "outcome", "day")
"""Facets whose values are visible until the user folds them."""


class FacetValue(NamedTuple):
    """One value of a facet: the queried value, its text, how many `runs` have it, and whether it is chosen."""

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
    """Return the facets that leave a choice: those with several values, or with a chosen one."""
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
    others = [other for other in query.selected.get(name, ()) if other != value]
    selected = {**query.selected, name: (*others, value) if chosen else tuple(others)}
    return with_choice(query, {name: values for name, values in selected.items() if values})


def with_choice(query: RunQuery, selected: Mapping[str, tuple[str, ...]]) -> RunQuery:
    return replace(query, workload="", outcome="", tag="", experiment=None, chosen=dict(selected))


def _ordered(name: str, counts: Mapping[str, int]) -> Sequence[str]:
    """Return a facet's values: numbers in ascending order, dates and experiments newest first, others by count."""
    if name in _NUMBERS:
        return sorted(counts, key=lambda value: float(value) if value.isdecimal() else -1.0)
    if name in _NEWEST_FIRST:
        return sorted(counts, key=lambda value: (len(value) * (name == "experiment"), value), reverse=True)
    return sorted(counts, key=lambda value: (-counts[value], value.lower()))


def _label(name: str, value: str, experiments: Mapping[str, str]) -> str:
    """Return a value as users know it; an unknown one unchanged."""
    labellers: Mapping[str, Callable[[str], str]] = {
        "gpus": lambda count: gpus_label(int(count)) if count.isdecimal() else count,
        "xla": lambda xla: {"1": "on", "0": "off"}.get(xla, xla),
        "card": short_gpu_name,
        "host": lambda host: host or THIS_MACHINE,
        "framework": lambda key: FRAMEWORKS[key].name if key in FRAMEWORKS else key or "unknown",
        "outcome": lambda ended: f"{OUTCOMES[ended].symbol}  {OUTCOMES[ended].word}" if ended in OUTCOMES else ended,
        "experiment": lambda number: experiments.get(number, number),
    }
    if name in labellers:
        return labellers[name](value)
    # A value's label comes from the first workload with the parameter.
    parameters = (parameter for workload in WORKLOADS for parameter in workload.parameters if parameter.name == name)
    choices = (choice for parameter in parameters for choice in parameter.choices)
    return next((choice.label for choice in choices if choice.value == value), value)
