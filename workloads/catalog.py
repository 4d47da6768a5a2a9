"""Workloads, their parameters and what can run where, as data: one source for form, command line and worker.

`complete` turns what a user gave into a full `RunSpec` (wrong use raises `UsageError`); `check` returns why it cannot
run on a machine (refusals, not errors). Both are pure, except that they make paths absolute and check that they exist.
"""

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from workloads.custom.definitions import (
    LAYOUT_PARAMETERS,
    SOURCE,
    custom_workload,
    custom_workload_by_name,
    is_custom,
    refusal_of_text,
)
from workloads.definitions import WORKLOADS
from workloads.framework import (
    FRAMEWORK,
    FRAMEWORKS,
    JAX,
    MINOR_VARIABLES,
    ONEDNN_KEY,
    ONEDNN_VARIABLE,
    OWN_VARIABLES,
    PYTORCH,
    VARIABLE_PREFIX,
    VARIABLES_RECORDED_KEY,
    Framework,
    framework_of,
    recorded_variables,
)
from workloads.interpreter import (
    DEFAULT_VARIABLE,
    MINIMUM_VERSIONS,
    NO_PYTHON,
    default_interpreter,
    find_python,
    installed_framework,
    is_version,
    lacks_framework,
)
from workloads.machine import Gpu, Machine, cache_folder
from workloads.parameters import BETWEEN_PACKAGES, PRECISION
from workloads.protocol import RunSpec, Value, Variant
from workloads.recurrent_layers import RECURRENT_LAYERS
from workloads.schema import (
    Choice,
    CustomFile,
    Parameter,
    Refusal,
    Rule,
    UsageError,
    Workload,
    label_from_name,
    unknown_name_message,
)
from workloads.script.definitions import (
    REVISION,
    VARIABLE,
    command_line,
    command_names,
    describe_command,
    examples_per_step,
    is_script,
    names_python,
    placeholder_key,
    script_name,
    script_options,
    script_workload,
)
from workloads.validity import PRECISION_RULES, RULES, find_gpu, missing_framework

MAX_VARIANTS = 500
"""The most variants in one experiment. More are a slip: even the quickest runs would take hours."""


def workload(name: str) -> Workload:
    """Return the workload of that name; raises `UsageError` naming near misses."""
    for candidate in WORKLOADS:
        if candidate.name == name:
            return candidate
    names = (w.name for w in WORKLOADS if not w.hidden)
    raise UsageError(f"{unknown_name_message('workload', name, names)} Your own is path/to/file.py:name.")


def find_workload(name: str) -> Workload | None:
    """Return the workload of that name; None if this version does not have it.

    A custom workload has only the parameters common to all: its name does not reveal its own.
    """
    if is_script(name):
        return script_workload(name)
    return next(
        (listed for listed in WORKLOADS if listed.name == name),
        custom_workload_by_name(name) if is_custom(name) else None,
    )


def parameter_names(has: Callable[[Parameter], bool]) -> tuple[str, ...]:
    """Return the names of the built-in parameters for which `has` is true, each once, in the catalog's order.

    Names also apply to stored runs whose workload this version does not have.
    """
    return tuple(
        dict.fromkeys(
            parameter.name for definition in WORKLOADS for parameter in definition.parameters if has(parameter)
        )
    )


OUTSIDE_STEP = frozenset(parameter_names(lambda parameter: not parameter.affects_step))
"""Parameters that control where and how long a step is measured, and change nothing in it."""
OF_REPEATS = parameter_names(lambda parameter: parameter.repeats)
"""Parameters in which the repeats of one variant may differ."""


@lru_cache(64)
def _frameworks_by_parameter(workload_name: str) -> Mapping[str, tuple[str, ...]]:
    definition = find_workload(workload_name)
    return {p.name: p.frameworks for p in definition.parameters if p.frameworks} if definition else {}


def has_parameter(spec: RunSpec, name: str) -> bool:
    """Return whether the framework of a variant reads a parameter; if not, a complete spec has it at its default."""
    if name == SOURCE and REVISION in spec.variant:  # the revision says it in the user's words
        return False
    frameworks = _frameworks_by_parameter(spec.workload).get(name, ())
    return not frameworks or spec.variant.get("framework", "tensorflow") in frameworks


def own_variant(spec: RunSpec) -> dict[str, Value]:
    return {name: value for name, value in spec.variant.items() if has_parameter(spec, name)}


