"""Finds the runs that match a query, and loads them as rows of a list."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from sqlite_utils import Database

from app.errors import UserError
from app.metrics import METRICS
from app.paths import PROGRAM
from app.queries import (
    FACETS,
    FREE_TEXT,
    RUN_ORDERS,
    SEARCH_FIELDS,
    Common,
    FacetCounts,
    RunQuery,
    SearchResult,
    SearchWord,
    Totals,
    parse_search,
)
from app.storage import rows
from app.values.records import RunRow
from workloads.catalog import SHORT_FOR, WORKLOADS

MAX_SEARCH_TERMS = 50
"""Search terms per query: SQLite takes a few hundred conditions, and nobody types that many."""

_NUMBER = "run"
"""The field of a word that is the run's number."""
_SHORTEST_LABEL = 3
"""The least letters of a word that is searched in the labels of choices: many contain shorter ones."""
_IS_NUMBER, _NOTE_TOO = 1000, 100
"""Added to a code of markers if the word is the run's number, or if a note also has it."""


@dataclass(frozen=True, slots=True)
class Matches:
    """The result of a search.

    Attributes:
        fields: By run, the field in which each word was found, "run" for its number.
        ranks: By run, how far its fields are from the best ones, 0 being the best.
        left_out: How many runs hold the words only in free text that does not count.
        wider: The search that finds these runs.
    """

    fields: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    ranks: Mapping[int, int] = field(default_factory=dict)
    left_out: int = 0
    wider: str = ""


class _Group(NamedTuple):
    """Runs whose words were found in the same markers, with a code for each word."""

    codes: list[int]
    runs: list[int]


def match_runs(db: Database, text: str, conditions: Sequence[str], values: Sequence[Any]) -> Matches | None:
    """Return the runs that hold every word of a search; None for a search without words.

    A plain word may be in any field. In a note or a reason it counts only if no earlier field holds it in any of these
    runs: a search for an implementation does not mean a note that names a library's version.

    The conditions are SQL on `runs` that narrows the search; `values` are for its placeholders.

    Raises:
        UserError: The search has too many words.
    """
    words = parse_search(text)
    if len(words) > MAX_SEARCH_TERMS:
        raise UserError(f"A search takes up to {MAX_SEARCH_TERMS} words; this one has {len(words):,}.")
    if not words:
        return None
    return _matches(words, _groups(db, words, conditions, values))


def _groups(
    db: Database, words: Sequence[SearchWord], conditions: Sequence[str], values: Sequence[Any]
) -> list[_Group]:
    codes: list[str] = []
    clauses: list[str] = []
    spellings: list[str] = []
    for word in words:
        spelled = tuple(dict.fromkeys((*_spellings(word.text), *_values(word.text)))) if word.text else ()
        tests = [_test(spelling, spellings) for spelling in spelled]
        digits = word.text.removeprefix("#")
        number = int(digits) if not word.field and digits.isascii() and digits.isdecimal() and len(digits) < 19 else 0
        codes.append(f"{_IS_NUMBER} * (run = {number}) + {_code(word.field, tests)}")
        clauses.append(f"({_holds(word.field or 'words', tests)} OR run = {number})")
    names = ", ".join(f"c{n}" for n in range(len(words)))
    # Each is used several times, and numbered placeholders cause a warning in the first releases of Python 3.12.
    spelt = ", ".join(f"? AS s{n}" for n in range(len(spellings))) or "NULL"
    sql = f"""
        WITH narrowed AS (SELECT run FROM runs WHERE {" AND ".join(conditions)}), found AS MATERIALIZED (
            SELECT run, {", ".join(f"{code} AS c{n}" for n, code in enumerate(codes))}
            FROM (SELECT {spelt}) CROSS JOIN run_words WHERE {" AND ".join(clauses)} AND run IN narrowed
        ) SELECT json_array({names}), json_group_array(run) FROM found GROUP BY {names}
    """
    read = db.execute(sql, [*values, *spellings]).fetchall()
    return [_Group(json.loads(codes), msgspec.json.decode(runs, type=list[int])) for codes, runs in read]


