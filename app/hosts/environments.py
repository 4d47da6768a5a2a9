"""The environments of another host, which its agent makes, lists and removes there."""

from functools import partial
from typing import TypeVar

from app.environments.records import (
    Environment,
    EnvironmentRequest,
    Environments,
    EnvironmentsListed,
    EnvironmentStep,
    FollowEnvironment,
    Listener,
    ListEnvironments,
    MakeEnvironment,
    RemoveEnvironment,
)
from app.errors import UserError
from app.hosts.link import Link
from app.hosts.routes import LinkLostError

_Order = MakeEnvironment | FollowEnvironment | ListEnvironments | RemoveEnvironment
Answer = TypeVar("Answer", EnvironmentStep, EnvironmentsListed)


def remote_environments(link: Link) -> Environments:
    """Return what can be done with the environments of the host of a link; its errors begin with the host's name."""
    return Environments(
        list=lambda: _ask(link, ListEnvironments(link.number()), EnvironmentsListed).environments,
        make=partial(_make, link),
        remove=partial(_remove, link),
    )


def _remove(link: Link, name: str) -> None:
    _ask(link, RemoveEnvironment(number=link.number(), name=name), EnvironmentsListed)


def _make(link: Link, request: EnvironmentRequest, listener: Listener) -> Environment:
    """Have an environment made, and follow it until it is; an offer waits there as long as the user thinks."""
    making = link.number()
    step = _ask(link, MakeEnvironment(number=making, request=request), EnvironmentStep)
    while step.made is None:
        if step.progress is not None:
            listener.progress(step.progress)
        goes_on = (step.offer is None or listener.confirm(step.offer)) and not listener.is_cancelled()
        step = _ask(link, FollowEnvironment(number=link.number(), making=making, go_on=goes_on), EnvironmentStep)
    return step.made


def _ask(link: Link, order: _Order, answer: type[Answer]) -> Answer:
    """Send an order and return its answer; raises `UserError` that names the host."""
    try:
        return link.ask(order.number, order, answer)
    except LinkLostError:
        raise
    except (UserError, OSError) as error:
        raise UserError(f"{link.name}: {error}") from error
