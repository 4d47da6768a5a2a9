"""Environments as command line, window and hosts speak of them: what is asked for, what it takes, and what there is."""

from collections.abc import Callable
from typing import Literal

import msgspec

from app import units
from app.environments.steps import CancelledError

Action = Literal["list", "offer", "add", "remove"]
Ask = Callable[["EnvironmentOffer"], bool]
"""Returns whether to download what an environment takes; it may wait for the user."""
Report = Callable[[str], bool]
"""Takes a line on how far it is, several times a second, and returns whether to go on."""


class EnvironmentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a name, and what to make it of; see `requirements_of`."""

    name: str = ""
    packages: tuple[str, ...] = ()
    cuda: bool | None = None


class EnvironmentOffer(msgspec.Struct, frozen=True, kw_only=True):
    """What making an environment takes: `download_bytes` at most, for uv keeps what it fetched before.

    It is None where the index does not say it.
    """

    name: str
    folder: str
    python: str
    packages: int
    download_bytes: int | None
    free_bytes: int

    @property
    def sentence(self) -> str:
        """The offer as the user reads it before the download."""
        size = "of unknown size" if self.download_bytes is None else units.byte_size(self.download_bytes)
        return (
            f"{self.name}: {self.packages} packages, {size} to download at most, for Python {self.python}, into "
            f"{self.folder}; {units.byte_size(self.free_bytes)} are free there."
        )


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """An environment on this machine.

    Attributes:
        state: `unfinished` where its making or its removal was interrupted, `broken` where its Python is gone.
        frameworks: The version of each framework in it, by the value of the parameter.
        packages: What was to be installed.
    """

    name: str
    folder: str
    state: Literal["complete", "unfinished", "broken"]
    frameworks: dict[str, str] = {}
    python: str = ""
    packages: tuple[str, ...] = ()
    size_bytes: int | None = None


class EnvironmentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an action found: all environments, or that which was added; or the offer, None for one that is there.

    A host where uv is missing names its system, on which that of the program may run.
    """

    environments: tuple[Environment, ...] = ()
    offer: EnvironmentOffer | None = None
    lacks_uv: str = ""


Environments = Callable[[Action, EnvironmentRequest, Report], EnvironmentAnswer]
"""Does what an action says with the environments of a machine: `manage_environments` with those of this one, else
`RemoteEnvironments` with those of a host. Raises `UserError`, with what to do."""


def make(environments: Environments, request: EnvironmentRequest, ask: Ask, report: Report) -> Environment:
    """Make an environment, after the user's answer; one that is there already is returned as it is.

    Raises:
        UserError: It cannot be made; `CancelledError` if the user wants it no more.
    """
    offer = environments("offer", request, report).offer
    if offer is not None and not ask(offer):
        raise CancelledError(f"{request.name} was not made.")
    (environment,) = environments("add", request, report).environments
    return environment