def parse(parameter: Parameter, text: str) -> Value:
    word = text.strip()
    try:
        if parameter.kind == "integer":
            return _checked(parameter, int(word))
        if parameter.kind == "number":
            return _checked(parameter, float(word))
    except ValueError:
        noun = "a whole number" if parameter.kind == "integer" else "a number"
        raise UsageError(f"{parameter.name} takes {noun}, not {text!r}.") from None
    if parameter.kind == "switch":
        return _checked(parameter, _SWITCH_VALUES.get(word.lower(), word))
    if parameter.name == PRECISION.name:
        word = SHORT_FOR.get(word.lower(), word)
    return _checked(parameter, word)


def wrong_values(name: str, variant: Mapping[str, Value]) -> list[str]:
    """Return the parameters of an imported variant whose values have the wrong kind or are out of range.

    Choices and parameters of other versions pass. An unknown workload is checked by the common parameters.
    """
    definition = find_workload(name) or custom_workload_by_name(name)
    return [p.name for p in definition.parameters if p.name in variant and not _is_valid(p, variant[p.name])]


def _is_valid(parameter: Parameter, value: Value) -> bool:
    if parameter.kind in ("switch", "text", "path", "choice"):
        return isinstance(value, bool if parameter.kind == "switch" else str)
    try:
        return parse(parameter, str(value)) == value
    except UsageError:
        return False


SHORT_FOR: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Engineers' short names of precisions, with the values that they stand for."""


_SWITCH_VALUES: Mapping[str, bool] = {
    "true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False,
}  # fmt: skip


def complete(name: str, settings: Mapping[str, Value], machine: Machine) -> RunSpec:
    """Return the complete run spec of a built-in workload; the machine's defaults fill the gaps.

    Without `gpus` it runs on one GPU if there is one, else on the CPU at sizes that fit it.

    Raises:
        UsageError: A workload, parameter or value that does not exist or is out of range.
    """
    return fill_defaults(workload(name), settings, machine)


def fill_defaults(chosen: Workload, settings: Mapping[str, Value], machine: Machine) -> RunSpec:
    """Return the complete run spec of any workload, as `complete` does; a custom one's includes the hash of its file.

    Raises:
        UsageError: As `complete` does.
    """
    values = {key: _checked(chosen.parameter(key), value) for key, value in settings.items()}
    on_cpu = int(values.get("gpus", min(1, len(machine.gpus)))) == 0
    variant = {p.name: values.get(p.name, default_value(p, on_cpu=on_cpu)) for p in chosen.parameters}
    if chosen.custom_file is not None:
        variant[SOURCE] = chosen.custom_file.sha256
    return RunSpec(workload=chosen.name, variant=variant)


def combinations(chosen: Workload, lists: Mapping[str, Sequence[Value]], machine: Machine) -> list[RunSpec]:
    """Return every combination of values as a complete run spec, each once, the last parameter varying fastest.

    Raises:
        UsageError: As `complete` does, and for more than `MAX_VARIANTS`.
    """
    count = math.prod(map(len, lists.values()))
    if count > MAX_VARIANTS:
        raise UsageError(f"{count:,} combinations are too many: choose fewer values, {MAX_VARIANTS} at most.")
    combinations = itertools.product(*lists.values())
    return distinct(fill_defaults(chosen, dict(zip(lists, values, strict=True)), machine) for values in combinations)


def distinct(specs: Iterable[RunSpec]) -> list[RunSpec]:
    """Return the variants in their order, each once: a duplicate would count one run as two."""
    return list({(spec.workload, frozenset(spec.variant.items())): spec for spec in specs}.values())


def default_value(parameter: Parameter, *, on_cpu: bool) -> Value:
    return parameter.cpu_default if on_cpu and parameter.cpu_default is not None else parameter.default


def with_defaults(spec: RunSpec) -> RunSpec:
    """Return the spec with defaults for the parameters that it lacks because they are newer.

    Only code that decodes stored specs needs this. A complete spec, or one of an unknown workload, stays as it is.
    """
    definition = find_workload(spec.workload)
    if definition is None or all(parameter.name in spec.variant for parameter in definition.parameters):
        return spec
    on_cpu = spec.variant.get("gpus", 0) == 0
    defaults = {p.name: default_value(p, on_cpu=on_cpu) for p in definition.parameters}
    return RunSpec(workload=spec.workload, variant={**defaults, **spec.variant})


