"""Comparison warnings as records, their sentences, and those about when runs were measured and on which machine."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from app.analysis.comparability import MINOR_VARIABLE_KEYS, THROTTLED_SHARE_LIMIT, is_same_host, throttled_shares
from app.analysis.intervals import Estimate
from app.analysis.run_state import (
    GAP_S,
    ORDER_LIMIT,
    drifts_between,
    highest_clock_mhz,
    mean_clock_mhz,
    run_order,
    start_temperature_c,
)
from app.analysis.verdict import GpuSpread, gpu_spread, group_by_variant, same_workload, speed_bias_pct, throughputs
from app.storage.reference import is_reference
from app.values import environment_keys, units
from app.values.environment_keys import COMMIT_KEY, GPUS_USED_KEY, HOST_KEY, SOURCES_KEY
from app.values.records import StoredRun
from app.viewmodels.format.cells import THIS_MACHINE
from app.viewmodels.format.environment import differing_environment, environment_label, format_values_by_run
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.sentences import name_few, name_runs
from workloads.catalog import FRAMEWORKS, ONEDNN_KEY
from workloads.protocol import Value

Severity = Literal["warning", "note"]
"""A warning may explain a difference; a note is worth knowing."""

Fact = str | float | tuple[float, ...]
"""A word, a number, or the numbers of several runs."""

EVIDENCE = "evidence"
"""The key of the warning that some runs did not run as requested."""

SENTENCES: Mapping[str, str] = {
    "unchanged": "The same kernels ran equally often in {names}: what differs changed nothing that ran, unless it is "
    "the size of the data or the work of the host.",
    "left_out": "At most {most} runs are compared; of those chosen, {count} are not.",
    "equality": "The baseline does not compute the same as {variants}: {differences}.",
    "equality_same": "The baseline computes the same as {variants}: {differences}.",
    "equality_unknown": "Not checked whether the baseline computes the same as {variants}. {reason}",
    EVIDENCE: "{reasons} So the verdict is about what ran, not what was requested.",
    "alike": "The evidence does not show that {choices} ran different code. A difference in speed proves nothing. "
    "{reason}",
    "tensor_cores": "Products ran without tensor cores although the precision is meant for them. They take {share_pct} "
    "of a step in {where}, which would be faster with them.",
    "dropout": "Dropout is not the same: cuDNN's whole stack leaves out other values at each step, and none of the "
    "first layer's inputs. Compare variants without dropout.",
    "order": "All or most runs of {variants} were made before or after those of the baseline. A change in the machine "
    "in between would look like a difference between variants. {consequence}",
    "apart": "Runs of {variants} were made up to {gap_h} before or after those of the baseline. A change in the "
    "machine in between would look like a difference between variants. {consequence}",
    "restart": "The machine was restarted between the runs of {variants} and those of the baseline. A change in the "
    "machine would look like a difference between variants. {consequence}",
    "throttled heat": "GPUs were throttled because of heat in {where}, for {share_pct} of the measured part. "
    "That slows them.",
    "throttled power limit": "GPUs were throttled by the power limit in {where}, for {share_pct} of the measured part. "
    "That slows them.",
    "throttled hardware slowdown": "GPUs were throttled by a hardware slowdown in {where}, for {share_pct} of the "
    "measured part. That slows them.",
    "clocks": "The GPU clock was {clock_mhz} of {highest_mhz} in {where}. Between variants it is {apart_pct} apart. "
    "{consequence}",
    "clocks_power": "The power limit kept the GPU clock at {clock_mhz} of {highest_mhz} in {where}. Between variants "
    "it is {apart_pct} apart. {consequence}",
    environment_keys.OTHERS_ON_GPU_KEY: "Other processes used the GPU during a run, which makes it slower. {reasons}",
    environment_keys.IDLE_WAIT_KEY: "The wait for idle GPUs timed out; runs may be slower. {reasons}",
    environment_keys.STOOD_STILL_KEY: "Everything was suspended during a run, and its figures hold that time too. "
    "{reasons}",
    environment_keys.OTHERS_UNKNOWN_KEY: "Whether other processes used the GPU is unknown: nobody could list them. "
    "Any would have made the run slower. {reasons}",
    "lost": "A device stopped answering during a run, which may have slowed it. {reasons}",
    "implausible": "Readings of telemetry that cannot be true were left out. {consequence} {reasons}",
    "others_on_host": "Other programs used the CPU while a run measured: {share_pct} in {where}. {consequence}",
    environment_keys.CONCURRENT_GPUS_KEY: "Runs on other GPUs shared the machine with {where}, which may be slower "
    "for it.",
    GPUS_USED_KEY: "{gpus} {kind} were used, for {uses} runs each.",
    "gpus_uneven": "Variants are spread unevenly over {gpus} {kind}, so energy is compared within GPUs. {consequence}",
    "gpus_apart": "Some variants ran on other ones of {gpus} {kind} than those they are compared with. {consequence}",
    HOST_KEY: "The host differs: {named}. Its processor, driver, cooling and users may explain a difference, even with "
    "the same kind of GPU. Compare variants on one host.",
    "unknown_code": "The program's code is unknown in {where}, and may differ.",
    "drift": "The baseline has drifted: its speed has changed by {change_pct} from older runs of the same variant in "
    "the same environment. Do not compare with those.",
    "temperature": "GPUs were at {warmest_c} before runs of {variants}, and at {baseline_c} before runs of the "
    "baseline. Energy may differ by that, and speed by the clocks alone.",
}
"""The sentence of each key; runs are named by their variants, and their values stand beside it."""

_DIFFERS = "{name} differs: {named}. {consequence}"
"""The sentence of every other key, that of an environment."""

_UNITS = {"pct": "%", "mhz": "MHz", "c": "°C", "h": "h"}
"""The unit of a number by the end of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonWarning:
    """One reason why a comparison may mislead.

    Attributes:
        key: What it is about, of `SENTENCES` or of an environment.
        values: What each run it concerns has, by run number.
        facts: What its sentence names. A number's name ends in its unit.
        severity: How much it matters.
        possible_pct: How much of a difference in speed it may explain, in percent; None if that has no known limit.
        interleave: A run of each variant that should be measured again, interleaved, the baseline's first.
    """

    key: str
    values: Mapping[int, str]
    facts: Mapping[str, Fact] = field(default_factory=dict)
    severity: Severity = "warning"
    possible_pct: float | None = None
    interleave: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        words = {name: _format_fact(name, value) for name, value in self.facts.items()}
        return SENTENCES.get(self.key, _DIFFERS).format(**words, consequence=self._consequence)

    @property
    def _consequence(self) -> str:
        if self.possible_pct:
            return f"That may change speed by up to {units.percent(self.possible_pct, 1)}."
        if self.possible_pct == 0 or self.severity == "note":
            return "No difference in speed is expected from that."
        return "A difference in speed may come from that."


