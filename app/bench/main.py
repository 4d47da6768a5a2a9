"""The command `bench`: measure the program's own cost, each figure with a baseline of the same run."""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from app.bench import (
    aa,
    agent,
    compare,
    database,
    flood,
    link,
    quick,
    resume,
    sampler,
    schedule,
    soak,
    why,
    window,
    worker,
)
from app.bench.harness import Result
from app.cli.options import (
    COUNT,
    OneOf,
    again_option,
    command,
    given_parameters,
    no_gate_option,
    number,
    option_name,
    parallel_option,
    settings_option,
    whole_number,
    workload_argument,
)
from app.plan import REPEATS_LIMIT
from app.runs.environment import environment_info
from app.telemetry.sampler import take_inventory
from workloads.catalog import UsageError

BENCHMARKS: Mapping[str, Callable[..., Sequence[Result]]] = {
    "start": window.measure_start,
    "worker": worker.measure,
    "sampler": sampler.measure,
    "agent": agent.measure,
    "link": link.measure,
    "frame": window.measure_frames,
    "use": window.measure_use,
    "compare": compare.measure,
    "database": database.measure,
    "why": why.measure,
    "resume": resume.measure,
    "quick": quick.measure,
    "flood": flood.measure,
    "schedule": schedule.measure,
    "soak": soak.measure,
}
_LONG = ("soak",)
"""Benchmarks that are made only when they are named."""
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "compare": ("cases",),
    "resume": ("kills", "on"),
    "quick": ("times",),
    "soak": ("runs", "hours"),
    "use": ("minutes",),
    "aa": ("workload", "settings", "pairs", "parallel", "no_gate", "again"),
    "link": ("on", "workload", "settings", "pairs", "kills"),
}
"""Options that go with one benchmark alone."""


@command("bench", "bench start", "bench resume --kills 10", "bench aa lstm -s seconds=2 --pairs 30")
@click.argument(
    "name",
    required=False,
    type=OneOf((*BENCHMARKS, "aa")),
    metavar="[NAME]",
    help=f"The benchmark, one of {', '.join(BENCHMARKS)} (default: all these but {', '.join(_LONG)}); "
    "or aa: one variant against itself on this machine.",
)
@workload_argument
@settings_option("NAME=VALUE", "With aa: a parameter of the workload; may be repeated.")
@click.option(
    "--pairs",
    type=whole_number(least=aa.LEAST_PAIRS, most=REPEATS_LIMIT // 2),
    metavar="N",
    help=f"With aa and link: how many runs of each side (default {aa.PAIRS} and {link.PAIRS}).",
)
@parallel_option
@no_gate_option
@again_option
@click.option(
    "--kills",
    type=COUNT,
    metavar="N",
    help="With resume: kills of the program (default 50); with link: kills alone.",
)
@click.option("--cases", type=COUNT, metavar="N", help="With compare: cases of each kind (default 2,000).")
@click.option(
    "--on",
    metavar="HOST",
    help="With link: this machine as a host, such as its own sshd (default sh:); with resume: where the runs are made.",
)
@click.option("--times", type=COUNT, metavar="N", help="With quick: how often to repeat it (default 10).")
@click.option("--runs", type=COUNT, metavar="N", help="With soak: runs of the window and of a command (default 1,000).")
@click.option(
    "--hours",
    type=number("above 0", lambda value: 0 < value < math.inf),
    metavar="H",
    help="With soak: how long these runs take together (default: as short as they can be).",
)
@click.option(
    "--minutes",
    type=number("above 0", lambda value: 0 < value < math.inf),
    metavar="M",
    help="With use: how long the window is used (default: three tours of its screens).",
)
@click.pass_context
def bench(context: click.Context, /, *, as_json: bool, database: Path | None, name: str | None, **values: Any) -> int:
    """Run one benchmark or all, print the figures; return 0 when every limit is kept."""
    given = given_parameters(context)
    own = _OPTIONS.get(name or "", ())
    for of, options in _OPTIONS.items():
        if wrong := [option_name(option) for option in options if option in given and option not in own]:
            raise UsageError(f"{wrong[0]} goes with `bench {of}`.")
    if name == "aa":
        return aa.run(
            aa.AaOptions(database=database, **{option: values[option] for option in _OPTIONS["aa"]}), as_json=as_json
        )
    results = [
        result
        for each in ([name] if name else [each for each in BENCHMARKS if each not in _LONG])
        for result in _measure(each, {option: values[option] for option in _OPTIONS.get(each, ()) if option in given})
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


def _measure(name: str, options: Mapping[str, Any]) -> Sequence[Result]:
    print(f"measuring {name} …", file=sys.stderr, flush=True)
    return BENCHMARKS[name](**options)


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
