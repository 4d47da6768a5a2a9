"""What remains of a plan, in which order, which runs may be concurrent, and when it may stop early."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np

from app.analysis.intervals import MIN_REPEATS, precision_reached, ratio
from app.analysis.verdict import family_level, throughputs
from app.runs.leases import candidate_devices
from app.values.events import Outcome
from app.values.plan import Plan, matching_variants
from app.values.records import Ints, RunRow
from workloads.catalog import Machine, check
from workloads.protocol import RunSpec

_PRECISION = re.compile(r"(\d+(?:\.\d+)?) ?%?")
_Values = list[float]


def parse_precision_pct(word: str) -> float:
    """Return the percent in `0.5%`, `0.5 %` or `0.5`.

    Raises:
        ValueError: The text is anything else, or not between 0 and 100.
    """
    match = _PRECISION.fullmatch(word.strip())
    value = float(match.group(1)) if match else 0.0
    if not 0 < value < 100:
        raise ValueError(f"{word!r} is not a precision such as 0.5%, above 0 and below 100")
    return value


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """The runs of `repeats` complete rounds: by workload, then variant; the first variant is the baseline."""

    repeats: int
    by_workload: tuple[tuple[list[RunRow], ...], ...]

    @classmethod
    def from_runs(cls, variants: Sequence[Sequence[RunRow]]) -> "StoppingRule":
        """Return the rounds that all of these variants have completed; a round in progress does not count."""
        measured = [[row for row in rows if row.completed and throughputs([row])] for rows in variants]
        repeats = min(map(len, measured), default=0)
        names = [rows[0].spec.workload for rows in variants] if repeats else []
        return cls(
            repeats,
            tuple(
                tuple(values[:repeats] for values, workload in zip(measured, names, strict=True) if workload == name)
                for name in dict.fromkeys(names)
            ),
        )

    def is_met(self, until_pct: float) -> bool:
        """Return whether every speed-up is known to ± `until_pct` percent, so that no further round is needed."""
        pairs = list(self._pairs())
        return bool(pairs) and all(precision_reached(values, base, until_pct, level) for values, base, level in pairs)

    def half_widths_pct(self) -> list[float]:
        """Return half the width of every speed-up's interval in percent; none after a single round."""
        ratios = (ratio(values, base, level) for values, base, level in self._pairs())
        half_widths = (estimate.half_width for estimate in ratios if estimate is not None)
        return [100 * math.expm1(half) for half in half_widths if half is not None]

    def _pairs(self) -> Iterator[tuple[_Values, _Values, float]]:
        """Yield each variant's and its baseline's values, with the level at which all intervals of a workload hold."""
        for base, *others in self.by_workload:
            for rows in others:
                yield throughputs(rows), throughputs(base), family_level(rows, base, len(others))


_LONGEST_CYCLE = 8
"""The longest cycle, in runs, after which a machine may repeat itself; longer rounds cover all positions."""
_CYCLES = [(cycle, begin) for cycle in range(2, _LONGEST_CYCLE + 1) for begin in range(cycle)]
"""A machine's cycle in runs, and the first run's position in it; the machine is slower in the first half."""
_HARMLESS_T, _WORST_T = 2.0, 1.5
"""Times n / (n - 1) for n rounds: below the first t no interval shows a difference; this far above it, every interval
does."""
_ALL_ORDERS = 3
"""Up to this many variants, all orders of a round, and of the next two, are tried."""
_DRAWN_ORDERS = 24
"""The number of orders drawn for a round of more variants."""

FINAL_OUTCOMES = ("out_of_memory", "refused")
"""Outcomes that a repeat would reproduce: one run is enough."""
RESULT_OUTCOMES = ("completed", *FINAL_OUTCOMES)
"""Outcomes that are a result; a run with another outcome is repeated."""

_FAILED = ("failed", "crashed")
_MOST_LOST = 5
"""The most consecutive runs of a variant that may be lost."""


