"""A user's own workload as the catalog has all others: its own parameters, and those that every workload has."""

from pathlib import PurePath

from workloads.kinds import Choice, OwnFile, Parameter, Workload, label_of
from workloads.parameters import common
from workloads.protocol import OwnParameter, OwnWorkload

SOURCE = "source"
"""The value of a variant that says which state of the user's file it is of: the SHA-256 of its text."""

_BATCH_SIZE = 32
_PASSED_ON = ("batch_size", "seed")


def own_name(path: str, function: str) -> str:
    """The name under which runs of a function of the file are stored, `mlp.py:mlp`: no folder of one machine."""
    return f"{PurePath(path).name}:{function}"


def is_own(workload: str) -> bool:
    """Whether that is the name of a user's own workload."""
    return ".py:" in workload


def own_workload(described: OwnWorkload, file: OwnFile) -> Workload:
    """The workload that a file's function was described as."""
    return Workload(
        name=own_name(file.path, described.name),
        title=f"{described.name} · {PurePath(file.path).name}",
        help=described.help,
        example="example",
        parameters=(*map(_parameter, described.parameters), *_shared(described.batch_size)),
        own=file,
    )


def undescribed(workload: str) -> Workload:
    """What is known of a user's own workload by its name alone: the parameters that all have."""
    return Workload(name=workload, title=workload, help="", example="example", parameters=_shared(_BATCH_SIZE))


def taken_names() -> frozenset[str]:
    """Names that a parameter of the user's cannot have, since every workload has one that is called so."""
    return frozenset((SOURCE, *(parameter.name for parameter in _shared(_BATCH_SIZE)))) - frozenset(_PASSED_ON)


def _shared(batch_size: int) -> tuple[Parameter, ...]:
    return common(batch_size, batch_size, "example", ())


def _parameter(own: OwnParameter) -> Parameter:
    return Parameter(
        name=own.name,
        kind=own.kind,
        label=label_of(own.name),
        help=own.help,
        default=own.default,
        choices=tuple(Choice(value=word, label=word) for word in own.choices),
    )