def _format_fact(name: str, value: Fact) -> str:
    if isinstance(value, str):
        return value
    unit = next((unit for ending, unit in _UNITS.items() if name.endswith(f"_{ending}")), "")
    if isinstance(value, tuple):
        figures = units.range_of(value, lambda number: f"{number:,.0f}")
    else:
        sign = "+" if name.startswith("change") else ""
        figures = units.with_minus(f"{value:{sign},.{1 if unit in ('%', 'h') else 0}f}")
    return units.quantity(figures, unit) if unit else figures


CODE = "code"
"""The key of the warning that runs are of different code."""

_VERSION_KEY = "program_version"
_MINOR_KEYS = MINOR_VARIABLE_KEYS | {"os", "kernel", "python", "numpy", "memory_total_bytes", "gpus_present"}
_HASH_DIGITS = 7
_VALUES_CHARS = 100
"""Of values that a sentence lists with their runs."""


def where(runs: Collection[int], among: Sequence[StoredRun]) -> str:
    return name_runs(runs, [run.row for run in among])


def describe_difference(
    key: str, name: str, values: Mapping[int, str], among: Sequence[StoredRun], severity: Severity = "warning"
) -> ComparisonWarning:
    """Return a warning that something differs between runs; of values too long for a sentence, how many there are."""
    named = format_values_by_run(values, lambda runs: where(runs, among))
    if len(named) > _VALUES_CHARS or "GPU-" in named:
        named = f"{len(set(values.values()))} values in {where(values, among)}"
    return ComparisonWarning(key=key, values=values, facts={"name": name, "named": named}, severity=severity)


