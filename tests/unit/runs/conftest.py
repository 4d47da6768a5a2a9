"""Telemetry for the runs of a module."""

from collections.abc import Iterator

import pytest

from app.telemetry.feed import TelemetryFeed
from tests.fakes.sessions import started_feed


@pytest.fixture(scope="module")
def feed() -> Iterator[TelemetryFeed]:
    with started_feed() as feed:
        feed.wait_inventory()
        yield feed
