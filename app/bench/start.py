"""`bench start`: how long the window takes from the start of its process to its first paint.

Baseline: a bare pyqtgraph window with one plot, started in turn with it.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from app.bench.result import Result
from app.runs.launcher import checkout_environment

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
    environment = checkout_environment()
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")):
        environment["QT_QPA_PLATFORM"] = "offscreen"
    started_ns = time.monotonic_ns()
    done = subprocess.run(
        [sys.executable, "-m", "app.bench.paint", which], capture_output=True, text=True, check=True, env=environment
    )
    painted_ns, tensorflow = done.stdout.split()
    return (int(painted_ns) - started_ns) / 1e9, tensorflow == "1"
