"""`bench database`: a history of 10,000 runs and 20 million samples, searched, ordered and compared.

Baselines of the same run: every run read as a row and filtered in Python, and runs read whole.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

from app.bench.many_runs import Size, fill
from app.bench.result import Result
from app.queries import RunOrder, RunQuery
from app.storage.store import Store

FULL = Size()
PAGE = 60
"""Rows of runs that a large window shows at once."""
TYPED = ("nchw", "cudnn tf32 batch_size=64", "figure 3", "out of memory", "4711", "nothing of that kind")
"""What is typed into the search of History, letter by letter."""
DRAWN = ("power_mw", "load_pct", "memory_bytes", "sm_clock_mhz")
"""Fields of the samples that a comparison draws."""

_REPEATS = 5
_TIMES_EVERY_RUN = 5.0
_SHARE_OF_WHOLE = 0.9


def measure(size: Size = FULL) -> Sequence[Result]:
    """Times of the database alone, in milliseconds, with their baselines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        started_s = time.monotonic()
        fill(path, size)
        made = Result(name=f"making {size.runs:,} runs", value=time.monotonic() - started_s, unit="s")
        return [made, *_of_library(path), *_of_loading(path, size)]


def _of_library(path: Path) -> Iterator[Result]:
    """The first page, the slowest search and the slowest order, against every run read."""
    every = _median_ms(_every_run, path)
    first = _median_ms(_page, path, RunQuery())
    yield Result(name="History's first page from the database", value=first, unit="ms")
    yield _times("every run read, against the first page", every, first)
    typed = {text: _median_ms(_page, path, RunQuery(text=text)) for text in prefixes()}
    slowest = max(typed, key=typed.__getitem__)
    yield Result(name=f"slowest search in the database ({slowest!r})", value=typed[slowest], unit="ms")
    yield _times("every run read, against that search", every, typed[slowest])
    orders = {order: _median_ms(_page, path, RunQuery(order=order)) for order in get_args(RunOrder)}
    order = max(orders, key=orders.__getitem__)
    yield Result(name=f"slowest order in the database (by {order})", value=orders[order], unit="ms")


def _of_loading(path: Path, size: Size) -> Iterator[Result]:
    """The runs of a comparison, with what is drawn, against all that is stored of them."""
    drawn = _median_ms(_load, path, size.compared, DRAWN)
    whole = _median_ms(_load, path, size.compared, None)
    name = f"{size.long_runs} runs of 2 x {size.long_samples:,} samples read to be drawn, against whole"
    yield Result(name=name, value=drawn, unit="ms", baseline=whole, limit=_SHARE_OF_WHOLE)


def _times(name: str, baseline: float, ours: float) -> Result:
    return Result(name=name, value=baseline, unit="ms", baseline=ours, limit=_TIMES_EVERY_RUN, at_least=True)


def prefixes() -> list[str]:
    """What the search holds after each letter typed."""
    return [text[:end] for text in TYPED for end in range(1, len(text) + 1)]


def _median_ms(action: Callable[..., object], *given: object) -> float:
    return statistics.median(_timed_ms(action, *given) for _ in range(_REPEATS))


def _timed_ms(action: Callable[..., object], *given: object) -> float:
    started = time.perf_counter()
    action(*given)
    return (time.perf_counter() - started) * 1e3


def _page(path: Path, query: RunQuery) -> object:
    """What a screen needs for one query, from the closed file on."""
    with Store.open(path) as store:
        return store.library.run_rows(store.library.find(query)[:PAGE])


def _every_run(path: Path) -> object:
    with Store.open(path) as store:
        return store.list_runs()


def _load(path: Path, runs: Sequence[int], fields: Sequence[str] | None) -> object:
    with Store.open(path) as store:
        return [store.load(run, fields) for run in runs]