def environment_warnings(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Return what differs between the environments of runs, and what is not known of some."""
    code = _code(runs)
    has_warning = any(warning.severity == "warning" for warning in code)
    first = runs[0].environment if runs else {}
    names = {run.row.run: run.environment.get(HOST_KEY, THIS_MACHINE) for run in runs}
    is_one_host = all(is_same_host(first, run.environment) for run in runs)  # of which there may be several names
    hosts = [] if is_one_host else [describe_difference(HOST_KEY, environment_label(HOST_KEY), names, runs)]
    omitted = {GPUS_USED_KEY, COMMIT_KEY, SOURCES_KEY, *([_VERSION_KEY] if has_warning else [])}
    omitted |= {"gpus_present"} if hosts else set()  # other hosts have other GPUs
    differing = (item for item in differing_environment(runs).items() if item[0] not in omitted)
    differences = [
        describe_difference(key, environment_label(key), values, runs, "note" if _is_minor(runs, key) else "warning")
        for key, values in differing
    ]
    return [*hosts, *code, *differences]


def _is_minor(runs: Sequence[StoredRun], key: str) -> bool:
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
    codes, commits = _values(with_code, key), _values(with_code, COMMIT_KEY)
    notes = []
    if len(set(codes.values())) > 1:
        names = {run: commits.get(run, f"sources {code[:_HASH_DIGITS]}") for run, code in codes.items()}
        notes.append(describe_difference(CODE, "The program's code", names, runs))
    elif len(set(commits.values())) > 1:
        notes.append(describe_difference(COMMIT_KEY, "The program's commit", commits, runs, "note"))
    if unknown := [run.row.run for run in runs if run.row.run not in codes]:
        notes.append(
            ComparisonWarning(
                key="unknown_code",
                values=dict.fromkeys(unknown, ""),
                facts={"where": where(unknown, runs)},
                severity="note" if len(unknown) == len(runs) else "warning",
            )
        )
    return notes


def _values(runs: Sequence[StoredRun], key: str) -> dict[int, str]:
    return {run.row.run: run.environment[key] for run in runs if key in run.environment}


CLOCK_LIMIT = 0.01
"""A clock lower by less is a step of the clock or two: those of an H200 are 15 of 1,980 MHz apart."""

TEMPERATURE_LIMIT_C = 10.0
"""Starts that differ by less are ordinary: the idle wait allows 5 °C above rest (docs/internals/idle-wait.md)."""

MAX_DRIFT_PCT = 50.0
"""A drift that may be larger is not known at all: the runs vary too much."""

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
    return [
        ComparisonWarning(
            key="restart" if not same_boot else "apart" if gap_s >= GAP_S else "order",
            values={run.row.run: units.utc_time(run.row.started_utc_ns) for group in affected for run in group},
            facts={
                "variants": name_few([names[number] for number in apart]),
                "gap_h": gap_s / 3600,
            },
            possible_pct=largest_pct if len(measured_drifts) == len(drifts) and largest_pct < MAX_DRIFT_PCT else None,
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


def _largest_pct(drift: Estimate) -> float:
    """Return the drift in percent: as measured where it is for sure, otherwise the largest that cannot be ruled out."""
    low, high = drift.interval or (drift.value, drift.value)
    ends = (drift.value,) if low > 1 or high < 1 else (low, high)
    return 100 * max(abs(float(np.log(end))) for end in ends)


def _names(groups: Sequence[Group]) -> list[str]:
    return variant_names([group[0].row.spec for group in groups], in_sentence=True)


def spread_over_gpus(runs: Sequence[StoredRun], baseline: int | None) -> tuple[GpuSpread, float | None]:
    """Return how variants are spread over GPUs of one model, the worst, and how many percent a speed-up may lose by it.

    None where that cannot be told, as a GPU ran one variant alone.
    """
    groups = [[run.row for run in group] for group in _groups(runs, baseline)]
    pairs = [(group, groups[0]) for group in groups[1:] if min(len(group), len(groups[0])) > 1]
    spreads = {gpu_spread(*pair, throughputs) for pair in pairs}
    if "apart" in spreads:
        return "apart", None
    return ("uneven", max(speed_bias_pct(*pair) for pair in pairs)) if "uneven" in spreads else ("even", 0.0)


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
    means = _means(_groups(runs, baseline), mean_clock_mhz)
    base = means.get(0, highest)
    return [
        ComparisonWarning(
            key="clocks_power" if by_power else "clocks",
            values={run: units.megahertz(clock) for run, clock in clocks.items()},
            facts={
                "clock_mhz": tuple(slow.values()),
                "highest_mhz": highest,
                "where": where(slow, runs),
                "apart_pct": 100 * max((abs(clock / base - 1) for clock in means.values()), default=0.0),
            },
            severity="note" if by_power else "warning",
            possible_pct=100 * (1 - min(slow.values()) / highest),
        )
    ]


def _means(groups: Sequence[Group], figure: Callable[[StoredRun], float | None]) -> dict[int, float]:
    values = {n: [value for run in group if (value := figure(run)) is not None] for n, group in enumerate(groups)}
    return {n: float(np.mean(figures)) for n, figures in values.items() if figures}


def temperature_notes(runs: Sequence[StoredRun], baseline: int | None = None) -> list[ComparisonWarning]:
    """Note GPUs that were warmer before the runs of one variant than before those of the baseline.

    At one clock a warmer GPU computes as fast and draws more power.
    """
    groups = _groups(runs, baseline)
    starts = _means(groups, start_temperature_c)
    if 0 not in starts:
        return []
    number, warmest_c = max(starts.items(), key=lambda item: abs(item[1] - starts[0]))
    if abs(warmest_c - starts[0]) < TEMPERATURE_LIMIT_C:
        return []
    return [
        ComparisonWarning(
            key="temperature",
            values={
                run.row.run: units.celsius(celsius)
                for group in groups
                for run in group
                if (celsius := start_temperature_c(run)) is not None
            },
            facts={"warmest_c": warmest_c, "baseline_c": starts[0], "variants": name_few([_names(groups)[number]])},
            severity="note",
            possible_pct=0.0,
        )
    ]
