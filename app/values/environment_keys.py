"""The keys of a run's environment: what is stored with a run about the machine and its state."""

import re
from collections.abc import Mapping

CPU_COUNT_KEY = "cpu_count"
"""Key of a run's environment: the processors of its machine."""
OTHERS_ON_GPU_KEY = "others_on_gpu"
"""Key of a run's environment: other processes on its GPUs; absent if none was seen."""
OTHERS_UNKNOWN_KEY = "others_unknown"
"""Key of a run's environment: why the driver did not list the processes on its GPUs; absent if it did."""
GPUS_USED_KEY = "gpus_used"
"""Key of a run's environment: the GPUs that it used."""
CONCURRENT_GPUS_KEY = "beside"
"""Key of a run's environment: other GPUs on which its experiment's runs were concurrent; absent without any."""
IDLE_WAIT_KEY = "idle_wait_outcome"
"""Key of a run's environment: the outcome of the idle wait before it: `idle`, `timed out`, `skipped` or `off`."""
IDLE_WAIT_S_KEY = "idle_wait_s"
"""Key of a run's environment: the seconds of that wait; absent without one."""
IDLE_WAIT_BLOCKERS_KEY = "idle_wait_blockers"
"""Key of a run's environment: what still blocked the run when that wait timed out or was skipped."""
IDLE_WAIT_GPUS_KEY = "idle_wait_gpus"
"""Key of a run's environment: its GPUs' temperatures when that wait found them idle."""
HOST_LOAD_KEY = "host_load_pct"
"""Key of a run's environment: the load of all processors just before it."""
THROTTLED_KEY = "throttled_pct"
"""Key of a run's environment: the throttled percentage of its measured part; absent if none."""
STOOD_STILL_KEY = "stood_still_s"
"""Key of a run's environment: seconds in which program and run were suspended; absent if never."""

PLANNED_KEY = "planned_repeats"
"""Key of a run's environment: how many repeats its experiment planned, as `3` or `until ± 0.5 %`; absent by hand."""
CUSTOM_SOURCE_KEY = "own_source"
"""Key of a run's environment: the text of a custom workload's file, so that it travels with its runs."""
CUSTOM_MODULES_KEY = "own_modules"
"""Key of a run's environment: the texts of the user's modules that the file needs; absent without any."""
CUSTOM_PATH_KEY = "own_path"
"""Key of a run's environment: the path of that file."""
SCRIPT_COMMAND_KEY = "script_command"
"""Key of a run's environment: the command that it ran, with the environment variables before it."""
CUSTOM_TEXT_KEYS = (CUSTOM_SOURCE_KEY, CUSTOM_MODULES_KEY)
"""Keys of a run's environment whose values are whole files, displayed separately."""
COMMIT_KEY = "git_commit"
"""Key of a run's environment: the program's commit, with a hash of differences from it."""
SOURCES_KEY = "sources_sha256"
"""Key of a run's environment: the beginning of a hash of all sources that a worker imports."""
STANDBY_KEY = "standby"
"""Key of a run's environment: whether its worker was started ahead."""

HOST_KEY = "host"
"""Key of a run's environment: its host, by the user's name; absent on the program's own machine."""
HOST_ID_KEY = "host_id"
"""Key of a run's environment: a hash of the host's machine id, independent of its name."""
CARRIER_KEY = "carrier"
"""Key of a run's environment: how the host was reached (`ssh`, `slurm`, `ray`, `docker`, `sh`); absent like `host`."""
BOOT_ID_KEY = "boot_id"
"""Key of a run's environment: the boot from which its host's monotonic clock counts."""
SLURM_JOB_KEY = "slurm_job_id"
"""Key of a run's environment: its Slurm job; absent outside Slurm."""
SLURM_NODE_KEY = "slurm_node"
"""Key of a run's environment: Slurm's name for that job's node."""
DETACHED_KEY = "detached"
"""Key of a run's environment: it continued without the program, and was fetched completely (`yes`) or `in part`."""

PER_RUN_KEYS = frozenset(
    {
        OTHERS_ON_GPU_KEY,
        OTHERS_UNKNOWN_KEY,
        CONCURRENT_GPUS_KEY,
        IDLE_WAIT_KEY,
        IDLE_WAIT_S_KEY,
        IDLE_WAIT_BLOCKERS_KEY,
        IDLE_WAIT_GPUS_KEY,
        HOST_LOAD_KEY,
        THROTTLED_KEY,
        STOOD_STILL_KEY,
        PLANNED_KEY,
        CUSTOM_SOURCE_KEY,
        CUSTOM_MODULES_KEY,
        CUSTOM_PATH_KEY,
        SCRIPT_COMMAND_KEY,
        STANDBY_KEY,
        CARRIER_KEY,
        BOOT_ID_KEY,
        SLURM_JOB_KEY,
        SLURM_NODE_KEY,
        DETACHED_KEY,
    }
)
"""Keys that describe one run rather than its machine: environments that differ only in them count as equal."""

_NUMBERS: Mapping[str, float] = {
    CPU_COUNT_KEY: 1e6,
    "memory_total_bytes": 2**52,
    HOST_LOAD_KEY: 1e3,
    THROTTLED_KEY: 100,
    STOOD_STILL_KEY: 1e9,
    IDLE_WAIT_S_KEY: 1e9,
}
"""The highest value of each numeric key; the least is 0."""
_NUMBER = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")


def environment_number(environment: Mapping[str, str], key: str) -> float | None:
    """Return the value of a key of `_NUMBERS`; None if it is absent or invalid."""
    text = environment.get(key, "")
    return number if _NUMBER.fullmatch(text) and (number := float(text)) <= _NUMBERS[key] else None


def wrong_numbers(environment: Mapping[str, str]) -> list[str]:
    """Return the numeric keys whose texts are invalid, as in files or from hosts."""
    return [key for key in _NUMBERS if key in environment and environment_number(environment, key) is None]
