"""A telemetry feed with a real sampler process, and its messages one by one."""

import queue
from collections.abc import Iterator

import pytest

from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from tests.fakes.sessions import started_feed
from tests.unit.telemetry.clock import Clock

Messages = queue.SimpleQueue[SamplerMessage]


@pytest.fixture
def feed() -> Iterator[TelemetryFeed]:
    """Sampling fifty times a second, so that tests are short."""
    with started_feed(50.0) as feed:
        yield feed


@pytest.fixture
def messages(feed: TelemetryFeed) -> Iterator[Messages]:
    said: Messages = queue.SimpleQueue()
    unsubscribe = feed.subscribe(said.put)
    yield said
    unsubscribe()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)
