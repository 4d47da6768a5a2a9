"""Reasons why a comparison may be misleading: what ran, on which machine and when."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from app.analysis import comparability
from app.analysis.comparability import THROTTLE_CAUSES, THROTTLED_SHARE_LIMIT, idle_wait_blockers, is_same_host
from app.analysis.intervals import Estimate
from app.analysis.run_state import (
    GAP_S,
    ORDER_LIMIT,
    drifts_between,
    highest_clock_mhz,
    host_bound_share,
    mean_clock_mhz,
    other_processes_load_pct,
    run_order,
    start_temperature_c,
)
from app.analysis.steps import run_slow_products
from app.analysis.verdict import (
    GpuSpread,
    gpu_spread,
    group_by_variant,
    same_workload,
    speed_bias_pct,
    throughputs,
    without,
)
from app.values import environment_keys, units
from app.values.environment_keys import COMMIT_KEY, HOST_KEY, SOURCES_KEY, environment_number
from app.values.records import RunRow, StoredRun
from app.viewmodels.compare.statements import EVIDENCE, Severity, Statement, format_reason
from app.viewmodels.format.cells import THIS_MACHINE, example_word
from app.viewmodels.format.derived import device_losses, implausible_readings
from app.viewmodels.format.environment import differing_environment
from app.viewmodels.format.naming import SEPARATOR, Name, choice_label, differing_parameters, names_in_parts
from app.viewmodels.format.sentences import NamedRuns, RunsWith, group_values, name_runs
from app.viewmodels.history.evidence import mismatches
from workloads.catalog import FRAMEWORKS, ONEDNN_KEY, distinct, drops_between_layers, is_script
from workloads.protocol import Value

EARLIER_RUNS = 10
"""The number of earlier runs of the baseline's variant to read for detecting drift."""

CLOCK_LIMIT = 0.01
"""A smaller difference is one or two steps of the clock: those of an H200 are 15 of 1,980 MHz apart."""

TEMPERATURE_LIMIT_C = 10.0
"""Smaller differences at the start are normal: the idle wait allows 5 °C above rest (docs/internals/idle-wait.md)."""

MAX_DRIFT_PCT = 50.0
"""A drift that may be larger is unknown: the runs vary too much."""

ALIKE_TIMES = 1.5
"""Equal kernels that take this much longer have more data, such as a larger batch; a busy CPU slows them by less."""

Group = Sequence[StoredRun]
"""The runs of one variant that measured."""
_VERSION_KEY = "program_version"
_MINOR_KEYS = comparability.MINOR_VARIABLE_KEYS | {
    "os",
    "kernel",
    "python",
    "numpy",
    "memory_total_bytes",
    "gpus_present",
}
_HASH_DIGITS = 7


def comparison_warnings(
    runs: Sequence[StoredRun], older: Sequence[StoredRun] = (), baseline: int | None = None
) -> tuple[Statement, ...]:
    """Return every reason why a comparison of these runs may mislead, warnings before notes.

    Within a severity, what may explain any difference comes first, then the others by how much they may explain. Of
    `older`, earlier runs of the baseline's variant, only rows and environments are used. The default baseline is the
    first run's variant.
    """
    clocks = clock_warnings(runs, baseline)
    warnings = [
        *evidence_warnings([run.row for run in runs]),
        *_indistinguishable(runs),
        *_unchanged_scripts(runs),
        *_unknown_examples(runs),
        *_without_tensor_cores(runs),
        *_other_dropout(runs),
        *order_warnings(runs, baseline),
        *_throttled(runs, are_clocks_known=bool(clocks)),
        *clocks,
        *_describe_reasons(runs, {**_DISTURBANCES, "lost": device_losses}),
        *_describe_reasons(runs, _NOTED, "note"),
        *_shared_host(runs),
        *_concurrent_runs(runs),
        *_different_gpus(runs, baseline),
        *_gpu_settings(runs),
        *environment_warnings(runs),
        *_drift(runs, older),
        *temperature_notes(runs, baseline),
    ]

    def harm(warning: Statement) -> tuple[bool, bool, float]:
        possible_pct = warning.facts.get("possible_pct")
        return warning.severity == "note", possible_pct is not None, -(possible_pct or 0.0)

    return tuple(sorted(warnings, key=harm))


