"""`bench start`: how long the window takes from the start of its process to its first paint.

Baseline: a bare pyqtgraph window with one plot, started in turn with it.
"""

import statistics
import time
from collections.abc import Sequence

from app.bench.process import printed_by
from app.bench.result import Result

_STARTS = 7
_RATIO = 1.5


def measure() -> Sequence[Result]:
    """The median first paint against the bare window's, and whether TensorFlow was imported."""
    for which in ("bare", "program"):
        _first_paint(which)  # fills the file cache
    paints: dict[str, list[tuple[float, bool]]] = {"bare": [], "program": []}
    for _ in range(_STARTS):
        for which, found in paints.items():
            found.append(_first_paint(which))
    seconds = {which: statistics.median(s for s, _ in found) for which, found in paints.items()}
    imported = any(tensorflow for _, tensorflow in paints["program"])
    return [
        Result(name="first painted window", value=seconds["program"], unit="s", baseline=seconds["bare"], limit=_RATIO),
        Result(name="TensorFlow imported by the window", value=float(imported), unit="times", limit=0.0),
    ]


def _first_paint(which: str) -> tuple[float, bool]:
    """Seconds from the start of a fresh process to its first paint, and whether it had imported TensorFlow."""
    started_ns = time.monotonic_ns()
    painted_ns, tensorflow = printed_by("app.bench.paint", which).split()
    return (int(painted_ns) - started_ns) / 1e9, tensorflow == "1"
