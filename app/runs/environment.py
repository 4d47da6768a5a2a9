"""What the program knows of a run's environment; the worker adds what only the framework knows."""

import os
import platform
import subprocess

from app.paths import ROOT, program_version
from app.samples import HOST, Inventory

_GIT_S = 5.0


def environment_info(inventory: Inventory) -> dict[str, str]:
    """Driver, GPUs with UUIDs, CPU, OS, Python and program version, by key; what is unknown is left out."""
    host = next(device for device in inventory.devices if device.device == HOST)
    info = {
        "driver": inventory.driver,
        "cuda_driver": inventory.cuda_driver,
        "gpus_present": ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in inventory.machine.gpus),
        "cpu": host.name,
        "cpu_count": str(inventory.machine.cpu_count),
        "memory_total_bytes": str(host.memory_total_bytes),
        "os": _os_name(),
        "kernel": platform.release(),
        "program_version": program_version(),
        "git_commit": _git_commit(),
    }
    return {key: value for key, value in info.items() if value}


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except OSError:
        return platform.platform(terse=True)


def _git_commit() -> str | None:
    """The checkout's commit, with `+changes` where tracked files differ; None outside a checkout or without git."""
    if not (ROOT / ".git").exists():
        return None
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+changes"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