def evidence_warnings(rows: Sequence[RunRow]) -> list[Statement]:
    """Warn of runs that did not run as requested."""
    values = {row.run: row.evidence_reason or "" for row in rows if row.evidence_state == "mismatch"}
    return [Statement(EVIDENCE, {"mismatches": mismatches(rows)}, values, "warning")] if values else []


def describe_disturbance(run: StoredRun) -> str:
    """Return what the machine did during a run that may have cost it speed; "" for nothing."""
    return " ".join(warning.sentence for warning in machine_warnings(run))


def machine_warnings(run: StoredRun) -> tuple[Statement, ...]:
    """Return what the machine did beside a run that may have cost it speed: other programs, a wait in vain, a sleep."""
    return (*_shared_host([run]), *_describe_reasons([run], _DISTURBANCES))


def _indistinguishable(runs: Sequence[StoredRun]) -> list[Statement]:
    """Warn of variants that differ in something evidence did not observe, and whose kernels do not differ.

    On GPUs a variant has the same kernels in every run; a CPU trace lacks short operations, so it proves nothing.
    """
    alike: dict[tuple[str, str, frozenset[str]], dict[str, list[StoredRun]]] = {}
    for run in runs:
        if (evidence := run.evidence) is None:
            continue
        kernels = frozenset(kernel.name for kernel in evidence.kernels if run.row.spec.variant.get("gpus"))
        for aspect, reason in evidence.unverified.items():
            by_value = alike.setdefault((aspect, reason, kernels), {})
            by_value.setdefault(evidence.requested.get(aspect, ""), []).append(run)
    warnings = []
    for (aspect, reason, _), by_value in alike.items():
        if len(by_value) > 1:
            labels = tuple(choice_label(members[0].row.spec, aspect, value) for value, members in by_value.items())
            values = {run.row.run: value for value, members in by_value.items() for run in members}
            facts = {"aspect": aspect, "choices": labels, "reason": reason}
            warnings.append(Statement("alike", facts, values, "warning"))
    return warnings


def _unchanged_scripts(runs: Sequence[StoredRun]) -> list[Statement]:
    """Warn of variants of a script with the same kernels, as often and as long: a change may have had no effect."""
    traced = [(run.row, run.evidence) for run in runs if is_script(run.row.spec.workload) and run.evidence]
    variants = distinct(without(row.spec) for row, evidence in traced if evidence.steps)
    alike: dict[frozenset[tuple[str, float]], dict[Name, list[int]]] = {}
    times_ns: dict[Name, float] = {}
    for spec, name in zip(variants, names_in_parts(variants) if len(variants) > 1 else (), strict=False):
        group = [(row, evidence) for row, evidence in traced if evidence.steps and without(row.spec) == spec]
        counts = {frozenset((kernel.name, kernel.count / of.steps) for kernel in of.kernels) for _, of in group}
        times_ns[name] = median(sum(kernel.time_ns for kernel in of.kernels) / of.steps for _, of in group)
        if len(counts) == 1:
            alike.setdefault(counts.pop(), {})[name] = [row.run for row, _ in group]
    statements = []
    for numbers in alike.values():
        least_ns = min(times_ns[name] for name in numbers)
        unchanged = {name: of for name, of in numbers.items() if times_ns[name] <= ALIKE_TIMES * least_ns}
        if len(unchanged) > 1:
            of_runs = {run: SEPARATOR.join(name) for name, group in unchanged.items() for run in group}
            statements.append(Statement("unchanged", {"variants": tuple(unchanged)}, of_runs, "warning"))
    return statements


def _unknown_examples(runs: Sequence[StoredRun]) -> list[Statement]:
    """Warn of variants of a script that differ in a number, such as the batch size, if each step counts as one."""
    rows = [run.row for run in runs if example_word(run.row.spec, run.row.summary) == "step"]
    placeholders = ([value for key, value in row.spec.variant.items() if key.startswith("{")] for row in rows)
    numbers = {tuple(value for value in values if type(value) in (int, float)) for values in placeholders}
    values = dict.fromkeys((row.run for row in rows), "steps")
    return [Statement("examples", runs=values, severity="warning")] if len(numbers) > 1 else []


