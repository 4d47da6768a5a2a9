"""Runs, machines and telemetry as JSON documents."""

import json
import math
from pathlib import Path

import msgspec
import pytest

from app.report.documents import (
    TelemetryMessage,
    device_lines,
    gpus_document,
    iso_utc,
    list_document,
    run_document,
    telemetry_line,
)
from app.storage.store import Store
from app.values.events import Summary
from app.values.fields import Sample, SlowSample, fields_of
from app.values.records import Phase
from app.values.samples import HOST, Device, DeviceLost, FieldInfo, GpuProcess, Inventory, Processes
from tests.fakes.nvml import LAPTOP, Driver, installed
from tests.fakes.runs import ENVIRONMENT, EVIDENCE, OUTCOME, SPEC, UTC_NS, S, begin, keep
from workloads.catalog import Machine, own_variant

NO_ENERGY = {"energy_mj": None, "energy_error_mj": None, "mean_power_mw": None}


def test_a_run_s_document_holds_what_is_stored(database_path: Path) -> None:
    with Store.open(database_path) as store:
        document = run_document(store.load(keep(store)))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["run"], document["workload"], document["variant"]) == (1, "cnn10", own_variant(SPEC))
    assert (document["outcome"], document["reason"], document["ended_by"]) == ("failed", "It failed.", "itself")
    assert document["started_utc"] == "2025-10-09T08:53:20.000Z"
    assert document["phases"] == [
        {**NO_ENERGY, "phase": "compile", "start_s": 0.5, "seconds": 2.0},
        {**NO_ENERGY, "phase": "measure", "start_s": 2.5, "seconds": 3.0},
    ]
    assert document["energy"] == {"mj_per_example": None, "mj_per_step": None, "source": None, "error_pct": None}
    assert document["throughput"] == {"value": 21.3, "unit": "images/s", "blocks": [32.0, 16.0], "blocks_cut": 1}
    assert document["step_ms"] == {"p50": 250.0, "p95": None, "p99": None, "gpu": pytest.approx(0.2)}
    assert document["environment"] == {**ENVIRONMENT, "keras": "3.15.1"}
    assert document["flops"] == {"per_step": 6_000_000_000, "per_s": 16e9, "peak_per_s": 8e10, "utilisation": 0.2}
    gpu, host = document["devices"]
    assert (gpu["device"], gpu["samples"]) == ("GPU-aaaa", 2)
    assert gpu["mean"] == {"power_mw": 688_123.0, "load_pct": 49.5, "memory_bytes": 4e9}, "absent has no mean"
    assert host["mean"]["worker_load_pct"] == 100.0


def test_evidence_and_portability_stand_in_the_document(database_path: Path) -> None:
    with Store.open(database_path) as store:
        document = run_document(store.load(keep(store)))
        (listed,) = list_document(store.list_runs())["runs"]
    evidence = document["evidence"]
    assert (evidence["asked"], evidence["ran"]) == (EVIDENCE.requested, EVIDENCE.actual)
    assert (evidence["match"], listed["match"], evidence["reason"]) == (False, False, EVIDENCE.reason)
    assert (evidence["sources"], evidence["notes"]) == (["graph", "trace"], ["XLA was not told."])
    assert evidence["steps"] == 3
    assert evidence["busy_share"] == pytest.approx(0.2 / (1000 * 1024 / 21.3)), "of the measured step"
    assert evidence["kernels"][0] == {
        "name": "sm90_xmma_fprop_tf32f32",
        "kind": "convolution",
        "count": 27,
        "time_ns": 500_000,
        "tensor_cores": True,
        "occupancy_pct": 12.5,
    }
    assert evidence["kernels"][1]["tensor_cores"] is None
    (trial,) = document["portability"]
    assert (trial["implementation"], trial["device"], trial["max_difference"]) == ("standard", "cpu", 2.5e-7)