def _code(field: str, spelled: Sequence[str]) -> str:
    """Return SQL of the position, from 1, of the best field that holds a word; for a note also of the next best.

    It stops at the first field: searching all of them takes twice as long.
    """
    if field:
        return str(SEARCH_FIELDS.index(field) + 1)
    tests = [f"WHEN {_holds(name, spelled)} THEN {n}" for n, name in enumerate(SEARCH_FIELDS, 1)]
    note = SEARCH_FIELDS.index("note")
    after = f"CASE {' '.join(tests[note + 1 :])} ELSE 0 END"
    tests[note] = f"WHEN {_holds('note', spelled)} THEN {_NOTE_TOO} + {after}"
    return f"CASE {' '.join(tests)} ELSE 0 END"


def _named_fields(code: int) -> tuple[str, ...]:
    number, flags = divmod(code, _IS_NUMBER)
    note, position = divmod(flags, _NOTE_TOO)
    return (*([_NUMBER] * number), *(["note"] * note), *([SEARCH_FIELDS[position - 1]] if position else []))


def _holds(name: str, tests: Sequence[str]) -> str:
    """Return SQL that is 1 if a field holds a spelling of a word; without a word, if the field is not empty."""
    return f"({' OR '.join(test.format(name) for test in tests) or f'{name} > {chr(39) * 2}'})"


def _test(spelling: str, values: list[str]) -> str:
    """Return SQL of whether a field holds a spelling, and add its values; `1` and `size=1` are not in `size=128`."""
    values.append(spelling)
    test = f"instr({{0}}, s{len(values) - 1}) > 0"
    if not (number := re.fullmatch("([a-z_]+=)?[0-9.]+", spelling)):
        return test
    values.append(f"*{'' if number[1] else '[^0-9]'}{spelling}[^0-9]*")
    return f"({test} AND char(10) || {{0}} || char(10) GLOB s{len(values) - 1})"


def _spellings(term: str) -> Iterator[str]:
    """Yield a term as `run_words` may hold it, with only ASCII letters in lower case: Äpfel, ÄPFEL or äpfel."""
    for spelling in (term.lower(), term.upper(), term.capitalize()):
        yield "".join(letter.lower() if letter.isascii() else letter for letter in spelling)


def _values(term: str) -> Iterator[str]:
    """Yield the choices that a term means, as in `run_words`: `implementation=block_fused` for Block-fused.

    These are the choices whose label contains it, and the precision that it abbreviates.
    """
    if precision := SHORT_FOR.get(term.lower()):
        yield f"precision={precision}"
    if len(term) < _SHORTEST_LABEL:
        return
    for parameter in chain.from_iterable(workload.parameters for workload in WORKLOADS):
        for choice in parameter.choices:
            if term.lower() in choice.label.lower():
                yield f"{parameter.name}={choice.value}".lower()


def _matches(words: Sequence[SearchWord], groups: Sequence[_Group]) -> Matches:
    fields: dict[int, tuple[str, ...]] = {}
    ranks: dict[int, int] = {}
    wider: dict[int, str] = {}
    left_out = 0
    # The run's number does not outrank a field.
    best = [
        min((_rank(name) for group in groups for name in _named_fields(group.codes[n] % _IS_NUMBER)), default=0)
        for n in range(len(words))
    ]
    for group in groups:
        named = [_named_fields(code) for code in group.codes]
        counting = [
            [name for name in names if word.field or name not in FREE_TEXT or _rank(name) <= first]
            for names, word, first in zip(named, words, best, strict=True)
        ]
        if all(counting):
            fields |= dict.fromkeys(group.runs, tuple(names[0] for names in counting))
            ranks |= dict.fromkeys(group.runs, sum(_rank(names[0]) for names in counting))
        else:
            left_out += len(group.runs)
            wider |= {n: named[n][0] for n, names in enumerate(counting) if not names}
    texts = [f"{wider[n]}:{word.text}" if n in wider else word.typed for n, word in enumerate(words)]
    return Matches(fields, ranks, left_out, " ".join(texts) if wider else "")


