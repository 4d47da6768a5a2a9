"""Comparison warnings about order, clocks and temperature, from made-up runs whose truth is known."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.analysis.run_state import ORDER_LIMIT, drifts_between, run_order
from app.values.records import StoredRun
from app.viewmodels.compare.warnings import clock_warnings, order_warnings, temperature_notes
from tests.unit.viewmodels.stored import UTC_NS, S, run_row, stored_run

HOUR_S = 3600


def made(layouts: str, rates: Sequence[float], *, every_s: float = 60, first: int = 1) -> list[StoredRun]:
    """Runs one after another: A is NHWC, B is NCHW, C is NCHW with XLA."""
    variants: dict[str, dict[str, Any]] = {
        "A": {"layout": "NHWC"},
        "B": {"layout": "NCHW"},
        "C": {"layout": "NCHW", "xla": True},
    }
    runs = []
    for number, (letter, rate) in enumerate(zip(layouts, rates, strict=True), first):
        row = run_row(number, workload="cnn10", throughput=rate, **variants[letter])
        start_ns = UTC_NS + int(number * every_s * S)
        runs.append(stored_run(replace(row, started_utc_ns=start_ns, ended_utc_ns=start_ns + 12 * S)))
    return runs


def drifting(layouts: str, total: float = 0.05, noise: float = 0.0005) -> list[StoredRun]:
    """Runs of a machine that becomes slower by `total`, with a little noise."""
    random = np.random.default_rng(7)
    fractions = np.linspace(0, 1, len(layouts))
    return made(layouts, [1000 * math.exp(-total * fraction + random.normal(0, noise)) for fraction in fractions])


def test_all_of_one_then_all_of_the_other_is_told_with_the_drift_within_them() -> None:
    (warning,) = order_warnings(drifting("AAABBB"))
    assert warning.facts["possible_pct"] == pytest.approx(5 * 3 / 5, abs=0.5), (
        "three of the five steps lie between their means"
    )
    assert warning.sentence == (
        "All or most runs of NCHW were made before or after those of the baseline. "
        "A change in the machine in between would look like a difference between variants. "
        f"That may change speed by up to {warning.facts['possible_pct']:.1f}\xa0%."
    )
    assert (warning.severity, warning.facts["interleave"], len(warning.runs)) == ("warning", (1, 4), 6)


def test_the_baseline_may_be_the_later_one_and_of_several_variants_those_apart_are_named() -> None:
    runs = drifting("AABCBCBC", total=0, noise=0.002)
    (warning,) = order_warnings(runs, baseline=3)
    assert (warning.key, warning.facts["variants"], warning.facts["interleave"]) == ("order", (("NHWC",),), (3, 1))


@pytest.mark.parametrize("layouts", ["ABBAAB", "ABBA", "ABAB", "ABABAB", "ABBAABBAAB", "AB", "ABBBB"])
def test_what_an_experiment_makes_is_interleaved(layouts: str) -> None:
    assert order_warnings(drifting(layouts)) == []


@pytest.mark.parametrize("layouts", ["AABABB", "AABB", "AAABBBAB"])
def test_a_few_exchanged_runs_do_not_interleave(layouts: str) -> None:
    assert [warning.key for warning in order_warnings(drifting(layouts))] == ["order"]


def test_orders_at_the_limit_are_those_that_cover_too_seldom() -> None:
    """Welch's interval under a linear drift of 5 % and 1 % of noise."""
    coverage = {
        letters: _coverage(letters) for letters in ("AAABBB", "AABABB", "AAABBABB", "AABBAB", "ABBAAB", "ABABAB")
    }
    for letters, covered in coverage.items():
        runs = drifting(letters)
        a, b = ([run for run, letter in zip(runs, letters, strict=True) if letter == which] for which in "AB")
        assert (abs(run_order(b, a).separation) >= ORDER_LIMIT) is (covered < 0.95), (letters, covered)


def _coverage(letters: str, trials: int = 4000) -> float:
    from scipy.special import stdtrit

    is_a = np.array([letter == "A" for letter in letters])
    logs = np.random.default_rng(3).normal(0, 0.01, (trials, len(letters))) - np.linspace(0, 0.05, len(letters))
    a, b = logs[:, is_a], logs[:, ~is_a]
    va, vb = a.var(1, ddof=1) / a.shape[1], b.var(1, ddof=1) / b.shape[1]
    degrees = (va + vb) ** 2 / (va**2 / (a.shape[1] - 1) + vb**2 / (b.shape[1] - 1))
    half = stdtrit(degrees, 0.975) * np.sqrt(va + vb)
    return float(np.mean(np.abs(b.mean(1) - a.mean(1)) < half))


