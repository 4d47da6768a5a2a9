"""Comparison warnings about what runs were made with: the program's code, versions, settings, environment variables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.analysis.comparability import MINOR_VARIABLE_KEYS, OWN_VARIABLE_KEYS, is_same_host, known_value
from app.environment_keys import COMMIT_KEY, GPUS_USED_KEY, HOST_KEY, SOURCES_KEY
from app.records import StoredRun
from app.viewmodels.format.cells import THIS_MACHINE
from app.viewmodels.format.environment import (
    differing_environment,
    environment_label,
    format_values_by_run,
)
from app.viewmodels.format.sentences import format_run_numbers, join_with_and
from workloads.catalog import FRAMEWORK, ONEDNN_KEY, VARIABLE_PREFIX
from workloads.protocol import Value

Severity = Literal["warning", "note"]
"""A warning may explain a difference; a note is worth knowing."""

CODE = "code"
"""The key of the warning that runs are of different code, or that it is not known."""

_VERSION_KEY = "program_version"
_MINOR_KEYS = MINOR_VARIABLE_KEYS | {"os", "kernel", "python", "numpy", "memory_total_bytes", "gpus_present"}
_PLURAL_KEYS = ("gpus_present", "cpu_count", "cpu_affinity")
"""Environment keys with a label in the plural."""
_HASH_DIGITS = 7
_MAX_VARIABLES = 4
"""Variables that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonWarning:
    """One reason why a comparison may mislead.

    Attributes:
        key: What it is about, one word or two.
        sentence: The reason, with what to do.
        values: What each run it concerns has, by run number.
        severity: How much it matters.
        possible_pct: How much of a difference in speed it may explain, in percent; None if that has no known limit.
        interleave: A run of each variant that should be measured again, interleaved, the baseline's first.
    """

    key: str
    sentence: str
    values: Mapping[int, str]
    severity: Severity = "warning"
    possible_pct: float | None = None
    interleave: tuple[int, ...] = ()


def describe_difference(
    key: str, name: str, values: Mapping[int, str], severity: Severity = "warning"
) -> ComparisonWarning:
    """Return a warning that something differs between runs.

    Args:
        key: The warning's key.
        name: What differs, as a sentence begins with it.
        values: Its value by run.
        severity: How much it matters.
    """
    verb = "differ" if key in _PLURAL_KEYS else "differs"
    return ComparisonWarning(
        key=key, sentence=f"{name} {verb}: {format_values_by_run(values)}.", values=values, severity=severity
    )