def test_graph_evidence_alone_has_no_share_of_busy_time(database_path: Path) -> None:
    graph = msgspec.structs.replace(EVIDENCE, sources=("graph",), steps=0, span_ns=0, busy_ns=0, kernels=())
    with Store.open(database_path) as store:
        run = begin(store)
        store.write(run, (graph,))
        evidence = run_document(store.load(run))["evidence"]
    assert (evidence["busy_share"], evidence["kernels"]) == (None, [])


def test_a_run_that_goes_on_has_no_end(database_path: Path) -> None:
    with Store.open(database_path) as store:
        document = run_document(store.load(begin(store)))
        (listed,) = list_document(store.list_runs())["runs"]
    assert (document["outcome"], document["ended_by"], document["phases"]) == (None, None, [])
    assert document["throughput"] == {"value": None, "unit": "images/s", "blocks": [], "blocks_cut": None}
    assert document["devices"][0]["mean"] == {}
    assert (document["evidence"], document["portability"]) == (None, [])
    assert set(document["flops"].values()) == {None}
    assert (listed["outcome"], listed["throughput"]["value"], listed["match"]) == (None, None, None)


def test_a_field_without_a_reading_is_not_supported() -> None:
    host = Device(device=HOST, kind="host", index=-1, name="A processor", absent={"power_mw": "not read on the host"})
    gpu = Device(device="GPU-a", kind="gpu", index=0, name="H200", absent={"power_limit_mw": "not supported"})
    inventory = Inventory(machine=Machine(), devices=(gpu, host), driver="580")
    sample = Sample(t_ns=1, device="GPU-a", power_mw=0)
    document = gpus_document(inventory, {"GPU-a": {"power_mw": sample.power_mw or 0}})
    fields = document["gpus"][0]["fields"]
    unknown = {"unit": "mW", "period_ms": None, "cost_us": None}
    assert fields["power_mw"] == {"supported": True, "value": 0, "reason": None, **unknown}, "0 is a reading"
    assert fields["power_limit_mw"] == {"supported": False, "value": None, "reason": "not supported", **unknown}
    assert fields["load_pct"]["supported"] is False
    assert document["host"]["fields"]["power_mw"]["reason"] == "not read on the host"
    assert "processes" not in document["gpus"][0], "they were not listed"
    listed = Processes(t_ns=1, device="GPU-a", processes=(GpuProcess(pid=11, name="python", user="ann"),))
    assert gpus_document(inventory, {}, {"GPU-a": listed})["gpus"][0]["processes"][0]["user"] == "ann"


def test_a_field_says_its_unit_its_period_and_what_a_read_costs() -> None:
    facts = {"energy_mj": FieldInfo(unit="mJ", cost_us=2300.0, period_ms=100.0)}
    gpu = Device(device="GPU-a", kind="gpu", index=0, name="H200", fields=facts)
    host = Device(device=HOST, kind="host", index=-1, name="A processor")
    document = gpus_document(Inventory(machine=Machine(), devices=(gpu, host)), {})
    field = document["gpus"][0]["fields"]["energy_mj"]
    expected = {"supported": True, "value": None, "reason": None, "unit": "mJ", "period_ms": 100.0, "cost_us": 2300.0}
    assert field == expected, "supported, though not read yet"
    named = document["gpus"][0]["fields"]
    assert set(named) == {field.name for field in fields_of("gpu")}
    assert "fan_pct" not in document["host"]["fields"]


def test_energy_of_phases_steps_and_memory_stand_in_the_document(database_path: Path) -> None:
    summary = Summary(energy_mj_per_example=2.0, measured_examples=64, measured_steps=8, energy_error_pct=1.2)
    phases = [Phase("measure", 3 * S, 6 * S, 600_000.0, 9_000.0)]
    with Store.open(database_path) as store:
        run = keep(store)
        store.finish(run, outcome=OUTCOME, summary=summary, t_ns=6 * S, utc_ns=UTC_NS, phases=phases)
        document = run_document(store.load(run), pruned_utc_ns=UTC_NS)
    measure = document["phases"][1]
    assert (measure["energy_mj"], measure["energy_error_mj"], measure["mean_power_mw"]) == (600_000, 9_000, 200_000)
    assert document["energy"] == {"mj_per_example": 2.0, "mj_per_step": 16.0, "source": None, "error_pct": 1.2}
    assert document["memory"]["device_total_bytes"] == 150_754_820_096
    assert document["telemetry"]["pruned_utc"] == "2025-10-09T08:53:20.000Z"


