"""Environments as program and agent speak of them: what to make, what it takes, how far it is, and what there is.

The orders and reports among them have numbers, as `app.agent_protocol` says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from workloads.protocol import TAG


class EnvironmentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An environment to make; see `requirements_of`."""

    name: str
    packages: tuple[str, ...] = ()
    cuda: bool | None = None


class EnvironmentOffer(msgspec.Struct, frozen=True, kw_only=True):
    """What making an environment takes: `download_bytes` at most, for the installer keeps what it fetched before.

    It is None where the index does not say it.
    """

    name: str
    folder: str
    python: str
    tool: str
    packages: int
    download_bytes: int | None
    free_bytes: int


class EnvironmentProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the making of an environment is; `total_bytes` is None where nothing is downloaded, or it is unknown."""

    title: str
    done_bytes: int = 0
    total_bytes: int | None = None


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment on this machine.

    Attributes:
        name: Its name.
        folder: Its folder.
        state: `unfinished` where its making or its removal was interrupted, `broken` where its Python is gone.
        framework: The framework's version; None if there is none.
        python: Version of its Python.
        packages: What was to be installed.
        size_bytes: Its size on disk.
    """

    name: str
    folder: str
    state: Literal["complete", "unfinished", "broken"]
    framework: str | None = None
    python: str = ""
    packages: tuple[str, ...] = ()
    size_bytes: int | None = None


class MakeEnvironment(msgspec.Struct, frozen=True, kw_only=True, tag="make_environment", tag_field=TAG):
    """Begin to make an environment; answered by `EnvironmentStep` or `Refused`, and so is each `FollowEnvironment`."""

    number: int
    request: EnvironmentRequest


class FollowEnvironment(msgspec.Struct, frozen=True, kw_only=True, tag="follow_environment", tag_field=TAG):
    """Ask how far an environment is, by the number of its order; `go_on` answers an offer, and without it it ends."""

    number: int
    making: int
    go_on: bool


class ListEnvironments(msgspec.Struct, frozen=True, tag="list_environments", tag_field=TAG):
    """Ask for `EnvironmentsListed`."""

    number: int


class RemoveEnvironment(msgspec.Struct, frozen=True, kw_only=True, tag="remove_environment", tag_field=TAG):
    """Remove an environment; answered by `EnvironmentsListed` or `Refused`."""

    number: int
    name: str


class EnvironmentStep(msgspec.Struct, frozen=True, kw_only=True, tag="environment_step", tag_field=TAG):
    """How far the making of an environment is: it waits for an answer to its offer, goes on, or is made."""

    number: int
    offer: EnvironmentOffer | None = None
    progress: EnvironmentProgress | None = None
    made: Environment | None = None


class EnvironmentsListed(msgspec.Struct, frozen=True, kw_only=True, tag="environments_listed", tag_field=TAG):
    """The environments on the host that the program made."""

    number: int
    environments: tuple[Environment, ...]


class Listener(Protocol):
    """Follows the making of an environment, on the thread that makes it."""

    def confirm(self, offer: EnvironmentOffer) -> bool:
        """Return whether to go on with this download."""

    def progress(self, progress: EnvironmentProgress) -> None:
        """Take how far it is, several times a second."""

    def is_cancelled(self) -> bool:
        """Return whether to end it."""


@dataclass(frozen=True, slots=True)
class Environments:
    """What can be done with the environments of a machine, this one or a host; `make` says how far it is meanwhile.

    Each raises `UserError`, with what to do.
    """

    list: Callable[[], Sequence[Environment]]
    make: Callable[[EnvironmentRequest, Listener], Environment]
    remove: Callable[[str], None]
