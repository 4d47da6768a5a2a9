"""Environments that an agent makes: an answer counts for an offer only once the program has seen that offer."""

import queue
import threading
from typing import Any

import pytest

from app.agent import environments as agent_environments
from app.agent.environments import AgentEnvironments
from app.environments import managed
from app.environments.records import (
    Environment,
    EnvironmentOffer,
    EnvironmentRequest,
    Environments,
    EnvironmentStep,
    FollowEnvironment,
    Listener,
    MakeEnvironment,
)
from app.errors import UserError

OFFER = EnvironmentOffer(
    name="tf219", folder="/e", python="3.11", tool="uv", packages=5, download_bytes=1, free_bytes=9
)


class WatchedQueue(queue.Queue[Any]):
    """A queue that tells when something was put into it."""

    was_put = threading.Event()

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        self.was_put.set()


@pytest.fixture
def offers(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make environments that offer once the returned event is set, and end as the answer says."""
    starts = threading.Event()

    def make(_: EnvironmentRequest, listener: Listener) -> Environment:
        starts.wait()
        if listener.confirm(OFFER):
            raise UserError("installed without being asked")
        raise UserError("not made")

    monkeypatch.setattr(WatchedQueue, "was_put", threading.Event())
    monkeypatch.setattr(queue, "SimpleQueue", WatchedQueue)
    monkeypatch.setattr(agent_environments, "_STEP_S", 0.001)
    monkeypatch.setattr(managed, "LOCAL_ENVIRONMENTS", Environments(list=tuple, make=make, remove=lambda _: None))
    return starts


def test_what_goes_on_before_an_offer_was_seen_does_not_accept_it(offers: threading.Event) -> None:
    environments = AgentEnvironments()
    environments.follow(MakeEnvironment(number=1, request=EnvironmentRequest(name="tf219", cuda=False)))
    offers.set()
    assert WatchedQueue.was_put.wait(10)
    WatchedQueue.was_put.clear()
    step = environments.follow(FollowEnvironment(number=2, making=1, go_on=True))
    assert isinstance(step, EnvironmentStep)
    assert step.offer == OFFER
    assert not WatchedQueue.was_put.wait(0.2), "its making went on"
    with pytest.raises(UserError, match=r"^not made$"):
        _follow_to_the_end(environments, go_on=False)


def test_what_was_ended_offers_nothing_more(offers: threading.Event) -> None:
    environments = AgentEnvironments()
    environments.follow(MakeEnvironment(number=1, request=EnvironmentRequest(name="tf219", cuda=False)))
    offers.set()
    assert WatchedQueue.was_put.wait(10)
    with pytest.raises(UserError, match=r"^not made$"):
        _follow_to_the_end(environments, go_on=False)


def _follow_to_the_end(environments: AgentEnvironments, *, go_on: bool) -> None:
    """Follow it until its end is raised."""
    while True:
        step = environments.follow(FollowEnvironment(number=3, making=1, go_on=go_on))
        assert isinstance(step, EnvironmentStep)
        assert step.offer is None
