"""Search the runs: which field of a run holds each word, what counts, and how well it matches."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from sqlite_utils import Database

from app.errors import UserError
from app.queries import FREE_TEXT, SEARCH_FIELDS, SHORT_FOR, SearchWord, parse_search
from workloads.catalog import WORKLOADS

MAX_SEARCH_TERMS = 50
"""Search terms per query: SQLite takes some hundred conditions, and nobody types so many."""

_NUMBER = "run"
"""Where a word was found that is the number of the run."""
_SHORTEST_LABEL = 3
"""Letters from which on a word is looked for in the labels of choices: shorter ones are in many of them."""
_IS_NUMBER, _NOTE_TOO = 1000, 100
"""What a code of markers adds where the word is the run's number, and where a note has it before the position."""


@dataclass(frozen=True, slots=True)
class Matches:
    """What a search found.

    Attributes:
        fields: By run the field in which each word was found, "run" for its number.
        ranks: By run how far its fields are from the best ones, 0 being the best.
        left_out: How many runs hold the words only in free text that does not count.
        wider: The search that finds these.
    """

    fields: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    ranks: Mapping[int, int] = field(default_factory=dict)
    left_out: int = 0
    wider: str = ""


class _Group(NamedTuple):
    """Runs whose words were found in the same markers: a code for each word."""

    codes: list[int]
    runs: list[int]


def match_runs(db: Database, text: str, conditions: Sequence[str], values: Sequence[Any]) -> Matches | None:
    """Return the runs that hold every word of a search; None for a search without words.

    A plain word may be in any field. In a note or a reason it counts only where no field before that holds it in any
    of these runs: a note that names the version of a library is not what a search for an implementation means.

    Args:
        db: The database.
        text: The words.
        conditions: SQL on `runs` that narrows the search.
        values: The values of its placeholders.

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
    """Return the runs with every word in any field, by the fields that have them."""
    codes: list[str] = []
    found: list[str] = []
    spellings: list[str] = []
    for word in words:
        spelled = tuple(dict.fromkeys((*_spellings(word.text), *_values(word.text)))) if word.text else ()
        markers = [f"s{len(spellings) + n}" for n in range(len(spelled))]
        spellings += spelled
        digits = word.text.removeprefix("#")
        number = int(digits) if not word.field and _is_number(digits) else 0
        codes.append(f"{_IS_NUMBER} * (run = {number}) + {_code(word.field, markers)}")
        found.append(f"({_holds(word.field or 'words', markers)} OR run = {number})")
    names = ", ".join(f"c{n}" for n in range(len(words)))
    # As a placeholder each would need a number, for it is used several times: the first Pythons 3.12 warn of these.
    spelt = ", ".join(f"? AS s{n}" for n in range(len(spellings))) or "NULL"
    sql = f"""
        WITH narrowed AS (SELECT run FROM runs WHERE {" AND ".join(conditions)}), found AS MATERIALIZED (
            SELECT run, {", ".join(f"{code} AS c{n}" for n, code in enumerate(codes))}
            FROM (SELECT {spelt}) CROSS JOIN run_words WHERE {" AND ".join(found)} AND run IN narrowed
        ) SELECT json_array({names}), json_group_array(run) FROM found GROUP BY {names}
    """
    read = db.execute(sql, [*values, *spellings]).fetchall()
    return [_Group(json.loads(codes), msgspec.json.decode(runs, type=list[int])) for codes, runs in read]


def _code(field: str, markers: Sequence[str]) -> str:
    """Return SQL of the position of the best field that holds a word, from 1; of a note also of the best one after it.

    It stops at the first field: to look into all of them takes twice as long.
    """
    if field:
        return str(SEARCH_FIELDS.index(field) + 1)
    tests = [f"WHEN {_holds(name, markers)} THEN {n}" for n, name in enumerate(SEARCH_FIELDS, 1)]
    note = SEARCH_FIELDS.index("note")
    after = f"CASE {' '.join(tests[note + 1 :])} ELSE 0 END"
    tests[note] = f"WHEN {_holds('note', markers)} THEN {_NOTE_TOO} + {after}"
    return f"CASE {' '.join(tests)} ELSE 0 END"


def _named_fields(code: int) -> tuple[str, ...]:
    """Return the fields that a code names, the best first."""
    number, rest = divmod(code, _IS_NUMBER)
    note, position = divmod(rest, _NOTE_TOO)
    return (*([_NUMBER] * number), *(["note"] * note), *([SEARCH_FIELDS[position - 1]] if position else []))


def _holds(name: str, markers: Sequence[str]) -> str:
    """Return SQL that is 1 where a field holds a spelling of a word; without a word, where the field has anything."""
    return f"({' OR '.join(f'instr({name}, {marker}) > 0' for marker in markers) or f'{name} > {chr(39) * 2}'})"


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _spellings(term: str) -> Iterator[str]:
    """Yield a term as `run_words` may hold it, where only ASCII letters are lower case: Äpfel, ÄPFEL or äpfel."""
    for spelling in (term.lower(), term.upper(), term.capitalize()):
        yield "".join(letter.lower() if letter.isascii() else letter for letter in spelling)


def _values(term: str) -> Iterator[str]:
    """Yield the choices that a term means, as `run_words` has them: `implementation=block_fused` of Block-fused.

    These are the choices whose label has it, and the precision that it is short for.
    """
    if precision := SHORT_FOR.get(term.lower()):
        yield f"precision={precision}"
    if len(term) < _SHORTEST_LABEL:
        return
    for parameter in chain.from_iterable(each.parameters for each in WORKLOADS):
        for choice in parameter.choices:
            if term.lower() in choice.label.lower():
                yield f"{parameter.name}={choice.value}".lower()


def _matches(words: Sequence[SearchWord], groups: Sequence[_Group]) -> Matches:
    fields: dict[int, tuple[str, ...]] = {}
    ranks: dict[int, int] = {}
    wider: dict[int, str] = {}
    left_out = 0
    # The run's number outdoes no field.
    best = [
        min((_rank(name) for group in groups for name in _named_fields(group.codes[n] % _IS_NUMBER)), default=0)
        for n in range(len(words))
    ]
    for group in groups:
        named = [_named_fields(code) for code in group.codes]
        counting = [
            [name for name in found if word.field or name not in FREE_TEXT or _rank(name) <= first]
            for found, word, first in zip(named, words, best, strict=True)
        ]
        if all(counting):
            fields |= dict.fromkeys(group.runs, tuple(found[0] for found in counting))
            ranks |= dict.fromkeys(group.runs, sum(_rank(found[0]) for found in counting))
        else:
            left_out += len(group.runs)
            wider |= {n: named[n][0] for n, found in enumerate(counting) if not found}
    texts = [f"{wider[n]}:{word.text}" if n in wider else word.typed for n, word in enumerate(words)]
    return Matches(fields, ranks, left_out, " ".join(texts) if wider else "")


def _rank(name: str) -> int:
    return 0 if name == _NUMBER else SEARCH_FIELDS.index(name)