def _without_tensor_cores(runs: Sequence[StoredRun]) -> list[Statement]:
    """Warn of products that took much of a step because they ran without tensor cores, contrary to the precision."""
    slow = {run.row.run: products for run in runs if (products := run_slow_products(run)) is not None}
    if not slow:
        return []
    values = {
        run: f"{units.milliseconds(products.time_ms)} ({units.percent(100 * products.share, 1)})"
        for run, products in slow.items()
    }
    shares = tuple(100 * products.share for products in slow.values())
    return [Statement("tensor_cores", {"share_pct": shares, "where": _where(slow, runs)}, values, "warning")]


def _other_dropout(runs: Sequence[StoredRun]) -> list[Statement]:
    """Warn of variants with different dropout: they train different networks."""
    kinds = {run.row.run: drops_between_layers(run.row.spec) for run in runs}
    values = {
        run: "between layers" if between else "before each layer"
        for run, between in kinds.items()
        if between is not None
    }
    return [Statement("dropout", runs=values, severity="warning")] if len(set(values.values())) > 1 else []


def _throttled(runs: Sequence[StoredRun], *, are_clocks_known: bool) -> list[Statement]:
    """Warn of throttling in some of the runs, or in all of them if the power limit is not the cause.

    A GPU at full load reaches its power limit. One throttled by heat or a hardware slowdown is slower than its model.
    If clocks are known, they say more about the power limit.
    """
    shares = {run.row.run: comparability.throttled_shares(run) for run in runs}
    warnings = []
    for hold in THROTTLE_CAUSES:
        hold_shares = {run: of_run[hold] for run, of_run in shares.items() if hold in of_run}
        throttled = {run: share for run, share in hold_shares.items() if share >= THROTTLED_SHARE_LIMIT}
        is_normal = hold == "power limit"
        if throttled and not (is_normal and (are_clocks_known or len(throttled) == len(hold_shares))):
            values = {run: units.percent(100 * share) for run, share in hold_shares.items()}
            facts = {"share_pct": tuple(100 * share for share in throttled.values()), "where": _where(throttled, runs)}
            warnings.append(Statement(f"throttled {hold}", facts, values, "note" if is_normal else "warning"))
    return warnings


Reasons = Mapping[str, Callable[[StoredRun], Any]]
"""Events during a run, by the warning's key, as functions of the run; empty for none."""

_DISTURBANCES: Reasons = {
    environment_keys.OTHERS_ON_GPU_KEY: lambda run: run.environment.get(environment_keys.OTHERS_ON_GPU_KEY),
    environment_keys.IDLE_WAIT_KEY: lambda run: comparability.used_gpus(run) and idle_wait_blockers(run.environment),
    environment_keys.STOOD_STILL_KEY: lambda run: environment_number(run.environment, environment_keys.STOOD_STILL_KEY),
}
"""What the machine did during a run that may have cost it speed."""

_NOTED: Reasons = {
    environment_keys.OTHERS_UNKNOWN_KEY: lambda run: run.environment.get(environment_keys.OTHERS_UNKNOWN_KEY),
    "implausible": implausible_readings,
}


def _describe_reasons(
    runs: Sequence[StoredRun], reasons: Reasons, severity: Severity = "warning"
) -> Iterator[Statement]:
    for key, read in reasons.items():
        if values := {run.row.run: reason for run in runs if (reason := read(run))}:
            texts = {run: format_reason(key, reason) for run, reason in values.items()}
            yield Statement(key, {"reasons": _with_runs(values, runs)}, texts, severity)


def _shared_host(runs: Sequence[StoredRun]) -> list[Statement]:
    """Warn of runs during which other programs were busy, as far as their steps depend on the host.

    While others use a share x of the processors, the host's part of a step gets at worst 1 - x of them.
    """
    shares = {run.row.run: share for run in runs if (share := other_processes_load_pct(run)) is not None}
    busy = {run: share / 100 for run, share in shares.items() if share > comparability.OTHER_LOAD_LIMIT_PCT}
    bound = {run.row.run: host_bound_share(run) for run in runs if run.row.run in busy}
    affected = {run: share for run, share in busy.items() if bound[run] is None or share * (bound[run] or 0) >= 0.01}
    if not affected:
        return []
    effects = [share * part for run, share in affected.items() if (part := bound[run]) is not None]
    facts = {
        "share_pct": tuple(100 * share for share in affected.values()),
        "where": _where(affected, runs),
        "possible_pct": 100 * max(effects) if len(effects) == len(affected) else None,
    }
    values = {run: units.percent(share) for run, share in shares.items()}
    return [Statement("others_on_host", facts, values, "warning")]


