"""What a run's page and `show` tell beside throughput: energy, memory, the audit."""

from dataclasses import replace
from datetime import UTC
from pathlib import Path

import numpy as np
import pytest

from app.storage.database import save_setting
from app.storage.known_settings import CARBON_G_PER_KWH, PRICE_PER_KWH
from app.values.fields import SLOW_FIELDS
from app.values.records import Phase, StoredRun
from app.values.samples import Device, FieldInfo
from app.viewmodels.format import derived
from app.viewmodels.history.run_detail import DetailGroup, run_detail
from tests.unit.viewmodels.stored import UTC_NS, run_row, stored_run

NBSP = "\N{NO-BREAK SPACE}"
GIB = 2**30


def run(*, used_gib: float = 135.0, needed_gib: float | None = 3.0, growth: bool = False) -> StoredRun:
    """On two H200s, with energy, an audit and a peak of memory."""
    made = stored_run(run_row(14, workload="cnn10", gpus=2, gpu_names=("NVIDIA H200",) * 2, memory_growth=growth))
    summary = replace(
        made.row.summary,
        measured_steps=400,
        measured_examples=12_800,
        energy_mj_per_example=750.0,
        energy_source="energy counter",
        energy_error_pct=1.23,
        device_peak_bytes=int(used_gib * GIB),
        allocator_peak_bytes=None if needed_gib is None else int(needed_gib * GIB),
        sample_hz=19.98,
        sample_jitter_ms_p99=1.4,
        samples_missed=3,
        sampler_cpu_pct=0.52,
    )
    phases = (*made.phases[:2], Phase("measure", made.phases[2].start_ns, made.phases[2].end_ns, 9.6e6, 1.2e5))
    return replace(made, row=replace(made.row, summary=summary), phases=phases)


def group(title: str, of: StoredRun) -> DetailGroup:
    return next(group for group in run_detail(of, UTC).groups if group.title == title)


def test_energy_is_told_by_example_step_and_phase_with_source_and_error() -> None:
    facts = dict(group("Energy", run()).items)
    assert facts["Energy"] == f"750{NBSP}mJ/image"
    assert facts["Energy per step"] == f"24,000{NBSP}mJ"
    assert facts["Taken from"] == "energy counter"
    assert facts["Energy error"] == f"±{NBSP}1.2{NBSP}% (sampling-window edges)"
    rows = {row[0]: row[1:] for row in group("Phases", run()).rows}
    assert rows["measure"] == ("8.00", "1,200", "9,600", f"±{NBSP}120")
    assert rows["import"] == ("2.00", "–", "–", ""), "no energy is not 0"


def test_phases_of_a_run_without_energy_have_no_empty_columns() -> None:
    without = tuple(replace(phase, energy_mj=None, energy_error_mj=None) for phase in run().phases)
    shown = group("Phases", replace(run(), phases=without))
    assert shown.header == ("", "s")
    assert ("measure", "8.00") in shown.rows
    assert group("Phases", run()).header == ("", "s", "W", "J", "")


@pytest.mark.parametrize(
    ("given", "has_note"),
    [
        (run(), True),
        (run(growth=True), False),
        (run(used_gib=20.0), False),
        (run(needed_gib=130.0), False),
        (run(needed_gib=None), False),
        (stored_run(run_row(1, memory_growth=False)), False),
    ],
)
def test_a_card_is_full_because_tensorflow_took_it(given: StoredRun, has_note: bool) -> None:
    note = derived.memory_note(given)
    assert bool(note) is has_note
    assert not has_note or note == (
        "The GPU's memory looks full because TensorFlow took it: memory growth was off. "
        f"The run itself needed 3.0{NBSP}GiB."
    )


def test_the_two_memories_are_told_apart() -> None:
    facts = dict(group("Memory, highest", run()).items)
    assert facts == {
        "Peak memory": f"135{NBSP}GiB",
        "Framework's allocator": f"3.0{NBSP}GiB",
        "Memory of the GPU": f"141{NBSP}GiB",
    }


def test_the_telemetry_audits_itself_and_says_what_a_field_costs() -> None:
    facts = dict(group("Telemetry", run()).items)
    assert facts == {
        "Readings": f"20.0{NBSP}per second",
        "Jitter p99": f"1.40{NBSP}ms",
        "Readings missed": "3",
        "Sampler's CPU": f"0.52{NBSP}%",
    }
    costly = {"energy_mj": FieldInfo(unit="mJ", cost_us=2300.0, period_ms=100.0), "fan_pct": FieldInfo(unit="%")}
    gpu = Device(device="GPU-0", kind="gpu", index=0, name="NVIDIA H200", fields=costly)
    assert derived.field_costs(gpu) == (
        ("Energy counter", f"100{NBSP}ms", f"2,300{NBSP}µs"),
        ("Fan", "–", "–"),
    )


def test_a_pruned_run_says_so() -> None:
    detail = run_detail(run(growth=True), UTC, pruned_utc_ns=UTC_NS)
    assert detail.notes == (
        "Its samples and log were deleted on 2025-10-09 to save space; figures, phases and blocks are kept.",
    )
    assert run_detail(run(growth=True), UTC).notes == ()


def test_slow_curves_have_panels_where_a_card_gives_them() -> None:
    made = run()
    slow_t_ns = made.samples[1].t_ns[::10]
    slow = {name: np.full(len(slow_t_ns), np.nan) for name in SLOW_FIELDS}
    slow["tensor_active_pct"] = np.full(len(slow_t_ns), 93.5)
    slow["nvlink_tx_bytes_per_s"] = np.full(len(slow_t_ns), 40.0 * GIB)
    slow["nvlink_tx_bytes_per_s"][1::2] = np.nan
    gpu = replace(made.samples[1], slow_t_ns=slow_t_ns, slow=slow)
    detail = run_detail(replace(made, samples=(made.samples[0], gpu, made.samples[2])), UTC)
    found = {panel.title: panel for panel in detail.plots.panels}
    assert list(found)[-2:] == ["Tensor cores active", "NVLink out"]
    assert [curve.label for curve in found["Tensor cores active"].curves] == ["GPU 0"]
    nvlink = found["NVLink out"]
    assert (nvlink.unit, len(nvlink.curves[0].y), nvlink.curves[0].y[0]) == ("GiB/s", 6, 40.0), "only what was read"


def test_energy_has_a_cost_and_an_emission_where_a_price_and_an_intensity_are_stored(tmp_path: Path) -> None:
    """750 mJ an example are 0.2083 kWh for a million of them."""
    row, database = run_row(1, energy_mj=750.0), tmp_path / "profiles.db"
    assert derived.load_energy_rates(database) == (0.0, 0.0)
    save_setting(database, PRICE_PER_KWH, 0.36)
    priced = derived.load_energy_rates(database)
    assert derived.energy_costs(row, priced) == [("Cost of a million sequences", "0.0750")]
    save_setting(database, CARBON_G_PER_KWH, 400.0)
    rates = derived.load_energy_rates(database)
    assert dict(derived.energy_costs(row, rates))["CO₂ of a million sequences"] == "83.3\N{NO-BREAK SPACE}g"
    assert derived.energy_costs(run_row(1), rates) == []
    (energy,) = (group for group in run_detail(stored_run(row), None, rates=rates).groups if group.title == "Energy")
    assert {item.name for item in energy.items} >= {"Cost of a million sequences", "CO₂ of a million sequences"}
