"""Benchmarks `start`, `frame`, `use`: time to the first paint, cost of a frame of the live plots, longest turns.

Start: the baseline is a bare pyqtgraph window with one plot, started in turn with ours.

Frame: 12 curves in 6 panels, 1400 x 900, scrolling, painted where a frame changed it. The baseline is plain pyqtgraph
with automatic ranges, the same curves, pens and plot sizes, no downsampling, frames in turn with ours in one process.

Use: all screens are used again and again on the reference runs. A turn is what the event loop does between two looks
for input: for so long a user waits. Memory is what the process has resident.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.storage.database import save_setting
from app.storage.known_settings import ANSWERED, FIRST_START
from app.storage.reference import add_reference
from app.viewmodels.plot.model import LiveSeries
from benchmarks.harness import Result, module_output

SHORT, LONG = 12_000, 1_728_000
"""Points per curve: ten minutes and 24 hours at 20 Hz."""

_FRAME_MS = 1000 / 60
"""A screen shows no more frames; less would take machinery for what nobody sees (docs/internals/measurements)."""
_RATIO_TO_PLAIN = 2.0
"""How many times as long plain pyqtgraph must take."""
_SESSION_SAMPLES = 8 * 3600 * 20
_SESSION_CURVES = 2 * 8
_SESSION_MB = 35.0


def measure_frames() -> Sequence[Result]:
    """Measure milliseconds per frame, ratios of medians to plain pyqtgraph, and the memory of 8 hours."""
    times = _frame_times()
    medians = {which: statistics.median(found) for which, found in times.items()}
    trace, noise, long = (medians[which] for which in ("trace", "noise", "long"))
    points, day = f"{SHORT:,} points per curve", f"frame of {LONG:,} points per curve"
    return [
        *_frame_results(f"frame of a recorded trace, {points}", times["trace"], _FRAME_MS),
        _baseline_result(
            "recorded trace in plain pyqtgraph, against ours", medians["plain trace"], trace, _RATIO_TO_PLAIN
        ),
        *_frame_results(f"frame of white noise, {points}", times["noise"], _FRAME_MS),
        _baseline_result(
            "white noise in plain pyqtgraph, against ours", medians["plain noise"], noise, _RATIO_TO_PLAIN
        ),
        *_frame_results(day, times["long"], _FRAME_MS),
        Result(name=f"the same, against {points}", value=long, unit="ms", baseline=medians["short"], limit=1.5),
        *_many_hosts(),
        Result(name="curves of 8 h at 20 Hz, 8 on each of 2 GPUs", value=_session_mb(), unit="MB", limit=_SESSION_MB),
    ]


def _frame_results(name: str, times: Sequence[float], limit: float) -> list[Result]:
    """Return the median of frames, and the 95th percentile: most frames move no column, and paint less."""
    slow = statistics.quantiles(times, n=20)[-1]
    return [
        Result(name=name, value=statistics.median(times), unit="ms", limit=limit),
        Result(name="the same, p95", value=slow, unit="ms"),
    ]


def _baseline_result(name: str, plain: float, measured: float, limit: float) -> Result:
    return Result(name=name, value=plain, unit="ms", baseline=measured, limit=limit, at_least=True)


def _frame_times() -> dict[str, list[float]]:
    """Measure the milliseconds of each frame by case, in a fresh process."""
    times: dict[str, list[float]] = json.loads(module_output("benchmarks.frames"))
    return times


def _many_hosts() -> list[Result]:
    """Measure the 95th percentile of a frame of Monitor with 200 hosts, next to one host's, in a fresh process."""
    times = json.loads(module_output("benchmarks.hosts"))
    many, one = (statistics.quantiles(times[name], n=20)[-1] for name in ("many", "one"))
    name = "frame of Monitor with 200 hosts, p95, against one host"
    return [
        Result(name=name, value=many, unit="ms", baseline=one),
        Result(name="the same", value=many, unit="ms", limit=50.0),
    ]


