"""`bench resume`: kill the program at random moments of an experiment, and resume it until it is complete.

Each experiment has twelve runs of `dummy` in a database of its own. SIGKILL comes after a random part of the time that
such an experiment takes uninterrupted; then the same command resumes it, until it ends by itself. Every second one is
made with `--again`, so that only the entry's own runs count, and is resumed by `queue go-on`.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from app.bench.harness import Result
from app.records import RunRow
from app.runs.experiment.schedule import is_result
from app.runs.launcher import child_environment
from app.runs.leases import FOLDER_VARIABLE
from app.storage.store import Store

KILLS = 50
VARIANTS, REPEATS = 3, 4

_SEED = 20_261_121
_TIMING_RUNS = 3
"""Runs that time an experiment; the fastest counts, or after a busy moment most would end before they are killed."""
_GONE_S = 20.0
"""Time in which a worker or sampler must notice that its program is gone, even on a busy machine."""


@dataclass(slots=True)
class Tally:
    """Counts over experiments whose program was killed."""

    kills: int = 0
    in_a_run: int = 0
    experiments: int = 0
    unfinished: int = 0
    lost: int = 0
    doubled: int = 0
    left_alive: int = 0

    def add(self, lost: int, doubled: int) -> None:
        """Count one experiment that has ended."""
        self.experiments += 1
        self.lost += lost
        self.doubled += doubled


@dataclass(frozen=True, slots=True)
class KilledExperiment:
    """One experiment with a database and leases in its own folder, so that other runs do not block it."""

    folder: Path
    steps: int = 20
    repeats: int = REPEATS
    again: bool = False
    seen: set[str] = field(default_factory=set)
    """Runs that had ended when the program was killed, by uid."""

    @property
    def database(self) -> Path:
        """Path of its database."""
        return self.folder / "profiles.db"

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the program, or resume it, as a user would."""
        return subprocess.Popen(
            [sys.executable, "-m", "app", *self._arguments(), "--no-standby", "--db", str(self.database)],
            env={**child_environment(), FOLDER_VARIABLE: str(self.folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _arguments(self) -> list[str]:
        if self.again and self._is_queued():
            return ["queue", "go-on"]
        settings = {"gpus": 0, "step_ms": 1, "steps": self.steps, "warmup_steps": 1, "batch_size": "1,2,3"}
        words = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
        again = ["--again"] if self.again else []
        return ["experiment", "dummy", *words, "--repeats", str(self.repeats), "--no-gate", *again]

    def _is_queued(self) -> bool:
        with Store.open(self.database) as store:
            return bool(store.queue.entries())

    @property
    def is_over(self) -> bool:
        """True if it was killed after its last run: it has left the queue, so `--again` would start a new one."""
        return self.again and bool(self.seen) and not self._is_queued()

    def kill(self, program: "subprocess.Popen[bytes]", tally: Tally) -> None:
        """Kill it, and count what that leaves behind."""
        program.kill()
        program.wait()
        tally.kills += 1
        tally.left_alive += self._left_alive()
        with Store.open(self.database) as store:
            tally.in_a_run += bool(store.unfinished_runs())
            self.seen.update(row.uid for row in store.list_runs() if is_result(row))

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


def measure(kills: int = KILLS) -> Sequence[Result]:
    """Count lost and doubled runs, experiments that did not resume, and processes that stayed alive."""
    tally = Tally()
    length_s = min(_uninterrupted_s() for _ in range(_TIMING_RUNS))
    numbers = np.random.default_rng(_SEED)
    while tally.kills < kills:
        with tempfile.TemporaryDirectory() as folder:
            experiment = KilledExperiment(Path(folder), again=tally.experiments % 2 == 1)
            kill_and_resume(experiment, numbers, length_s, kills - tally.kills, tally)
    return [
        Result(name="an experiment of 12 runs takes", value=length_s, unit="s"),
        Result(name="kills", value=tally.kills, unit="kills"),
        Result(name="of these during a run", value=tally.in_a_run, unit="kills"),
        Result(name="experiments", value=tally.experiments, unit="experiments"),
        Result(name="experiments that did not resume", value=tally.unfinished, unit="experiments", limit=0),
        Result(name="runs lost", value=tally.lost, unit="runs", limit=0),
        Result(name="runs doubled", value=tally.doubled, unit="runs", limit=0),
        Result(name="processes left alive", value=tally.left_alive, unit="processes", limit=0),
    ]


def _uninterrupted_s() -> float:
    """Time a whole experiment."""
    with tempfile.TemporaryDirectory() as folder:
        began_s = time.monotonic()
        KilledExperiment(Path(folder)).start().wait()
        return time.monotonic() - began_s


def kill_and_resume(
    experiment: KilledExperiment, numbers: np.random.Generator, length_s: float, max_kills: int, tally: Tally
) -> None:
    """Kill the program and resume it until the experiment has ended; add the result to `tally`.

    Args:
        experiment: The experiment.
        numbers: Random numbers.
        length_s: Time that an uninterrupted experiment takes.
        max_kills: The most kills.
        tally: Gets the counts.
    """
    last, status = tally.kills + max_kills, None
    while status is None and not experiment.is_over:
        program = experiment.start()
        try:
            status = program.wait(numbers.uniform(0, length_s) if tally.kills < last else None)
        except subprocess.TimeoutExpired:
            experiment.kill(program, tally)
    tally.unfinished += bool(status)
    tally.add(*experiment.judge())


def _process_folder(process: psutil.Process) -> str:
    """Return the folder of a process's leases; "" where the process is gone or another user's."""
    try:
        return process.environ().get(FOLDER_VARIABLE, "")
    except psutil.Error:
        return ""
