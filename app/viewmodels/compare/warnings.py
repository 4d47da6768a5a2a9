"""Reasons why a comparison may be misleading, one plain sentence each."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from app.analysis import comparability
from app.analysis.comparability import THROTTLE_CAUSES, THROTTLED_SHARE_LIMIT, idle_wait_blockers
from app.analysis.run_state import host_bound_share, other_processes_load_pct
from app.analysis.steps import run_slow_products
from app.analysis.verdict import throughputs, without
from app.values import environment_keys, units
from app.values.records import StoredRun
from app.viewmodels.compare.state_warnings import (
    CLOCK_LIMIT,
    EVIDENCE,
    ComparisonWarning,
    Severity,
    clock_warnings,
    describe_difference,
    environment_warnings,
    order_warnings,
    spread_over_gpus,
    temperature_notes,
    where,
)
from app.viewmodels.format.cells import example_word
from app.viewmodels.format.derived import describe_losses, format_implausible
from app.viewmodels.format.environment import runs_by_value
from app.viewmodels.format.naming import choice_label, differing_parameters, variant_names
from app.viewmodels.format.sentences import join_with_and
from app.viewmodels.history.evidence import describe_mismatches
from workloads.catalog import distinct, drops_between_layers, is_script

EARLIER_RUNS = 10
"""Earlier runs of the baseline's variant that are read to detect drift."""

_MAX_LISTED = 4
"""Reasons that are listed one by one."""


def comparison_warnings(
    runs: Sequence[StoredRun], older: Sequence[StoredRun] = (), baseline: int | None = None
) -> tuple[ComparisonWarning, ...]:
    """Return every reason why a comparison of these runs may mislead, warnings before notes.

    Among those of one severity, what may explain any difference comes first, then the others by what they may explain.

    Of `older`, earlier runs of the baseline's variant, only rows and environments are used. Without a baseline it is
    the variant of the first run.
    """
    clocks = clock_warnings(runs, baseline)
    rows = [run.row for run in runs]
    values = {row.run: row.evidence_reason or "" for row in rows if row.evidence_state == "mismatch"}
    mismatches = {"reasons": describe_mismatches(rows)}
    warnings = [
        *([ComparisonWarning(key=EVIDENCE, values=values, facts=mismatches)] if values else []),
        *_indistinguishable(runs),
        *_unchanged_scripts(runs),
        *_without_tensor_cores(runs),
        *_other_dropout(runs),
        *order_warnings(runs, baseline),
        *_throttled(runs, are_clocks_known=bool(clocks)),
        *clocks,
        *_describe_reasons(runs, {**_DISTURBANCES, "lost": describe_losses}),
        *_describe_reasons(runs, _NOTED, "note"),
        *_shared_host(runs),
        *_concurrent_runs(runs),
        *_different_gpus(runs, baseline),
        *_gpu_settings(runs),
        *environment_warnings(runs),
        *_drift(runs, older),
        *temperature_notes(runs, baseline),
    ]
    return tuple(
        sorted(
            warnings, key=lambda one: (one.severity == "note", one.possible_pct is not None, -(one.possible_pct or 0.0))
        )
    )


def describe_disturbance(run: StoredRun) -> str:
    """Return what the machine did beside a run that may have cost it speed; "" for nothing."""
    return " ".join(warning.sentence for warning in machine_warnings(run))


def machine_warnings(run: StoredRun) -> tuple[ComparisonWarning, ...]:
    """Return what the machine did beside a run that may have cost it speed: other programs, a wait in vain, a sleep."""
    return (*_shared_host([run]), *_describe_reasons([run], _DISTURBANCES))


