"""`resume`: kill the program, a worker or the sampler at random moments, and resume until all is complete.

Each experiment has six runs of `dummy` in a database of its own, in turn on the command line and in a window. SIGKILL
comes after a random part of the time that such an experiment takes uninterrupted; when the program was killed, the same
command, or *Resume* in a new window, resumes the experiment until it ends by itself. Every second one on the command
line is made with `--again`, so that only the entry's own runs count, and is resumed by `queue run`.

With `--on sh:…` the runs are made on this machine as a host, on the command line alone, and the programs there and
their guards are killed, too.
"""

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import psutil

from app import log
from app.paths import python_environment
from app.runs import leases
from app.runs.experiment.queue import enqueue
from app.runs.experiment.schedule import is_result
from app.storage.store import Store
from app.values.plan import Plan
from app.values.records import RunRow
from benchmarks.harness import Result
from tests.reliability.invariants import BROKEN, broken_in
from workloads import catalog

Target = Literal["program", "worker", "sampler", "host"]

KILLS = 50
VARIANTS, REPEATS = 3, 2

_MODULES: dict[Target, str] = {"worker": "workloads.worker", "sampler": "app.telemetry.sampler"}
_SHARES: dict[Target, float] = {"program": 0.4, "worker": 0.35, "sampler": 0.25}
"""How often each is killed."""
_SHARES_ON_HOST: dict[Target, float] = {"program": 0.3, "host": 0.4, "worker": 0.15, "sampler": 0.15}
_TIMING_RUNS = 3
"""Runs that time an experiment; the fastest counts, or after a busy moment most would end before they are killed."""
_GONE_S = 20.0
"""Time in which a worker or sampler must notice that its program is gone, even on a busy machine."""
_END_S = 120.0
"""Time in which a program that nobody kills ends its experiment."""
_CHILD_S, _LOOK_S = 1.0, 0.02
"""How long to look for a worker that could be killed, and how often."""
_TRIES = 3
"""Programs that may end by themselves without completing the experiment: a killed worker can give a variant up."""