def _concurrent_runs(runs: Sequence[StoredRun]) -> list[Statement]:
    """Warn if only some of the runs had the machine to themselves."""
    measured = [run for run in runs if throughputs([run.row]) and comparability.used_gpus(run)]
    concurrent_runs = comparability.concurrent_runs(runs)
    values = {
        run.row.run: run.environment.get(environment_keys.CONCURRENT_GPUS_KEY)
        or ("other runs" if run.row.run in concurrent_runs else "")
        for run in measured
    }
    concurrent = [run for run, others in values.items() if others]
    if not concurrent or len(concurrent) == len(values):
        return []
    facts = {"where": _where(concurrent, runs)}
    return [Statement(environment_keys.CONCURRENT_GPUS_KEY, facts, values, "warning")]


def _different_gpus(runs: Sequence[StoredRun], baseline: int | None) -> list[Statement]:
    """Warn of different GPU models, or note which GPUs of one model were used without request.

    That matters if compared variants share none of them, or are spread unevenly over them.
    """
    kinds = {run.row.run: ", ".join(sorted(set(run.row.gpu_names))) for run in runs if run.row.gpu_names}
    if len(set(kinds.values())) > 1:
        return [_describe_difference("card", kinds, runs)]
    differing_names = differing_parameters([run.row.spec for run in runs])
    used = {run.row.run: gpus for run in runs if (gpus := comparability.used_gpus(run))}
    on_one_host = all(is_same_host(runs[0].environment, run.environment) for run in runs)
    if "devices" in differing_names or len(set(used.values())) < 2 or not on_one_host:
        return []
    spread, bias_pct = _spread_over_gpus(runs, baseline)
    if comparability.have_separate_gpus(runs):
        spread, bias_pct = "apart", None
    if "gpus" in differing_names and spread == "even":
        return []
    uses = Counter(gpu for gpus in used.values() for gpu in gpus)
    facts = {"gpus": len(uses), "kind": next(iter(kinds.values()), "GPUs"), "uses": tuple(uses.values())}
    return [
        Statement(
            {"even": environment_keys.GPUS_USED_KEY}.get(spread, f"gpus_{spread}"),
            {**facts, "possible_pct": bias_pct},
            {run: ", ".join(sorted(gpus)) for run, gpus in used.items()},
            "warning" if bias_pct is None or bias_pct >= 100 * CLOCK_LIMIT else "note",
        )
    ]


def _gpu_settings(runs: Sequence[StoredRun]) -> list[Statement]:
    limits = {run.row.run: units.with_unit(watts, "W") for run in runs if (watts := comparability.power_limit_w(run))}
    by_hand = {run.row.run: comparability.clocks_set(run) for run in runs}
    clocks = {run: "set by hand" if set_ else "automatic" for run, set_ in by_hand.items() if set_ is not None}
    settings = {"power_limit": limits, "clocks_set": clocks}
    return [
        _describe_difference(key, values, runs) for key, values in settings.items() if len(set(values.values())) > 1
    ]


def _drift(runs: Sequence[StoredRun], older: Sequence[StoredRun]) -> list[Statement]:
    drift = comparability.drift(runs, older)
    if drift is None or drift.interval is None or drift.interval[0] <= 1 <= drift.interval[1]:
        return []
    spec, summary = older[0].row.spec, older[0].row.summary
    newest = {run.row.run: run.row.summary.throughput for run in runs if without(run.row.spec) == without(spec)}
    values = {run: units.rate(value, example_word(spec, summary)) for run, value in newest.items()}
    return [Statement("drift", {"change_pct": 100 * (drift.value - 1)}, values, "warning")]


def _where(runs: Collection[int], among: Sequence[StoredRun]) -> NamedRuns:
    return name_runs(runs, [run.row for run in among])


def _with_runs(values: Mapping[int, Any], among: Sequence[StoredRun]) -> tuple[RunsWith, ...]:
    return group_values(values.items(), [run.row for run in among])


def _describe_difference(
    key: str, values: Mapping[int, str], among: Sequence[StoredRun], severity: Severity = "warning"
) -> Statement:
    facts = {"name": key, "values": _with_runs(values, among), "where": _where(values, among)}
    return Statement(HOST_KEY if key == HOST_KEY else "differs", facts, values, severity)


