"""The lines of `watch --json`."""

from app.report.watch import Told, device_lines, telemetry_line
from app.samples import HOST, Device, DeviceLost, GpuProcess, Inventory, Processes, Sample, SlowSample
from workloads.catalog import Machine

UTC = "2026-03-01T14:05:09.120Z"


def line(message: Told) -> dict[str, object]:
    return telemetry_line(message, utc=UTC, source="live")


def test_a_sample_is_one_line() -> None:
    told = line(Sample(t_ns=5, device="GPU-a", power_mw=7))
    assert list(told)[:4] == ["t_ns", "utc", "source", "device"]
    assert (told["utc"], told["power_mw"], told["load_pct"]) == (UTC, 7, None)
    assert not {"type", "kind"} & set(told)


def test_all_but_samples_say_what_they_are() -> None:
    slow = line(SlowSample(t_ns=5, device="GPU-a", energy_mj=7))
    assert (slow["kind"], slow["energy_mj"]) == ("slow_sample", 7)
    lost = line(DeviceLost(t_ns=5, device="GPU-a", reason="It fell off."))
    assert (lost["kind"], lost["reason"]) == ("device_lost", "It fell off.")


def test_who_uses_a_gpu_is_a_line_with_a_list() -> None:
    using = (GpuProcess(pid=11, name="python", memory_bytes=2**30), GpuProcess(pid=12, name="ollama"))
    told = line(Processes(t_ns=5, device="GPU-a", processes=using))
    assert (told["kind"], told["device"]) == ("processes", "GPU-a")
    assert told["processes"] == (
        {"pid": 11, "name": "python", "memory_bytes": 2**30},
        {"pid": 12, "name": "ollama", "memory_bytes": None},
    )


def test_every_device_has_a_line_and_the_host_says_how_many_processors_it_has() -> None:
    gpu = Device(device="GPU-a", kind="gpu", index=0, name="NVIDIA H200", absent={"fan_pct": "not supported"})
    host = Device(device=HOST, kind="host", index=-1, name="Xeon", memory_total_bytes=2**36)
    inventory = Inventory(machine=Machine(cpu_count=32), devices=(gpu, host))
    of_gpu, of_host = device_lines(inventory, t_ns=5, utc=UTC, source="live")
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
    }
    assert (of_host["device"], of_host["cpu_count"], of_host["memory_total_bytes"]) == (HOST, 32, 2**36)
