"""`python -m benchmarks.noise [WORKLOAD]`: one variant against itself: how often the verdict reports a difference.

The runs are those of an experiment of one variant. In the order of their start, every two in a row are a round, one run
of each side, forwards and backwards in turn (A B B A) and evenly over the GPUs. The sides depend on no figure of a run.
"""

import contextlib
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from msgspec import structs

from app.analysis.intervals import PLANNED_LEVEL, Resolution, pooled_noise, resolution
from app.analysis.verdict import Decision, VariantResult, judge, throughputs
from app.cli.experiment_progress import run_entries
from app.cli.options import (
    FILE,
    Count,
    again_option,
    no_gate_option,
    parallel_option,
    settings_option,
    workload_argument,
)
from app.cli.run import one_variant, run_services, workload_finder
from app.cli.terminal import print_json, print_table, print_text
from app.errors import UserError
from app.grants import typed
from app.runs.environment import environment_info
from app.runs.experiment.queue import enqueue
from app.runs.session import RunServices
from app.storage.store import Store
from app.values import units
from app.values.plan import REPEATS_LIMIT, Plan
from app.values.records import RunHeader, RunRow
from app.viewmodels.format.naming import short_name
from workloads.catalog import UsageError, own_variant

PAIRS = 15
"""Rounds by default: 30 runs."""
LEAST_PAIRS = 3
_WORKLOAD = "lstm"
_SIZES = (3, 5, 10)
_MINUTES = (5, 30)
_DRAWS = 2000
_LEAST_DRAWN_FROM = 20
"""Of fewer runs there are so few halves that each is drawn many times."""
_SEED = 20_261_122


class Round(NamedTuple):
    """One run of each side, in the order of their start."""

    first: RunRow
    second: RunRow


