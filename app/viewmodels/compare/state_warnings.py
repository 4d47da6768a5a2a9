"""Comparison warnings about when runs were measured and in which state of the machine: order, clocks, temperature."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from app.analysis.comparability import MINOR_VARIABLE_KEYS, THROTTLED_SHARE_LIMIT, is_same_host, throttled_shares
from app.analysis.intervals import Estimate
from app.analysis.run_state import (
    GAP_S,
    ORDER_LIMIT,
    RunOrder,
    drifts_between,
    highest_clock_mhz,
    mean_clock_mhz,
    run_order,
    start_temperature_c,
)
from app.analysis.verdict import gpu_spread, group_by_variant, same_workload, speed_bias_pct, throughputs
from app.storage.reference import is_reference
from app.values import units
from app.values.environment_keys import COMMIT_KEY, GPUS_USED_KEY, HOST_KEY, SOURCES_KEY
from app.values.records import StoredRun
from app.viewmodels.format.cells import THIS_MACHINE
from app.viewmodels.format.environment import differing_environment, environment_label, format_values_by_run
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.sentences import name_few, name_runs, shorten_name
from workloads.catalog import FRAMEWORKS, ONEDNN_KEY
from workloads.protocol import Value

Severity = Literal["warning", "note"]
"""A warning may explain a difference; a note is worth knowing."""

CODE = "code"
"""The key of the warning that runs are of different code, or that it is not known."""

_VERSION_KEY = "program_version"
_MINOR_KEYS = MINOR_VARIABLE_KEYS | {"os", "kernel", "python", "numpy", "memory_total_bytes", "gpus_present"}
_PLURAL_KEYS = ("gpus_present", "cpu_count", "cpu_affinity")
"""Environment keys with a label in the plural."""
_HASH_DIGITS = 7
_CONSEQUENCES: Mapping[Severity, str] = {
    "warning": "A difference in speed may come from that.",
    "note": "No difference in speed is expected from that.",
}
_VALUES_CHARS = 100
"""Of values that a sentence lists with their runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonWarning:
    """One reason why a comparison may mislead.

    Attributes:
        key: What it is about, one word or two.
        sentence: The reason, with what follows for the figures and what to do; runs are named by their variants.
        values: What each run it concerns has, by run number.
        severity: How much it matters.
        possible_pct: How much of a difference in speed it may explain, in percent; None if that has no known limit.
        interleave: A run of each variant that should be measured again, interleaved, the baseline's first.
    """

    key: str
    sentence: str
    values: Mapping[int, str]
    severity: Severity = "warning"
    possible_pct: float | None = None
    interleave: tuple[int, ...] = ()


def where(runs: Collection[int], among: Sequence[StoredRun]) -> str:
    """Return runs by the variants that they are of."""
    return name_runs(runs, [run.row for run in among])


def describe_difference(
    key: str, name: str, values: Mapping[int, str], among: Sequence[StoredRun], severity: Severity = "warning"
) -> ComparisonWarning:
    """Return a warning that something differs between runs; of values too long for a sentence, how many there are."""
    verb = "differ" if key in _PLURAL_KEYS else "differs"
    sentence = f"{name} {verb}: {_name_values(values, among)}. {_CONSEQUENCES[severity]}"
    return ComparisonWarning(key=key, sentence=sentence, values=values, severity=severity)


def _name_values(values: Mapping[int, str], among: Sequence[StoredRun]) -> str:
    named = format_values_by_run(values, partial(where, among=among))
    if len(named) <= _VALUES_CHARS and "GPU-" not in named:
        return named
    return f"{len(set(values.values()))} values in {where(values, among)}"


