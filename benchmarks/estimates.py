"""Benchmark `estimates`: how often the time that an experiment was expected to take before it was right.

A sequence of small experiments as commands, from an empty database: the first ones are estimated from runs on other
machines, the later ones from the runs before them. An estimate is right within a factor of 1.5.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from app.paths import python_environment
from app.storage.store import Store
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
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "estimates.db"
        for workload, *settings in _EXPERIMENTS:
            size = (word for word in _SIZE if word.partition("=")[0] not in str(settings))
            _run(database, workload, [f"gpus={gpus}", *size, *settings])
        with Store.open(database) as store:
            estimates = store.queue.estimates()
    right, within = 0, 0
    for (workload, *settings), (runs, expected, taken_s) in zip(_EXPERIMENTS, estimates, strict=True):
        is_right = expected.likely_s / _FACTOR <= taken_s <= expected.likely_s * _FACTOR
        right += is_right
        within += expected.least_s <= taken_s <= expected.most_s
        print(
            f"{workload} {' '.join(settings)}: {runs} runs, expected {expected.likely_s:.0f} s "
            f"({expected.least_s:.0f} to {expected.most_s:.0f}), took {taken_s:.0f} s{'' if is_right else ': wrong'}",
            file=sys.stderr,
            flush=True,
        )
    count = len(estimates)
    return [
        Result(name="estimates right", value=right / count, unit="", limit=_RIGHT_SHARE, at_least=True),
        Result(name="within the range", value=within / count, unit=""),
    ]


def _run(database: Path, workload: str, settings: Sequence[str]) -> None:
    words = [part for setting in settings for part in ("-s", setting)]
    subprocess.run(
        [sys.executable, "-m", "app", "--db", str(database), "experiment", workload, *words, "--repeats", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        env=python_environment(),
    )
