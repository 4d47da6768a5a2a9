"""Shared by benchmarks: a result with its baseline and limit, the command line, a fresh process, a training process."""

import argparse
import inspect
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from app.paths import python_environment
from app.runs.environment import environment_info
from app.runs.launcher import Exited, Launcher, WorkerEvent
from app.telemetry.sampler import take_inventory
from workloads import catalog
from workloads.protocol import PROTOCOL_VERSION, Block, Start


def module_output(module: str, *words: str) -> str:
    """Return the output of a module that runs with these arguments in a fresh process."""
    environment = python_environment()
    # A user's second start finds compiled bytecode too.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")):
        environment["QT_QPA_PLATFORM"] = "offscreen"
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One figure; `limit` bounds the ratio of value to baseline, or the value where there is no baseline.

    The limit is a minimum with `at_least`, else a maximum.
    """

    name: str
    value: float
    unit: str
    baseline: float | None = None
    limit: float | None = None
    at_least: bool = False

    @property
    def ratio(self) -> float | None:
        """Value over baseline."""
        return self.value / self.baseline if self.baseline else None

    @property
    def passed(self) -> bool | None:
        """Whether the limit is kept; None where there is none."""
        if self.limit is None:
            return None
        judged = self.value if self.ratio is None else self.ratio
        return judged >= self.limit if self.at_least else judged <= self.limit

    def document(self) -> dict[str, Any]:
        """Return the result as an entry of the JSON document."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "limit": self.limit,
            "pass": self.passed,
        }


def main(
    program: str, benchmarks: Mapping[str, Callable[..., Sequence[Result]]], words: Sequence[str] | None = None
) -> int:
    """Make the benchmark that the words name, or all; print the figures; return 0 when every limit is kept.

    A benchmark's parameters with a number or a word as default are its options.
    """
    parser = argparse.ArgumentParser(prog=program, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    commands = parser.add_subparsers(dest="name", metavar="NAME")
    for name, measure in benchmarks.items():
        summary = (measure.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(name, help=summary, formatter_class=parser.formatter_class)
        for option in inspect.signature(measure).parameters.values():
            if isinstance(option.default, int | float | str):
                command.add_argument(f"--{option.name}", type=type(option.default), default=option.default, help=" ")
    options = vars(parser.parse_args(words))
    as_json, name = options.pop("json"), options.pop("name")
    results = [result for chosen in ([name] if name else benchmarks) for result in benchmarks[chosen](**options)]
    if as_json:
        document = {
            "name": name or "all",
            "machine": environment_info(take_inventory()),
            "results": [result.document() for result in results],
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        _print(results)
    return 1 if any(result.passed is False for result in results) else 0


def _print(results: Sequence[Result]) -> None:
    width = max(len(result.name) for result in results)
    for result in results:
        line = f"{result.name:{width}s}  {result.value:10.4g} {result.unit:12s}"
        if result.ratio is not None:
            line += f" baseline {result.baseline:10.4g}  ratio {result.ratio:.3f}"
        if result.limit is not None:
            sign = "at least" if result.at_least else "at most"
            line += f"  {sign} {result.limit:g}: {'ok' if result.passed else 'MISSED'}"
        print(line)


_START_S = 120.0


class Blocks:
    """The measured blocks of a training process, as they arrive.

    Thread: `take` is called on the launcher's thread, the other methods on the benchmark's.
    """

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._measures = threading.Event()
        self._ended: queue.SimpleQueue[Exited] = queue.SimpleQueue()

    def take(self, event: WorkerEvent) -> None:
        """Store measured blocks and the process's end."""
        if isinstance(event, Block) and event.phase == "measure":
            self._blocks.append(event)
            self._measures.set()
        elif isinstance(event, Exited):
            self._ended.put(event)

    def wait_until_measured(self) -> None:
        """Wait for the first measured block."""
        if not self._measures.wait(_START_S):
            raise RuntimeError("the benchmark's training did not start")

    def wait_for_end(self) -> None:
        """Wait until the process has ended."""
        self._ended.get(timeout=_START_S)

    def throughput(self, start_ns: int, end_ns: int) -> float:
        """Return the examples/s of the blocks wholly inside a window of time."""
        inside = [block for block in self._blocks if block.start_ns >= start_ns and block.end_ns <= end_ns]
        if not inside:
            raise RuntimeError("no block of the benchmark's training lies in the window")
        return sum(block.examples for block in inside) / (sum(b.end_ns - b.start_ns for b in inside) / 1e9)


@contextmanager
def training(seconds: float) -> Iterator[Blocks]:
    """Train a default CNN on all GPUs (an LSTM where there is none) for at most `seconds`; it measures on entry."""
    machine = take_inventory().machine
    gpu_count = len(machine.gpus)
    workload, more = ("cnn10", {"batch_size": 1024 * gpu_count}) if gpu_count else ("lstm", {})
    spec = catalog.complete(workload, {"seconds": seconds, "gpus": gpu_count, **more}, machine)
    gpus = tuple(gpu.uuid for gpu in machine.gpus[: int(spec.variant["gpus"])])
    blocks = Blocks()
    worker = Launcher().launch(Start(protocol=PROTOCOL_VERSION, spec=spec, gpu_uuids=gpus), blocks.take)
    try:
        blocks.wait_until_measured()
        yield blocks
    finally:
        worker.kill()
        blocks.wait_for_end()


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, to the nanosecond where the kernel has schedstat, else to a tick."""
    threads = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    if threads:
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
