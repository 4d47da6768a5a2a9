"""Comparison warnings about code, environment variables and processors, from made-up environments."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from app.analysis.comparability import differing_variables
from app.values.environment_keys import COMMIT_KEY, HOST_ID_KEY, HOST_KEY, SOURCES_KEY
from app.viewmodels.compare.statements import Statement
from app.viewmodels.compare.warnings import environment_warnings
from app.viewmodels.format.environment import comparable_keys, differing_environment
from app.viewmodels.format.sentences import NamedRuns
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.catalog import ONEDNN_KEY, ONEDNN_VARIABLE, VARIABLES_RECORDED_KEY, recorded_variables
from workloads.framework import VARIABLE_PREFIXES

VERSION = {"program_version": "0.3.0"}
CODE_A = {**VERSION, COMMIT_KEY: "aaaa", SOURCES_KEY: "a1"}
LOOKED = {**CODE_A, **recorded_variables({})}
"""An environment that looked for variables and found none."""

MATTERS = "A difference in speed may come from that."
NO_MATTER = "No difference in speed is expected from that."


def warnings_of(*environments: Mapping[str, str], cpu: bool = False) -> list[Statement]:
    runs = [stored_run(run_row(number, gpus=0 if cpu else 1)) for number in range(1, len(environments) + 1)]
    return environment_warnings([replace(run, environment=of) for run, of in zip(runs, environments, strict=True)])


def only(found: list[Statement]) -> Statement:
    (warning,) = found
    return warning


def test_runs_of_several_hosts_are_a_warning_whatever_their_cards() -> None:
    on_gpu1 = {**CODE_A, HOST_KEY: "gpu1", HOST_ID_KEY: "one", "gpus_present": "NVIDIA H200 (GPU-1)"}
    warning = only(warnings_of(CODE_A, on_gpu1, {**CODE_A, "gpus_present": "NVIDIA H200 (GPU-0)"}))
    assert (warning.key, warning.severity) == ("host", "warning")
    assert warning.sentence.startswith("The host differs: gpu1 (run 2), else this machine. Its processor, driver")
    known = {"kernel": "6.8", "cpu": "Xeon", "driver": "580"}
    others = warnings_of({**on_gpu1, **known}, {**on_gpu1, HOST_ID_KEY: "two", **known, "cpu": "EPYC", "kernel": "6.1"})
    found = {warning.facts["name"]: warning.severity for warning in others}
    assert found == {"host": "warning", "cpu": "warning", "kernel": "note"}


def test_two_names_of_one_host_are_no_difference() -> None:
    names: tuple[dict[str, str], ...] = (
        {HOST_KEY: "gpu1"},
        {HOST_KEY: "lab.example", "carrier": "ssh"},
        {},
    )
    assert warnings_of(*({**CODE_A, HOST_ID_KEY: "one", **name} for name in names)) == []


def test_runs_of_other_code_are_told_by_their_commits() -> None:
    dirty = {**VERSION, COMMIT_KEY: "aaaa+changes.12", SOURCES_KEY: "b2"}
    warning = only(warnings_of(CODE_A, CODE_A, dirty))
    assert warning.sentence == (
        "The program's code differs: aaaa+changes.12 (run 3), else aaaa. A difference in speed may come from that."
    )
    assert (warning.facts["name"], warning.severity, warning.runs) == (
        "code",
        "warning",
        {1: "aaaa", 2: "aaaa", 3: "aaaa+changes.12"},
    )


def test_a_commit_that_leaves_the_workloads_alone_is_a_note() -> None:
    warning = only(warnings_of(CODE_A, {**CODE_A, COMMIT_KEY: "bbbb"}))
    assert warning.severity == "note"
    assert warning.sentence == f"The program's commit differs: aaaa (run 1), bbbb (run 2). {NO_MATTER}"


def test_without_commits_the_sources_tell() -> None:
    one, other = ({**VERSION, SOURCES_KEY: digits * 12} for digits in "ab")
    assert only(warnings_of(one, other)).sentence.startswith(
        "The program's code differs: sources aaaaaaa (run 1), sources bbbbbbb (run 2). A difference"
    )
    assert warnings_of(one, one) == []


def test_another_version_is_told_once_with_its_code() -> None:
    newer = {"program_version": "0.4.0", COMMIT_KEY: "bbbb", SOURCES_KEY: "b2"}
    assert only(warnings_of(CODE_A, newer)).sentence.startswith(
        "The program's code differs: aaaa (run 1), bbbb (run 2). A difference"
    )
    same_code = only(warnings_of(CODE_A, {**CODE_A, "program_version": "0.4.0"}))
    assert (same_code.facts["name"], same_code.severity) == ("program_version", "warning")


def test_code_that_is_not_known_is_a_warning_beside_code_that_is() -> None:
    note = only(warnings_of(VERSION, VERSION))
    assert note.sentence == "The program's code is unknown in all runs, and may differ."
    assert note.severity == "note"
    warning = only(warnings_of(VERSION, CODE_A))
    assert (warning.key, warning.severity, warning.facts) == ("unknown_code", "warning", {"where": NamedRuns((1,))})


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "TF_XLA_FLAGS", "NVIDIA_TF32_OVERRIDE", "ONEDNN_MAX_CPU_ISA"])
def test_a_variable_of_some_runs_only_is_a_difference(name: str) -> None:
    with_it = {**LOOKED, f"env {name}": "1"}
    warning = only(warnings_of(LOOKED, with_it, LOOKED))
    assert warning.sentence == f"{name} differs: 1 (run 2), else not set. {MATTERS}"
    assert (warning.severity, warning.runs) == ("warning", {1: "not set", 2: "1", 3: "not set"})
    assert differing_variables(LOOKED, with_it) == [name]


def test_onednn_is_compared_as_it_was_in_force() -> None:
    """On a GPU it computes nothing, and its variable is one that the worker sets; older runs have that at most."""
    variable = f"env {ONEDNN_VARIABLE}"
    used, unused = {**LOOKED, ONEDNN_KEY: "on", variable: "1"}, {**LOOKED, ONEDNN_KEY: "off", variable: "0"}
    warning = only(warnings_of(used, unused, cpu=True))
    assert (warning.facts["name"], warning.severity) == (ONEDNN_KEY, "warning")
    assert warning.sentence == f"oneDNN differs: on (run 1), off (run 2). {MATTERS}"
    assert only(warnings_of(used, unused)).severity == "note"
    assert only(warnings_of(used, {**LOOKED, variable: "0"}, cpu=True)).severity == "warning"
    assert warnings_of(used, LOOKED, cpu=True) == [], "the processor decided, and the run does not say how"
    assert differing_variables(used, unused) == []
    older, newer = stored_run(run_row(1)), stored_run(run_row(2))
    older = replace(older, environment={**LOOKED, variable: "0"})
    newer = replace(newer, environment={**LOOKED, ONEDNN_KEY: "off"})
    assert differing_environment([older, newer]) == {}
    assert ONEDNN_KEY in comparable_keys([older])
    assert ONEDNN_KEY not in comparable_keys([replace(newer, environment=LOOKED)])


def test_variables_that_the_worker_sets_or_that_name_a_container_are_no_difference() -> None:
    found = {**LOOKED, "env CUDA_VISIBLE_DEVICES": "GPU-1", "env CUDA_VERSION": "13"}
    note = only(warnings_of(LOOKED, found))
    assert (note.facts["name"], note.severity) == ("env CUDA_VERSION", "note")
    assert differing_variables(LOOKED, found) == []


def test_processors_that_some_runs_were_kept_from_are_told() -> None:
    all_of_them, one = ({**CODE_A, "cpu_affinity": cpus} for cpus in ("0-3", "2"))
    assert only(warnings_of(all_of_them, one)).sentence.startswith("CPU affinity differs: 0-3 (run 1), 2 (run 2).")
    assert warnings_of(all_of_them, CODE_A) == [], "not recorded"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ('{"cluster":{"worker":["a:1"]},"task":{"index":0}}', None),
        (
            '{"cluster": {"worker": ["grpc://me:hush@a:1"]}, "rpc": {"token": "hush", "headers": ["api-key: hush"]}}',
            '{"cluster": {"worker": ["grpc://…@a:1"]}, "rpc": {"token": "…", "headers": ["api-key: …"]}}',
        ),
        (r'{"env": "{\"token\": \"hush\"}"}', r'{"env": "{\"token\": \"…\"}"}'),
        ('{"token": "hush hush", "task"', '{"token": …, "task"'),
        (
            "--xla_gpu_autotune_level=4 --upload_token=hush --xla_dump_to=/tmp",
            "--xla_gpu_autotune_level=4 --upload_token=… --xla_dump_to=/tmp",
        ),
        ("https://a/?Signature=hush&part=2", "https://a/?Signature=…&part=2"),
        ("Authorization: Bearer hush", "Authorization: Bearer …"),
    ],
)
def test_a_value_is_kept_without_the_secrets_in_it(value: str, stored: str | None) -> None:
    assert recorded_variables({"TF_CONFIG": value})["env TF_CONFIG"] == (stored or value)


def test_variables_are_kept_by_prefix_and_secrets_never() -> None:
    secrets = {"NVIDIA_API_KEY": "x", "TF_VAR_password": "x", "TF_TOKEN_app": "x", "TF_CLI_CONFIG_FILE": "x"}
    relevant = {"NVIDIA_TF32_OVERRIDE": "0", "KMP_BLOCKTIME": "1", "TF_USE_LEGACY_KERAS": "1", "LD_PRELOAD": "t.so"}
    found = recorded_variables({**secrets, **relevant, "HOME": "x", "AWS_SECRET_ACCESS_KEY": "x"})
    assert found.pop(VARIABLES_RECORDED_KEY).split() == list(VARIABLE_PREFIXES)
    assert found == {f"env {name}": value for name, value in relevant.items()}
