"""`soak`: a window, a command and `watch` for a long time, and what they hold by then.

Window and command each make a thousand runs of `dummy` in one process, ten experiments of a queue of their own. A leak
shows as growth after the first hundred runs, when every screen was shown and every cache is filled.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from app import log
from app.paths import python_environment
from app.runs import leases
from app.runs.experiment.queue import add_plan
from app.storage.store import Store
from app.values.plan import Plan
from benchmarks.harness import Result
from workloads import catalog

RUNS = 1_000
_OF_EACH = 100
"""Runs of each experiment; those of the first are the warm-up."""
_OVERHEAD_S = 0.4
"""What a run takes beyond the time that it measures."""
_SAMPLES = 200
_LEAST_PERIOD_S = 0.5
_REPORT_S = 5.0
_LIMIT_MB = 1.0
_SAMPLER = "app.telemetry.sampler"

Reading = Mapping[str, float]


@dataclass(slots=True)
class Watched:
    """A process of the program, its sampler, and what was read of both: by name, a series."""

    name: str
    process: "subprocess.Popen[bytes]"
    database: Path | None = None
    output: Path | None = None
    series: dict[str, list[Reading]] = field(default_factory=dict)

    def read(self, progress: float) -> None:
        """Read memory, files and threads at a progress from 0 to 1; nothing of a process that is gone."""
        with suppress(psutil.Error):
            program = psutil.Process(self.process.pid)
            self._add(self.name, program, progress, self._window_state())
            for child in program.children():
                if _SAMPLER in child.cmdline():
                    self._add(f"sampler of the {self.name}", child, progress, {})

    def runs(self) -> int:
        if self.database is None:
            return 0
        with Store.open(self.database) as store:
            return store.library.totals().total

    def _add(self, name: str, process: psutil.Process, progress: float, more: Reading) -> None:
        with process.oneshot():
            reading = {
                "progress": progress,
                "memory": process.memory_info().rss / 1e6,
                "open files": process.num_fds(),
                "threads": process.num_threads(),
            }
        self.series.setdefault(name, []).append({**reading, **more})

    def _window_state(self) -> Reading:
        """Return what the window said last of its objects and frames."""
        lines = self.output.read_text(encoding="utf-8").splitlines() if self.output else []
        found = [json.loads(line) for line in lines[-2:]]
        return {name: value for each in found for name, value in each.items() if value is not None}


def measure(runs: int = RUNS, hours: float = 0.0) -> Sequence[Result]:
    """Make so many runs in a window and in a command, beside `watch`, and return what each holds and how it grew.

    With 0 `hours` they are as short as they can be; an hour and more is a time scale.
    """
    seconds = max(0.0, 3600 * hours / runs - _OVERHEAD_S)
    period_s = max(_LEAST_PERIOD_S, runs * (seconds + _OVERHEAD_S) / _SAMPLES)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, _programs(Path(folder), runs, seconds) as watched:
        makers = [each for each in watched if each.database is not None]
        while any(each.process.poll() is None for each in makers):
            time.sleep(period_s)
            for each in makers:
                each.read(each.runs() / runs)
            for each in watched:
                if each not in makers:
                    each.read(min(maker.runs() for maker in makers) / runs)
        made = sum(each.runs() for each in makers)
    series = {name: readings for each in watched for name, readings in each.series.items()}
    return [
        Result(name="time", value=(time.monotonic() - began_s) / 3600, unit="h"),
        Result(name="runs made in two processes", value=made, unit="runs", limit=2 * runs, at_least=True),
        *(result for name, readings in series.items() for result in _results(name, readings, runs)),
    ]


@contextmanager
def _programs(folder: Path, runs: int, seconds: float) -> Iterator[list[Watched]]:
    """Start the window, the command and `watch`; end what is left of them."""
    with ExitStack() as stack:
        watched = []
        for name, words in (
            ("window", ("tests.reliability.unattended", "{}", str(_REPORT_S))),
            ("command", ("app", "queue", "run", "--no-standby", "--db", "{}")),
            ("watch", ("app", "watch", "--csv", "--every", "0.1")),
        ):
            own = folder / name
            own.mkdir()
            database = None if name == "watch" else own / "profiles.db"
            if database is not None:
                _fill_queue(database, runs, seconds)
            output = stack.enter_context((own / "output").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-m", *(word.format(database) for word in words)],
                env={**python_environment(), **_environment(own)},
                stdin=subprocess.DEVNULL,
                stdout=output if name == "window" else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(_end, process)
            watched.append(Watched(name, process, database, own / "output" if name == "window" else None))
        yield watched


def _environment(folder: Path) -> dict[str, str]:
    folders = dict.fromkeys((leases.FOLDER_VARIABLE, log.FOLDER_VARIABLE), str(folder))
    return {**folders, "QT_QPA_PLATFORM": os.environ.get("QT_QPA_PLATFORM", "offscreen")}


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGINT)
    process.wait()


def _fill_queue(database: Path, runs: int, seconds: float) -> None:
    """Queue experiments of two variants, none of which counts the runs of another."""
    length = {"seconds": seconds, "steps": 0, "step_ms": 10.0} if seconds else {"steps": 5, "step_ms": 1.0}
    with Store.open(database) as store:
        for number in range(0, runs, _OF_EACH):
            variants = tuple(
                catalog.complete(
                    "dummy",
                    {"gpus": 0, "warmup_steps": 1, "seed": number, "batch_size": size, **length},
                    catalog.Machine(),
                )
                for size in (1, 2)
            )
            repeats = min(_OF_EACH, runs - number) // 2
            add_plan(store, Plan(name=f"soak {number}", variants=variants, repeats=repeats, max_idle_wait_s=0.0))


def _results(name: str, readings: Sequence[Reading], runs: int) -> Iterator[Result]:
    """Yield what a process held after its warm-up, and how much more at the end."""
    begin = min(_OF_EACH / runs, 0.5)
    # With the last run made, the program ends: what it holds by then says nothing.
    after = [reading for reading in readings if begin <= reading["progress"] < 1]
    over = f"growth over {runs - begin * runs:,.0f} runs"
    for what in dict.fromkeys(what for reading in after for what in reading if what != "progress"):
        known = [(reading["progress"], reading[what]) for reading in after if what in reading]
        at, values = np.array(known).T
        slope, start = np.polyfit(at - begin, values, 1) if at.size > 1 else (0.0, values[0])
        unit = "MB" if what == "memory" else "ms" if what == "frame_ms" else ""
        yield Result(name=f"{name}: {what} after {begin * runs:.0f} runs", value=start, unit=unit)
        yield Result(name=f"{name}: {what}, {over}", value=slope * (1 - begin), unit=unit, limit=_limit(what, start))


def _limit(what: str, start: float) -> float:
    """Return how much a figure may grow: files and threads come and go with each run, frames differ by the load."""
    return {"memory": _LIMIT_MB, "open files": 1.0, "threads": 1.0, "frame_ms": start}.get(what, 0.02 * start)
