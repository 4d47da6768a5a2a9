"""The command palette: what can be done and opened, found by a few letters, most recently used first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from app.values import units
from app.values.records import RunRow
from app.viewmodels.format.naming import short_name
from workloads.catalog import SHORT_FOR

RUNS = "Runs"
RECENT = "Recent"
MAX_MATCHES = 100
"""Nobody reads further down a list that three more letters would shorten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An action, or something to open.

    Attributes:
        key: Its constant identity.
        detail: Other searched text, shown in grey.
        words: Synonyms, which a search covers too.
    """

    key: str
    title: str
    group: str
    keys: str = ""
    detail: str = ""
    words: str = ""


@dataclass(frozen=True, slots=True)
class Match:
    """An entry that matches a search, with the matching letters of its title."""

    entry: Entry
    positions: tuple[int, ...] = ()


def search(entries: Iterable[Entry], query: str, recent: Sequence[str] = ()) -> list[Match]:
    """Return the entries that contain every word of a query, best first; all entries for an empty query.

    A match counts most at the start of a word of the title, then in a synonym, then inside the title's words, then as
    letters in this order that begin at the start of a word (`lp`: Live plots), and least in other texts; the fewer
    words precede it, the more it counts.

    Args:
        entries: All entries; equal matches keep this order.
        query: What the user typed.
        recent: Keys of used entries, last one first; these come first.
    """
    words = [SHORT_FOR.get(word, word) for word in query.lower().replace("#", " ").split()]
    rank = {key: position for position, key in enumerate(recent)}
    if not words:
        listed = list(entries)
        used = sorted((entry for entry in listed if entry.key in rank), key=lambda entry: rank[entry.key])
        return [
            *(Match(replace(entry, group=RECENT)) for entry in used),
            *(Match(entry) for entry in listed if entry.key not in rank),
        ]
    scored_matches: list[tuple[float, int, Match]] = []
    for entry in entries:
        score, positions = _score(entry, words)
        if score:
            bonus = 20 / (1 + rank[entry.key]) if entry.key in rank else 0
            scored_matches.append((-score - bonus, len(scored_matches), Match(entry, positions)))
    return [match for *_, match in sorted(scored_matches, key=lambda scored_match: scored_match[:2])[:MAX_MATCHES]]


def _score(entry: Entry, words: Sequence[str]) -> tuple[float, tuple[int, ...]]:
    """Return how well an entry matches all words, 0 for not at all, and the matching positions in its title."""
    title = entry.title.lower()
    details = ""
    score, positions = 0.0, set[int]()
    for word in words:
        at = _find_start(title, word)
        is_start = at == 0 or (at > 0 and not title[at - 1].isalnum())
        if not is_start and word in entry.words.split():
            score += 75
        elif at >= 0:
            is_whole = not title[at + len(word) : at + len(word) + 1].isalnum()
            score += 60 + 30 * is_start + 20 * (is_start and is_whole) - 1.5 * min(title.count(" ", 0, at), 6)
            positions.update(range(at, at + len(word)))
        elif word.isalpha() and (letters := _letters(title, word)):
            score += 30 - min(letters[-1] - letters[0], 25)
            positions.update(letters)
        else:
            details = details or f"{entry.detail}\n{entry.keys}\n{entry.group}".lower()
            if word not in details:
                return 0.0, ()
            score += 10
    return score, tuple(sorted(positions))


def _find_start(title: str, word: str) -> int:
    """Return where a word is in a title, preferably at the start of one of the title's words; -1 if nowhere."""
    first = at = title.find(word)
    while at > 0 and title[at - 1].isalnum():
        at = title.find(word, at + 1)
    return first if at < 0 else at


def _letters(title: str, word: str) -> list[int]:
    """Return the positions of letters in order, each next to the previous one or at the start of a word; [] if none."""
    letters: list[int] = []
    for letter in word:
        at = letters[-1] + 1 if letters else 0
        if not letters or title[at : at + 1] != letter:
            at = title.find(letter, at)
            while at > 0 and title[at - 1].isalnum():
                at = title.find(letter, at + 1)
        if at < 0:
            return []
        letters.append(at)
    return letters


def run_entries(rows: Sequence[RunRow]) -> list[Entry]:
    return [
        Entry(
            key=f"run {row.run}",
            title=f"{row.run}  {short_name(row.spec)}",
            group=RUNS,
            detail=" · ".join(
                filter(
                    None,
                    (
                        units.local_time(row.started_utc_ns),
                        "running" if row.outcome is None else row.outcome.name.replace("_", " "),
                        ", ".join(row.tags),
                    ),
                )
            ),
        )
        for row in rows
    ]