@dataclass(slots=True)
class Tally:
    """Counts over experiments of which something was killed."""

    kills: Counter[str] = field(default_factory=Counter)
    in_a_run: int = 0
    experiments: int = 0
    broken: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class KilledExperiment:
    """One experiment with a database and leases in its own folder, so that other runs do not block it."""

    folder: Path
    steps: int = 20
    repeats: int = REPEATS
    again: bool = False
    window: bool = False
    on: str = ""
    """The host to make the runs on, as `--on` takes it."""
    started_s: float = 0.0
    """When its program was started last."""
    seen: set[str] = field(default_factory=set)
    """Runs that had ended when the program was killed, by uid."""
    broken: Counter[str] = field(default_factory=Counter)
    """What was broken after a kill; it stays so, and counts once."""

    @property
    def database(self) -> Path:
        return self.folder / "profiles.db"

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the program, or resume it, as a user would."""
        if self.window and not self._is_queued():
            with Store.open(self.database) as store:
                enqueue(store, self._plan())
        folders = (leases.FOLDER_VARIABLE, log.FOLDER_VARIABLE)
        self.started_s = time.time()
        return subprocess.Popen(
            [sys.executable, "-m", *self._arguments()],
            env={**python_environment(), "QT_QPA_PLATFORM": "offscreen", **dict.fromkeys(folders, str(self.folder))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _settings(self) -> dict[str, int]:
        return {"gpus": 0, "step_ms": 1, "steps": self.steps, "warmup_steps": 1}

    def _plan(self) -> Plan:
        variants = tuple(
            catalog.complete("dummy", {**self._settings(), "batch_size": 1 + n}, catalog.Machine())
            for n in range(VARIANTS)
        )
        return Plan(name="killed", variants=variants, repeats=self.repeats, max_idle_wait_s=0.0)

    def _arguments(self) -> list[str]:
        if self.window:
            return ["tests.reliability.unattended", str(self.database)]
        where = ["--no-standby", "--db", str(self.database)]
        if self.on and not (self.again and self._is_queued()):
            where += ["--on", self.on]
        if self.again and self._is_queued():
            with Store.open(self.database) as store:
                entries = [str(entry.entry) for entry in store.queue.entries()]
            return ["app", "queue", "run", *entries, *where]  # named, for a lost link pauses them
        settings = {**self._settings(), "batch_size": ",".join(str(1 + n) for n in range(VARIANTS))}
        words = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
        again = ["--again"] if self.again else []
        return ["app", "experiment", "dummy", *words, "--repeats", str(self.repeats), "--no-gate", *again, *where]

    def _is_queued(self) -> bool:
        with Store.open(self.database) as store:
            return bool(store.queue.entries())

    @property
    def is_over(self) -> bool:
        """True if it has left the queue with every run: with `--again` one that has begun would else begin anew."""
        if not self.database.exists() or self._is_queued():
            return False
        with Store.open(self.database) as store:
            rows = [row for row in store.list_runs() if is_result(row)]
        return bool(self.again and self.seen) or min(self._surplus(rows)) >= 0

    def kill(self, program: "subprocess.Popen[bytes]", target: Target, tally: Tally) -> bool:
        """Kill one process, and count what that leaves behind; returns whether there was one to kill."""
        mode = "a window" if self.window else "a command"
        if target != "program":
            victim = self._next_victim(program, target)
            if victim is not None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()
                tally.kills[f"{target} of {mode}"] += 1
            return victim is not None
        program.kill()
        program.wait()
        tally.kills[mode] += 1
        tally.broken["processes left alive"] += self._left_alive()
        self.broken |= broken_in(self.folder, ended=False)
        if self.database.exists():
            with Store.open(self.database) as store:
                tally.in_a_run += bool(store.unfinished_runs())
                self.seen.update(row.uid for row in store.list_runs() if is_result(row))
        return True

    def _next_victim(self, program: "subprocess.Popen[bytes]", target: Target) -> psutil.Process | None:
        """Return the process to kill, and wait for it a while; None if there is none."""
        end_s = time.monotonic() + _CHILD_S
        while program.poll() is None and time.monotonic() < end_s:
            with contextlib.suppress(psutil.Error):
                if (found := self._victim(program, target)) is not None:
                    return found
            time.sleep(_LOOK_S)
        return None

    def _victim(self, program: "subprocess.Popen[bytes]", target: Target) -> psutil.Process | None:
        children = psutil.Process(program.pid).children(recursive=bool(self.on))
        if target == "host":
            programs = [child for child in children if "--events" in child.cmdline()]
            return random.choice(programs) if programs else None
        return next((child for child in children if _MODULES[target] in child.cmdline()), None)

    def judge(self) -> tuple[int, int]:
        """Count the runs that the experiment lacks or lost, and those made that were not needed."""
        with Store.open(self.database) as store:
            rows = [row for row in store.list_runs() if is_result(row)]
            members = {run for found in store.library.experiments() for run in found.runs}
        member_rows = [row for row in rows if row.run in members]
        gone = self.seen - {row.uid for row in member_rows}
        lacking, surplus = (-each for each in self._surplus(member_rows)), self._surplus(rows)
        return len(gone) + sum(each for each in lacking if each > 0), sum(each for each in surplus if each > 0)

    def _surplus(self, rows: Sequence[RunRow]) -> list[int]:
        """Return per variant how many more results than planned there are."""
        made = [row.spec.variant["batch_size"] for row in rows]
        return [made.count(variant + 1) - self.repeats for variant in range(VARIANTS)]

    def _left_alive(self) -> int:
        """Count processes of the killed program that do not end by themselves, and kill them."""
        processes = [process for process in psutil.process_iter() if _process_folder(process) == str(self.folder)]
        _, alive = psutil.wait_procs(processes, _GONE_S)
        for process in alive:
            process.kill()
        return len(alive)

    def end(self, tally: Tally) -> None:
        """Count what is wrong with it, once it has ended."""
        lost, doubled = self.judge()
        tally.experiments += 1
        tally.broken += Counter({"runs lost": lost, "runs doubled": doubled})
        tally.broken["processes left alive"] += self._left_alive()
        tally.broken += self.broken | broken_in(self.folder, ended=True)


_VIOLATIONS = ("experiments that did not resume", "runs lost", "runs doubled", "processes left alive", *BROKEN)


def measure(kills: int = KILLS, on: str = "") -> Sequence[Result]:
    """Count what was lost, doubled, damaged or left behind, and experiments that did not resume.

    `on` is the host to make the runs on; "" is this machine, by commands and windows.
    """
    tally = Tally()
    numbers = np.random.default_rng()
    modes = (False,) if on else (False, True)
    lengths_s = {window: min(_uninterrupted_s(window, on) for _ in range(_TIMING_RUNS)) for window in modes}
    while tally.kills.total() < kills:
        of_windows = sum(count for name, count in tally.kills.items() if "window" in name)
        window = not on and 2 * of_windows < tally.kills.total()
        with tempfile.TemporaryDirectory() as folder:
            experiment = KilledExperiment(
                Path(folder), again=not window and numbers.random() < 0.5, window=window, on=on
            )
            kill_and_resume(experiment, numbers, lengths_s[window], kills - tally.kills.total(), tally)
    return [
        *(
            Result(name=f"an experiment of 6 runs takes {where}", value=lengths_s[window], unit="s")
            for window, where in ((False, "a command"), (True, "a window"))
            if window in modes
        ),
        Result(name="kills", value=tally.kills.total(), unit="kills"),
        *(Result(name=f"of these of {name}", value=count, unit="kills") for name, count in tally.kills.items()),
        Result(name="programs killed during a run", value=tally.in_a_run, unit="kills"),
        Result(name="experiments", value=tally.experiments, unit="experiments"),
        *(Result(name=name, value=tally.broken[name], unit="", limit=0) for name in _VIOLATIONS),
    ]


def _uninterrupted_s(window: bool, on: str) -> float:
    """Time a whole experiment."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        KilledExperiment(Path(folder), window=window, on=on).start().wait()
        return time.monotonic() - began_s