@lru_cache(16)
def run_order(variants: int, repeats: int, seed: int | None) -> tuple[int, ...]:
    """Return indices of variants, each once per round; a plan with more repeats begins with the same order.

    The first round begins with the baseline, because comparisons use the first run's variant as baseline by default.
    Rounds spread the machine's slow drift over all variants. A machine that repeats itself every few runs would look
    like a difference if one variant met its slow half more often: so each order is drawn among those for which no such
    machine does, if there are any. docs/internals/statistics.md compares it with other orders.

    Without a seed the order alternates between forwards and backwards, as in older entries.
    """
    if seed is None:
        rounds = (range(variants) if repeat % 2 == 0 else range(variants - 1, -1, -1) for repeat in range(repeats))
        return tuple(index for one_round in rounds for index in one_round)
    random, order = Random(seed), list(range(variants))  # noqa: S311 - nothing secret
    slow = _slow_runs(0, variants).T
    for repeat in range(1, repeats):
        if variants > _LONGEST_CYCLE:
            order += random.sample(range(variants), variants)
            continue
        _, best, slow = _best_round(random, slow, repeat, ahead=2 if variants <= _ALL_ORDERS else 1)
        order += best
    return tuple(order)


def _slow_runs(first: int, count: int) -> Ints:
    """Return which of `count` runs, from run number `first` on, are slow on a machine: one row per cycle, 0 or 1."""
    return np.array(
        [[int((run + begin) % cycle < cycle / 2) for run in range(first, first + count)] for cycle, begin in _CYCLES]
    )


def _best_round(random: Random, slow: Ints, rounds: int, *, ahead: int) -> tuple[float, list[int], Ints]:
    """Return the order of the next round, its harm there or further ahead, and `slow` after it.

    Args:
        random: Chooses between harmless orders.
        slow: The number of slow runs of each variant in the rounds so far; one row per variant, one column per cycle.
        rounds: Rounds before this one.
        ahead: Further rounds that should also have a harmless order.
    """
    variants, orders = len(slow), list[list[int]]()
    if variants <= _ALL_ORDERS:
        orders = [list(order) for order in itertools.permutations(range(variants))]
        random.shuffle(orders)
    runs, least = _slow_runs(variants * rounds, variants).T, math.inf
    for order in orders or [random.sample(range(variants), variants) for _ in range(_DRAWN_ORDERS)]:
        after = slow.copy()
        after[order] += runs
        harm = _harm(after, rounds + 1)
        if ahead and harm < least:
            harm = max(harm, _best_round(random, after, rounds + 1, ahead=ahead - 1)[0])
        if harm < least:
            least, best = harm, (harm, order, after)
        if not harm:
            break
    return best


def _harm(slow: Ints, rounds: int) -> float:
    """Return by how much a machine's cycle alone can make the t of two variants too large, over all pairs and cycles.

    With fewer than `MIN_REPEATS` rounds there is no interval that could show a false difference.
    """
    if rounds < MIN_REPEATS:
        return 0.0
    spread = slow * (rounds - slow)
    spreads = np.maximum(spread[:, np.newaxis] + spread, 0.01)
    t = abs(slow[:, np.newaxis] - slow) * np.sqrt((rounds - 1) / spreads)
    return float(np.clip(t - _HARMLESS_T * rounds / (rounds - 1), 0, _WORST_T).mean())


def runs_of_variant(spec: RunSpec, runs: Sequence[RunRow]) -> list[RunRow]:
    return [row for row in runs if spec in matching_variants(row.spec)]


class RunsByVariant:
    """Stored runs by variant; a lookup takes the same time however many there are."""

    def __init__(self, runs: Iterable[RunRow]) -> None:
        self._runs: dict[Hashable, list[RunRow]] = {}
        for row in runs:
            self.add(row)

    def add(self, row: RunRow) -> None:
        for key in matching_keys(row.spec):
            self._runs.setdefault(key, []).append(row)

    def runs_of(self, spec: RunSpec) -> list[RunRow]:
        return self._runs.get(variant_key(spec), [])


def variant_key(spec: RunSpec) -> Hashable:
    """Return a key that only equal variants share."""
    return spec.workload, frozenset(spec.variant.items())


def matching_keys(spec: RunSpec) -> set[Hashable]:
    return set(map(variant_key, matching_variants(spec)))


def remaining_runs(plan: Plan, runs: Sequence[RunRow], machine: Machine | None = None) -> list[RunSpec]:
    """Return the runs still missing besides those that count, in order.

    Variants that the machine refuses run only once; the machine None refuses none.
    """
    return [spec for one_round in remaining_rounds(plan, runs, machine) for spec in one_round]


