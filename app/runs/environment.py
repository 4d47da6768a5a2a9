"""What the program knows of a run's environment: the machine, its processors' state, and the code that runs."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

from app.paths import ROOT, program_version
from app.storage.owner import boot_id, host_id
from app.values import environment_keys
from app.values.samples import HOST, Inventory

_GIT_S = 5.0
RUN_NOTHING = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Options of git, for repositories of others: no monitor or hook of their configuration runs."""
_HASH_DIGITS = 12

_CPUS = Path("/sys/devices/system/cpu")
_TURBO_FILES = (("intel_pstate/no_turbo", {"0": "on", "1": "off"}), ("cpufreq/boost", {"0": "off", "1": "on"}))
"""Linux's switches for clocks above the nominal one, of Intel's driver and of the others.

https://docs.kernel.org/admin-guide/pm/intel_pstate.html, https://docs.kernel.org/admin-guide/pm/cpufreq.html
"""


def environment_info(inventory: Inventory) -> dict[str, str]:
    """Return what is known of a run's environment on this machine; the worker adds what only the framework knows."""
    return inventory_info(inventory) | host_info() | program_info()


def program_info() -> dict[str, str]:
    """Return what identifies this program: its version, and its commit where it runs from a checkout."""
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
    """Return what only a process on the host itself can tell: its system, its processors' state, and its identity."""
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
    """Return a hash of everything that a worker imports of the program: all sources of `workloads`."""
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
    commit = _git_output(root, "describe", "--always", f"--abbrev={_HASH_DIGITS}", "--exclude=*", "--dirty=+changes")
    name = (commit or b"").decode().strip()
    if not name.endswith("+changes"):
        return name or None
    changes = _git_output(root, "diff", "HEAD", "--binary", "--no-ext-diff", "--no-textconv", "--no-color")
    return name if changes is None else f"{name}.{hashlib.sha256(changes).hexdigest()[:_HASH_DIGITS]}"


def _git_output(root: Path, *words: str) -> bytes | None:
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(root), *RUN_NOTHING, *words]
    try:
        process = subprocess.run(command, capture_output=True, timeout=_GIT_S, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout if process.returncode == 0 else None


def processor_state(cpus: Path = _CPUS, cgroups: Path = Path("/sys/fs/cgroup")) -> dict[str, str]:
    """Return which processors this process may use, for how much of the time, and how their clocks are governed.

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
