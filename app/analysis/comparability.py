"""Conditions that affect a comparison: throttling, power limits, other load, drift, and the idle state before a run."""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import combinations
from typing import Literal

import numpy as np

from app.analysis.energy import field_in_window, gpu_columns, measured_values, measured_window
from app.analysis.intervals import Estimate, pooled_ratio
from app.analysis.verdict import group_by_variant, same_work, throughputs, without
from app.values.environment_keys import (
    COMMIT_KEY,
    CONCURRENT_GPUS_KEY,
    HOST_ID_KEY,
    HOST_KEY,
    IDLE_WAIT_BLOCKERS_KEY,
    IDLE_WAIT_KEY,
    PER_RUN_KEYS,
    SOURCES_KEY,
    THROTTLED_KEY,
    environment_number,
)
from app.values.fields import Sample
from app.values.plan import MAX_THROTTLED_PCT
from app.values.records import Floats, RunRow, SampleColumns, StoredRun
from workloads.catalog import (
    MINOR_VARIABLES,
    ONEDNN_KEY,
    ONEDNN_VARIABLE,
    OWN_VARIABLES,
    VARIABLE_PREFIX,
    VARIABLES_RECORDED_KEY,
)


class ClockEvent(IntEnum):
    """A reason for clock events; the first two do not throttle."""

    IDLE = 0x1
    CLOCKS_SET = 0x2
    POWER_CAP = 0x4
    HARDWARE_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    THERMAL_LIMIT = 0x20
    HARDWARE_THERMAL_LIMIT = 0x40
    POWER_BRAKE = 0x80
    DISPLAY_CLOCKS = 0x100


ThrottleCause = Literal["heat", "power limit", "hardware slowdown"]
"""Why a GPU was throttled."""

OTHER_LOAD_LIMIT_PCT = 20.0
"""Other programs that use more than this share of all processors slow down a run on the CPU."""

THROTTLED_SHARE_LIMIT = MAX_THROTTLED_PCT / 100
"""A run throttled for less than this share of its measured part has lost too little to matter."""

THROTTLE_CAUSES: Mapping[ThrottleCause, tuple[int, str]] = {
    "heat": (ClockEvent.THERMAL_LIMIT | ClockEvent.HARDWARE_THERMAL_LIMIT, "throttled_thermal_ns"),
    "power limit": (ClockEvent.POWER_CAP, "throttled_power_ns"),
    "hardware slowdown": (ClockEvent.HARDWARE_SLOWDOWN | ClockEvent.POWER_BRAKE, "throttled_brake_ns"),
}
"""The reasons that belong to each cause, and the driver's counter of the throttled time."""
THROTTLE_FIELDS = ("throttle_reasons", *(counter for _, counter in THROTTLE_CAUSES.values()))
"""The telemetry fields that reveal throttling."""

NOT_SET = "not set"
"""The value of an environment variable that a run looked for without finding it."""

PROGRAM_KEYS = frozenset({COMMIT_KEY, SOURCES_KEY, "program_version", VARIABLES_RECORDED_KEY})
"""Environment keys of the program itself."""

OWN_VARIABLE_KEYS = frozenset(f"{VARIABLE_PREFIX}{name}" for name in OWN_VARIABLES)
"""Environment keys of variables that the worker sets."""

MINOR_VARIABLE_KEYS = frozenset(f"{VARIABLE_PREFIX}{name}" for name in MINOR_VARIABLES)
"""Environment keys of variables that change no figure by themselves."""


def known_value(environment: Mapping[str, str], key: str) -> str | None:
    """Return a run's value of an environment key; None if unknown.

    An environment variable that the run looked for without finding it is `NOT_SET`. Older runs do not say which ones
    they looked for, so variables that they lack are unknown; of oneDNN they have at most the variable.
    """
    if key in environment:
        return environment[key]
    if key == ONEDNN_KEY:
        return {"0": "off", "1": "on"}.get(environment.get(f"{VARIABLE_PREFIX}{ONEDNN_VARIABLE}", ""))
    prefixes = tuple(environment.get(VARIABLES_RECORDED_KEY, "").split())
    return (
        NOT_SET if key.startswith(VARIABLE_PREFIX) and key.removeprefix(VARIABLE_PREFIX).startswith(prefixes) else None
    )