def environment_warnings(runs: Sequence[StoredRun]) -> list[Statement]:
    """Return the differences between the runs' environments, and what is unknown for some."""
    code = _code(runs)
    has_warning = any(warning.severity == "warning" for warning in code)
    first = runs[0].environment if runs else {}
    names = {run.row.run: run.environment.get(HOST_KEY, THIS_MACHINE) for run in runs}
    is_one_host = all(is_same_host(first, run.environment) for run in runs)  # a host may have several names
    hosts = [] if is_one_host else [_describe_difference(HOST_KEY, names, runs)]
    omitted = {environment_keys.GPUS_USED_KEY, COMMIT_KEY, SOURCES_KEY, *([_VERSION_KEY] if has_warning else [])}
    omitted |= {"gpus_present"} if hosts else set()  # other hosts have other GPUs
    differing = (item for item in differing_environment(runs).items() if item[0] not in omitted)
    on_gpus = all(int(run.row.spec.variant.get("gpus", 0)) for run in runs)
    minor = (*_MINOR_KEYS, *([ONEDNN_KEY] if on_gpus else []))
    differences = [
        _describe_difference(key, values, runs, "note" if key in minor or _is_requested(runs, key) else "warning")
        for key, values in differing
    ]
    return [*hosts, *code, *differences]


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


def _code(runs: Sequence[StoredRun]) -> list[Statement]:
    """Warn of runs with different or partly unknown code; note if all code is unknown.

    Only the workloads' sources count: commits that differ elsewhere measure with the same code.
    """
    with_code = [run for run in runs if COMMIT_KEY in run.environment or SOURCES_KEY in run.environment]
    key = SOURCES_KEY if all(SOURCES_KEY in run.environment for run in with_code) else COMMIT_KEY
    codes, commits = _values(with_code, key), _values(with_code, COMMIT_KEY)
    notes = []
    if len(set(codes.values())) > 1:
        names = {run: commits.get(run, f"sources {code[:_HASH_DIGITS]}") for run, code in codes.items()}
        notes.append(_describe_difference("code", names, runs))
    elif len(set(commits.values())) > 1:
        notes.append(_describe_difference(COMMIT_KEY, commits, runs, "note"))
    if unknown := [run.row.run for run in runs if run.row.run not in codes]:
        severity: Severity = "note" if len(unknown) == len(runs) else "warning"
        notes.append(Statement("unknown_code", {"where": _where(unknown, runs)}, tuple(unknown), severity))
    return notes


def _values(runs: Sequence[StoredRun], key: str) -> dict[int, str]:
    return {run.row.run: run.environment[key] for run in runs if key in run.environment}


def order_warnings(runs: Sequence[StoredRun], baseline: int | None = None) -> list[Statement]:
    """Warn of variants that were not interleaved with the baseline, or measured long before or after it.

    The drift within one variant's runs, over the time between variants, shows how much this may explain.
    """
    groups = _groups(runs, baseline)
    if len(groups) < 2:
        return []
    base, *others = groups
    orders = {number: run_order(group, base) for number, group in enumerate(others, 1)}
    apart = {
        number: order
        for number, order in orders.items()
        if order.is_apart or (min(len(groups[number]), len(base)) > 1 and abs(order.separation) >= ORDER_LIMIT)
    }
    if not apart:
        return []
    affected = [base, *(groups[number] for number in apart)]
    drifts = drifts_between(groups, affected[1:], base)
    measured_drifts = [drift for drift in drifts if drift is not None]
    largest_pct = max(map(_largest_pct, measured_drifts), default=MAX_DRIFT_PCT)
    names, gap_s = _names(groups), max(order.gap_s for order in apart.values())
    same_boot = any(order.same_boot for order in apart.values())
    is_bounded = len(measured_drifts) == len(drifts) and largest_pct < MAX_DRIFT_PCT
    facts = {
        "variants": tuple(names[number] for number in apart),
        "gap_h": gap_s / 3600,
        "possible_pct": largest_pct if is_bounded else None,
        "interleave": () if any(run.row.is_reference for run in runs) else tuple(g[0].row.run for g in affected),
    }
    times = {run.row.run: units.utc_time(run.row.started_utc_ns) for group in affected for run in group}
    return [Statement("restart" if not same_boot else "apart" if gap_s >= GAP_S else "order", facts, times, "warning")]


