"""Benchmark `quick`: time the quick comparison from its command to its verdict, and count how often the verdict agrees.

Each time from an empty database, as for a new user: the whole command, with the start of the program.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.paths import python_environment
from benchmarks.harness import Result

TIMES = 10
_LIMIT_S = 90.0
_SAME_SHARE = 0.9
_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "least": min,
    "median": statistics.median,
    "greatest": max,
}


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One quick comparison: seconds from its command to its verdict, and the verdict."""

    seconds: float
    decision: str
    ratio: float | None
    text: str


def measure(times: int = TIMES) -> Sequence[Result]:
    """Run it `times` times and print each on stderr; limit the slowest, and the share of the most common verdict."""
    made = []
    for number in range(1, times + 1):
        made.append(_one())
        print(f"{number}: {made[-1].seconds:.0f} s, {made[-1].decision}: {made[-1].text}", file=sys.stderr, flush=True)
    seconds, ratios = [one.seconds for one in made], [one.ratio for one in made if one.ratio is not None]
    ((decision, count),) = Counter(one.decision for one in made).most_common(1)
    return [
        Result(name="command to verdict, median", value=statistics.median(seconds), unit="s"),
        Result(name=f"command to verdict, slowest of {times}", value=max(seconds), unit="s", limit=_LIMIT_S),
        *(
            Result(name=f"speed-up, {name}", value=statistic(ratios), unit="")
            for name, statistic in _STATISTICS.items()
            if ratios
        ),
        Result(
            name=f"share with the verdict {decision!r}",
            value=count / times,
            unit="",
            limit=_SAME_SHARE,
            at_least=True,
        ),
    ]


def _one() -> _Comparison:
    with tempfile.TemporaryDirectory() as folder:
        words = ["experiment", "--preset", "quick", "--json", "--db", str(Path(folder) / "quick.db")]
        began_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "app", *words],
            capture_output=True,
            text=True,
            check=True,
            env=python_environment(),
        )
        return _read(json.loads(done.stdout), time.monotonic() - began_s)


def _read(document: Mapping[str, Any], seconds: float) -> _Comparison:
    verdict = document["verdict"]
    ratios = [row["speedup"]["ratio"] for row in document["rows"] if row["speedup"]]
    return _Comparison(seconds, verdict["decision"], ratios[-1] if len(ratios) > 1 else None, verdict["text"])