def is_same_host(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Return whether two environments belong to one host, under any name; one without a host is this machine's.

    Two environments without a host count as the same host, even if they were imported.
    """
    if HOST_KEY not in first and HOST_KEY not in second:
        return True
    ids = first.get(HOST_ID_KEY), second.get(HOST_ID_KEY)
    return first.get(HOST_KEY) == second.get(HOST_KEY) if None in ids else ids[0] == ids[1]


def differing_variables(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the environment variables that change what the framework does and differ between two environments."""
    keys = [key for key in dict.fromkeys((*first, *second)) if key.startswith(VARIABLE_PREFIX)]
    relevant = (key for key in keys if key not in OWN_VARIABLE_KEYS | MINOR_VARIABLE_KEYS)
    return [key.removeprefix(VARIABLE_PREFIX) for key in relevant if _differs(first, second, key)]


def onednn_differs(first: Mapping[str, str], second: Mapping[str, str]) -> bool:
    """Return whether only one of two environments used oneDNN; it computes nothing on a GPU."""
    return _differs(first, second, ONEDNN_KEY)


def _differs(first: Mapping[str, str], second: Mapping[str, str], key: str) -> bool:
    """Return whether both environments have values of the key, and these differ."""
    values = known_value(first, key), known_value(second, key)
    return None not in values and values[0] != values[1]


def throttled_shares(run: StoredRun) -> dict[ThrottleCause, float]:
    """Return by cause the share of the measured part in which the worst GPU was throttled, 0 to 1; {} if not recorded.

    It is the larger of the share of throttled samples, and the driver's counter, which misses nothing.
    """
    window = measured_window(run)
    if window is None:
        return {}
    worst: dict[ThrottleCause, float] = {}
    for cause, (bits, counter) in THROTTLE_CAUSES.items():
        samples = (field_in_window(gpu, "throttle_reasons", window) for gpu in gpu_columns(run))
        shares = [_share_with_bits(reasons, bits) for reasons in samples if reasons.size]
        counted = (_share_by_counter(gpu, counter, window) for gpu in gpu_columns(run))
        gpu_shares = [*shares, *(share for share in counted if share is not None)]
        if gpu_shares:
            worst[cause] = max(gpu_shares)
    return worst


def power_limit_w(run: StoredRun) -> float | None:
    """Return the lowest power limit of the run's GPUs in its measured part; None if not recorded."""
    limits = [float(np.median(values)) / 1e3 for values in measured_values(run, "power_limit_mw")]
    return min(limits, default=None)


def clocks_set(run: StoredRun) -> bool | None:
    """Return whether the clocks were set by hand for most of the measured part; None if not recorded."""
    reasons = measured_values(run, "throttle_reasons")
    return any(_share_with_bits(values, ClockEvent.CLOCKS_SET) > 0.5 for values in reasons) if reasons else None


def drift(runs: Sequence[StoredRun], older: Sequence[StoredRun]) -> Estimate | None:
    """Return the throughput of the newest runs of a variant relative to its `older` runs in the same environment.

    None if there are too few. Environments are the same if all facts that both have agree, except this program's
    version. The variances of one variant's runs are assumed equal, so that a single new run can be judged.
    """
    newest = [run for run in runs if any(without(run.row.spec) == without(old_run.row.spec) for old_run in older)]
    if not newest:
        return None
    shown_uids = {run.row.uid for run in runs}
    older_runs = [run for run in older if run.row.uid not in shown_uids and _same_environment(run, newest[-1])]
    comparable = [run for run in newest if _same_environment(run, newest[-1])]
    return pooled_ratio(throughputs([run.row for run in comparable]), throughputs([run.row for run in older_runs]))


def concurrent_runs(runs: Sequence[StoredRun]) -> frozenset[int]:
    """Return the runs during which other GPUs worked, as the runs report or as their times show."""
    concurrent = {run.row.run for run in runs if run.environment.get(CONCURRENT_GPUS_KEY)}
    active: list[tuple[RunRow, frozenset[str]]] = []
    for run in sorted(runs, key=lambda run: run.row.started_utc_ns):
        row, gpus = run.row, used_gpus(run)
        if not gpus or (row.ended_utc_ns or 0) <= row.started_utc_ns:
            continue
        active = [(peer, used) for peer, used in active if (peer.ended_utc_ns or 0) > row.started_utc_ns]
        overlapping = [peer.run for peer, used in active if used.isdisjoint(gpus)]
        concurrent.update(overlapping, [row.run] if overlapping else ())
        active.append((row, gpus))
    return frozenset(concurrent)


def used_gpus(run: StoredRun) -> frozenset[str]:
    return frozenset(gpu.device.device for gpu in gpu_columns(run))


def have_separate_gpus(runs: Sequence[StoredRun]) -> bool:
    """Return whether two comparable variants share no GPU, so that the GPU may explain their difference."""
    gpus = {run.row.run: used_gpus(run) for run in runs if used_gpus(run) and throughputs([run.row])}
    groups = group_by_variant([run.row for run in runs if run.row.run in gpus])
    with_gpus = [(group, frozenset[str]().union(*(gpus[row.run] for row in group))) for group in groups]
    return any(gpus_a.isdisjoint(gpus_b) and same_work(a, b) for (a, gpus_a), (b, gpus_b) in combinations(with_gpus, 2))


def _same_environment(first: StoredRun, second: StoredRun) -> bool:
    keys = (first.environment.keys() | second.environment.keys()) - PROGRAM_KEYS - PER_RUN_KEYS
    differing = (key for key in keys if key != HOST_KEY and _differs(first.environment, second.environment, key))
    return is_same_host(first.environment, second.environment) and not any(differing)


def _share_with_bits(reasons: Floats, bits: int) -> float:
    return float(np.mean((reasons.astype(np.int64) & bits) != 0))


def _share_by_counter(gpu: SampleColumns, counter: str, window: tuple[int, int]) -> float | None:
    _, t_ns, throttled_ns = gpu.present(counter)
    if t_ns.size < 2 or t_ns[0] > window[0] or t_ns[-1] < window[1]:
        return None
    start, end = np.interp([0.0, window[1] - window[0]], t_ns - window[0], throttled_ns)
    return float(np.clip((end - start) / (window[1] - window[0]), 0.0, 1.0))


QUIET_PCT = 10.0
"""A host busier than this before a run is used by others."""

RESTING_BAND_C = 5
"""A GPU is at rest if it is at most this much warmer than before the first run."""

STEADY_S = 4.0
"""A GPU that has not cooled for this long (NVML reports whole degrees) is at rest: later runs start at its temperature
then, or up to the resting band above it."""

_HARMFUL_CAUSES: tuple[ThrottleCause, ...] = ("heat", "hardware slowdown")
"""Without the power limit, which is normal for a GPU at full load, and would limit a repeat in the same way."""


def throttled_environment(run: StoredRun) -> Mapping[str, str]:
    """Return that a run was throttled, in percent of its measured part; {} if it was not."""
    shares = throttled_shares(run)
    share = max((shares.get(cause, 0.0) for cause in _HARMFUL_CAUSES), default=0.0)
    return {THROTTLED_KEY: f"{100 * share:.1f}"} if share > 0 else {}


def throttled_pct(environment: Mapping[str, str]) -> float:
    """Return the throttled percentage from a stored run's environment; 0 if it has none."""
    return environment_number(environment, THROTTLED_KEY) or 0.0


def idle_wait_blockers(environment: Mapping[str, str]) -> str:
    """Return what still blocked the run when its idle wait timed out; "" if nothing did."""
    return environment.get(IDLE_WAIT_BLOCKERS_KEY, "") if environment.get(IDLE_WAIT_KEY) == "timed out" else ""


def lowest_temperature_c(samples: Iterable[Sample]) -> int | None:
    return min((sample.temperature_c for sample in samples if sample.temperature_c is not None), default=None)


def is_cool(samples: Sequence[Sample], resting_c: int | None, steady_s: float = STEADY_S) -> bool:
    """Return whether a GPU is at rest: in its resting band, or no longer becoming cooler.

    Args:
        samples: Its samples since a wait began, oldest first; without a temperature it is assumed to be cool.
        resting_c: Its lowest temperature before the first run; None before any run.
        steady_s: How long the temperature must have been constant.
    """
    readings = [(sample.t_ns, sample.temperature_c) for sample in samples if sample.temperature_c is not None]
    if not readings:
        return True
    now_ns, now_c = readings[-1]
    if resting_c is not None and now_c <= resting_c + RESTING_BAND_C:
        return True
    earlier = [c for t_ns, c in readings if t_ns <= now_ns - int(steady_s * 1e9)]
    return bool(earlier) and all(c <= now_c for _, c in readings[len(earlier) - 1 :])


def is_throttled(sample: Sample) -> bool:
    """Return whether heat or a hardware slowdown throttles a GPU at this moment."""
    bits = sum(THROTTLE_CAUSES[cause][0] for cause in _HARMFUL_CAUSES)
    return bool((sample.throttle_reasons or 0) & bits)
