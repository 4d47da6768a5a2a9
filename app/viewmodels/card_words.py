"""Which cards of one kind some runs used, in a sentence: by how many runs each, or which variants share none."""

from collections import Counter
from collections.abc import Mapping, Sequence

from app.analysis.verdict import group_by_variant
from app.records import RunRow
from app.viewmodels.environment import in_short
from app.viewmodels.run_numbers import listed
from app.viewmodels.units import plural
from app.viewmodels.variants import variant_names

_FEW = 4
"""So many cards or variants are named."""

Cards = frozenset[str]
"""UUIDs of the cards that a run, or a variant's runs, used."""


def cards_words(
    kind: str, used: Sequence[Cards], only: Mapping[Cards, Sequence[RunRow]], runs: Sequence[RunRow]
) -> str:
    """How many cards of a kind were used, and by how many runs each, or which variants ran on which alone.

    `used` are the cards of each run. `only` has, by cards, a run of each variant that ran on these alone, if any did;
    `runs` are all compared.
    """
    told = _apart(only, runs) if only else _counts(used)
    return f"{len(frozenset().union(*used))} {kind} were used{told}."


def _counts(used: Sequence[Cards]) -> str:
    """`: GPU-0f9e5287 by 23 runs, GPU-3b1c9d44 by 25`."""
    counts = Counter(in_short(card) for cards in used for card in cards).most_common()
    (first, most), *others = counts
    if len(counts) > _FEW:
        ends = " to ".join(dict.fromkeys((str(counts[-1][1]), str(most))))
        return f", each by {ends} {plural('run', most)}"
    told = [f"{first} by {most} {plural('run', most)}", *(f"{card} by {count}" for card, count in others)]
    return f": {', '.join(told)}"


def _apart(only: Mapping[Cards, Sequence[RunRow]], runs: Sequence[RunRow]) -> str:
    groups = group_by_variant(runs)
    names = variant_names([group[0].spec for group in groups], in_sentence=True)
    by_run = {row.run: name for group, name in zip(groups, names, strict=True) for row in group}
    told = [
        f"only {listed(sorted(map(in_short, cards)))} ran {_some([by_run[row.run] for row in rows])}"
        for cards, rows in only.items()
    ]
    return f", and some variants share no card, so that what differs between them may be the card: {'; '.join(told)}"


def _some(variants: Sequence[str]) -> str:
    """A few by their names, of many only how many."""
    return listed(variants) if len(variants) <= _FEW else f"{len(variants)} variants"
