"""The environment of runs as text: a label for every key, and the values that differ between runs."""

import re
from collections.abc import Mapping, Sequence

from app.analysis.comparability import OWN_VARIABLE_KEYS, known_value
from app.values import environment_keys
from app.values.records import StoredRun
from app.values.units import byte_size, plural
from app.viewmodels.format.naming import differing_parameters
from app.viewmodels.format.sentences import RunsWith
from workloads.catalog import FRAMEWORKS, ONEDNN_KEY, VARIABLE_PREFIX, VARIABLES_RECORDED_KEY

_MOST_VALUES = 4
"""The most values of a key to list with their runs."""
_UUID = re.compile(r"(GPU-[0-9a-f]{8})-[0-9a-f-]{27}")
_NAMES: Mapping[str, str] = {
    **{key: label for framework in FRAMEWORKS.values() for key, label in framework.labels.items()},
    "numpy": "NumPy",
    "python": "Python",
    "driver": "NVIDIA driver",
    "cuda_driver": "CUDA of the driver",
    "gpus_present": "List of GPUs present",
    environment_keys.GPUS_USED_KEY: "GPUs used",
    environment_keys.OTHERS_ON_GPU_KEY: "Other processes on the GPU",
    environment_keys.OTHERS_UNKNOWN_KEY: "Other processes on the GPU unknown",
    environment_keys.CONCURRENT_GPUS_KEY: "Other runs at the same time on",
    environment_keys.IDLE_WAIT_KEY: "Idle wait",
    environment_keys.IDLE_WAIT_S_KEY: "Idle wait, s",
    environment_keys.IDLE_WAIT_BLOCKERS_KEY: "Not idle before the run",
    environment_keys.IDLE_WAIT_GPUS_KEY: "GPUs before the run",
    environment_keys.HOST_LOAD_KEY: "Host load before the run, %",
    environment_keys.THROTTLED_KEY: "Throttled while measuring, %",
    environment_keys.STOOD_STILL_KEY: "Suspended, s",
    environment_keys.PLANNED_KEY: "Planned repeats of its experiment",
    environment_keys.CUSTOM_PATH_KEY: "File of the custom workload",
    environment_keys.CUSTOM_SOURCE_KEY: "Source of the custom workload",
    environment_keys.SCRIPT_COMMAND_KEY: "Command",
    "cpu": "CPU",
    environment_keys.CPU_COUNT_KEY: "Number of processors",
    "memory_total_bytes": "Memory",
    "os": "Operating system",
    "kernel": "Kernel",
    "program_version": "VariantScope",
    environment_keys.COMMIT_KEY: "Git commit",
    environment_keys.SOURCES_KEY: "Sources of the workloads, SHA-256",
    environment_keys.STANDBY_KEY: "Worker started ahead",
    environment_keys.HOST_KEY: "Host",
    environment_keys.HOST_ID_KEY: "Host's identity",
    environment_keys.CARRIER_KEY: "Reached by",
    environment_keys.BOOT_ID_KEY: "Boot of the host",
    VARIABLES_RECORDED_KEY: "Environment variables looked for",
    "cpu_affinity": "CPU affinity",
    "cpu_quota": "CPU time limit",
    "cpu_governor": "CPU governor",
    "cpu_turbo": "CPU turbo",
}


def environment_label(key: str) -> str:
    is_variable = key.startswith(VARIABLE_PREFIX)
    return _NAMES.get(key) or (key.removeprefix(VARIABLE_PREFIX) if is_variable else key.replace("_", " "))


def format_environment_value(key: str, value: str) -> str:
    """Return the value of an environment key as text: bytes in powers of 1024, a source as its length."""
    if key in environment_keys.CUSTOM_TEXT_KEYS:
        lines = len(value.splitlines())
        return f"{lines:,} {plural('line', lines)}"
    return byte_size(int(value)) if key.endswith("_bytes") and value.isdecimal() and len(value) < 20 else value


def comparable_keys(runs: Sequence[StoredRun]) -> list[str]:
    """Return the environment keys that describe the machine, not what was requested of it.

    A run's GPUs are left out if the runs requested different numbers, as is what the framework saw of them. The host is
    left out, because it may have several names.
    """
    gpu_parameters = {"gpus", "devices"} & set(differing_parameters([run.row.spec for run in runs]))
    excluded = (
        OWN_VARIABLE_KEYS
        | environment_keys.PER_RUN_KEYS
        | {
            *(framework.devices_key for framework in FRAMEWORKS.values()),
            VARIABLES_RECORDED_KEY,
            environment_keys.HOST_KEY,
            environment_keys.HOST_ID_KEY,
        }
        | ({environment_keys.GPUS_USED_KEY} if gpu_parameters else set())
    )
    keys = dict.fromkeys(key for run in runs for key in run.environment)
    if any(known_value(run.environment, ONEDNN_KEY) is not None for run in runs):
        keys[ONEDNN_KEY] = None
    return [key for key in keys if key not in excluded]


def differing_environment(runs: Sequence[StoredRun]) -> dict[str, dict[int, str]]:
    """Return the environment keys that differ between runs, with each run's value, if known, by its number."""
    stored_values = {
        key: {run.row.run: value for run in runs if (value := known_value(run.environment, key)) is not None}
        for key in comparable_keys(runs)
    }
    values_by_key = {
        key: {run: format_environment_value(key, value) for run, value in values.items()}
        for key, values in stored_values.items()
    }
    return {key: values for key, values in values_by_key.items() if len(set(values.values())) > 1}


def format_values_by_run(values: Sequence[RunsWith]) -> str:
    """Return values with their runs, `575 (run 2), else 580`: rare ones first, the most common without runs."""
    *rare, most = sorted(values, key=lambda one: len(one.where.runs))
    if rare and len(most.where.runs) == len(rare[-1].where.runs):
        return _join_few([f"{shorten_uuids(one.value)} ({one.where.text})" for one in values])
    named = (f"{shorten_uuids(one.value)} ({one.where.text})" for one in rare)
    return _join_few([*named, f"else {shorten_uuids(most.value)}"])


def shorten_uuids(value: str) -> str:
    """Return a value with GPUs' UUIDs shortened to what distinguishes them: `NVIDIA H200 (GPU-0f9e5287)`."""
    return _UUID.sub(r"\1", value)


def _join_few(values: Sequence[str]) -> str:
    if len(values) <= _MOST_VALUES:
        return ", ".join(values)
    *first, last = [*values[: _MOST_VALUES - 2], values[-1]]
    left_out = len(values) - len(first) - 1
    return ", ".join([*first, f"{left_out} other {plural('value', left_out)}", last])
