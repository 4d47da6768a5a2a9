"""What a profiler does to a step: to the time of its kernels, and to the gaps between them.

    python -m tests.gpu.tracing DATABASE             of the runs in a database
    python -m tests.gpu.tracing DATABASE --run       runs `SATURATED` on a GPU first, about a minute
    python -m tests.gpu.tracing DATABASE --rehearse  the same in small on the CPU, whose runs have no GPU time

Idle time is told as the measured step, which is not traced, less its kernels' time, which is. That holds if a profiler
leaves kernels alone. A GPU that is never idle shows it: traced kernels have to fill the measured step but for the gap
between two of them, 1 to 3 µs, and must not be longer. It is refuted if they take over 1 % longer than the step, or if
less than 0.5 or more than 5 µs per kernel are left of a step that keeps the GPU busy at the same clocks.
"""

import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from app.analysis.steps import gpu_step_ms, measured_step_ms, run_traced_step
from app.records import StoredRun
from app.storage.store import Store

FULL = 0.95
"""Kernels that fill this much of the measured step keep the GPU busy."""
_SATURATED = Path(__file__).with_name("saturated.py")
SATURATED = (
    ("cnn10", "batch_size=2048", "layout=NCHW"),
    (f"{_SATURATED}:products",),
    (f"{_SATURATED}:products", "short=400", "mode=inference"),
)
"""Steps that never leave a GPU idle: workload and settings. Most kernels of the last one are short."""
_SMALL = ("gpus=0", "batch_size=8", "units=64", "short=3", "seconds=1", "warmup_steps=1")


class Step(NamedTuple):
    """One run's measured step, its traced step, and the kernels in that, in milliseconds; `key` is its variant."""

    key: str
    run: int
    step_ms: float
    traced_ms: float
    gpu_ms: float
    kernels: float


def main() -> None:
    """Prints three tables of a database's runs on GPUs."""
    database, *words = sys.argv[1:]
    if "--rehearse" in words:
        _run(f"{_SATURATED}:products", _SMALL, database)
        _run(f"{_SATURATED}:products", (*_SMALL, "mode=inference"), database)
    for workload, *settings in SATURATED if "--run" in words else ():
        _run(workload, (*settings, "gpus=1", "seconds=3", "warmup_steps=5"), database)
    with Store.open(Path(database)) as store:
        steps = [step for row in store.list_runs() if (step := _step(store.load(row.run))) is not None]
    if not steps:
        print("No run on a GPU with a trace.")
        return
    _print_full(steps)
    _print_stretch(steps)
    _print_repeats(steps)


def _run(workload: str, settings: Sequence[str], database: str) -> None:
    words = [word for setting in settings for word in ("-s", setting)]
    subprocess.run([sys.executable, "-m", "app", "run", workload, *words, "--db", database], check=True)


def _step(run: StoredRun) -> Step | None:
    traced, step_ms, evidence = run_traced_step(run), measured_step_ms(run.row.spec, run.row.summary), run.evidence
    if traced is None or step_ms is None or evidence is None:
        return None
    return Step(
        key=repr((run.row.spec.workload, sorted(run.row.spec.variant.items()))),
        run=run.row.run,
        step_ms=step_ms,
        traced_ms=evidence.span_ns / 1e6 / evidence.steps / max(1, len(evidence.devices)),
        gpu_ms=gpu_step_ms(run) or 0.0,
        kernels=traced.kernels,
    )


def _print_full(steps: Sequence[Step]) -> None:
    full = sorted((step for step in steps if step.gpu_ms >= FULL * step.step_ms), key=lambda step: -step.step_ms)
    print(f"\n{len(full)} runs whose kernels fill {100 * FULL:.0f} % of the measured step")
    print("run   measured ms   traced ms   kernels ms   kernels/measured   left per kernel")
    for step in full:
        left_us = 1000 * (step.step_ms - step.gpu_ms) / step.kernels
        print(
            f"{step.run:3} {step.step_ms:13.2f} {step.traced_ms:11.2f} {step.gpu_ms:12.2f} "
            f"{step.gpu_ms / step.step_ms:18.4f} {left_us:14.1f} µs"
        )


def _print_stretch(steps: Sequence[Step]) -> None:
    """Print how much longer traced steps are, and how much more idle they look than measured ones."""
    ratios = [step.traced_ms / step.step_ms for step in steps]
    excess = [100 * (step.gpu_ms / step.step_ms - step.gpu_ms / step.traced_ms) for step in steps]
    longest, false = max(step.gpu_ms / step.step_ms for step in steps), sum(share > 5 for share in excess)
    median, most = statistics.median(ratios), max(ratios)
    print(f"\n{len(steps)} runs: a traced step is {median:.2f} times a measured one, at most {most:.2f}")
    print(f"idle by the traced span is {statistics.median(excess):.1f} points too high, at most {max(excess):.1f};")
    print(f"in {false} runs more than 5; kernels take at most {longest:.4f} of a measured step")


def _print_repeats(steps: Sequence[Step]) -> None:
    """Print how kernels, traced steps and measured steps repeat over processes of one variant."""
    groups = [[step for step in steps if step.key == key] for key in dict.fromkeys(step.key for step in steps)]
    groups = [group for group in groups if len(group) > 2]
    print(
        f"\n{len(groups)} variants with three runs or more; standard deviation between processes, median and largest:"
    )
    for name, attribute in (("kernels", "gpu_ms"), ("measured step", "step_ms"), ("traced step", "traced_ms")):
        variations = list(_variations(groups, attribute))
        if variations:
            print(f"{name:14} {statistics.median(variations):6.2f} % {max(variations):6.2f} %")


def _variations(groups: Sequence[Sequence[Step]], attribute: str) -> Iterator[float]:
    for group in groups:
        values = [float(getattr(step, attribute)) for step in group]
        yield 100 * statistics.stdev(values) / statistics.mean(values)


if __name__ == "__main__":
    main()
