"""The environment of runs in words: every fact by its name, and what was not the same for all runs."""

import re
from collections.abc import Mapping, Sequence

from app.facts import (
    BESIDE,
    GATE,
    GPUS_USED,
    HOST_LOAD_PCT,
    OF_ONE_RUN,
    OTHERS_ON_GPU,
    OWN_PATH,
    OWN_SOURCE,
    THROTTLED_PCT,
)
from app.records import StoredRun
from app.viewmodels.run_numbers import runs_words
from app.viewmodels.units import byte_size, plural
from app.viewmodels.variants import differing

_MOST_VALUES = 4
"""So many values of a fact are told with their runs."""
_UUID = re.compile(r"(GPU-[0-9a-f]{8})-[0-9a-f-]{27}")
_FOLLOW_FROM_GPUS = {"tensorflow_devices", "env CUDA_VISIBLE_DEVICES"}
_NAMES: Mapping[str, str] = {
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "numpy": "NumPy",
    "python": "Python",
    "driver": "NVIDIA driver",
    "cuda_driver": "CUDA of the driver",
    "cuda_built": "CUDA of TensorFlow",
    "cudnn_built": "cuDNN of TensorFlow",
    "cuda_loaded": "CUDA loaded",
    "cudnn_loaded": "cuDNN loaded",
    "nccl_loaded": "NCCL loaded",
    "tensorflow_devices": "TensorFlow sees",
    "gpus_present": "GPUs present",
    GPUS_USED: "GPUs used",
    OTHERS_ON_GPU: "Others on the GPU",
    BESIDE: "Other runs meanwhile on",
    GATE: "Waited before the run",
    HOST_LOAD_PCT: "Host load before the run, %",
    THROTTLED_PCT: "Throttled while measuring, %",
    OWN_PATH: "Own workload's file",
    OWN_SOURCE: "Own workload's source",
    "cpu": "CPU",
    "cpu_count": "Processors",
    "memory_total_bytes": "Memory",
    "os": "Operating system",
    "kernel": "Kernel",
    "program_version": "VariantScope",
    "git_commit": "Git commit",
}


def fact_name(key: str) -> str:
    """The name of a fact as a reader knows it; one that is not known here keeps its own."""
    return _NAMES.get(key) or (key.removeprefix("env ") if key.startswith("env ") else key.replace("_", " "))


def fact_value(key: str, value: str) -> str:
    """The value of a fact; bytes in powers of 1024, of a source how long it is."""
    if key == OWN_SOURCE:
        lines = len(value.splitlines())
        return f"{lines:,} {plural('line', lines)}"
    return byte_size(int(value)) if key.endswith("_bytes") and value.isdecimal() else value


def comparable_facts(runs: Sequence[StoredRun]) -> list[str]:
    """The keys of all facts that say something of the machine, not of what was asked of it.

    Which GPUs a run was given is no news where the runs asked for different numbers of them, and what TensorFlow saw
    of them follows from it.
    """
    asked = {"gpus", "devices"} & set(differing([run.row.spec for run in runs]))
    follows = _FOLLOW_FROM_GPUS | OF_ONE_RUN | ({GPUS_USED} if asked else set())
    return [key for key in dict.fromkeys(key for run in runs for key in run.environment) if key not in follows]


def differing_facts(runs: Sequence[StoredRun]) -> dict[str, dict[int, str]]:
    """The facts that are not the same for all runs, with the value of each run that has them, by its number."""
    facts = {
        key: {run.row.run: fact_value(key, run.environment[key]) for run in runs if key in run.environment}
        for key in comparable_facts(runs)
    }
    return {key: values for key, values in facts.items() if len(set(values.values())) > 1}


def told_by_run(values: Mapping[int, str]) -> str:
    """Values with their runs, `575 (run 2), else 580`: rare ones first; what most runs share needs no list of runs.

    Of many values only a few are told. Cards are named by the beginning of their UUID.
    """
    holders = by_value({run: in_short(value) for run, value in values.items()})
    *rare, (usual, most) = sorted(holders.items(), key=lambda item: len(item[1]))
    if rare and len(most) == len(rare[-1][1]):
        return _few([f"{value} ({runs_words(numbers)})" for value, numbers in holders.items()])
    return _few([*(f"{value} ({runs_words(numbers)})" for value, numbers in rare), f"else {usual}"])


def by_value(values: Mapping[int, str]) -> dict[str, list[int]]:
    """The runs that have each value."""
    holders: dict[str, list[int]] = {}
    for run, value in values.items():
        holders.setdefault(value, []).append(run)
    return holders


def in_short(value: str) -> str:
    """A fact with the UUIDs of cards cut to what tells them apart: `NVIDIA H200 (GPU-0f9e5287)`."""
    return _UUID.sub(r"\1", value)


def _few(told: Sequence[str]) -> str:
    if len(told) <= _MOST_VALUES:
        return ", ".join(told)
    *first, last = [*told[: _MOST_VALUES - 2], told[-1]]
    left_out = len(told) - len(first) - 1
    return ", ".join([*first, f"{left_out} other {plural('value', left_out)}", last])
