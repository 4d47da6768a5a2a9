"""Benchmark `database`: search and compare in a history of 20,000 runs and 20 million samples, also on the screen.

Baselines: reading every run as a row, as History does when it opens, and loading runs whole.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from app.queries import RUN_ORDERS, RunQuery
from app.storage.store import Store
from benchmarks.harness import Result, module_output
from benchmarks.many_runs import Size, fill

Name = TypeVar("Name", bound=str)

FULL = Size(runs=20_000)
TYPED = ("nchw", "cudnn tf32 batch_size=64", "figure 3", "out of memory", "4711", "nothing of that kind")
"""Searches that are typed into History, letter by letter."""
DRAWN = ("power_mw", "load_pct", "memory_bytes", "sm_clock_mhz")
"""Fields of the samples that a comparison draws."""

_REPEATS = 5
_WINDOWS = 5
_MIN_SPEEDUP = 2.0
_MAX_LOAD_SHARE = 0.9
_FIRST_PAINT_MS = 1_000.0
_SEARCH_MS = 300.0
_COMPARE_MS = 300.0
_STALL_MS = 50.0


def measure(size: Size = FULL, windows: int = _WINDOWS) -> Sequence[Result]:
    """Measure the database alone with its baselines, then `windows` windows, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        started_s = time.monotonic()
        fill(path, size)
        made = Result(name=f"making {size.runs:,} runs", value=time.monotonic() - started_s, unit="s")
        return [made, *_query_results(path), *_loading_results(path, size), *_screen_results(path, size, windows)]


def _query_results(path: Path) -> Iterator[Result]:
    """Measure the slowest search and the slowest order against reading every run."""
    every = _median_ms(_read_every_run, path)
    text, typed = _slowest({text: _median_ms(_find, path, RunQuery(text=text)) for text in typed_prefixes()})
    yield _baseline_result(f"the slowest search ({text!r})", every, typed)
    order, ordered = _slowest({name: _median_ms(_find, path, RunQuery(order=name)) for name in RUN_ORDERS})
    yield _baseline_result(f"the slowest order ({order})", every, ordered)


def _loading_results(path: Path, size: Size) -> Iterator[Result]:
    """Measure loading the drawn fields of a comparison's runs against loading all that is stored."""
    drawn = _median_ms(_load_runs, path, size.compared, DRAWN)
    whole = _median_ms(_load_runs, path, size.compared, None)
    name = f"{_long_runs(size)} read to be drawn, against whole"
    yield Result(name=name, value=drawn, unit="ms", baseline=whole, limit=_MAX_LOAD_SHARE)


def _screen_results(path: Path, size: Size, windows: int) -> Iterator[Result]:
    """Measure from a user's action to the painted result: medians of several windows."""
    found = [_screens(path, size) for _ in range(windows)]
    first, *typed = (statistics.median(times) for times in zip(*(each["history"] for each in found), strict=True))
    yield Result(name="History first painted", value=first, unit="ms", limit=_FIRST_PAINT_MS)
    text, slowest = _slowest(dict(zip(typed_prefixes(), typed, strict=True)))
    yield Result(name=f"slowest search typed in History ({text!r})", value=slowest, unit="ms", limit=_SEARCH_MS)
    compared = [each["compare"] for each in found]
    new = statistics.median(times[0] for times in compared)
    again = statistics.median(time for times in compared for time in times[1:])
    yield Result(name=f"{_long_runs(size)} on the Compare screen", value=again, unit="ms", limit=_COMPARE_MS)
    yield Result(name="the same, the first comparison of a window, with its making", value=new, unit="ms")
    stall = statistics.median(max(each["stalls"]) for each in found)
    yield Result(name="longest stall of the window meanwhile, processor time", value=stall, unit="ms", limit=_STALL_MS)


def _screens(path: Path, size: Size) -> dict[str, list[float]]:
    """Measure one window in a fresh process, in ms: `history` (first paint, then each search), `compare`, `stalls`."""
    times: dict[str, list[float]] = json.loads(module_output("benchmarks.screens", str(path), *map(str, size.compared)))
    return times


def _baseline_result(what: str, every: float, measured: float) -> Result:
    return Result(
        name=f"every run read, against {what} in the database",
        value=every,
        unit="ms",
        baseline=measured,
        limit=_MIN_SPEEDUP,
        at_least=True,
    )


def _long_runs(size: Size) -> str:
    return f"{size.long_runs} runs of {size.long_samples:,} samples"


def _slowest(times: Mapping[Name, float]) -> tuple[Name, float]:
    return max(times.items(), key=lambda pair: pair[1])


def typed_prefixes() -> list[str]:
    """Return the text of the search field after each typed letter."""
    return [text[:end] for text in TYPED for end in range(1, len(text) + 1)]


def _median_ms(action: Callable[..., object], *args: object) -> float:
    return statistics.median(_timed_ms(action, *args) for _ in range(_REPEATS))


def _timed_ms(action: Callable[..., object], *args: object) -> float:
    started = time.perf_counter()
    action(*args)
    return (time.perf_counter() - started) * 1e3


def _find(path: Path, query: RunQuery) -> object:
    """Find the runs of one query, opening the file too."""
    with Store.open(path) as store:
        return store.library.find(query)


def _read_every_run(path: Path) -> object:
    with Store.open(path) as store:
        return store.list_runs()


def _load_runs(path: Path, runs: Sequence[int], fields: Sequence[str] | None) -> object:
    with Store.open(path) as store:
        return [store.load(run, fields) for run in runs]
