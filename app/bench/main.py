"""The command `bench`: measure the program's own cost, each figure with a baseline of the same run."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence

import click

from app.bench import compare, database, quick, resume, sampler, window, worker
from app.bench.harness import Result
from app.cli.options import COUNT, OneOf, command
from app.runs.host import environment_info
from app.telemetry.sampler import take_inventory
from workloads.catalog import UsageError

BENCHMARKS: Mapping[str, Callable[..., Sequence[Result]]] = {
    "start": window.measure_start,
    "worker": worker.measure,
    "sampler": sampler.measure,
    "frame": window.measure_frames,
    "compare": compare.measure,
    "database": database.measure,
    "resume": resume.measure,
    "quick": quick.measure,
}


@command("bench", "bench start", "bench resume --kills 10", uses_database=False)
@click.argument(
    "name",
    required=False,
    type=OneOf(tuple(BENCHMARKS)),
    metavar="[NAME]",
    help=f"The benchmark, one of {', '.join(BENCHMARKS)} (default: all).",
)
@click.option("--kills", type=COUNT, metavar="N", help="With resume: how often to kill the program (default 50).")
@click.option("--times", type=COUNT, metavar="N", help="With quick: how often to repeat it (default 10).")
def bench(as_json: bool, name: str | None, kills: int | None, times: int | None) -> int:
    """Run one benchmark or all, print the figures; return 0 when every limit is kept."""
    counts = {"resume": ("--kills", kills), "quick": ("--times", times)}
    for of, (option, count) in counts.items():
        if count is not None and name != of:
            raise UsageError(f"{option} goes with `bench {of}`.")
    results = [
        result
        for each in ([name] if name else BENCHMARKS)
        for result in _measure(each, counts.get(each, ("", None))[1])
    ]
    if as_json:
        document = {
            "name": name or "all",
            "machine": environment_info(take_inventory()),
            "results": [result.document() for result in results],
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(results)
    return 1 if any(result.passed is False for result in results) else 0


def _measure(name: str, count: int | None) -> Sequence[Result]:
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    return BENCHMARKS[name]() if count is None else BENCHMARKS[name](count)


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