def _rank(name: str) -> int:
    return 0 if name == _NUMBER else SEARCH_FIELDS.index(name)


RUNNING = "running"
"""The outcome in a query for a run that has none yet."""

_DAY = "date(started_utc_ns / 1000000000, 'unixepoch', 'localtime')"
_MONTH_LETTERS = len("2026-11")
_MOST_DAYS = 12
"""With more days than this, runs are counted by month."""

_VARIANT = ("framework", "implementation", "layout", "precision", "batch_size", "gpus", "xla")
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
"""SQL of a run's value, for facets with one value."""
_OF_MANY: Mapping[str, tuple[str, str]] = {
    "tag": ("tags", "tag"),
    "experiment": ("experiment_runs", "CAST(experiment AS TEXT)"),
}
"""Table and SQL of a run's values, for facets that may have several."""

assert set(FACETS) == {*_OF_RUN, *_OF_MANY, "day"}, "every facet is known"

Conditions = tuple[list[str], list[Any]]
"""SQL conditions on `runs`, and the values of their placeholders."""


def utf8_safe(text: str) -> str:
    """Return the text with question marks for characters that UTF-8 cannot encode: lone surrogates from a terminal."""
    return text.encode(errors="replace").decode()


def query_conditions(query: RunQuery, without: Collection[str] = ()) -> Conditions:
    """Return the conditions of a query except its search and the facets `without`."""
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
    counts: dict[str, Mapping[str, int]] = {}
    matches = match_runs(db, utf8_safe(query.text), *query_conditions(query, FACETS))
    conditions, values = _narrowed(query, _OF_RUN, matches)
    sql = f"SELECT {', '.join(_OF_RUN.values())}, count(*) FROM runs WHERE {' AND '.join(conditions)}"
    groups = db.execute(f"{sql} GROUP BY {', '.join(str(n) for n in range(1, len(_OF_RUN) + 1))}", values).fetchall()
    counts |= _count_groups(groups, query.selected)
    conditions, values = _narrowed(query, ("day",), matches)
    days = db.execute(
        f"SELECT {_DAY}, count(*) FROM runs WHERE {' AND '.join(conditions)} GROUP BY 1", values
    ).fetchall()
    counts["day"] = _by_month(days) if len(days) > _MOST_DAYS else dict(days)
    for name, (table, value) in _OF_MANY.items():
        conditions, values = _narrowed(query, (name,), matches)
        narrowed = f"SELECT run FROM runs WHERE {' AND '.join(conditions)}"
        sql = f"SELECT {value}, count(*) FROM {table} WHERE run IN ({narrowed}) GROUP BY 1"
        counts[name] = dict(db.execute(sql, values).fetchall())
    return {name: counts[name] for name in FACETS}