def kill_and_resume(
    experiment: KilledExperiment, numbers: np.random.Generator, length_s: float, max_kills: int, tally: Tally
) -> None:
    """Kill one process after another and resume until the experiment has ended; add the result to `tally`.

    `length_s` is the time that an uninterrupted experiment takes.
    """
    last, fruitless = tally.kills.total() + max_kills, 0
    while fruitless < _TRIES and not experiment.is_over:
        killed = _run_and_kill(experiment, numbers, length_s, last, tally)
        fruitless = 0 if killed else fruitless + 1
    tally.broken["experiments that did not resume"] += not experiment.is_over
    experiment.end(tally)


def _run_and_kill(
    experiment: KilledExperiment, numbers: np.random.Generator, length_s: float, last: int, tally: Tally
) -> bool:
    """Start the program and kill what there is of it until it is gone; return whether anything was killed.

    After the kill of number `last` there are no more.
    """
    program = experiment.start()
    began_s, killed = time.monotonic(), False
    # What is made with `--again` and given up has left the queue, and nothing is left to resume.
    shares_by_target = _SHARES_ON_HOST if experiment.on else _SHARES
    targets: list[Target] = [target for target in shares_by_target if target != "worker" or not experiment.again]
    shares = np.array([shares_by_target[target] for target in targets])
    wait_s = numbers.uniform(0, length_s)
    while program.poll() is None:
        may_kill = tally.kills.total() < last
        try:
            program.wait(wait_s if may_kill else _END_S)
        except subprocess.TimeoutExpired:
            if may_kill:
                target = targets[numbers.choice(len(targets), p=shares / shares.sum())]
                killed |= experiment.kill(program, target, tally)
                wait_s = numbers.uniform(0, length_s / (VARIANTS * REPEATS))
            if time.monotonic() - began_s > _END_S:
                tally.broken["experiments that did not resume"] += 1
                program.kill()
    return killed


def _process_folder(process: psutil.Process) -> str:
    """Return the folder of a process's leases; "" where the process is gone or another user's."""
    try:
        return process.environ().get(leases.FOLDER_VARIABLE, "")
    except psutil.Error:
        return ""