def remaining_rounds(plan: Plan, runs: Sequence[RunRow], machine: Machine | None = None) -> list[list[RunSpec]]:
    """Return the remaining runs by rounds with at most one run per variant; each weight transfer is its own round.

    Variants that the machine refuses run only once; the machine None refuses none.
    """
    transfers = [transfer.spec for transfer in plan.weight_transfers]
    left = [spec for spec in transfers if not any(map(is_result, runs_of_variant(spec, runs)))]
    return [*_comparison_rounds(plan, runs, machine), *([spec] for spec in left)]


def _comparison_rounds(plan: Plan, runs: Sequence[RunRow], machine: Machine | None) -> list[list[RunSpec]]:
    if is_precision_reached(plan, runs):
        return []
    runs_by_variant, count = RunsByVariant(runs), len(plan.variants)
    stored = ((spec, runs_by_variant.runs_of(spec)) for spec in plan.variants)
    remaining = [_remaining_repeats(spec, rows, plan.repeats, machine) for spec, rows in stored]
    order = run_order(count, plan.repeats, plan.order_seed)
    turns = (order[repeat * count : (repeat + 1) * count] for repeat in range(plan.repeats))
    return [
        [plan.variants[index] for index in one_round if repeat in remaining[index]]
        for repeat, one_round in enumerate(turns)
    ]


def _remaining_repeats(spec: RunSpec, runs: Sequence[RunRow], repeats: int, machine: Machine | None) -> range:
    if _has_final_outcome(runs):
        return range(0)
    once = machine is not None and bool(check(spec, machine))
    return range(sum(map(is_result, runs)), 1 if once else repeats)


def _has_final_outcome(runs: Sequence[RunRow]) -> bool:
    return any(row.outcome is not None and row.outcome.name in FINAL_OUTCOMES for row in runs)


def is_result(row: RunRow) -> bool:
    """Return whether a run is a result and needs no repetition."""
    return row.outcome is not None and row.outcome.name in RESULT_OUTCOMES


def is_given_up(runs: Sequence[RunRow]) -> bool:
    """Return whether a variant's last two runs failed for the same reason, so that a third is not worthwhile.

    A run lost with its program, link or node says nothing about its variant, unless it happens repeatedly: a variant
    may crash its machine.
    """
    outcomes = [row.outcome for row in runs if row.outcome is not None]
    lost = len(list(itertools.takewhile(_was_lost, reversed(outcomes))))
    if lost:
        return lost >= _MOST_LOST
    last_outcomes = outcomes[-2:]
    return (
        len(last_outcomes) == 2
        and last_outcomes[0].name in _FAILED
        and len({(outcome.name, outcome.reason) for outcome in last_outcomes}) == 1
    )


def _was_lost(outcome: Outcome) -> bool:
    return outcome.name == "crashed" and outcome.exit_code is None


def lost_runs(plan: Plan, runs: Sequence[RunRow], machine: Machine | None = None) -> list[RunSpec]:
    """Return the lost runs to repeat immediately, one per variant.

    Variants that the machine refuses run only once; the machine None refuses none.
    """
    runs_by_variant = RunsByVariant(runs)

    def lacks_lost_ones(spec: RunSpec) -> bool:
        runs = runs_by_variant.runs_of(spec)
        lost = sum(row.outcome is not None and _was_lost(row.outcome) for row in runs)
        return lost > 0 and len(runs) - lost < plan.repeats and not is_given_up(runs)

    remaining = remaining_runs(plan, runs, machine)
    return [spec for spec in plan.specs if lacks_lost_ones(spec) and spec in remaining]


def given_up_variants(plan: Plan, runs: Sequence[RunRow]) -> list[RunSpec]:
    runs_by_variant = RunsByVariant(runs)
    return [spec for spec in plan.variants if is_given_up(runs_by_variant.runs_of(spec))]


def stopping_rule(plan: Plan, runs: Sequence[RunRow]) -> StoppingRule:
    """Return the complete rounds of the variants that measure something."""
    runs_by_variant = RunsByVariant(runs)
    groups = [runs_by_variant.runs_of(spec) for spec in plan.variants]
    return StoppingRule.from_runs([group for group in groups if not _has_final_outcome(group)])


def is_precision_reached(plan: Plan, runs: Sequence[RunRow]) -> bool:
    return plan.until_pct is not None and stopping_rule(plan, runs).is_met(plan.until_pct)


