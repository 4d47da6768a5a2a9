"""When a GPU is at rest, and how much of a run it was throttled."""

from dataclasses import replace

import numpy as np
import pytest

from app.analysis.comparability import (
    NOT_SET,
    STEADY_S,
    THROTTLE_CAUSES,
    ThrottleCause,
    is_cool,
    is_throttled,
    known_value,
    lowest_temperature_c,
    throttled_environment,
    throttled_pct,
    throttled_shares,
)
from app.analysis.energy import measured_window
from app.values.environment_keys import THROTTLED_KEY
from app.values.fields import Sample
from app.values.records import StoredRun
from tests.fakes.experiments import result
from workloads.catalog import (
    ONEDNN_KEY,
    ONEDNN_VARIABLE,
    VARIABLE_PREFIX,
    VARIABLES_RECORDED_KEY,
    Gpu,
    Machine,
    complete,
)

H200 = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name="NVIDIA H200", compute_capability=(9, 0)),))
SPEC = complete("cnn10", {"gpus": 1}, H200)


STEADY = int(STEADY_S)


def every_second(*temperatures_c: int | None) -> list[Sample]:
    return [Sample(t_ns=s * 10**9, device="GPU-0", temperature_c=c) for s, c in enumerate(temperatures_c)]


@pytest.mark.parametrize(
    ("resting_c", "temperatures_c", "cool"),
    [
        (40, [45], True),
        (40, [46], False),
        (40, [61, 50, 45], True),
        (None, [40], False),
        (None, [61] * STEADY, False),
        (None, [61] * (STEADY + 1), True),
        (40, [61] * (STEADY + 1), True),
        (None, [61, *[60] * STEADY], False),
        (None, [61, *[60] * (STEADY + 1)], True),
        (None, [61 - s // 2 for s in range(30)], False),
        (None, [40 + s // 2 for s in range(11)], True),
        (None, [None, None], True),
        (None, [], True),
    ],
)
def test_a_gpu_is_cool_in_its_band_or_once_it_falls_no_more(
    resting_c: int | None, temperatures_c: list[int | None], cool: bool
) -> None:
    assert is_cool(every_second(*temperatures_c), resting_c) == cool


def test_a_gap_in_the_readings_is_no_steady_temperature() -> None:
    before, after = every_second(61, 60), Sample(t_ns=30 * 10**9, device="GPU-0", temperature_c=50)
    assert not is_cool([*before, after], None)
    assert is_cool([*before, after, Sample(t_ns=41 * 10**9, device="GPU-0", temperature_c=50)], None)


@pytest.mark.parametrize(
    ("environment", "key", "value"),
    [
        ({"driver": "580"}, "driver", "580"),
        ({}, "driver", None),
        ({VARIABLES_RECORDED_KEY: "TF_ XLA_"}, f"{VARIABLE_PREFIX}TF_X", NOT_SET),
        ({VARIABLES_RECORDED_KEY: "XLA_"}, f"{VARIABLE_PREFIX}TF_X", None),
        ({}, f"{VARIABLE_PREFIX}TF_X", None),
        ({f"{VARIABLE_PREFIX}{ONEDNN_VARIABLE}": "0"}, ONEDNN_KEY, "off"),
        ({f"{VARIABLE_PREFIX}{ONEDNN_VARIABLE}": "1"}, ONEDNN_KEY, "on"),
        ({}, ONEDNN_KEY, None),
    ],
)
def test_a_run_knows_what_it_recorded_or_looked_for(environment: dict[str, str], key: str, value: str | None) -> None:
    assert known_value(environment, key) == value


def test_the_lowest_temperature_is_that_of_those_told() -> None:
    assert lowest_temperature_c(every_second(44, None, 41, 43)) == 41
    assert lowest_temperature_c(every_second(None)) is None


@pytest.mark.parametrize(
    ("reasons", "throttled"),
    [(None, False), (0x0, False), (0x1, False), (0x4, False), (0x8, True), (0x20, True), (0x44, True), (0x80, True)],
)
def test_heat_and_hardware_throttle_and_a_power_limit_does_not(reasons: int | None, throttled: bool) -> None:
    assert is_throttled(Sample(t_ns=0, device="GPU-0", throttle_reasons=reasons)) == throttled


def held_by(bits: int, share: float) -> StoredRun:
    """A run held back from the beginning of its measured part, for a share of it."""
    run = result(1, SPEC)
    until_ns = run.phases[-1].start_ns + share * 8e9
    samples = tuple(
        replace(columns, fields={**columns.fields, "throttle_reasons": np.where(columns.t_ns <= until_ns, bits, 0.0)})
        for columns in run.samples
    )
    return replace(run, samples=samples)


@pytest.mark.parametrize(("hold", "expected"), [("heat", "25."), ("hardware slowdown", "25."), ("power limit", "")])
def test_how_long_a_run_was_throttled_is_a_fact_of_it(hold: ThrottleCause, expected: str) -> None:
    facts = throttled_environment(held_by(THROTTLE_CAUSES[hold][0], 0.25))
    assert facts.get(THROTTLED_KEY, "").startswith(expected)
    assert bool(facts) == bool(expected)
    assert throttled_pct(facts) == pytest.approx(25.0 if expected else 0.0, abs=1)


@pytest.mark.parametrize(("late_ns", "early_ns", "share"), [(0, 0, 0.25), (-1, -1, 0.25), (1, 0, 0.0), (0, 1, 0.0)])
def test_the_drivers_counter_counts_where_it_was_read_around_the_measured_part(
    late_ns: int, early_ns: int, share: float
) -> None:
    run = held_by(0, 0.0)
    start_ns, end_ns = measured_window(run) or (0, 0)
    quarter_ns = (end_ns - start_ns) // 4
    t_ns = np.array([start_ns + late_ns, start_ns + quarter_ns, end_ns - early_ns])
    counted = {"throttled_thermal_ns": np.array([0.0, quarter_ns, quarter_ns])}
    samples = tuple(replace(columns, slow_t_ns=t_ns, slow=counted) for columns in run.samples)
    assert throttled_shares(replace(run, samples=samples))["heat"] == pytest.approx(share)