def drops_between_layers(spec: RunSpec) -> bool | None:
    """Return whether a variant's dropout acts only between its recurrent layers; None without dropout."""
    layer, variant = RECURRENT_LAYERS.get(spec.workload), spec.variant
    if layer is None or not variant.get("dropout") or variant.get("mode") == "inference":
        return None
    return any(
        implementation.drops_between_layers
        for implementation in layer.implementations
        if implementation.name == variant["implementation"]
    )


def runnable(specs: Iterable[RunSpec], machine: Machine) -> list[RunSpec]:
    return [spec for spec in specs if not check(spec, machine)]


def check(spec: RunSpec, machine: Machine) -> tuple[Refusal, ...]:
    """Return every reason why a complete spec cannot run on this machine; empty if it can."""
    return _unknown_choices(spec) or _broken(RULES, spec, machine)


def _broken(rules: Iterable[Rule], spec: RunSpec, machine: Machine) -> tuple[Refusal, ...]:
    counts = {"gpu_count": len(machine.gpus), "cpu_count": machine.cpu_count}
    facts = {**spec.variant, **counts, "hidden_by": machine.hidden_by}
    return tuple(
        Refusal(rule.parameters, rule.reason.format(**facts))
        for rule in rules
        if (not is_script(spec.workload) or _OF_SCRIPTS.issuperset(rule.parameters))
        and (not rule.workloads or spec.workload in rule.workloads)
        and rule.broken(spec.variant, machine)
    )


_OF_SCRIPTS = frozenset(("gpus", "devices", "interpreter"))
"""The only parameters whose rules apply to users' commands: nothing is known of what these compute."""


def _unknown_choices(spec: RunSpec) -> tuple[Refusal, ...]:
    """Return a refusal of each choice that this version lacks; a plan of another version may contain one."""
    definition = find_workload(spec.workload)
    chosen = (
        [(parameter, spec.variant.get(parameter.name)) for parameter in definition.parameters if parameter.choices]
        if definition
        else []
    )
    return tuple(
        Refusal((parameter.name,), unknown_name_message(f"value of {parameter.name}", str(value), values))
        for parameter, value in chosen
        if value is not None and value not in (values := [choice.value for choice in parameter.choices])
    )


def precision_refusal(precision: str, machine: Machine) -> str | None:
    """Return why a machine's first GPU, or without GPUs its CPU, cannot compute in a precision; None if it can."""
    variant: Variant = {"precision": precision, "gpus": min(1, len(machine.gpus))}
    return next((rule.reason for rule in PRECISION_RULES if rule.broken(variant, machine)), None)


def refusal_reason(spec: RunSpec, name: str, value: Value, machine: Machine) -> str | None:
    """Return why a value cannot be combined with the other values of a complete spec, or None if it can."""
    changed = RunSpec(workload=spec.workload, variant={**spec.variant, name: value})
    unknown = _unknown_choices(changed)
    # A form tries each value of each parameter, so only the rules that name it are evaluated.
    broken = unknown or _broken((rule for rule in RULES if name in rule.parameters), changed, machine)
    return next((refusal.reason for refusal in broken if name in refusal.parameters), None)


def _checked(parameter: Parameter, value: Value) -> Value:
    """Return the value in the parameter's own type; raises `UsageError` for a wrong type, choice or range."""
    name = parameter.name
    if parameter.kind == "switch":
        if not isinstance(value, bool):
            raise UsageError(f"{name} is on or off (true or false), not {value!r}.")
        return value
    if parameter.kind == "text":
        return str(value)
    if parameter.kind == "path":
        path = str(value)
        if os.sep in path or path.startswith((".", "~")):  # else it is a version
            path = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - pathlib keeps the dots
        return path
    if parameter.kind == "choice":
        if value not in {choice.value for choice in parameter.choices}:
            raise UsageError(
                unknown_name_message(f"value of {name}", str(value), (choice.value for choice in parameter.choices))
            )
        return value
    return _in_range(parameter, value)


def _in_range(parameter: Parameter, value: Value) -> Value:
    is_integer = parameter.kind == "integer"
    if isinstance(value, bool | str) or (is_integer and math.isfinite(value) and int(value) != value):
        raise UsageError(f"{parameter.name} takes {'a whole number' if is_integer else 'a number'}, not {value!r}.")
    low, high = parameter.limits or (-math.inf, math.inf)
    if not math.isfinite(value) or not low <= value <= high:
        raise UsageError(f"{parameter.name} must be from {low:,.10g} to {high:,.10g}, not {value:,.10g}.")
    return int(value) if is_integer else float(value)