def _narrowed(query: RunQuery, without: Collection[str], matches: Matches | None) -> Conditions:
    """Return the conditions of a query including its search, except the facets `without`."""
    conditions, values = query_conditions(query, without)
    if matches is not None:
        conditions.append("run IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(matches.fields)))
    return conditions, values


def _count_groups(groups: Sequence[Sequence[Any]], selected: Mapping[str, tuple[str, ...]]) -> dict[str, Counter[str]]:
    """Count the values in groups of runs; a facet's choice does not narrow its own counts.

    A group has the value of each facet, and the number of runs. `selected` is the choice by facet.
    """
    counts: dict[str, Counter[str]] = {name: Counter() for name in _OF_RUN}
    for *values, count in groups:
        outside = [
            name
            for name, value in zip(_OF_RUN, values, strict=True)
            if selected.get(name) and value not in selected[name]
        ]
        for name, value in zip(_OF_RUN, values, strict=True):
            if value is not None and outside in ([], [name]):
                counts[name][value] += count
    return counts


def _by_month(days: Sequence[tuple[str, int]]) -> Counter[str]:
    months: Counter[str] = Counter()
    for day, count in days:
        months[day[:_MONTH_LETTERS]] += count
    return months


_PART_ROWS = 100

TRASH = "SELECT run FROM runs WHERE deleted_utc_ns IS NOT NULL"
"""SQL of the runs in the trash; an index answers it without reading the wide rows."""

_DEVICES = "(SELECT group_concat(name, ' ') FROM devices WHERE devices.run = runs.run AND kind = 'gpu')"
_EVIDENCE_STATE = "(SELECT state FROM evidence INDEXED BY evidence_listed WHERE run = runs.run)"
_ORDERS: Mapping[str, Sequence[str]] = {
    "run": ("run",),
    "match": ("started_utc_ns",),
    "started": ("started_utc_ns",),
    "workload": ("workload",),
    "framework": ("framework",),
    "variant": ("implementation", "layout", "gpus", "batch_size", "precision", "xla"),
    "tags": ("(SELECT group_concat(tag, ', ') FROM tags WHERE tags.run = runs.run)",),
    "host": ("host",),
    "devices": (f"coalesce({_DEVICES}, iif(gpus = 0, 'CPU', 'GPU'))", "gpus"),
    "outcome": (f"coalesce(outcome, '{RUNNING}')",),
    "evidence": (_EVIDENCE_STATE,),
    **{metric.list_column.order: (metric.list_column.sql,) for metric in METRICS if metric.list_column},
}
"""SQL expressions of each order, most significant first. A variant sorts by its parts: batch size 64 before 1024.

The quality of a match is not a column: equal matches are ordered as here.
"""

assert set(_ORDERS) == set(RUN_ORDERS), "every order is known"

_MEASURED = ("throughput", "energy")
_LARGEST_SQL = ", ".join(f"max({_ORDERS[order][0]})" for order in _MEASURED)
_FOLDING = ("workload", "framework", "outcome", "evidence", "host", "devices", "energy", "mean_power")
"""Orders in which equal values are common in a list of runs."""


def no_such_run(run: int, path: Path) -> UserError:
    return UserError(f"There is no run {run} in {path}; `{PROGRAM} list` lists all.")


def find_runs(db: Database, query: RunQuery) -> SearchResult:
    """Return the numbers of the runs that match a query, in its order, ties newest first.

    Raises:
        UserError: The search has too many words.
    """
    conditions, values = query_conditions(query)
    matches = match_runs(db, utf8_safe(query.text), conditions, values)
    if matches is not None:
        conditions.append("run IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(matches.fields)))
    direction = "DESC" if query.descending else "ASC"
    keys = [f"{key} IS NULL, {key} {direction}" for key in _ORDERS[query.order]]
    # All numbers as one value: fetched row by row, this thread would wait for the GIL at every row.
    (runs_json,) = db.execute(
        "SELECT json_group_array(run) FROM (SELECT run FROM runs"
        f" WHERE {' AND '.join(conditions)} ORDER BY {', '.join(keys)}, run DESC LIMIT -1)",
        values,
    ).fetchone()
    runs = msgspec.json.decode(runs_json, type=list[int])
    if matches is None:
        return SearchResult(runs=runs)
    if query.order == "match":
        runs.sort(key=matches.ranks.__getitem__, reverse=not query.descending)
    return SearchResult(runs=runs, fields=matches.fields, left_out=matches.left_out, wider=matches.wider)


def common_values(db: Database, query: RunQuery, result: SearchResult) -> Common:
    """Return what the runs of a query have in common, and the largest figures of each workload among them."""
    if len(result.runs) < 2:
        return Common()
    # A search already has its runs' numbers: finding its words again would take as long as the search.
    narrowed, values = query_conditions(query)
    source, values = (
        ("json_each(?) CROSS JOIN runs", [json.dumps([*result.runs]), *values]) if result.fields else ("runs", values)
    )
    where = " AND ".join([*narrowed, *(["run = value"] if result.fields else [])])
    largest = db.execute(f"SELECT workload, {_LARGEST_SQL} FROM {source} WHERE {where} GROUP BY workload", values)

    def agrees(order: str) -> bool:
        keys = _ORDERS[order]
        first = db.execute(f"SELECT {', '.join(keys)} FROM runs WHERE run = ?", (result.runs[0],)).fetchone()
        differs = " OR ".join(f"{key} IS NOT ?" for key in keys)
        others = f"SELECT EXISTS (SELECT 1 FROM {source} WHERE {where} AND ({differs}))"
        return first is not None and not db.execute(others, [*values, *first]).fetchone()[0]

    return Common(
        agreed=frozenset(filter(agrees, _FOLDING)),
        largest={workload: dict(zip(_MEASURED, figures, strict=True)) for workload, *figures in largest.fetchall()},
    )


def count_runs(db: Database, *, deleted: bool) -> Totals:
    in_trash = f"deleted_utc_ns IS {'NOT ' if deleted else ''}NULL"
    total, in_any_trash, other_hosts = db.execute(
        f"SELECT count(*) FILTER (WHERE {in_trash}), count(deleted_utc_ns), count(host) FILTER (WHERE {in_trash})"
        " FROM runs INDEXED BY runs_listed"
    ).fetchone()
    tags = db.execute(f"SELECT tag, count(*) FROM tags WHERE run {'' if deleted else 'NOT'} IN ({TRASH}) GROUP BY tag")
    return Totals(total=total, deleted=in_any_trash, tags=dict(tags.fetchall()), other_hosts=other_hosts > 0)


def load_rows(db: Database, runs: Sequence[int]) -> list[RunRow]:
    """Return the rows of these runs in this order, without deleted runs."""
    rows = select_rows(db, "run IN (SELECT value FROM json_each(?))", json.dumps(list(runs)))
    rows_by_run = {row.run: row for row in rows}
    return [rows_by_run[run] for run in runs if run in rows_by_run]


def select_rows(db: Database, condition: str, *values: Any) -> list[RunRow]:
    """Return the rows of the runs for which an SQL condition on `runs` is true; the SQL may end in ORDER BY."""
    return list(each_row(db, condition, *values))


def each_row(db: Database, condition: str, *values: Any) -> Iterator[RunRow]:
    """Yield what `select_rows` returns, part by part, because what is read of a run is three times its row."""
    columns = (
        *(f"runs.{name}" for name in rows.RUN_COLUMNS),
        rows.PLANNED_SQL,
        *(f"evidence.{name}" for name in rows.EVIDENCE_LIST_COLUMNS),
    )
    cursor = db.execute(
        f"SELECT {', '.join(columns)} FROM runs LEFT JOIN evidence USING (run) WHERE {condition}", values
    )
    while part := cursor.fetchmany(_PART_ROWS):
        runs = json.dumps([row[0] for row in part])
        gpu_names, uuids = (
            _values_by_run(db, column, "devices WHERE kind = 'gpu' AND", "device_index", runs)
            for column in ("name", "device")
        )
        tags = _values_by_run(db, "tag", "tags WHERE", "tag", runs)
        experiments = _values_by_run(db, "experiment", "experiment_runs WHERE", "experiment", runs)
        for row in part:
            lists = (by_run.get(row[0], ()) for by_run in (gpu_names, uuids, tags, experiments))
            yield rows.run_row(row, *lists)


def _values_by_run(db: Database, column: str, table: str, order: str, runs: str) -> dict[int, tuple[Any, ...]]:
    by_run: dict[int, list[Any]] = {}
    sql = f"SELECT run, {column} FROM {table} run IN (SELECT value FROM json_each(?)) ORDER BY run, {order}"
    for run, value in db.execute(sql, (runs,)):
        by_run.setdefault(run, []).append(value)
    return {run: tuple(values) for run, values in by_run.items()}
