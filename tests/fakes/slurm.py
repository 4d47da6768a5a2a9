"""A stand-in for Slurm on PATH: `srun` and `sbatch` of a cluster with one node, which is this machine.

They behave and speak as Slurm's manual pages and sources say (github.com/SchedMD/slurm: src/api/allocate.c,
src/srun/allocate.c, src/slurmd/slurmstepd/req.c). A test changes the cluster by files of its folder: see `Cluster`.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_FOLDER = "FAKE_SLURM"
_NODE, _GPUS, _MOST_MINUTES = "node1", 4, 60
_POLL_S = 0.02
FIRST_JOB = 100
"""What a job's number is above the id of its srun."""

_STEP = "slurmstepd: error: *** STEP {job}.0 ON {node} CANCELLED AT 2026-11-22T20:00:00"
_ENDS = {
    "time limit": f"{_STEP} DUE TO TIME LIMIT ***",
    "preemption": f"{_STEP} DUE TO PREEMPTION ***",
    "node failure": "srun: error: Node failure on {node}",
    "cancel": f"{_STEP} DUE to SIGNAL Terminated ***",
    "memory": "slurmstepd: error: Detected 1 oom_kill event in StepId={job}.0. Some of the step tasks have been OOM"
    " Killed.",
}
"""What a job's end writes on srun's stderr."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster as tests see it.

    Attributes:
        folder: Its files: `ahead` (other pending jobs, a line each; while it exists, new jobs wait), `end` (how the
            running job is ended), `jobs` (those of srun).
        environment: What a process needs to find it.
    """

    folder: Path
    environment: Mapping[str, str]

    def hold_queue(self, *ahead: int) -> None:
        """Let jobs wait behind these."""
        (self.folder / "ahead").write_text("\n".join(map(str, ahead)), encoding="utf-8")

    def release_queue(self) -> None:
        (self.folder / "ahead").unlink()

    def end_job(self, how: str) -> None:
        """End the running job: `time limit`, `preemption`, `node failure`, `cancel` or `memory`."""
        (self.folder / "end.new").write_text(how, encoding="utf-8")
        (self.folder / "end.new").rename(self.folder / "end")

    @property
    def jobs(self) -> list[str]:
        """The jobs that wait or run."""
        return sorted(path.name for path in (self.folder / "jobs").iterdir())


def install(folder: Path) -> Cluster:
    """Make a cluster in a new folder, with its commands in `bin`."""
    (folder / "jobs").mkdir(parents=True)
    (folder / "bin").mkdir()
    for name in ("srun", "sbatch"):
        path = folder / "bin" / name
        words = shlex.join([sys.executable, "-I", "-S", str(Path(__file__).resolve()), name])
        path.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    path_variable = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    return Cluster(folder, {_FOLDER: str(folder), "PATH": path_variable})


def _srun(folder: Path, options: Mapping[str, str], command: list[str]) -> int:
    if refusal := _refusal(options):
        _say(f"srun: error: Unable to allocate resources: {refusal}")
        return 1
    job = FIRST_JOB + os.getpid()
    file = folder / "jobs" / str(job)
    _store(file, options, "PENDING")
    try:
        if (folder / "ahead").exists() and not _wait_in_queue(folder, job):
            return 1
        _store(file, options, "RUNNING")
        return _run_step(folder, job, options, command)
    finally:
        file.unlink(missing_ok=True)


def _refusal(options: Mapping[str, str]) -> str | None:
    kind, _, count = options.get("gres", "gpu:1").partition(":")
    if kind != "gpu":
        return "Invalid generic resource (gres) specification"
    if int(count.rpartition(":")[2] or 1) > _GPUS:
        return "Requested node configuration is not available"
    if options.get("partition", "gpu") != "gpu":
        return "Invalid partition name specified"
    if options.get("account", "lab") != "lab":
        return "Invalid account or account/partition combination specified"
    if int(options.get("time", "1")) > _MOST_MINUTES:
        return "Requested time limit is invalid (missing or exceeds some limit)"
    return None


def _store(file: Path, options: Mapping[str, str], state: str) -> None:
    new = file.with_name(f".{file.name}")
    new.write_text("\n".join((state, options.get("job-name", "sh"), options.get("partition", "gpu"))), encoding="utf-8")
    new.rename(file)


def _wait_in_queue(folder: Path, job: int) -> bool:
    """Wait for resources; return False for a job that was ended before it had them."""
    _say(f"srun: job {job} queued and waiting for resources")
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.append(number))
    while (folder / "ahead").exists():
        if signals:
            _say(f"srun: Job allocation {job} has been revoked")
            return False
        if not (folder / "jobs" / str(job)).exists():
            _say("srun: Job has been cancelled")
            _say("srun: error: Unable to allocate resources: Job/step already completing or completed")
            return False
        time.sleep(_POLL_S)
    _say(f"srun: job {job} has been allocated resources")
    return True


def _run_step(folder: Path, job: int, options: Mapping[str, str], command: list[str]) -> int:
    count = int(options.get("gres", "gpu:0").rpartition(":")[2])
    known = {"SLURM_JOB_ID": str(job), "SLURMD_NODENAME": _NODE, "SLURM_JOB_PARTITION": options.get("partition", "gpu")}
    gpus = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count)))} if count else {}
    task = subprocess.Popen(command, env={**os.environ, **known, **gpus}, start_new_session=True)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: _end_step(job))
    end = folder / "end"
    while (status := task.poll()) is None:
        if end.exists():
            _say(_ENDS[end.read_text(encoding="utf-8")].format(job=job, node=_NODE))
            _say("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")
            end.unlink()
            _end_step(job)
        time.sleep(_POLL_S)
    if status:
        how = f"Exited with exit code {status}" if status > 0 else signal.strsignal(-status)
        _say(f"srun: error: {_NODE}: task 0: {how}")
    return status if status >= 0 else 128 - status


def _end_step(job: int) -> None:
    """End every process of a job, as Slurm does by its cgroup."""
    for number, grace_s in ((signal.SIGTERM, 0.5), (signal.SIGKILL, 5.0)):
        end_s = time.monotonic() + grace_s
        for pid in _processes(job):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while any(_processes(job)) and time.monotonic() < end_s:
            time.sleep(_POLL_S)


def _processes(job: int) -> Iterator[int]:
    wanted = f"SLURM_JOB_ID={job}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)


def _sbatch(folder: Path, options: Mapping[str, str], command: list[str]) -> int:
    """Run a script in the background, as a job of its own that outlives this command."""
    if refusal := _refusal(options):
        print(f"sbatch: error: Batch job submission failed: {refusal}", file=sys.stderr)
        return 1
    # Slurm runs a copy of the script, and makes the output when that starts.
    wait = f'while [ -e "$0/ahead" ]; do sleep {_POLL_S}; done; exec sh "$@" >"{options["output"]}" 2>&1'
    subprocess.Popen(
        ["sh", "-c", wait, folder, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "SLURM_JOB_ID": "77", "SLURMD_NODENAME": _NODE},
    )
    print("77")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(words: list[str]) -> int:
    """Be the command that the first word names."""
    name, options, left = words[0], dict[str, str](), words[1:]
    while left and left[0].startswith("-"):
        option, _, value = left.pop(0).lstrip("-").partition("=")
        options[option] = value
    folder = Path(os.environ[_FOLDER])
    return _srun(folder, options, left) if name == "srun" else _sbatch(folder, options, left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
