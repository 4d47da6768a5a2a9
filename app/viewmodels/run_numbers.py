"""Numbers of runs in a sentence: in order, neighbours as one stretch, of very many only the first."""

from collections.abc import Collection, Iterable

from app.viewmodels.units import plural

_MOST = 6
"""Stretches that a sentence names."""


def runs_words(runs: Collection[int]) -> str:
    """Which runs: `run 4`, `runs 1, 4–9 and 12`, `runs 1, 3, 5, 7, 9 and 17 more`."""
    stretches = list(_stretches(sorted(runs)))
    named = stretches if len(stretches) <= _MOST else stretches[: _MOST - 1]
    more = len(runs) - sum(map(len, named))
    words = [*(word for stretch in named for word in _words(stretch)), *([f"{more:,} more"] if more else [])]
    return f"{plural('run', len(runs))} {listed(words)}"


def listed(words: Iterable[str]) -> str:
    """Words one after another in a sentence: `a`, `a and b`, `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _stretches(ordered: Iterable[int]) -> Iterable[list[int]]:
    stretch: list[int] = []
    for run in ordered:
        if stretch and run != stretch[-1] + 1:
            yield stretch
            stretch = []
        stretch.append(run)
    yield stretch


def _words(stretch: list[int]) -> list[str]:
    """Two neighbours are named each."""
    return [f"{stretch[0]}–{stretch[-1]}"] if len(stretch) > 2 else [str(run) for run in stretch]
