"""The telemetry's audit of itself against sampling whose faults are known."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from app.analysis.summary import audit_telemetry
from app.values.events import Summary
from app.values.records import Floats, SampleColumns
from app.values.samples import HOST, Device

BIG = 10**15


def sampled(
    at_ms: Sequence[float] | Floats, device: str = "GPU-a", cpu: tuple[Sequence[float], Sequence[float]] = ((), ())
) -> SampleColumns:
    """A device's samples at these times, and its readings of the sampler's processor time (seconds, seconds)."""
    return SampleColumns(
        device=Device(device=device, kind="host" if device == HOST else "gpu", index=0, name=device),
        t_ns=BIG + np.round(np.array(at_ms, dtype=np.float64) * 1e6).astype(np.int64),
        fields={},
        slow_t_ns=BIG + np.round(np.array(cpu[0], dtype=np.float64) * 1e9).astype(np.int64),
        slow={"sampler_cpu_s": np.array(cpu[1], dtype=np.float64)},
    )


def test_a_perfect_sampler() -> None:
    audited = audit_telemetry((sampled(np.arange(0.0, 10_000, 50)),))
    assert audited.sample_hz == pytest.approx(20)
    assert (audited.sample_jitter_ms_p50, audited.sample_jitter_ms_p99, audited.samples_missed) == (0, 0, 0)
    assert audited.sampler_cpu_pct is None


def test_known_jitter() -> None:
    """Every tenth sample comes 4 ms late: of ten intervals one is 4 ms too long and the next as much too short."""
    at_ms = np.arange(0.0, 50_000, 50.0)
    at_ms[5::10] += 4
    audited = audit_telemetry((sampled(at_ms),))
    assert audited.sample_jitter_ms_p50 == pytest.approx(0)
    assert audited.sample_jitter_ms_p99 == pytest.approx(4)
    assert audited.sample_hz == pytest.approx(20)
    assert audited.samples_missed == 0


def test_missed_ticks_are_counted_and_lower_the_rate() -> None:
    """Of 201 ticks one is missing here and three in a row there."""
    at_ms = np.delete(np.arange(0.0, 10_001, 50.0), [40, 100, 101, 102])
    audited = audit_telemetry((sampled(at_ms),))
    assert audited.samples_missed == 4
    assert audited.sample_hz == pytest.approx(196 / 10)
    assert audited.sample_jitter_ms_p50 == pytest.approx(0)


def test_a_lost_card_s_readings_and_those_that_gave_nothing_are_missed() -> None:
    """The first card answers throughout; the second is lost after 4 s of 10, and 1 s before that it gives nothing."""
    whole, cut = sampled(np.arange(0.0, 10_001, 50)), sampled(np.arange(0.0, 4_001, 50), "GPU-b")
    power_mw = np.where(cut.t_ns > BIG + 3_000_000_000, np.nan, 600_000.0)
    lost = replace(cut, fields={"power_mw": power_mw, "load_pct": power_mw})
    still_loaded = replace(lost, fields={**lost.fields, "load_pct": power_mw * 0 + 1})
    # Of 140 the last could be one that was just not recorded.
    assert audit_telemetry((whole, lost)).samples_missed == 139
    assert audit_telemetry((whole, still_loaded)).samples_missed == 139
    assert audit_telemetry((whole, replace(cut, t_ns=cut.t_ns[:0]))).samples_missed == 199


def test_a_little_late_is_not_missed() -> None:
    at_ms = np.arange(0.0, 5_000, 50.0)
    at_ms[30] += 24
    assert audit_telemetry((sampled(at_ms),)).samples_missed == 0


def test_the_device_sampled_most_often_is_judged() -> None:
    host = sampled(np.arange(0.0, 10_000, 200), HOST)
    assert audit_telemetry((host, sampled(np.arange(0.0, 10_000, 50)))).sample_hz == pytest.approx(20)
    assert audit_telemetry((host,)).sample_hz == pytest.approx(5)


def test_the_sampler_s_own_processor_time_is_a_share_of_one_processor() -> None:
    host = sampled(np.arange(0.0, 10_000, 200), HOST, cpu=([0.5, 1.5, 2.5, 10.5], [0.30, np.nan, 0.32, 0.37]))
    audited = audit_telemetry((sampled(np.arange(0.0, 10_000, 50)), host))
    assert audited.sampler_cpu_pct == pytest.approx(0.7)


def test_the_processor_time_of_another_sampler_is_added() -> None:
    host = sampled([], HOST, cpu=([0.0, 4.0, 6.0, 10.0], [0.30, 0.70, 0.10, 0.20]))
    assert audit_telemetry((host,)).sampler_cpu_pct == pytest.approx(6.0)


ONE_READING = sampled([], HOST, cpu=([1.0], [0.3]))


@pytest.mark.parametrize("samples", [(), (sampled([]),), (sampled([0, 50]),), (ONE_READING,)])
def test_too_little_to_say(samples: tuple[SampleColumns, ...]) -> None:
    assert audit_telemetry(samples) == Summary()
