"""The LSTM on real GPUs: every implementation of articles A and B, PyTorch beside it, and the articles' tables last.

    python -m tests.gpu.lstm DATABASE [bare] [runs] [--quick]

`bare` times every combination by plain loops, a process a GPU (`steps`), and PyTorch; `runs` makes runs of this
program, into the database. Without either it does both; what was found lies beside the database as JSON, and the next
call adds to it. `--quick` rehearses it on the CPU at tiny sizes, with few runs. Results: docs/measurements/.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from tests.gpu import lstm_tables
from tests.gpu.lstm_tables import IMPLEMENTATIONS, Case, Found
from workloads.recurrent_layers import RECURRENT_LAYERS

_QUICK = ("units=16", "features=16", "timesteps=8", "batch_size=8")
_MODES = ("train", "inference")
_WITHOUT_XLA = ("cudnn", "cudnn_stack", "block_fused")


@dataclass(frozen=True)
class Job:
    """A command for one GPU: `words(gpu)` are its words, `keep` takes what it printed."""

    words: Callable[[str], Sequence[str]]
    keep: Callable[[str], None]


def main() -> int:
    """Runs everything and prints the tables; 0 when every run through the program completed."""
    database, quick = sys.argv[1], "--quick" in sys.argv
    stages = {"bare", "runs"} & set(sys.argv) or {"bare", "runs"}
    stored = Path(database).with_suffix(".json")
    results = Found.of(json.loads(stored.read_text())) if stored.exists() else Found()

    def keep() -> None:
        stored.write_text(json.dumps(results.document(), indent=1))

    if "bare" in stages:
        _work_off([*_bare_jobs(results, quick), *_torch_jobs(results, quick)], _gpus(quick), keep)
    if "runs" in stages:
        _work_off(list(_program_jobs(results, database, quick)), _gpus(quick), keep)
    for line in lstm_tables.lines(results):
        print(line)
    return int(any(document["outcome"] != "completed" for document in results.runs.values()))


def _gpus(quick: bool) -> list[str]:
    if quick:
        return ["cpu"]
    pynvml.nvmlInit()
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    return [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]


def _work_off(jobs: Sequence[Job], gpus: Sequence[str], keep: Callable[[], None]) -> None:
    """Runs every job on a free GPU, one at a time on each, with processors of its own; keeps what was found."""
    processors = sorted(os.sched_getaffinity(0))
    shares = [processors[number :: len(gpus)] for number in range(len(gpus))]
    free, lock = list(zip(gpus, shares, strict=True)), threading.Lock()

    def work(job: Job) -> None:
        with lock:
            gpu, share = free.pop()
        command = ("taskset", "-c", ",".join(map(str, share)), *job.words(gpu))
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        with lock:
            free.append((gpu, share))
            job.keep(done.stdout)
            keep()

    with ThreadPoolExecutor(len(gpus)) as pool:
        list(pool.map(work, jobs))


def _bare_jobs(results: Found, quick: bool) -> Iterator[Job]:
    sizes = _QUICK if quick else ()
    precision = "float32" if quick else "tf32"
    layers = ("1", "2") if quick else ("1", "4")
    for names, xla in ((IMPLEMENTATIONS[::2], "false"), (IMPLEMENTATIONS[1::2], "false")):
        yield _bare_job(results, ",".join(names), ",".join(layers), f"xla={xla}", f"precision={precision}", *sizes)
    compiled = [name for name in IMPLEMENTATIONS if name not in (*_WITHOUT_XLA, "auto")]
    for count in layers:
        yield _bare_job(results, ",".join(compiled), count, "xla=true", f"precision={precision}", *sizes)
    turns = (f"precision={precision}", "xla=true", "unroll=4" if quick else "unroll=5,25", *sizes)
    yield _bare_job(results, "combined_input", layers[0], *turns)
    yield _bare_job(results, "wavefront", layers[1], *turns)
    if not quick:
        yield _bare_job(results, "cudnn,cudnn_stack", "1,4", "xla=false", "precision=float32,bfloat16,float16")


def _bare_job(results: Found, implementations: str, layers: str, *more: str) -> Job:
    settings = (f"implementation={implementations}", f"layers={layers}", "mode=inference,train", *more)

    def keep(printed: str) -> None:
        for line in printed.splitlines():
            results.add_bare(json.loads(line))

    return Job(lambda gpu: (sys.executable, "-m", "tests.gpu.steps", "lstm", gpu, *settings), keep)


def _torch_jobs(results: Found, quick: bool) -> Iterator[Job]:
    if not quick:

        def words(gpu: str) -> Sequence[str]:
            return (
                "env",
                f"CUDA_VISIBLE_DEVICES={gpu}",
                sys.executable,
                "-m",
                "tests.gpu.torch_lstm",
                "1,4",
                "tf32,float32,bfloat16,float16",
            )

        yield Job(words, lambda printed: results.torch.extend(map(json.loads, printed.splitlines())))


def _program_jobs(results: Found, database: str, quick: bool) -> Iterator[Job]:
    if quick:
        cases = [Case("standard", 2, "train", False), Case("wavefront", 2, "inference", True)]
    else:
        cases = [Case(name, 1, "train", False) for name in IMPLEMENTATIONS]
        cases += [Case(name, 1, "inference", False) for name in RECURRENT_LAYERS["lstm"].ladder]
        cases += [Case(name, 1, mode, True) for name in ("standard", "combined_input") for mode in _MODES]
        cases += [Case(name, 4, "train", False) for name in ("standard", "cudnn", "cudnn_stack", "block_fused")]
        cases += [Case("wavefront", 4, mode, xla) for mode in _MODES for xla in (False, True)]
    for case in cases:
        yield _run_job(results, database, case, quick)


def _run_job(results: Found, database: str, case: Case, quick: bool) -> Job:
    settings = {
        "implementation": case.implementation,
        "layers": case.layers,
        "mode": case.mode,
        "xla": str(case.xla).lower(),
        "precision": "float32" if quick else "tf32",
        "seconds": 0.3 if quick else 2.5,
    }
    words = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    words += [word for setting in (_QUICK if quick else ()) for word in ("-s", setting)]

    def command(gpu: str) -> Sequence[str]:
        device = ("-s", "gpus=0") if gpu == "cpu" else ("-s", f"devices={gpu}")
        return (sys.executable, "-m", "app", "run", "lstm", *words, *device, "--db", database, "--json")

    def keep(printed: str) -> None:
        document: Mapping[str, Any] = json.loads(printed) if printed else {"outcome": "no answer"}
        results.runs[case] = document

    return Job(command, keep)


if __name__ == "__main__":
    sys.exit(main())