def environment_warnings(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Return what differs between the environments of runs, and what is not known of some."""
    code = _code(runs)
    has_warning = any(warning.severity == "warning" for warning in code)
    hosts = host_warnings(runs)
    omitted = {GPUS_USED_KEY, COMMIT_KEY, SOURCES_KEY, *([_VERSION_KEY] if has_warning else [])}
    omitted |= {"gpus_present"} if hosts else set()  # other hosts have other GPUs
    differing = (item for item in differing_environment(runs).items() if item[0] not in omitted)
    found = [
        describe_difference(key, environment_label(key), values, "note" if _is_minor(runs, key) else "warning")
        for key, values in differing
    ]
    return [*hosts, *code, *found, *_unrecorded_variables(runs)]


def host_warnings(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn of runs of several hosts; names of one and the same host are no difference."""
    first = runs[0].environment if runs else {}
    if all(is_same_host(first, run.environment) for run in runs):
        return []
    names = {run.row.run: run.environment.get(HOST_KEY, THIS_MACHINE) for run in runs}
    sentence = (
        f"The host differs: {format_values_by_run(names)}. Even with the same kind of GPU, its processor, driver, "
        "cooling and other users may explain a difference; compare variants on one host."
    )
    return [ComparisonWarning(key=HOST_KEY, sentence=sentence, values=names)]


def _is_minor(runs: Sequence[StoredRun], key: str) -> bool:
    """Return whether a difference in a key explains none in speed, or was asked for."""
    on_gpus = key == ONEDNN_KEY and all(int(run.row.spec.variant.get("gpus", 0)) for run in runs)
    return on_gpus or key in _MINOR_KEYS or _is_requested(runs, key)


def _is_requested(runs: Sequence[StoredRun], key: str) -> bool:
    """Return whether a library's version differs only because the runs name other interpreters."""
    found: dict[Value, set[str]] = {}
    for run in runs:
        interpreter = run.row.spec.variant.get("interpreter", "")
        found.setdefault(interpreter, set()).add(run.environment.get(key, ""))
    return key in FRAMEWORK.library_keys and len(found) > 1 and all(len(values) == 1 for values in found.values())


def _code(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Warn of runs of different code, and of some whose code is not known next to others; note that none is known.

    The sources of the workloads decide: commits that differ elsewhere measure with the same code.
    """
    known = [run for run in runs if COMMIT_KEY in run.environment or SOURCES_KEY in run.environment]
    key = SOURCES_KEY if all(SOURCES_KEY in run.environment for run in known) else COMMIT_KEY
    codes = {run.row.run: run.environment[key] for run in known if key in run.environment}
    names = _code_names(known, codes)
    found = []
    if len(set(codes.values())) > 1:
        sentence = f"The program's code differs: {format_values_by_run(names)}; a difference may come from that."
        found.append(ComparisonWarning(key=CODE, sentence=sentence, values=names))
    elif len(set(_values(known, COMMIT_KEY).values())) > 1:
        found.append(describe_difference(COMMIT_KEY, "The program's commit", _values(known, COMMIT_KEY), "note"))
    unknown = [run.row.run for run in runs if run.row.run not in codes]
    return [*found, *_unknown_code(runs, unknown)]


def _values(runs: Sequence[StoredRun], key: str) -> dict[int, str]:
    return {run.row.run: run.environment[key] for run in runs if key in run.environment}


def _code_names(runs: Sequence[StoredRun], codes: Mapping[int, str]) -> dict[int, str]:
    """Return by run what names its code: version and commit, or a hash of the sources where commits do not tell."""
    commits, versions = _values(runs, COMMIT_KEY), _values(runs, _VERSION_KEY)
    named_by_commit = codes.keys() <= commits.keys() and len({(codes[run], commits[run]) for run in codes}) == len(
        {commits[run] for run in codes}
    )
    names = commits if named_by_commit else {run: f"sources {code[:_HASH_DIGITS]}" for run, code in codes.items()}
    with_version = len(set(versions.values())) > 1
    return {run: f"{versions[run]} {names[run]}" if with_version and run in versions else names[run] for run in codes}


def _unknown_code(runs: Sequence[StoredRun], unknown: Sequence[int]) -> list[ComparisonWarning]:
    if not unknown:
        return []
    if len(unknown) == len(runs):
        extent = f"the {len(runs)} runs" if len(runs) > 1 else "the run"
        sentence = f"The program's code in {extent} is unknown, so it may differ."
    else:
        sentence = (
            f"The program's code in {format_run_numbers(unknown)} is unknown and may differ from that in the others."
        )
    severity: Severity = "note" if len(unknown) == len(runs) else "warning"
    return [ComparisonWarning(key=CODE, sentence=sentence, values=dict.fromkeys(unknown, ""), severity=severity)]


def _unrecorded_variables(runs: Sequence[StoredRun]) -> list[ComparisonWarning]:
    """Note environment variables that some runs have and of which others, made by an older program, say nothing."""
    keys = dict.fromkeys(key for run in runs for key in run.environment if key.startswith(VARIABLE_PREFIX))
    relevant = [key for key in keys if key not in MINOR_VARIABLE_KEYS | OWN_VARIABLE_KEYS]
    unknown = {key: [run.row.run for run in runs if known_value(run.environment, key) is None] for key in relevant}
    names = [key.removeprefix(VARIABLE_PREFIX) for key, without in unknown.items() if without]
    if not names:
        return []
    more = [f"{len(names) - _MAX_VARIABLES} more"] if len(names) > _MAX_VARIABLES else []
    without = sorted({run for numbers in unknown.values() for run in numbers})
    sentence = (
        f"Some runs had {join_with_and([*names[:_MAX_VARIABLES], *more])} set; {format_run_numbers(without)} "
        f"did not record whether {'it' if len(without) == 1 else 'they'} did."
    )
    return [
        ComparisonWarning(
            key="unrecorded_variables", sentence=sentence, values=dict.fromkeys(without, ""), severity="note"
        )
    ]
