"""Telemetry that real runs of these tests have."""

from collections.abc import Iterator

import pytest

from app.telemetry.feed import TelemetryFeed
from tests.fakes.nvml import TWO_H200
from tests.fakes.sessions import feed_of


@pytest.fixture(scope="module")
def feed() -> Iterator[TelemetryFeed]:
    """That of a machine with two GPUs: a worker may stand by, and runs need not lease the processor."""
    with feed_of(*TWO_H200) as opened:
        yield opened