def test_hours_and_a_restart_are_told_of_single_runs_too() -> None:
    first, second = made("AB", (1000, 1100), every_s=3.5 * HOUR_S)
    (warning,) = order_warnings([first, second])
    assert warning.sentence == (
        "Runs of NCHW were made up to 3.5\xa0h before or after those of the baseline. A change in the machine in "
        "between would look like a difference between variants. A difference in speed may come from that."
    )
    assert warning.facts["possible_pct"] is None
    soon = made("AB", (1000, 1100))
    restarted = [soon[0], replace(soon[1], boot_id="another")]
    assert order_warnings(restarted)[0].sentence.startswith(
        "The machine was restarted between the runs of NCHW and those of the baseline. "
    )
    assert order_warnings(soon) == []


def test_a_drift_is_not_extrapolated_over_hours() -> None:
    early, late = drifting("AAA"), made("BBB", (900, 905, 910), every_s=60, first=400)
    (warning,) = order_warnings([*early, *late])
    assert warning.facts["gap_h"] == pytest.approx(6.6, abs=0.05)
    assert warning.facts["possible_pct"] is None
    assert drifts_between([early, late], [late], early) == [None]


def test_runs_that_vary_too_much_cannot_tell_of_a_drift() -> None:
    (warning,) = order_warnings(made("AABB", (1000, 2000, 1500, 900)))
    assert warning.facts["possible_pct"] is None


def test_runs_that_measured_nothing_have_no_order() -> None:
    failed = [
        replace(run, row=replace(run.row, summary=replace(run.row.summary, throughput=None))) for run in drifting("AAA")
    ]
    assert order_warnings([*failed, *made("BB", (1000, 1001), first=4)]) == []
    assert order_warnings([]) == []


def with_gpu(run: StoredRun, **values: float) -> StoredRun:
    """The same run with these telemetry values of its GPU in the measured part; before it a clock of 1,980 MHz."""
    host, gpu = run.samples
    before = np.arange(gpu.t_ns.size) < 30
    fields = dict(gpu.fields)
    for name, value in values.items():
        fields[name] = np.where(before & (name == "sm_clock_mhz"), 1980.0, value)
    return replace(run, samples=(host, replace(gpu, fields=fields)))


def test_clocks_at_the_power_limit_are_a_note_with_how_much_they_may_be() -> None:
    nhwc, nchw = made("AB", (1000, 1010))
    limited = [
        with_gpu(nhwc, sm_clock_mhz=1866, throttle_reasons=0x4),
        with_gpu(nchw, sm_clock_mhz=1925, throttle_reasons=0x4),
    ]
    (note,) = clock_warnings(limited)
    assert note.sentence == (
        "The power limit kept the GPU clock at 1,866–1,925\xa0MHz of 1,980\xa0MHz in all runs. That "
        "may change speed by up to 3.2\xa0%."
    )
    assert note.severity == "note"
    assert note.facts["possible_pct"] == pytest.approx(3.16, abs=0.01)
    (warning,) = clock_warnings([with_gpu(nhwc, sm_clock_mhz=1700, throttle_reasons=0), nchw])
    assert warning.sentence.startswith("The GPU clock was 1,700\xa0MHz of 1,980\xa0MHz in the run of NHWC. ")
    assert warning.severity == "warning"
    assert warning.facts["possible_pct"] == pytest.approx(16.47, abs=0.01)


def test_a_step_of_the_clock_is_no_difference() -> None:
    nhwc, nchw = made("AB", (1000, 1010))
    assert clock_warnings([with_gpu(nhwc, sm_clock_mhz=1965), nchw]) == []


def test_a_warm_start_is_a_note_that_says_what_it_can_change() -> None:
    nhwc, nchw = made("AB", (1000, 1010))
    (note,) = temperature_notes([with_gpu(nhwc, temperature_c=35), nchw])
    assert note.sentence == (
        "GPUs were at 61\xa0°C before runs of NCHW, and at 35\xa0°C before runs of the baseline. "
        "Energy may differ by that, and speed by the clocks alone."
    )
    assert note.severity == "note"
    assert temperature_notes([with_gpu(nhwc, temperature_c=55), nchw]) == []