def environment_warnings(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Return what differs between the environments of runs, and what is not known of some."""
    code = _code(runs)
    has_warning = any(warning.severity == "warning" for warning in code)
    hosts = host_warnings(runs)
    omitted = {GPUS_USED_KEY, COMMIT_KEY, SOURCES_KEY, *([_VERSION_KEY] if has_warning else [])}
    omitted |= {"gpus_present"} if hosts else set()  # other hosts have other GPUs
    differing = (item for item in differing_environment(runs).items() if item[0] not in omitted)
    differences = [
        describe_difference(key, environment_label(key), values, runs, "note" if _is_minor(runs, key) else "warning")
        for key, values in differing
    ]
    return [*hosts, *code, *differences]


def host_warnings(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn of runs of several hosts; names of one and the same host are no difference."""
    first = runs[0].environment if runs else {}
    if all(is_same_host(first, run.environment) for run in runs):
        return []
    names = {run.row.run: run.environment.get(HOST_KEY, THIS_MACHINE) for run in runs}
    sentence = (
        f"The host differs: {_name_values(names, runs)}. Its processor, driver, cooling and users may explain a "
        "difference, even with the same kind of GPU. Compare variants on one host."
    )
    return [ComparisonWarning(key=HOST_KEY, sentence=sentence, values=names)]


def _is_minor(runs: Sequence[StoredRun], key: str) -> bool:
    """Return whether a difference in a key explains none in speed, or was asked for."""
    on_gpus = key == ONEDNN_KEY and all(int(run.row.spec.variant.get("gpus", 0)) for run in runs)
    return on_gpus or key in _MINOR_KEYS or _is_requested(runs, key)


def _is_requested(runs: Sequence[StoredRun], key: str) -> bool:
    """Return whether a library's version differs only because the runs name other Pythons, packages or frameworks."""
    if all(key not in framework.library_keys for framework in FRAMEWORKS.values()):
        return False
    versions: dict[tuple[Value, ...], set[str]] = {}
    for run in runs:
        variant = run.row.spec.variant
        chosen = tuple(variant.get(name, "") for name in ("interpreter", "packages", "framework"))
        versions.setdefault(chosen, set()).add(run.environment.get(key, ""))
    return len(versions) > 1 and all(len(values) == 1 for values in versions.values())


def _code(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn of runs of different code, and of some whose code is not known next to others; note that none is known.

    The sources of the workloads decide: commits that differ elsewhere measure with the same code.
    """
    with_code = [run for run in runs if COMMIT_KEY in run.environment or SOURCES_KEY in run.environment]
    key = SOURCES_KEY if all(SOURCES_KEY in run.environment for run in with_code) else COMMIT_KEY
    codes = {run.row.run: run.environment[key] for run in with_code if key in run.environment}
    names = _code_names(with_code, codes)
    notes = []
    if len(set(codes.values())) > 1:
        sentence = f"The program's code differs: {_name_values(names, runs)}. {_CONSEQUENCES['warning']}"
        notes.append(ComparisonWarning(key=CODE, sentence=sentence, values=names))
    elif len(set(_values(with_code, COMMIT_KEY).values())) > 1:
        notes.append(
            describe_difference(COMMIT_KEY, "The program's commit", _values(with_code, COMMIT_KEY), runs, "note")
        )
    unknown = [run.row.run for run in runs if run.row.run not in codes]
    return [*notes, *_unknown_code(runs, unknown)]


def _values(runs: Sequence[StoredRun], key: str) -> dict[int, str]:
    return {run.row.run: run.environment[key] for run in runs if key in run.environment}


def _code_names(runs: Sequence[StoredRun], codes: Mapping[int, str]) -> dict[int, str]:
    """Return by run what names its code: version and commit, or a hash of the sources where commits do not tell."""
    commits, versions = _values(runs, COMMIT_KEY), _values(runs, _VERSION_KEY)
    named_by_commit = codes.keys() <= commits.keys() and len({(codes[run], commits[run]) for run in codes}) == len(
        {commits[run] for run in codes}
    )
    names = commits if named_by_commit else {run: f"sources {code[:_HASH_DIGITS]}" for run, code in codes.items()}
    with_version = len(set(versions.values())) > 1
    return {run: f"{versions[run]} {names[run]}" if with_version and run in versions else names[run] for run in codes}


def _unknown_code(runs: Sequence[StoredRun], unknown: Sequence[int]) -> list[ComparisonWarning]:
    if not unknown:
        return []
    if len(unknown) == len(runs):
        extent = f"the {len(runs)} runs" if len(runs) > 1 else "the run"
        sentence = f"The program's code in {extent} is unknown, so it may differ."
    else:
        sentence = f"The program's code in {where(unknown, runs)} is unknown and may differ from that in the others."
    severity: Severity = "note" if len(unknown) == len(runs) else "warning"
    return [ComparisonWarning(key=CODE, sentence=sentence, values=dict.fromkeys(unknown, ""), severity=severity)]


CLOCK_LIMIT = 0.01
"""A clock lower by less is a step of the clock or two: those of an H200 are 15 of 1,980 MHz apart."""

TEMPERATURE_LIMIT_C = 10.0
"""Starts that differ by less are ordinary: the idle wait allows 5 °C above rest (docs/fairness.md)."""

MAX_DRIFT_PCT = 50.0
"""A drift that may be larger is not known at all: the runs vary too much."""

_LOOKS_LIKE = "A change in the machine in between would look like a difference between variants."

Group = Sequence[StoredRun]
"""The runs of one variant that measured something."""


def order_warnings(runs: Sequence[StoredRun], baseline: int | None = None) -> list[ComparisonWarning]:
    """Warn of variants that were not interleaved with the baseline, or measured long before or after it.

    What one variant's runs drifted by, over the time between the variants, says how much that may explain.
    """
    groups = _groups(runs, baseline)
    if len(groups) < 2:
        return []
    base, *others = groups
    orders = {number: run_order(group, base) for number, group in enumerate(others, 1)}
    apart = {number: order for number, order in orders.items() if _is_apart(groups[number], base, order)}
    if not apart:
        return []
    drifts = drifts_between(groups, [groups[number] for number in apart], base)
    measured_drifts = [drift for drift in drifts if drift is not None]
    largest_pct = max(map(_largest_pct, measured_drifts), default=MAX_DRIFT_PCT)
    possible_pct = largest_pct if len(measured_drifts) == len(drifts) and largest_pct < MAX_DRIFT_PCT else None
    affected = [base, *(groups[number] for number in apart)]
    sentences = [_describe_order(groups, apart), *_describe_drift(measured_drifts, possible_pct)]
    return [
        ComparisonWarning(
            key="order",
            sentence=" ".join(sentences),
            values={run.row.run: units.utc_time(run.row.started_utc_ns) for group in affected for run in group},
            possible_pct=possible_pct,
            interleave=() if any(is_reference(run.row) for run in runs) else tuple(g[0].row.run for g in affected),
        )
    ]


def _groups(runs: Sequence[StoredRun], baseline: int | None) -> list[Group]:
    """Return the measured runs of each variant of the baseline's workload, the baseline's first.

    The baseline is the variant of that run, or of the first one.
    """
    by_number = {run.row.run: run for run in runs}
    measured = group_by_variant([run.row for run in runs if throughputs([run.row])])
    base = next((group for group in measured if any(row.run == baseline for row in group)), next(iter(measured), ()))
    others = [group for group in measured if group is not base and same_workload(group, base)]
    return [[by_number[row.run] for row in group] for group in (base, *others) if group]


def _is_apart(group: Group, base: Group, order: RunOrder) -> bool:
    return order.is_apart or (min(len(group), len(base)) > 1 and abs(order.separation) >= ORDER_LIMIT)


def _describe_order(groups: Sequence[Group], apart: Mapping[int, RunOrder]) -> str:
    """Return which variants were measured before or after the baseline, and how long."""
    names = _names(groups)
    clauses: list[str] = []
    for sign, word in ((1, "after"), (-1, "before")):
        chosen = {number: order for number, order in apart.items() if order.separation * sign > 0}
        if chosen:
            subject, verb = _count_runs([groups[number] for number in chosen], chosen.values())
            which = name_few([names[number] for number in chosen])
            reference = "that" if len(groups[0]) == 1 else "those"
            gap, restart = _describe_gap(chosen.values())
            clauses.append(f"{subject} of {which} {verb} made {gap}{word} {reference} of the baseline{restart}.")
    return " ".join([*clauses, _LOOKS_LIKE])


def _count_runs(groups: Sequence[Group], orders: Collection[RunOrder]) -> tuple[str, str]:
    """Return what was made in one order, all of the runs or most, and its verb."""
    if len(groups) == 1 and len(groups[0]) == 1:
        return "The run", "was"
    return ("All runs" if all(abs(order.separation) == 1 for order in orders) else "Most runs"), "were"


def _describe_gap(orders: Collection[RunOrder]) -> tuple[str, str]:
    """Return how long before or after, where that is long, and whether the machine was restarted meanwhile."""
    longest_s = max(order.gap_s for order in orders)
    same_boot = any(order.same_boot for order in orders)
    gap = f"{_format_long_time(longest_s)} " if longest_s >= GAP_S else ""
    return gap, "" if same_boot else ", with a restart in between"


def _format_long_time(seconds: float) -> str:
    hours = seconds / 3600
    return units.with_unit(hours, "h", 1) if hours < 48 else f"{hours / 24:.0f} days"


def _largest_pct(drift: Estimate) -> float:
    """Return the drift in percent: as measured where it is for sure, otherwise the largest that cannot be ruled out."""
    low, high = drift.interval or (drift.value, drift.value)
    ends = (drift.value,) if low > 1 or high < 1 else (low, high)
    return 100 * max(abs(float(np.log(end))) for end in ends)


def _describe_drift(drifts: Sequence[Estimate], possible_pct: float | None) -> list[str]:
    if possible_pct is None:
        return ["These runs cannot show how much."]
    possible = units.percent(possible_pct, 1)
    is_sure = any(low > 1 or high < 1 for low, high in (drift.interval or (1.0, 1.0) for drift in drifts))
    if is_sure:
        return [f"Within the variants the speed drifted by {possible} over that time."]
    return [f"By the runs of each variant, a drift of up to {possible} over that time cannot be ruled out."]


def _names(groups: Sequence[Group]) -> list[str]:
    return variant_names([group[0].row.spec for group in groups], in_sentence=True)


def describe_gpu_spread(runs: Sequence[StoredRun], baseline: int | None) -> tuple[str, float | None]:
    """Return what it means that variants are spread unevenly over GPUs of one model, as sentences; "" if they are not.

    And by how many percent a speed-up may differ by that: None where it cannot be told, as a GPU ran one variant alone.
    """
    groups = [[run.row for run in group] for group in _groups(runs, baseline)]
    pairs = [(group, groups[0]) for group in groups[1:] if min(len(group), len(groups[0])) > 1]
    spreads = {gpu_spread(*pair, throughputs) for pair in pairs}
    if "apart" in spreads:
        return " Some ran a single one of two compared variants, so the GPU may be part of their difference.", None
    if "uneven" not in spreads:
        return "", 0.0
    largest_pct = max(speed_bias_pct(*pair) for pair in pairs)
    speed = f" Within GPUs a speed-up would differ by {units.percent(largest_pct, 1)}."
    return (
        " Variants are spread unevenly over them, so energy is compared within GPUs."
        f"{speed if largest_pct >= 100 * CLOCK_LIMIT else ''}"
    ), largest_pct


def clock_warnings(runs: Sequence[StoredRun], baseline: int | None = None) -> list[ComparisonWarning]:
    """Tell of GPUs that ran below the highest clock seen: by their power limit a note, otherwise a warning.

    No step is slowed by more than its clock. A fast variant may draw so much power that its own clock falls; that is
    part of the result, but another power limit or another GPU would give another one.
    """
    highest = highest_clock_mhz(runs)
    clocks = {run.row.run: clock for run in runs if (clock := mean_clock_mhz(run)) is not None}
    slow = {run: clock for run, clock in clocks.items() if highest and clock < (1 - CLOCK_LIMIT) * highest}
    if not slow or not highest:
        return []
    limited = {run.row.run: throttled_shares(run).get("power limit", 0.0) for run in runs if run.row.run in slow}
    by_power = all(share >= THROTTLED_SHARE_LIMIT for share in limited.values())
    cause = " at the power limit" if by_power else ""
    possible_pct = 100 * (1 - min(slow.values()) / highest)
    which = "all runs" if len(slow) == len(clocks) > 1 else where(slow, runs)
    sentence = (
        f"The GPU clock was {_format_range(slow.values())} of {units.megahertz(highest)} in {which}{cause}. "
        f"That is up to {units.percent(possible_pct, 1)} of the speed{_describe_clock_difference(runs, baseline)}."
    )
    values = {run: units.with_unit(clock, "MHz") for run, clock in clocks.items()}
    return [
        ComparisonWarning(
            key="clocks",
            sentence=sentence,
            values=values,
            severity="note" if by_power else "warning",
            possible_pct=possible_pct,
        )
    ]


def _format_range(values: Collection[float]) -> str:
    return units.range_of(values, lambda value: f"{value:,.0f}")


def _describe_clock_difference(runs: Sequence[StoredRun], baseline: int | None) -> str:
    """Return how far the mean clocks of the variants are from the baseline's, where that is more than a step."""
    clocks_mhz = _means(_groups(runs, baseline), mean_clock_mhz)
    if 0 not in clocks_mhz:
        return ""
    largest = max((abs(clock / clocks_mhz[0] - 1) for clock in clocks_mhz.values()), default=0.0)
    return f", {units.percent(100 * largest, 1)} between compared variants" if largest >= CLOCK_LIMIT else ""


def _means(groups: Sequence[Group], figure: Callable[[StoredRun], float | None]) -> dict[int, float]:
    """Return the mean of a figure over the runs of each group that have it, by the group's place."""
    values = {n: [value for run in group if (value := figure(run)) is not None] for n, group in enumerate(groups)}
    return {n: float(np.mean(figures)) for n, figures in values.items() if figures}


def temperature_notes(runs: Sequence[StoredRun], baseline: int | None = None) -> list[ComparisonWarning]:
    """Note GPUs that were warmer before the runs of one variant than before those of the baseline.

    At one clock a warmer GPU computes as fast and draws more power.
    """
    groups = _groups(runs, baseline)
    starts, clocks = _means(groups, start_temperature_c), _means(groups, mean_clock_mhz)
    if 0 not in starts:
        return []
    number, warmest = max(starts.items(), key=lambda item: abs(item[1] - starts[0]))
    if abs(warmest - starts[0]) < TEMPERATURE_LIMIT_C:
        return []
    same_clock = {0, number} <= clocks.keys() and abs(clocks[number] / clocks[0] - 1) < CLOCK_LIMIT
    effect = "The clocks were the same, so only energy" if same_clock else "Speed, through the clocks, and energy"
    sentence = (
        f"GPUs were at {units.celsius(warmest)} before runs of {shorten_name(_names(groups)[number])}, and at "
        f"{units.celsius(starts[0])} before runs of the baseline. {effect} may differ by that."
    )
    values = {run.row.run: units.celsius(c) for group in groups for run in group if (c := start_temperature_c(run))}
    return [
        ComparisonWarning(
            key="temperature",
            sentence=sentence,
            values=values,
            severity="note",
            possible_pct=0.0 if same_clock else None,
        )
    ]
