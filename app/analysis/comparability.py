"""What makes runs hard to compare, as far as their telemetry and their history tell. Pure functions on stored runs."""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from app.analysis.clock_events import ClockEvent
from app.analysis.intervals import Estimate, pooled_ratio
from app.analysis.measured import gpu_columns, measured_window, while_measuring, within
from app.analysis.verdict import group_by_variant, throughputs
from app.analysis.work import alternatives
from app.facts import BESIDE, OF_ONE_RUN
from app.records import Floats, RunRow, SampleColumns, StoredRun
from workloads.catalog import with_defaults

Hold = Literal["heat", "power limit", "hardware slowdown"]
"""What held a GPU's clocks back."""

BUSY_PCT = 20.0
"""Other programs that use more than this of all processors take time from a run that computes on them."""

HELD_SHARE = 0.05
"""A run held back for less of its measured part than this has lost too little to matter."""

HOLDS: Mapping[Hold, tuple[int, str]] = {
    "heat": (ClockEvent.THERMAL_LIMIT | ClockEvent.HARDWARE_THERMAL_LIMIT, "throttled_thermal_ns"),
    "power limit": (ClockEvent.POWER_CAP, "throttled_power_ns"),
    "hardware slowdown": (ClockEvent.HARDWARE_SLOWDOWN | ClockEvent.POWER_BRAKE, "throttled_brake_ns"),
}
"""The reasons that stand for each cause, and the driver's counter of the time it lasted."""
_PROGRAM = ("git_commit", "program_version")


def held_back(run: StoredRun) -> dict[Hold, float]:
    """By cause the share of the measured part in which its worst GPU was held back, 0 to 1; {} where not recorded.

    The larger of two readings: the share of samples that say so, and the driver's own counter, which misses nothing.
    """
    window = measured_window(run)
    if window is None:
        return {}
    found: dict[Hold, float] = {}
    for hold, (bits, counter) in HOLDS.items():
        shares = [
            share
            for gpu in gpu_columns(run)
            for share in (_by_samples(gpu, bits, window), _by_counter(gpu, counter, window))
        ]
        known = [share for share in shares if share is not None]
        if known:
            found[hold] = max(known)
    return found


def power_limit_w(run: StoredRun) -> float | None:
    """The power limit of the run's GPUs while it measured, the lowest of them; None where nobody recorded it."""
    limits = [float(np.median(values)) / 1e3 for values in while_measuring(run, "power_limit_mw")]
    return min(limits, default=None)


def clocks_set(run: StoredRun) -> bool | None:
    """Whether somebody had set the clocks by hand, for most of the measured part; None where nobody recorded it."""
    reasons = while_measuring(run, "throttle_reasons")
    return any(_share(values, ClockEvent.CLOCKS_SET) > 0.5 for values in reasons) if reasons else None


def drift(runs: Sequence[StoredRun], older: Sequence[StoredRun]) -> Estimate | None:
    """Throughput of the newest runs of the variant of `older` against those older ones in the same environment.

    None where there are too few. The environment is the same when all facts that both name are, those of this program's
    own version aside. The variances of one variant's runs are taken to be equal, so that one new run can be judged.
    """
    newest = [run for run in runs if any(_same_variant(run.row, before.row) for before in older)]
    if not newest:
        return None
    shown = {run.row.uid for run in runs}
    before = [run for run in older if run.row.uid not in shown and _same_environment(run, newest[-1])]
    alike = [run for run in newest if _same_environment(run, newest[-1])]
    return pooled_ratio(throughputs([run.row for run in alike]), throughputs([run.row for run in before]))


def others_load_pct(run: StoredRun) -> float | None:
    """Percent of all processors that others used while the run measured, of a run on the processor alone.

    None where nobody recorded its worker's own load, as beside other runs.
    """
    host, window = next((each for each in run.samples if each.device.kind == "host"), None), measured_window(run)
    processors = int(run.environment.get("cpu_count", 0))
    if host is None or window is None or not processors or cards_of(run):
        return None
    own = host.fields.get("worker_load_pct", np.array([]))
    if own.size != host.t_ns.size:
        return None
    others = within(host.t_ns, host.fields["load_pct"] - own / processors, *window)
    return max(0.0, float(others.mean())) if others.size else None


def had_company(run: StoredRun, runs: Sequence[StoredRun]) -> bool:
    """Whether other GPUs of its machine worked meanwhile: as the run says, or as the times of these runs show.

    Runs made before that was kept say nothing.
    """
    return bool(run.environment.get(BESIDE)) or any(_overlap(run, other) for other in runs)


def _overlap(one: StoredRun, other: StoredRun) -> bool:
    """Whether two runs on different cards went on at the same time."""
    if not cards_of(one) or not cards_of(other) or not cards_of(one).isdisjoint(cards_of(other)):
        return False
    ends = [run.row.ended_utc_ns or run.row.started_utc_ns for run in (one, other)]
    return max(one.row.started_utc_ns, other.row.started_utc_ns) < min(ends)


def cards_of(run: StoredRun) -> frozenset[str]:
    """The UUIDs of the GPUs that the run used."""
    return frozenset(gpu.device.device for gpu in gpu_columns(run))


def only_on(runs: Sequence[StoredRun]) -> dict[frozenset[str], list[RunRow]]:
    """By cards one run of each variant that measured on these alone, where some alternative to it shares none of them.

    What differs between two such variants may differ between their cards. {} where all that are compared share one.
    """
    cards = {run.row.run: cards_of(run) for run in runs if cards_of(run) and throughputs([run.row])}
    groups = group_by_variant([run.row for run in runs if run.row.run in cards])
    of_groups = [(group, frozenset[str]().union(*(cards[row.run] for row in group))) for group in groups]
    found: dict[frozenset[str], list[RunRow]] = {}
    for group, own in of_groups:
        if any(own.isdisjoint(others) and alternatives(group, other) for other, others in of_groups):
            found.setdefault(own, []).append(group[0])
    return found


def _same_variant(one: RunRow, other: RunRow) -> bool:
    return with_defaults(one.spec) == with_defaults(other.spec)


def _same_environment(one: StoredRun, other: StoredRun) -> bool:
    shared = (one.environment.keys() & other.environment.keys()) - {*_PROGRAM, *OF_ONE_RUN}
    return all(one.environment[key] == other.environment[key] for key in shared)


def _share(reasons: Floats, bits: int) -> float:
    return float(np.mean((reasons.astype(np.int64) & bits) != 0))


def _by_samples(gpu: SampleColumns, bits: int, window: tuple[int, int]) -> float | None:
    if "throttle_reasons" not in gpu.fields:
        return None
    reasons = within(gpu.t_ns, gpu.fields["throttle_reasons"], *window)
    return _share(reasons, bits) if reasons.size else None


def _by_counter(gpu: SampleColumns, counter: str, window: tuple[int, int]) -> float | None:
    values = gpu.slow.get(counter)
    if values is None:
        return None
    there = ~np.isnan(values)
    t_ns, held_ns = gpu.slow_t_ns[there], values[there]
    if t_ns.size < 2 or t_ns[0] > window[0] or t_ns[-1] < window[1]:
        return None
    start, end = np.interp([0.0, window[1] - window[0]], t_ns - window[0], held_ns)
    return float(np.clip((end - start) / (window[1] - window[0]), 0.0, 1.0))