def results_by_variant(runs: Iterable[RunRow]) -> RunsByVariant:
    return RunsByVariant(filter(is_result, runs))


def count_done(plan: Plan, results: RunsByVariant) -> int:
    """Return how many of the planned runs have a result; more repeats than planned do not count."""
    transfers = sum(bool(results.runs_of(transfer.spec)) for transfer in plan.weight_transfers)
    return transfers + sum(min(plan.repeats, len(results.runs_of(spec))) for spec in plan.variants)


def count_surplus(plan: Plan, results: RunsByVariant) -> int:
    """Return how many runs with a result exceed the plan: the verdict counts them too."""
    return sum(max(0, len(results.runs_of(spec)) - plan.repeats) for spec in plan.variants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concurrency:
    """How many runs may run concurrently: at most `parallel`, each on its own GPUs; a run on the CPU is always alone.

    If an experiment may end early, no variant runs twice concurrently, so that the stopping rule is checked in time.
    """

    parallel: int = 1
    gpus: int = 0
    may_end_early: bool = False

    def admits(self, spec: RunSpec, running: Sequence[RunSpec]) -> bool:
        """Return whether a run may begin while others are running."""
        if not running:
            return True
        counts = [int(run_spec.variant["gpus"]) for run_spec in (spec, *running)]
        fits = len(running) < self.parallel and all(counts) and sum(counts) <= self.gpus
        return fits and not (self.may_end_early and spec in running)

    def total_s(self, specs: Sequence[RunSpec], durations_s: Sequence[float]) -> float:
        """Return the seconds from the first run's start to the last one's end, if each starts as soon as it may."""
        now_s, running = 0.0, list[tuple[float, RunSpec]]()
        for spec, seconds in zip(specs, durations_s, strict=True):
            while not self.admits(spec, [other for _, other in running]):
                first = min(running, key=lambda run: run[0])
                now_s = first[0]
                running.remove(first)
            running.append((now_s + seconds, spec))
        return max((end_s for end_s, _ in running), default=now_s)


def plan_concurrency(plan: Plan, machine: Machine) -> Concurrency:
    """Return which runs of a plan may be concurrent on this machine; with a scheduler, all."""
    gpus = len(machine.gpus) * (plan.parallel if machine.scheduled else 1)
    return Concurrency(parallel=plan.parallel, gpus=gpus, may_end_early=plan.until_pct is not None)


class DeviceBalancer:
    """Spreads the runs of each variant evenly over the GPUs.

    GPUs of one model differ by about a percent, which does not affect the comparison if all variants ran on all GPUs.
    """

    def __init__(self, variants: int, machine: Machine) -> None:
        """Start without runs."""
        self._variants = variants
        self._machine = machine
        self._runs_by_device = Counter[str]()
        self._runs_by_variant = Counter[tuple[Hashable, str]]()

    def add(self, spec: RunSpec, devices: Collection[str]) -> None:
        self._runs_by_device.update(devices)
        self._runs_by_variant.update((key, device) for key in matching_keys(spec) for device in devices)

    def ranked_devices(self, spec: RunSpec) -> list[str]:
        """Return the devices a run may lease, first those on which its variant had the smallest share of the runs."""
        deficits = self._deficits(spec, candidate_devices(spec, self._machine))
        return sorted(deficits, key=lambda device: -deficits[device])

    def choose(self, specs: Sequence[RunSpec], busy: Collection[str]) -> RunSpec:
        """Return the run whose variant has run least on the free devices; the first on a tie.

        All use the same number of GPUs. `busy` are devices in use.
        """

        def deficit_on_free(spec: RunSpec) -> float:
            free = [device for device in candidate_devices(spec, self._machine) if device not in busy]
            count = int(spec.variant["gpus"])
            return sum(sorted(self._deficits(spec, free).values())[-count:]) if len(free) >= count else float("-inf")

        return max(specs, key=deficit_on_free)

    def _deficits(self, spec: RunSpec, devices: Sequence[str]) -> dict[str, int]:
        """Return, per device, by how many runs the variant is behind an equal share, times the number of variants."""
        key = variant_key(spec)
        return {
            device: self._runs_by_device[device] - self._variants * self._runs_by_variant[key, device]
            for device in devices
        }