def _session_mb() -> float:
    """Measure the megabytes of the curves of a session, fed sample by sample without waiting."""
    curves = [LiveSeries() for _ in range(_SESSION_CURVES)]
    for tick in range(_SESSION_SAMPLES):
        for curve in curves:
            curve.append(tick / 20, tick % 100)
    return sum(curve.memory_bytes for curve in curves) / 1e6


_STARTS = 7
_RATIO = 1.3
_PLOTS_S = 1.0
"""How long after the start live plots may come."""


def measure_start() -> Sequence[Result]:
    """Measure the first paint against the bare window's and the first live plot, as medians from the start.

    Also check whether TensorFlow was imported by then.
    """
    paints: dict[str, list[tuple[float, bool]]] = {"bare": [], "program": [], "plots": []}
    for which in paints:
        _first_paint(which)  # fills the file cache
    for _ in range(_STARTS):
        for which, found in paints.items():
            found.append(_first_paint(which))
    seconds = {which: statistics.median(s for s, _ in found) for which, found in paints.items()}
    imported = any(tensorflow for _, tensorflow in paints["plots"])
    after_s = seconds["plots"] - seconds["program"]
    return [
        Result(name="first painted window", value=seconds["program"], unit="s", baseline=seconds["bare"], limit=_RATIO),
        Result(name="first live plot, from the start", value=seconds["plots"], unit="s", limit=_PLOTS_S),
        Result(name="of that, after the first paint", value=after_s, unit="s"),
        Result(name="TensorFlow imported by the window", value=float(imported), unit="times", limit=0.0),
    ]


def _first_paint(window: str) -> tuple[float, bool]:
    """Return seconds from the start of a fresh process to its first paint, and whether it imported TensorFlow."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        database = Path(folder) / "bench.db"
        if window == "plots":
            save_setting(database, FIRST_START, ANSWERED)  # or the choice of a place would cover them
        started_ns = time.monotonic_ns()
        painted_ns, tensorflow = module_output("benchmarks.paint", window, str(database)).split()
    return (int(painted_ns) - started_ns) / 1e9, tensorflow == "1"


_STALL_MS, _FEEDBACK_MS = 60.0, 100.0
_MEMORY_MB = 250.0
_GROWTH_MB = 10.0
_LISTED = 8


def measure_use(minutes: float = 0.0) -> Sequence[Result]:
    """Measure the turns and the memory of a window that is used for so many minutes, at least for three tours."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "use.db"
        runs = map(str, add_reference(database))
        found = json.loads(module_output("benchmarks.paint", "tour", str(database), str(minutes * 60), *runs))
    first, *others = found["turns"][:_LISTED]
    tours = found["tours_mb"]
    return [
        Result(name=f"longest turn: {_describe(first)}", value=first["ms"], unit="ms", limit=_STALL_MS),
        *(Result(name=f"the next of another step: {_describe(turn)}", value=turn["ms"], unit="ms") for turn in others),
        Result(name="longest turn by the clock", value=found["clock_ms"], unit="ms"),
        Result(
            name=f"slowest feedback: {found['feedback_step']}",
            value=found["feedback_ms"],
            unit="ms",
            limit=_FEEDBACK_MS,
        ),
        Result(name=f"turns over {_STALL_MS:g} ms", value=found["over"], unit="times", limit=0.0),
        Result(name="memory of the new window", value=found["start_mb"], unit="MB"),
        *(
            Result(name=f"memory after tour {number}", value=tour_mb, unit="MB", limit=_MEMORY_MB)
            for number, tour_mb in enumerate(tours, 1)
        ),
        Result(name="growth after the first tour", value=growth_mb(tours), unit="MB", limit=_GROWTH_MB),
    ]


def growth_mb(tours_mb: Sequence[float]) -> float:
    """Return by how much the later half of the tours has more memory than the earlier, without the first tour.

    Of one tour it says little: pages of freed memory are given back as a whole only.
    """
    later = tours_mb[1:]
    half = len(later) // 2
    return statistics.mean(later[-half:]) - statistics.mean(later[:half])


def _describe(turn: Mapping[str, str]) -> str:
    """Say when a turn was, and which functions were under way."""
    return ", ".join(filter(None, (turn["step"], turn["under_way"])))
