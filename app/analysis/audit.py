"""The telemetry's audit of itself: how well it kept its rate over a run, and what that cost."""

from dataclasses import dataclass

import numpy as np

from app.records import SampleColumns
from app.samples import HOST


@dataclass(frozen=True, slots=True)
class Audit:
    """The rate achieved, the distance of readings from their time, readings missed, and the sampler's processor time.

    The percentage is of one processor. None where too little was sampled to say.
    """

    hz: float | None = None
    jitter_ms_p50: float | None = None
    jitter_ms_p99: float | None = None
    missed: int | None = None
    sampler_cpu_pct: float | None = None


def audit(samples: tuple[SampleColumns, ...]) -> Audit:
    """Audits the device sampled most often; jitter is how far each interval is from the usual (median) one."""
    busiest = max(samples, key=lambda columns: columns.t_ns.size, default=None)
    cpu_pct = _sampler_cpu_pct(samples)
    if busiest is None or busiest.t_ns.size < 3:
        return Audit(sampler_cpu_pct=cpu_pct)
    between_ms = np.diff(busiest.t_ns) / 1e6
    usual_ms = float(np.median(between_ms))
    p50, p99 = np.percentile(np.abs(between_ms - usual_ms), [50, 99])
    return Audit(
        hz=1e3 * len(between_ms) / float(between_ms.sum()),
        jitter_ms_p50=float(p50),
        jitter_ms_p99=float(p99),
        missed=int((np.round(between_ms / usual_ms) - 1).clip(min=0).sum()),
        sampler_cpu_pct=cpu_pct,
    )


def _sampler_cpu_pct(samples: tuple[SampleColumns, ...]) -> float | None:
    for columns in samples:
        used_s = columns.slow.get("sampler_cpu_s")
        if columns.device.device == HOST and used_s is not None:
            there = ~np.isnan(used_s)
            t_ns, seconds = columns.slow_t_ns[there], used_s[there]
            if t_ns.size > 1:
                return float(100 * (seconds[-1] - seconds[0]) / ((t_ns[-1] - t_ns[0]) / 1e9))
    return None