def _groups(runs: Sequence[StoredRun], baseline: int | None) -> list[Group]:
    """Return the measured runs of each variant of the baseline's workload, the baseline's first.

    The baseline is the variant of that run, or of the first one.
    """
    by_number = {run.row.run: run for run in runs}
    measured = group_by_variant([run.row for run in runs if throughputs([run.row])])
    base = next((group for group in measured if any(row.run == baseline for row in group)), next(iter(measured), ()))
    others = [group for group in measured if group is not base and same_workload(group, base)]
    return [[by_number[row.run] for row in group] for group in (base, *others) if group]


def _largest_pct(drift: Estimate) -> float:
    """Return the drift in percent: as measured if it is certain, otherwise the largest that cannot be ruled out."""
    low, high = drift.interval or (drift.value, drift.value)
    ends = (drift.value,) if low > 1 or high < 1 else (low, high)
    return 100 * max(abs(float(np.log(end))) for end in ends)


def _names(groups: Sequence[Group]) -> list[Name]:
    return names_in_parts([group[0].row.spec for group in groups], in_sentence=True)


def _spread_over_gpus(runs: Sequence[StoredRun], baseline: int | None) -> tuple[GpuSpread, float | None]:
    """Return the worst spread of variants over GPUs of one model, and the percentage a speed-up may lose by it.

    None if that is unknown because a GPU ran only one variant.
    """
    groups = [[run.row for run in group] for group in _groups(runs, baseline)]
    pairs = [(group, groups[0]) for group in groups[1:] if min(len(group), len(groups[0])) > 1]
    spreads = {gpu_spread(*pair, throughputs) for pair in pairs}
    if "apart" in spreads:
        return "apart", None
    return ("uneven", max(speed_bias_pct(*pair) for pair in pairs)) if "uneven" in spreads else ("even", 0.0)


def clock_warnings(runs: Sequence[StoredRun], baseline: int | None = None) -> list[Statement]:
    """Report GPUs that ran below the highest clock seen: a note if by their power limit, otherwise a warning.

    A step slows by no more than its clock, so a ratio changes by no more than that of the variants' mean clocks. A fast
    variant may draw so much power that its own clock falls; that is part of the result, which depends on the power
    limit and the GPU.
    """
    highest = highest_clock_mhz(runs)
    clocks = {run.row.run: clock for run in runs if (clock := mean_clock_mhz(run)) is not None}
    slow = {run: clock for run, clock in clocks.items() if highest and clock < (1 - CLOCK_LIMIT) * highest}
    if not slow or not highest:
        return []
    limited = {
        run.row.run: comparability.throttled_shares(run).get("power limit", 0.0) for run in runs if run.row.run in slow
    }
    by_power = all(share >= THROTTLED_SHARE_LIMIT for share in limited.values())
    means = _means(_groups(runs, baseline), mean_clock_mhz)
    base = means.get(0, highest)
    facts = {
        "clock_mhz": tuple(slow.values()),
        "highest_mhz": highest,
        "where": _where(slow, runs),
        "possible_pct": 100 * max((abs(clock / base - 1) for clock in means.values()), default=0.0),
    }
    values = {run: units.megahertz(clock) for run, clock in clocks.items()}
    return [Statement("clocks_power", facts, values) if by_power else Statement("clocks", facts, values, "warning")]


def _means(groups: Sequence[Group], figure: Callable[[StoredRun], float | None]) -> dict[int, float]:
    values = {n: [value for run in group if (value := figure(run)) is not None] for n, group in enumerate(groups)}
    return {n: float(np.mean(figures)) for n, figures in values.items() if figures}


def temperature_notes(runs: Sequence[StoredRun], baseline: int | None = None) -> list[Statement]:
    """Note GPUs that were warmer before the runs of one variant than before those of the baseline.

    At the same clock, a warmer GPU computes as fast but draws more power.
    """
    groups = _groups(runs, baseline)
    starts = _means(groups, start_temperature_c)
    if 0 not in starts:
        return []
    number, warmest_c = max(starts.items(), key=lambda item: abs(item[1] - starts[0]))
    if abs(warmest_c - starts[0]) < TEMPERATURE_LIMIT_C:
        return []
    measured = ((run.row.run, start_temperature_c(run)) for group in groups for run in group)
    values = {run: units.celsius(celsius) for run, celsius in measured if celsius is not None}
    facts = {"warmest_c": warmest_c, "baseline_c": starts[0], "variants": (_names(groups)[number],)}
    return [Statement("temperature", {**facts, "possible_pct": 0.0}, values)]
