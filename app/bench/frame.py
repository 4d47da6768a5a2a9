"""`bench frame`: what one frame of the live plots costs, and what a long session's curves take in memory.

12 curves in 6 panels, 1400 x 900, scrolling, the whole window painted each frame. Baseline: plain pyqtgraph with
automatic ranges, the same curves, pens and plot sizes, no downsampling, frames in turn with ours in one process.
"""

import json
import statistics
from collections.abc import Sequence

from app.bench.process import printed_by
from app.bench.result import Result
from app.viewmodels.series import Series

SHORT, LONG = 12_000, 1_728_000
"""Points a curve: ten minutes and 24 hours at 20 Hz."""

_SESSION_SAMPLES = 8 * 3600 * 20
_SESSION_CURVES = 2 * 8
_SESSION_MB = 35.0


def measure() -> Sequence[Result]:
    """Median milliseconds a frame, ratios to plain pyqtgraph, and the memory of 8 hours."""
    times = _frame_times()
    trace, plain_trace = (statistics.median(times[which]) for which in ("trace", "plain trace"))
    noise, plain_noise = (statistics.median(times[which]) for which in ("noise", "plain noise"))
    long, short = statistics.median(times["long"]), statistics.median(times["short"])
    points = f"{SHORT:,} points a curve"
    return [
        Result(name=f"frame of a recorded trace, {points}", value=trace, unit="ms", limit=8.0),
        _against("recorded trace in plain pyqtgraph, against ours", plain_trace, trace, 2.5),
        Result(name=f"frame of white noise, {points}", value=noise, unit="ms", limit=16.0),
        _against("white noise in plain pyqtgraph, against ours", plain_noise, noise, 6.0),
        Result(name=f"frame of {LONG:,} points a curve", value=long, unit="ms", baseline=short, limit=1.5),
        Result(name="curves of 8 h at 20 Hz, 8 on each of 2 GPUs", value=_session_mb(), unit="MB", limit=_SESSION_MB),
    ]


def _against(name: str, plain: float, ours: float, limit: float) -> Result:
    return Result(name=name, value=plain, unit="ms", baseline=ours, limit=limit, at_least=True)


def _frame_times() -> dict[str, list[float]]:
    """Milliseconds of each frame by case, measured in a fresh process."""
    times: dict[str, list[float]] = json.loads(printed_by("app.bench.frames"))
    return times


def _session_mb() -> float:
    """Megabytes of the curves of a session, fed sample by sample without the waiting."""
    curves = [Series() for _ in range(_SESSION_CURVES)]
    for tick in range(_SESSION_SAMPLES):
        for curve in curves:
            curve.append(tick / 20, tick % 100)
    return sum(curve.memory_bytes for curve in curves) / 1e6
