import pytest

from app.values.fields import Sample
from app.viewmodels.format.telemetry_fields import ThrottleTracker, format_throttle_reasons


def throttle_tracker(*reasons: int | None, period_ns: int = 50_000_000) -> ThrottleTracker:
    throttling = ThrottleTracker()
    for tick, bits in enumerate(reasons):
        throttling.add(Sample(t_ns=tick * period_ns, device="GPU-0", throttle_reasons=bits))
    return throttling


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0x0, ""),
        (0x1, ""),
        (0x2, ""),
        (0x4, "power cap"),
        (0x44, "power cap, hardware thermal limit"),
        (0x1001, "reason 0x1000"),
    ],
)
def test_reasons_in_words(bits: int, words: str) -> None:
    assert format_throttle_reasons(bits) == words


def test_a_reason_holds_until_a_sample_says_otherwise() -> None:
    (one,) = throttle_tracker(0x1, 0x4, 0x4, 0x0, 0x0).overlapping(0.0, 1.0)
    assert [one.start_s, one.end_s] == pytest.approx([0.05, 0.15])


def test_a_device_that_does_not_say_is_not_held_back() -> None:
    assert throttle_tracker(None, None).overlapping(0.0, 1.0) == []


def test_silence_ends_a_stretch() -> None:
    found = throttle_tracker(0x4, 0x4, period_ns=5_000_000_000).overlapping(0.0, 100.0)
    assert [(each.start_s, each.end_s) for each in found] == [(0.0, 0.0), (5.0, 5.0)]


def test_only_what_reaches_into_the_window_is_told() -> None:
    throttling = throttle_tracker(*[0x4, 0x0] * 20)
    assert len(throttling.overlapping(0.0, 10.0)) == 20
    assert len(throttling.overlapping(0.5, 1.0)) == 6


def test_a_gpu_held_back_again_and_again_stays_bounded_and_marked() -> None:
    found = throttle_tracker(*[0x4, 0x0] * 20_000).overlapping(0.0, 1e9)
    assert len(found) <= 256
    assert found[0].start_s == 0.0
    assert found[-1].end_s == pytest.approx(2000.0, abs=0.1)