def _indistinguishable(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn of variants that differ in what evidence could not see, where no kernel tells them apart either.

    On GPUs a variant has the same kernels in every run; a trace of the CPU lacks short operations, so it tells nothing.
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
            labels = [choice_label(members[0].row.spec, aspect, value) for value, members in by_value.items()]
            values = {run.row.run: value for value, members in by_value.items() for run in members}
            facts = {"aspect": aspect, "choices": join_with_and(labels), "reason": reason}
            warnings.append(ComparisonWarning(key="alike", values=values, facts=facts))
    return warnings


def _unchanged_scripts(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn of variants of a script that ran the same kernels equally often: what was changed may have no effect."""
    traced = [(run.row, run.evidence) for run in runs if is_script(run.row.spec.workload) and run.evidence]
    variants = distinct(without(row.spec) for row, evidence in traced if evidence.steps)
    alike: dict[frozenset[tuple[str, float]], dict[str, list[int]]] = {}
    for spec, name in zip(variants, variant_names(variants) if len(variants) > 1 else (), strict=False):
        group = [(row, evidence) for row, evidence in traced if evidence.steps and without(row.spec) == spec]
        counts = {frozenset((kernel.name, kernel.count / of.steps) for kernel in of.kernels) for _, of in group}
        if len(counts) == 1:
            alike.setdefault(counts.pop(), {})[name] = [row.run for row, _ in group]
    return [
        ComparisonWarning(
            key="unchanged",
            facts={"names": join_with_and(numbers)},
            values={run: name for name, group in numbers.items() for run in group},
        )
        for numbers in alike.values()
        if len(numbers) > 1
    ]


def _without_tensor_cores(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn of products that took much of a step because they ran without tensor cores, against the precision."""
    slow = {run.row.run: products for run in runs if (products := run_slow_products(run)) is not None}
    if not slow:
        return []
    values = {
        run: f"{units.milliseconds(products.time_ms)} ({units.percent(100 * products.share, 1)})"
        for run, products in slow.items()
    }
    shares = tuple(100 * products.share for products in slow.values())
    return [
        ComparisonWarning(key="tensor_cores", values=values, facts={"share_pct": shares, "where": where(slow, runs)})
    ]


def _other_dropout(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn of variants whose dropout is not the same: they train other networks."""
    kinds = {run.row.run: drops_between_layers(run.row.spec) for run in runs}
    values = {
        run: "between layers" if between else "before each layer"
        for run, between in kinds.items()
        if between is not None
    }
    return [ComparisonWarning(key="dropout", values=values)] if len(set(values.values())) > 1 else []


def _throttled(runs: Sequence[StoredRun], *, are_clocks_known: bool) -> list[ComparisonWarning]:
    """Warn of throttling in some of the runs, or in all of them if it is not by the power limit.

    A GPU at full load is at its power limit. One throttled by heat or a hardware slowdown is slower than its model. Of
    the power limit the clocks tell more, where they are known.
    """
    shares = {run.row.run: comparability.throttled_shares(run) for run in runs}
    warnings = []
    for hold in THROTTLE_CAUSES:
        hold_shares = {run: of_run[hold] for run, of_run in shares.items() if hold in of_run}
        throttled = {run: share for run, share in hold_shares.items() if share >= THROTTLED_SHARE_LIMIT}
        is_normal = hold == "power limit"
        if throttled and not (is_normal and (are_clocks_known or len(throttled) == len(hold_shares))):
            warnings.append(
                ComparisonWarning(
                    key=f"throttled {hold}",
                    values={run: units.percent(100 * share) for run, share in hold_shares.items()},
                    facts={
                        "share_pct": tuple(100 * share for share in throttled.values()),
                        "where": where(throttled, runs),
                    },
                    severity="note" if is_normal else "warning",
                )
            )
    return warnings


Reasons = Mapping[str, Callable[[StoredRun], str]]
"""What a run says of itself that may have happened to it, "" for nothing, by the key of the warning."""

_DISTURBANCES: Reasons = {
    environment_keys.OTHERS_ON_GPU_KEY: lambda run: run.environment.get(environment_keys.OTHERS_ON_GPU_KEY, ""),
    environment_keys.IDLE_WAIT_KEY: lambda run: (
        idle_wait_blockers(run.environment) if comparability.used_gpus(run) else ""
    ),
    environment_keys.STOOD_STILL_KEY: lambda run: (
        units.quantity(seconds, "s") if (seconds := run.environment.get(environment_keys.STOOD_STILL_KEY)) else ""
    ),
}
"""What the machine did beside a run that may have cost it speed."""

_NOTED: Reasons = {
    environment_keys.OTHERS_UNKNOWN_KEY: lambda run: run.environment.get(environment_keys.OTHERS_UNKNOWN_KEY, ""),
    "implausible": lambda run: format_implausible(run, _MAX_LISTED),
}


def _describe_reasons(
    runs: Sequence[StoredRun], reasons: Reasons, severity: Severity = "warning"
) -> Iterator[ComparisonWarning]:
    for key, read in reasons.items():
        if values := {run.row.run: text for run in runs if (text := read(run))}:
            facts = {"reasons": _format_reasons(values, runs)}
            yield ComparisonWarning(key=key, values=values, facts=facts, severity=severity)


def _format_reasons(values: Mapping[int, str], among: Sequence[StoredRun]) -> str:
    """Return which runs have which reason, a sentence each, of many reasons only the first."""
    parts = [units.sentence(f"{where(runs, among)}: {reason}") for reason, runs in runs_by_value(values).items()]
    left_out = [f"{len(parts) - _MAX_LISTED} more."] if len(parts) > _MAX_LISTED else []
    return " ".join([*parts[:_MAX_LISTED], *left_out])


def _shared_host(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn of runs during which other programs were busy, as far as their steps depend on the host.

    While others use a share x of the processors, what computes there gets 1 - x of them at worst.
    """
    shares = {run.row.run: share for run in runs if (share := other_processes_load_pct(run)) is not None}
    busy = {run: share / 100 for run, share in shares.items() if share > comparability.OTHER_LOAD_LIMIT_PCT}
    bound = {run.row.run: host_bound_share(run) for run in runs if run.row.run in busy}
    affected = {run: share for run, share in busy.items() if bound[run] is None or share * (bound[run] or 0) >= 0.01}
    if not affected:
        return []
    effects = [share * part for run, share in affected.items() if (part := bound[run]) is not None]
    possible_pct = 100 * max(effects) if len(effects) == len(affected) else None
    return [
        ComparisonWarning(
            key="others_on_host",
            values={run: units.percent(share) for run, share in shares.items()},
            facts={
                "share_pct": tuple(100 * share for share in affected.values()),
                "where": where(affected, runs),
            },
            possible_pct=possible_pct,
        )
    ]


def _concurrent_runs(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn if some runs had the machine to themselves and others shared it."""
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
    return [
        ComparisonWarning(
            key=environment_keys.CONCURRENT_GPUS_KEY, values=values, facts={"where": where(concurrent, runs)}
        )
    ]


def _different_gpus(runs: Sequence[StoredRun], baseline: int | None) -> list[ComparisonWarning]:
    """Warn of different GPU models, or note which GPUs of one model were used without being requested.

    That matters if compared variants share none of them, or are spread unevenly over them.
    """
    kinds = {run.row.run: ", ".join(sorted(set(run.row.gpu_names))) for run in runs if run.row.gpu_names}
    if len(set(kinds.values())) > 1:
        return [describe_difference("card", "The kind of GPU", kinds, runs)]
    differing_names = differing_parameters([run.row.spec for run in runs])
    used = {run.row.run: gpus for run in runs if (gpus := comparability.used_gpus(run))}
    on_one_host = all(comparability.is_same_host(runs[0].environment, run.environment) for run in runs)
    if "devices" in differing_names or len(set(used.values())) < 2 or not on_one_host:
        return []
    spread, bias_pct = spread_over_gpus(runs, baseline)
    if comparability.have_separate_gpus(runs):
        spread, bias_pct = "apart", None
    if "gpus" in differing_names and spread == "even":
        return []
    uses = Counter(gpu for gpus in used.values() for gpu in gpus)
    return [
        ComparisonWarning(
            key={"even": environment_keys.GPUS_USED_KEY}.get(spread, f"gpus_{spread}"),
            values={run: ", ".join(sorted(gpus)) for run, gpus in used.items()},
            facts={"gpus": len(uses), "kind": next(iter(kinds.values()), "GPUs"), "uses": tuple(uses.values())},
            severity="warning" if bias_pct is None or bias_pct >= 100 * CLOCK_LIMIT else "note",
            possible_pct=bias_pct,
        )
    ]


def _gpu_settings(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    limits = {run.row.run: units.with_unit(watts, "W") for run in runs if (watts := comparability.power_limit_w(run))}
    by_hand = {run.row.run: comparability.clocks_set(run) for run in runs}
    clocks = {run: "set by hand" if set_ else "automatic" for run, set_ in by_hand.items() if set_ is not None}
    settings = (
        ("power_limit", "The GPUs' power limit", limits),
        ("clocks_set", "How the GPUs' clocks are set", clocks),
    )
    return [
        describe_difference(key, name, values, runs) for key, name, values in settings if len(set(values.values())) > 1
    ]


def _drift(runs: Sequence[StoredRun], older: Sequence[StoredRun]) -> list[ComparisonWarning]:
    drift = comparability.drift(runs, older)
    if drift is None or drift.interval is None or drift.interval[0] <= 1 <= drift.interval[1]:
        return []
    spec, summary = older[0].row.spec, older[0].row.summary
    newest = {run.row.run: run.row.summary.throughput for run in runs if without(run.row.spec) == without(spec)}
    values = {run: units.rate(value, example_word(spec, summary)) for run, value in newest.items()}
    return [ComparisonWarning(key="drift", values=values, facts={"change_pct": 100 * (drift.value - 1)})]
