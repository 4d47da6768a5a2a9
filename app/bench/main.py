"""`bench`: the program's own cost, each figure beside a baseline measured in the same run."""

import functools
import json
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence

from app.bench import compare, database, quick, resume, sampler, window, worker
from app.bench.harness import Result
from app.cli.arguments import Benchmark
from app.runs.environment import environment_info
from app.telemetry.inventory import take_inventory
from workloads.catalog import UsageError

BENCHMARKS: Mapping[Benchmark, Callable[..., Sequence[Result]]] = {
    "start": window.measure_start,
    "worker": worker.measure,
    "sampler": sampler.measure,
    "frame": window.measure_frames,
    "compare": compare.measure,
    "database": database.measure,
    "resume": resume.measure,
    "quick": quick.measure,
}

_COUNT_OPTIONS: Mapping[Benchmark, str] = {"resume": "kills", "quick": "times"}
"""Benchmarks that take a number, and the option that gives it."""


def bench(chosen: Namespace) -> int:
    """Runs one benchmark or all, prints the figures; 0 when every limit is kept."""
    measures = {name: _with_count(name, chosen) for name in BENCHMARKS}
    names = [chosen.name] if chosen.name else list(BENCHMARKS)
    results = [result for name in names for result in _measure(name, measures[name])]
    if chosen.json:
        document = {
            "name": chosen.name or "all",
            "machine": environment_info(take_inventory()),
            "results": [result.document() for result in results],
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(results)
    return 1 if any(result.passed is False for result in results) else 0


def _with_count(name: Benchmark, chosen: Namespace) -> Callable[[], Sequence[Result]]:
    option = _COUNT_OPTIONS.get(name)
    number = getattr(chosen, option) if option else None
    if number is None:
        return BENCHMARKS[name]
    if chosen.name != name:
        raise UsageError(f"--{option} goes with `bench {name}`.")
    return functools.partial(BENCHMARKS[name], number)


def _measure(name: str, measure: Callable[[], Sequence[Result]]) -> Sequence[Result]:
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    return measure()


def _print(results: Sequence[Result]) -> None:
    width = max(len(result.name) for result in results)
    for result in results:
        line = f"{result.name:{width}s}  {result.value:10.4g} {result.unit:12s}"
        if result.ratio is not None:
            line += f" baseline {result.baseline:10.4g}  ratio {result.ratio:.3f}"
        if result.limit is not None:
            sign = "at least" if result.at_least else "at most"
            line += f"  {sign} {result.limit:g}: {'ok' if result.passed else 'MISSED'}"
        print(line)
