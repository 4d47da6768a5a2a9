"""Makes catalog entries of custom workloads: the function's parameters and those that every workload has."""

from dataclasses import replace
from pathlib import PurePath

from workloads.job_protocol import CustomParameter, CustomWorkload
from workloads.parameters import FRAMEWORK_CHOICE, FRAMEWORK_COMPUTATION, common_parameters
from workloads.schema import Choice, CustomFile, Parameter, Workload, label_from_name

SOURCE = "source"
"""The key of a variant that says which state of the user's file it is of: the SHA-256 of its text."""

LAYOUT_PARAMETERS = ("layout", "data_format")
"""Names of a custom parameter that requests a layout, if its value is one."""

_DEFAULT_BATCH_SIZE = 32
_PASSED_PARAMETERS = ("batch_size", "seed")


def custom_name(path: str, function: str) -> str:
    """Return the name under which runs of a function are stored, such as `mlp.py:mlp`, without a machine's folders."""
    return f"{PurePath(path).name}:{function}"


def is_custom(workload: str) -> bool:
    """Return whether that is the name of a custom workload."""
    return ".py:" in workload


def custom_workload(described: CustomWorkload, file: CustomFile) -> Workload:
    """Return the workload of a described function."""
    return Workload(
        name=custom_name(file.path, described.name),
        title=f"{described.name} · {PurePath(file.path).name}",
        help=described.help,
        example="example",
        parameters=(
            *map(_custom_parameter, described.parameters),
            *_program_parameters(described.batch_size, described.framework),
        ),
        custom_file=file,
    )


def custom_workload_by_name(workload: str) -> Workload:
    """Return what is known of a custom workload by its name alone: the parameters that all have."""
    return Workload(
        name=workload, title=workload, help="", example="example", parameters=_program_parameters(_DEFAULT_BATCH_SIZE)
    )


def reserved_names() -> frozenset[str]:
    """Return the names that a custom parameter cannot have, since every workload has a parameter of that name."""
    return frozenset((SOURCE, *(parameter.name for parameter in _program_parameters(_DEFAULT_BATCH_SIZE)))) - frozenset(
        _PASSED_PARAMETERS
    )


def _program_parameters(batch_size: int, framework: str = "") -> tuple[Parameter, ...]:
    """Return the parameters that all have; the framework can be chosen no more where it is known."""
    choice = FRAMEWORK_CHOICE
    if framework:
        choices = tuple(option for option in choice.choices if option.value == framework)
        choice = replace(choice, default=framework, choices=choices)
    return choice, *FRAMEWORK_COMPUTATION, *common_parameters(batch_size, batch_size, "example", ())


def _custom_parameter(parameter: CustomParameter) -> Parameter:
    return Parameter(
        name=parameter.name,
        kind=parameter.kind,
        label=label_from_name(parameter.name),
        help=parameter.help,
        default=parameter.default,
        choices=tuple(Choice(value=word, label=word) for word in parameter.choices),
        silent=parameter.kind == "switch",
        same_result=True,
    )
