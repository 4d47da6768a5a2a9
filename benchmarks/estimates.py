"""Benchmark `estimates`: how often the time that an experiment was expected to take before it was right.

A sequence of small experiments as commands, from an empty database: the first ones are estimated from runs on other
machines, the later ones from the runs before them. An estimate is right within a factor of 1.5.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.paths import python_environment
from benchmarks.harness import Result

_FACTOR = 1.5
_RIGHT_SHARE = 0.9
_SIZE = ("seconds=1", "batch_size=16")
_EXPERIMENTS: Sequence[tuple[str, ...]] = (
    ("lstm", "implementation=standard,fused"),
    ("cnn10", "layout=NHWC", "xla=false,true"),
    ("gru", "implementation=standard,gemm2"),
    ("lstm", "xla=false,true"),
    ("lstm", "implementation=gemm8,combined_input"),
    ("cnn10", "layout=NHWC", "channels=16,32"),
    ("cnn10", "layout=NHWC", "precision=float32,bfloat16"),
    ("gru", "batch_size=8,32"),
    ("lstm", "layers=1,2"),
    ("lstm", "seconds=2", "implementation=standard,fused"),
)


def measure(gpus: int = 0) -> Sequence[Result]:
    """Make the experiments, print each on stderr, and limit the share of them that was estimated right.

    `gpus` is the number of GPUs of each run; 0 is the CPU.
    """
    right, within, count = 0, 0, len(_EXPERIMENTS)
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "estimates.db"
        for workload, *settings in _EXPERIMENTS:
            size = (word for word in _SIZE if word.partition("=")[0] not in str(settings))
            entry, taken_s = _run(database, workload, [f"gpus={gpus}", *size, *settings])
            likely_s, (least_s, most_s) = entry["left_s"], entry["left_range_s"]
            is_right = likely_s / _FACTOR <= taken_s <= likely_s * _FACTOR
            right += is_right
            within += least_s <= taken_s <= most_s
            print(
                f"{workload} {' '.join(settings)}: {entry['planned'] - entry['done']} runs, expected {likely_s:.0f} s "
                f"({least_s:.0f} to {most_s:.0f}), took {taken_s:.0f} s{'' if is_right else ': wrong'}",
                file=sys.stderr,
                flush=True,
            )
    return [
        Result(name="estimates right", value=right / count, unit="", limit=_RIGHT_SHARE, at_least=True),
        Result(name="within the range", value=within / count, unit=""),
    ]


def _run(database: Path, workload: str, settings: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Queue an experiment and run it; return its entry of `queue --json` before, and the seconds that it took."""

    def call(*words: str) -> bytes:
        program = [sys.executable, "-m", "app", words[0], "--db", str(database), *words[1:]]
        return subprocess.run(
            program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, env=python_environment()
        ).stdout

    call("experiment", workload, *(part for setting in settings for part in ("-s", setting)), "--repeats=2", "--queue")
    (entry,) = json.loads(call("queue", "--json"))["queue"]
    began_s = time.monotonic()
    call("queue", "run")
    return entry, time.monotonic() - began_s