def test_a_machine_without_a_gpu_says_why() -> None:
    from app.telemetry.sampler import take_inventory

    with installed(Driver(cards=(LAPTOP,))):
        assert gpus_document(take_inventory(), {})["gpus"][0]["name"] == LAPTOP.name
    with installed(Driver(init_error=9)):
        document = gpus_document(take_inventory(), {})
    assert (document["gpus"], document["no_gpu_reason"]) == ([], "the NVIDIA driver is not loaded")


@pytest.mark.parametrize(
    ("utc_ns", "said"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (UTC_NS + 120_000_000, "2025-10-09T08:53:20.120Z"),
        (4_102_444_800 * S, "2100-01-01T00:00:00.000Z"),
    ],
)
def test_moments_are_iso_8601(utc_ns: int, said: str) -> None:
    assert iso_utc(utc_ns) == said
    assert math.isfinite(utc_ns)


UTC = "2026-03-01T14:05:09.120Z"


def line(message: TelemetryMessage) -> dict[str, object]:
    return telemetry_line(message, utc=UTC)


def test_a_sample_is_one_line() -> None:
    document = line(Sample(t_ns=5, device="GPU-a", power_mw=7))
    assert list(document)[:4] == ["t_ns", "utc", "source", "device"]
    assert (document["utc"], document["power_mw"], document["load_pct"]) == (UTC, 7, None)
    assert not {"type", "kind"} & set(document)


def test_all_but_samples_say_what_they_are() -> None:
    slow = line(SlowSample(t_ns=5, device="GPU-a", energy_mj=7))
    assert (slow["kind"], slow["energy_mj"]) == ("slow_sample", 7)
    lost = line(DeviceLost(t_ns=5, device="GPU-a", reason="It fell off."))
    assert (lost["kind"], lost["reason"]) == ("device_lost", "It fell off.")


def test_who_uses_a_gpu_is_a_line_with_a_list() -> None:
    using = (
        GpuProcess(pid=11, name="python", memory_bytes=2**30, user="ann", running_s=90.5),
        GpuProcess(pid=12, name="ollama"),
    )
    document = line(Processes(t_ns=5, device="GPU-a", processes=using))
    assert (document["kind"], document["device"]) == ("processes", "GPU-a")
    assert document["processes"] == (
        {"pid": 11, "name": "python", "memory_bytes": 2**30, "user": "ann", "running_s": 90.5},
        {"pid": 12, "name": "ollama", "memory_bytes": None, "user": None, "running_s": None},
    )
    assert document["reason"] is None
    assert line(Processes(t_ns=5, device="GPU-a", reason="no permission"))["reason"] == "no permission"


def test_every_device_has_a_line_and_the_host_says_how_many_processors_it_has() -> None:
    gpu = Device(device="GPU-a", kind="gpu", index=0, name="NVIDIA H200", absent={"fan_pct": "not supported"})
    host = Device(device=HOST, kind="host", index=-1, name="Xeon", memory_total_bytes=2**36)
    inventory = Inventory(machine=Machine(cpu_count=32), devices=(gpu, host))
    of_gpu, of_host = device_lines(inventory, t_ns=5, utc=UTC)
    assert of_gpu == {
        "t_ns": 5,
        "utc": UTC,
        "source": "live",
        "device": "GPU-a",
        "kind": "device",
        "index": 0,
        "name": "NVIDIA H200",
        "memory_total_bytes": None,
        "absent": {"fan_pct": "not supported"},
        "lost": None,
    }
    assert (of_host["device"], of_host["cpu_count"], of_host["memory_total_bytes"]) == (HOST, 32, 2**36)
