"""Benchmark `answer`: compare 720 runs of 240 variants, each a minute long on two devices, read from the database.

Baseline: the same with 60 variants, and of the whole the reading of the runs.
"""

import gc
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from app.storage.store import Store
from app.viewmodels.compare.comparison import COMPARED_FIELDS, compare, prepare_comparison
from benchmarks.harness import Result
from benchmarks.many_runs import fill_compared

VARIANTS = (60, 240)
"""Numbers of variants; the time should grow with it."""
_REPEATS = 3
_SAMPLES = 1200
_TIMES = 5
_LIMIT_S = 3.0
_MAX_GROWTH = 1.5


def measure(samples: int = _SAMPLES) -> Sequence[Result]:
    """Measure reading and comparing the runs of so many variants, in seconds."""
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        for variants in VARIANTS:
            database = Path(folder) / f"{variants}.db"
            fill_compared(database, variants=variants, repeats=_REPEATS, samples=samples)
            measured = [_timed_s(database, variants * _REPEATS) for _ in range(_TIMES)]
            times[variants] = [statistics.median(part) for part in zip(*measured, strict=True)]
    few, many = VARIANTS
    name = f"compare {many * _REPEATS} runs of {many} variants"
    (few_read_s, few_compared_s), (read_s, compared_s) = times[few], times[many]
    return [
        Result(name=f"{name}: read", value=read_s, unit="s"),
        Result(name=f"{name}: prepare and compare", value=compared_s, unit="s", baseline=read_s),
        Result(name=name, value=read_s + compared_s, unit="s", limit=_LIMIT_S),
        Result(
            name=f"{name}, against {few} variants, {many // few} times",
            value=read_s + compared_s,
            unit="s",
            baseline=many / few * (few_read_s + few_compared_s),
            limit=_MAX_GROWTH,
        ),
    ]


def _timed_s(database: Path, runs: int) -> tuple[float, float]:
    """Return the time of reading the runs, and of comparing them."""
    gc.collect()
    start = time.perf_counter()
    with Store.open(database) as store:
        stored = [store.load(run, COMPARED_FIELDS) for run in range(1, runs + 1)]
    read = time.perf_counter()
    compared_runs = prepare_comparison(stored)
    compare(compared_runs)
    return read - start, time.perf_counter() - read
