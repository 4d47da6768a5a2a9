"""The clock of another host, from pings over a link that is slow, lopsided and drifts."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.hosts.link import HostClock

S = 1_000_000_000
DAYS_NS = 5 * 86_400 * S


class Network:
    """This machine's clock and a host's, and a link between them; times are of this machine's clock."""

    def __init__(self, offset_ns: int, drift: float = 0.0) -> None:
        self.now_ns = 10 * S
        self.clock = HostClock(lambda: self.now_ns)
        self._offset_ns, self._drift, self._began_ns = offset_ns, drift, self.now_ns

    def host_ns(self) -> int:
        """The host's clock now: what nobody here can see."""
        return self.now_ns + self._offset_ns + round(self._drift * (self.now_ns - self._began_ns))

    def ping(self, there_ns: int, back_ns: int) -> None:
        sent_ns = self.now_ns
        self.now_ns += there_ns
        host_ns = self.host_ns()
        self.now_ns += back_ns
        self.clock.add(sent_ns, self.now_ns, host_ns)

    def suspend(self, seconds: float) -> None:
        """The host's clock goes on, this machine's does not."""
        self._offset_ns += round(seconds * S)

    def check(self) -> None:
        found = self.clock.offset()
        assert abs(self.host_ns() - self.now_ns - found.offset_ns) <= found.error_ns


DELAYS = st.integers(10_000, S // 2)
PINGS = st.lists(st.tuples(DELAYS, DELAYS, st.integers(0, 2 * S)), min_size=1, max_size=40)


@given(PINGS, st.integers(-DAYS_NS, DAYS_NS), st.floats(-190e-6, 190e-6))
def test_the_true_offset_is_never_further_off_than_said(
    pings: list[tuple[int, int, int]], offset_ns: int, drift: float
) -> None:
    """Whatever each way takes, and though both clocks drift."""
    network = Network(offset_ns, drift)
    for there_ns, back_ns, pause_ns in pings:
        network.ping(there_ns, back_ns)
        network.check()
        network.now_ns += pause_ns
        network.check()


def test_the_error_is_half_of_the_smallest_round_trip() -> None:
    network = Network(DAYS_NS)
    for there_ms, back_ms in ((40, 60), (3, 1), (50, 50)):
        network.ping(there_ms * 1_000_000, back_ms * 1_000_000)
    found = network.clock.offset()
    assert found.round_trip_ns == 4_000_000
    assert found.error_ns == pytest.approx(2_000_000, rel=0.05)
    assert found.offset_ns == pytest.approx(DAYS_NS, abs=found.error_ns)
    now = network.clock.now()
    assert abs(now.t_ns - network.host_ns()) <= now.error_ns


def test_a_clock_that_jumped_is_believed_at_once() -> None:
    """A suspended laptop: the host's clock ran on, and all earlier pings say something else."""
    network = Network(7 * S)
    for _ in range(16):
        network.ping(1_000, 1_000)
    network.suspend(3_600)
    network.ping(200_000_000, 1_000_000)
    network.check()
    assert network.clock.offset().round_trip_ns == 201_000_000


def test_only_the_last_sixteen_count() -> None:
    network, numbers = Network(0), random.Random(1)
    network.ping(1_000, 1_000)
    for _ in range(16):
        network.ping(*(numbers.randrange(5_000_000, 9_000_000) for _ in range(2)))
    assert network.clock.offset().round_trip_ns >= 10_000_000


def test_before_the_first_answer_nothing_is_known() -> None:
    with pytest.raises(LookupError):
        HostClock().offset()
