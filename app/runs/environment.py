"""What the program knows of a run's environment: the machine, its processors' state, and the code that runs."""

import contextlib
import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from app.errors import UserError
from app.paths import ROOT, program_version
from app.storage.owner import boot_id, host_id
from app.values import environment_keys
from app.values.samples import HOST, Inventory

_COMMIT_S, _GIT_S = 5.0, 600.0
_NO_PROGRAM = re.compile(
    r"core\.(repositoryformatversion|autocrlf|eol|filemode|symlinks|ignorecase|excludesfile)|extensions\..*|lfs\.url|"
    r"remote\..*\.(url|lfsurl|promisor|partialclonefilter)|http\..*\.extraheader"
)
"""Repository settings that do not name programs, and that git and Git LFS need to read its files."""
_HASH_DIGITS = 12

_CPUS = Path("/sys/devices/system/cpu")
_TURBO_FILES = (("intel_pstate/no_turbo", {"0": "on", "1": "off"}), ("cpufreq/boost", {"0": "off", "1": "on"}))
"""Linux's switches for clocks above nominal, of Intel's driver and of other drivers.

https://docs.kernel.org/admin-guide/pm/intel_pstate.html, https://docs.kernel.org/admin-guide/pm/cpufreq.html
"""


def environment_info(inventory: Inventory) -> dict[str, str]:
    """Return what the program knows of a run's environment here; the worker adds what only the framework knows."""
    return inventory_info(inventory) | host_info() | program_info()


def program_info() -> dict[str, str]:
    """Return this program's identity: its version, and its commit if it runs from a checkout."""
    info = {"program_version": program_version(), environment_keys.COMMIT_KEY: git_commit()}
    return {key: value for key, value in info.items() if value}


def inventory_info(inventory: Inventory) -> dict[str, str]:
    host = next(device for device in inventory.devices if device.device == HOST)
    info = {
        "driver": inventory.driver,
        "cuda_driver": inventory.cuda_driver,
        "gpus_present": ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in inventory.machine.gpus),
        "cpu": host.name,
        environment_keys.CPU_COUNT_KEY: str(inventory.machine.cpu_count),
        "memory_total_bytes": str(host.memory_total_bytes),
    }
    return {key: value for key, value in info.items() if value}


def host_info() -> dict[str, str]:
    """Return what only a process on the host can find out: its system, its processors' state, and its identity."""
    info = {
        "os": _os_name(),
        "kernel": platform.release(),
        environment_keys.SOURCES_KEY: sources_hash(),
        environment_keys.HOST_ID_KEY: host_id(),
        environment_keys.BOOT_ID_KEY: boot_id(),
        environment_keys.SLURM_JOB_KEY: os.environ.get("SLURM_JOB_ID", ""),
        environment_keys.SLURM_NODE_KEY: os.environ.get("SLURMD_NODENAME", ""),
    }
    return {key: value for key, value in info.items() if value} | processor_state()


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform(terse=True)


def sources_hash(root: Path = ROOT) -> str:
    """Return a hash of everything that a worker imports from the program: all sources of `workloads`."""
    digest = hashlib.sha256()
    for path in sorted((root / "workloads").rglob("*.py")):
        text = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()[:_HASH_DIGITS]


def git_commit(root: Path = ROOT) -> str | None:
    """Return the checkout's commit; None outside a checkout or without git.

    If tracked files differ from it, `+changes` and a hash of the differences follow.
    """
    if not (root / ".git").exists():
        return None
    diff = ("diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty")
    with contextlib.suppress(UserError):
        short = run_git(root, "rev-parse", f"--short={_HASH_DIGITS}", "HEAD", timeout_s=_COMMIT_S).decode().strip()
        changes = run_git(root, *diff, timeout_s=_COMMIT_S)
        return f"{short}+changes.{hashlib.sha256(changes).hexdigest()[:_HASH_DIGITS]}" if changes else short
    return None


def run_git(folder: Path, *words: str, index: Path | None = None, timeout_s: float = _GIT_S) -> bytes:
    """Return git's output for a folder's repository without running what its configuration names, such as hooks.

    git gets a folder that links into the repository's own, with settings that name no programs. Programs of the user's
    own configuration, such as the filters of Git LFS, do run.

    Raises:
        UserError: git failed, with its sentence.
    """
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", **({"GIT_INDEX_FILE": str(index)} if index else {})}

    def call(*words: str) -> bytes:
        command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *words]
        try:
            process = subprocess.run(command, capture_output=True, timeout=timeout_s, env=environment, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"git cannot be run in {folder} ({error}).") from error
        if process.returncode:
            lines = process.stderr.decode(errors="replace").strip().splitlines() or ["git failed"]
            raise UserError(f"{folder}: {lines[-1].removeprefix('fatal: ')}.")
        return process.stdout

    with TemporaryDirectory(prefix="variantscope-git-") as own:
        located = os.fsdecode(call("rev-parse", "--show-toplevel", "--git-common-dir", "--absolute-git-dir"))
        root, shared, of_tree = located.splitlines()
        settings = call("config", "--file", str(folder / shared / "config"), "--list", "-z").decode(errors="replace")
        for key, newline, value in (setting.partition("\n") for setting in settings.split("\0")):
            if _NO_PROGRAM.fullmatch(key):
                call("config", "--file", f"{own}/config", "--add", key, value if newline else "true")
        for path in (folder / shared).iterdir():
            if path.name not in ("HEAD", "config", "config.worktree", "hooks") and "index" not in path.name:
                Path(own, path.name).symlink_to(path)
        for path in Path(of_tree).glob("*index*"):
            Path(own, path.name).symlink_to(path)
        shutil.copy(Path(of_tree, "HEAD"), own)  # git requires that a link leads to a branch
        environment |= {"GIT_DIR": own, "GIT_WORK_TREE": root}
        return call(*words)


def processor_state(cpus: Path = _CPUS, cgroups: Path = Path("/sys/fs/cgroup")) -> dict[str, str]:
    """Return the processors that this process may use, its share of their time, and how their clocks are governed.

    What the system does not report is absent. A worker inherits both limits. `cpus` and `cgroups` are Linux's folders
    of processors and of control groups.
    """
    governors = {_read(path) for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    switches = (words.get(_read(cpus / name)) for name, words in _TURBO_FILES)
    info = {
        "cpu_affinity": format_ranges(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else "",
        "cpu_quota": _cpu_quota(cgroups),
        "cpu_governor": ", ".join(sorted(filter(None, governors))),
        "cpu_turbo": next(filter(None, switches), ""),
    }
    return {key: value for key, value in info.items() if value}


def format_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as Linux writes lists of processors: `0-3,8`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    return ",".join("-".join(map(str, ends)) for ends in ranges)


def _cpu_quota(cgroups: Path) -> str:
    """Return the processors' worth of time that this process's group and those above it allow; "" if unlimited.

    https://docs.kernel.org/admin-guide/cgroup-v2.html (`cpu.max`), and its forerunner's `cpu.cfs_quota_us`.
    """
    group = next((line[3:] for line in _read(Path("/proc/self/cgroup")).splitlines() if line.startswith("0::")), "/")
    cgroup = cgroups / group.strip("/")
    files = [folder / "cpu.max" for folder in (cgroup, *cgroup.parents) if folder.is_relative_to(cgroups)]
    limits = [_read(path).split() for path in files]
    limits.append([_read(cgroups / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")])
    quotas = [int(limit[0]) / int(limit[1]) for limit in limits if len(limit) == 2 and all(map(str.isdecimal, limit))]
    return f"{min(quotas):g}" if quotas else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
