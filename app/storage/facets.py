"""Narrow runs down by facets, and count what each value of a facet would leave."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlite_utils import Database

from app.queries import FACETS, FacetCounts, RunQuery
from app.storage.search import Matches, match_runs

RUNNING = "running"
"""The outcome that a query gives for a run without one."""

_DAY = "date(started_utc_ns / 1000000000, 'unixepoch', 'localtime')"
_MONTH_LETTERS = len("2026-11")
_MOST_DAYS = 12
"""With more days than this, runs are counted by month."""

_VARIANT = ("implementation", "layout", "precision", "batch_size", "gpus", "xla")
_OF_RUN: Mapping[str, str] = {
    "workload": "workload",
    **{name: f"CAST({name} AS TEXT)" for name in _VARIANT},
    "card": (
        "coalesce((SELECT name FROM devices WHERE devices.run = runs.run AND kind = 'gpu' LIMIT 1),"
        " iif(gpus = 0, 'CPU', 'GPU'))"
    ),
    "host": "coalesce(host, '')",
    "outcome": f"coalesce(outcome, '{RUNNING}')",
}
"""SQL of a run's value, of the facets of which it has one."""
_OF_MANY: Mapping[str, tuple[str, str]] = {
    "tag": ("tags", "tag"),
    "experiment": ("experiment_runs", "CAST(experiment AS TEXT)"),
}
"""Table and SQL of the values of a run, of the facets of which it may have several."""

assert set(FACETS) == {*_OF_RUN, *_OF_MANY, "day"}, "every facet is known"

Conditions = tuple[list[str], list[Any]]
"""SQL conditions on `runs`, and the values of their placeholders."""


def utf8_safe(text: str) -> str:
    """Return the text with question marks for what UTF-8 cannot encode: lone surrogates, which a terminal may give."""
    return text.encode(errors="replace").decode()


def query_conditions(query: RunQuery, without: Collection[str] = ()) -> Conditions:
    """Return the conditions of a query apart from its search; `without` some of its facets."""
    conditions = [f"deleted_utc_ns IS {'NOT ' if query.deleted else ''}NULL"]
    values: list[Any] = []
    for name, chosen in query.selected.items():
        if name not in without and chosen:
            conditions.append(_condition(name, ", ".join("?" * len(chosen))))
            values += [utf8_safe(value) for value in chosen] * (2 if name == "day" else 1)
    return conditions, values


def _condition(name: str, markers: str) -> str:
    if name == "day":
        return f"({_DAY} IN ({markers}) OR substr({_DAY}, 1, {_MONTH_LETTERS}) IN ({markers}))"
    if name in _OF_MANY:
        table, value = _OF_MANY[name]
        return f"run IN (SELECT run FROM {table} WHERE {value} IN ({markers}))"
    return f"{_OF_RUN[name]} IN ({markers})"


def count_facets(db: Database, query: RunQuery) -> FacetCounts:
    """Count the runs of each value of each facet among those that match the rest of a query."""
    counts: dict[str, Mapping[str, int]] = {}
    found = match_runs(db, utf8_safe(query.text), *query_conditions(query, FACETS))
    conditions, values = _narrowed(query, _OF_RUN, found)
    sql = f"SELECT {', '.join(_OF_RUN.values())}, count(*) FROM runs WHERE {' AND '.join(conditions)}"
    groups = db.execute(f"{sql} GROUP BY {', '.join(str(n) for n in range(1, len(_OF_RUN) + 1))}", values).fetchall()
    counts |= _count_groups(groups, query.selected)
    conditions, values = _narrowed(query, ("day",), found)
    days = db.execute(
        f"SELECT {_DAY}, count(*) FROM runs WHERE {' AND '.join(conditions)} GROUP BY 1", values
    ).fetchall()
    counts["day"] = _by_month(days) if len(days) > _MOST_DAYS else dict(days)
    for name, (table, value) in _OF_MANY.items():
        conditions, values = _narrowed(query, (name,), found)
        narrowed = f"SELECT run FROM runs WHERE {' AND '.join(conditions)}"
        sql = f"SELECT {value}, count(*) FROM {table} WHERE run IN ({narrowed}) GROUP BY 1"
        counts[name] = dict(db.execute(sql, values).fetchall())
    return {name: counts[name] for name in FACETS}


def _narrowed(query: RunQuery, without: Collection[str], found: Matches | None) -> Conditions:
    """Return the conditions of a query, its search included; `without` some of its facets."""
    conditions, values = query_conditions(query, without)
    if found is not None:
        conditions.append("run IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(found.fields)))
    return conditions, values


def _count_groups(groups: Sequence[Sequence[Any]], selected: Mapping[str, tuple[str, ...]]) -> dict[str, Counter[str]]:
    """Count the values in groups of runs; a facet's own choice does not narrow it.

    Args:
        groups: Rows of the value of each facet, and the number of runs.
        selected: What is chosen by facet.
    """
    counts: dict[str, Counter[str]] = {name: Counter() for name in _OF_RUN}
    for *found, count in groups:
        outside = [
            name
            for name, value in zip(_OF_RUN, found, strict=True)
            if selected.get(name) and value not in selected[name]
        ]
        for name, value in zip(_OF_RUN, found, strict=True):
            if value is not None and outside in ([], [name]):
                counts[name][value] += count
    return counts


def _by_month(days: Sequence[tuple[str, int]]) -> Counter[str]:
    months: Counter[str] = Counter()
    for day, count in days:
        months[day[:_MONTH_LETTERS]] += count
    return months