@dataclass(frozen=True, slots=True)
class Tally:
    """Comparisons of one kind, and what the program's verdicts said."""

    name: str
    decisions: tuple[Decision, ...]
    half_width: float
    independent: bool = True

    @property
    def count(self) -> int:
        """Return the number of comparisons."""
        return len(self.decisions)

    @property
    def different(self) -> int:
        """Return how many said that a side is faster."""
        return sum(decision in ("faster", "slower") for decision in self.decisions)

    @property
    def share_interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the share that says so.

        Clopper and Pearson (1934), "The use of confidence or fiducial limits illustrated in the case of the binomial",
        Biometrika 26.
        """
        from scipy.special import betaincinv

        positives, silent = self.different, self.count - self.different
        low = float(betaincinv(positives, silent + 1, 0.025)) if positives else 0.0
        return low, float(betaincinv(positives + 1, silent, 0.975)) if silent else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseResult:
    """What runs of one variant say.

    Attributes:
        runs: How many there are.
        seconds: From the start of one run to that of the next, with all that run at the same time.
        sd: Spread between processes, of the logarithm of throughput.
        successive_sd: The same of runs that follow each other: less where the machine drifts.
        lag1: Correlation of a run with the next: 0 where runs are independent.
        tallies: How often a difference was said.
        resolutions: What can be shown, by minutes.
    """

    runs: int
    seconds: float
    sd: float
    successive_sd: float
    lag1: float
    tallies: tuple[Tally, ...]
    resolutions: dict[int, Resolution | None]


def assign_sides(runs: Sequence[RunHeader]) -> list[Round]:
    """Return the rounds of runs of one variant; a run without a partner is left out."""
    ahead = Counter[str]()  # runs of side A less those of side B, by GPU
    rounds = []
    ordered = sorted(runs, key=lambda run: run.row.started_utc_ns)
    for number, (first, second) in enumerate(zip(ordered[::2], ordered[1::2], strict=False)):
        one, other = _imbalance(ahead, first, second), _imbalance(ahead, second, first)
        a_first = one < other if one != other else number % 2 == 0
        ahead.update(dict.fromkeys(first.gpu_uuids, 1 if a_first else -1))
        ahead.update(dict.fromkeys(second.gpu_uuids, -1 if a_first else 1))
        sides = ("A", "B") if a_first else ("B", "A")
        rounds.append(Round(*map(_with_side, (first.row, second.row), sides)))
    return rounds


def _imbalance(ahead: Counter[str], a: RunHeader, b: RunHeader) -> int:
    return sum(abs(ahead[gpu] + 1) for gpu in a.gpu_uuids) + sum(abs(ahead[gpu] - 1) for gpu in b.gpu_uuids)


def _with_side(row: RunRow, side: str) -> RunRow:
    """Return the run as one of a variant of its own."""
    return replace(row, spec=structs.replace(row.spec, variant={**row.spec.variant, "side": side}))


def _compare(rows: Sequence[RunRow]) -> VariantResult:
    """Return the program's verdict on side B against side A, as on an experiment of just these runs."""
    planned = [replace(row, planned=str(len(rows) // 2)) for row in rows]
    baseline = next(row.run for row in planned if row.spec.variant["side"] == "A")
    return next(result for result in judge(planned, baseline) if not result.is_baseline)


def _tally(name: str, comparisons: Sequence[Sequence[RunRow]], *, independent: bool = True) -> Tally:
    results = [_compare(rows) for rows in comparisons]
    widths = [half for result in results if result.speedup and (half := result.speedup.half_width) is not None]
    decisions = tuple(result.decision for result in results)
    return Tally(name, decisions, float(np.expm1(statistics.median(widths))), independent)


def _pieces(rows: Sequence[RunRow], size: int) -> list[Sequence[RunRow]]:
    """Return runs in pieces of this size that share none; what is left at the end is no piece."""
    return [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]


def _one_after_the_other(rows: Sequence[RunRow]) -> list[RunRow]:
    """Return the runs as if the first half had been one side's and the rest the other's."""
    half = len(rows) // 2
    return [_with_side(row, "A" if index < half else "B") for index, row in enumerate(rows)]


def _tallies(rows: Sequence[RunRow]) -> Iterator[Tally]:
    """Yield every kind of comparison that these runs suffice for; `rows` are rounds in the order of their start."""
    random = np.random.default_rng(_SEED)
    for size in (size for size in _SIZES if 2 * size < len(rows)):
        yield _tally(f"{size} against {size}, interleaved", _pieces(rows, 2 * size))
    yield _tally(f"all {len(rows) // 2} against {len(rows) // 2}, interleaved", [rows])
    yield _tally("3, then 3, not interleaved", [_one_after_the_other(piece) for piece in _pieces(rows, 6)])
    if len(rows) < _LEAST_DRAWN_FROM:
        return
    drawn = [_one_after_the_other([rows[index] for index in random.permutation(len(rows))[:6]]) for _ in range(_DRAWS)]
    yield _tally("3 against 3, drawn at random", drawn, independent=False)


def analyse(runs: Sequence[RunHeader], parallel: int = 1) -> NoiseResult:
    """Return how often runs of one variant are said to differ, and what such runs can show.

    Runs without a figure are left out; `parallel` of them ran at the same time.

    Raises:
        UserError: They are too few.
    """
    rounds = assign_sides([run for run in runs if throughputs([run.row])])
    if len(rounds) < LEAST_PAIRS:
        raise UserError(f"Only {len(rounds)} pairs of runs were measured: it takes {LEAST_PAIRS} or more.")
    rows = [row for round_rows in rounds for row in round_rows]
    logs, starts = np.log(throughputs(rows)), np.array([row.started_utc_ns for row in rows]) / 1e9
    steps, around = np.diff(logs), logs - logs.mean()
    seconds = float(np.median(starts[parallel:] - starts[:-parallel])) / parallel
    noise = pooled_noise([throughputs(rows)])
    assert noise is not None, "there are six runs or more"
    return NoiseResult(
        runs=len(rows),
        seconds=seconds,
        sd=noise.sd,
        successive_sd=float(np.sqrt((steps**2).mean() / 2)),
        lag1=float((around[1:] * around[:-1]).sum() / (around**2).sum()) if noise.sd else 0.0,
        tallies=tuple(_tallies(rows)),
        resolutions={minutes: resolution(noise.sd, int(30 * minutes / seconds)) for minutes in _MINUTES},
    )


@click.command(help="Compare a variant with itself: how often the verdict reports a difference where there is none.")
@click.option("--db", "database", type=FILE, metavar="PATH", help="Where the runs are stored; without it they are not.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@workload_argument
@settings_option("NAME=VALUE", "A parameter of the workload; may be repeated.")
@click.option(
    "--pairs",
    type=Count(LEAST_PAIRS, REPEATS_LIMIT // 2),
    default=PAIRS,
    metavar="N",
    help=f"How many runs of each side (default {PAIRS}).",
)
@parallel_option
@no_gate_option
@again_option
def check_noise(
    *,
    as_json: bool,
    database: Path | None,
    workload: str | None,
    settings: Sequence[str],
    pairs: int,
    parallel: int | None,
    no_gate: bool,
    again: bool,
) -> int:
    """Make the runs that are not stored yet, print what they say, and return 0; raises `UserError` if they are too few.

    Without a database of the user's the runs are kept in a temporary one.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        services = stack.enter_context(run_services(database or Path(folder) / "noise.db", standby=True))
        machine = services.host.machine
        find = workload_finder(services.database, typed)
        spec = one_variant(find(workload or _WORKLOAD), settings, machine)
        plan = Plan(
            name=f"A/A {short_name(spec)}",
            variants=(spec,),
            repeats=2 * pairs,
            parallel=parallel or (1 if parallel is None else max(1, len(machine.gpus))),
            max_idle_wait_s=0.0 if no_gate else None,
            again=again,
        )
        result = analyse(_make(plan, services), plan.parallel)
        environment = environment_info(services.host.inventory())
    if as_json:
        print_json(_document(plan, result, environment))
    else:
        _print(plan, result)
    return 0


def _make(plan: Plan, services: RunServices) -> Sequence[RunHeader]:
    """Make the runs of the plan, and return all that count."""
    with Store.open(services.database) as store:
        entry, _ = enqueue(store, plan)
    ended = run_entries(services, [entry.entry])
    if not ended:
        raise UserError("Another program makes these very runs at this moment.")
    return ended[-1].experiment.runs


def _document(plan: Plan, result: NoiseResult, machine: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": "noise",
        "variant": {"workload": plan.variants[0].workload, **own_variant(plan.variants[0])},
        "machine": machine,
        "runs": result.runs,
        "seconds_per_run": result.seconds,
        "sd": result.sd,
        "successive_sd": result.successive_sd,
        "lag1": result.lag1,
        "comparisons": [
            {
                "name": tally.name,
                "independent": tally.independent,
                "count": tally.count,
                "faster": tally.decisions.count("faster"),
                "slower": tally.decisions.count("slower"),
                "share": tally.different / tally.count,
                "share_interval": tally.share_interval if tally.independent else None,
                "half_width": tally.half_width,
            }
            for tally in result.tallies
        ],
        "can_show": [
            {
                "minutes": minutes,
                "repeats": resolution.repeats,
                "half_width": resolution.half_width,
                "smallest": resolution.smallest,
            }
            for minutes, resolution in result.resolutions.items()
            if resolution is not None
        ],
    }


def _print(plan: Plan, result: NoiseResult) -> None:
    period = units.with_unit(result.seconds, "s", 1)
    print(f"{short_name(plan.variants[0])} against itself: {result.runs} runs, one every {period}.")
    print(
        f"Processes differ by {_percent(result.sd)} (standard deviation), runs in a row by "
        f"{_percent(result.successive_sd)}; correlation of a run with the next {result.lag1:.2f}."
    )
    print()
    header = (
        "side B against side A",
        "comparisons",
        "faster",
        "slower",
        "said to differ",
        f"{units.exactly(95, '%')} CI",
        "half width",
    )
    print_table(header, [_tally_row(tally) for tally in result.tallies], right=frozenset(range(1, 7)))
    print_text(
        f"Identical variants should be said to differ in about {_percent(1 - PLANNED_LEVEL)}. The comparisons of a "
        "line share no run, so they are independent as far as runs are; two lines share theirs. Those drawn at random "
        "are not independent, and say nothing of the order of runs. The half width is the median of the line."
    )
    print()
    rows = [_resolution_row(minutes, resolution) for minutes, resolution in result.resolutions.items()]
    print_table(
        ("two variants in", "repeats of each", "interval", "shown 4 times in 5"), rows, right=frozenset((1, 2, 3))
    )


def _percent(share: float) -> str:
    return units.amount(100 * share, "%", 2)


def _tally_row(tally: Tally) -> tuple[str, ...]:
    low, high = (units.number(100 * end, 2) for end in tally.share_interval)
    return (
        tally.name,
        f"{tally.count:,}",
        f"{tally.decisions.count('faster'):,}",
        f"{tally.decisions.count('slower'):,}",
        _percent(tally.different / tally.count),
        units.quantity(f"{low} to {high}", "%") if tally.independent else units.ABSENT,
        _percent(tally.half_width),
    )


def _resolution_row(minutes: int, resolution: Resolution | None) -> tuple[str, ...]:
    if resolution is None:
        return f"{minutes} minutes", "1 or none", units.ABSENT, units.ABSENT
    return (
        f"{minutes} minutes",
        f"{resolution.repeats:,}",
        units.plus_minus(_percent(resolution.half_width)),
        _percent(resolution.smallest),
    )


if __name__ == "__main__":
    try:
        sys.exit(check_noise.main(standalone_mode=False))
    except (UserError, UsageError, click.ClickException) as error:
        sys.exit(str(error))
