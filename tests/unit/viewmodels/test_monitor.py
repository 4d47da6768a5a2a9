import msgspec
import pytest

from app.fields import FIELDS, Sample, SlowSample
from app.samples import DeviceLost, FieldInfo, FieldsUpdated, GpuProcess, Processes
from app.viewmodels.format.telemetry_fields import describe_users, format_clock_events, format_field
from app.viewmodels.monitor import MonitoredDevice, MonitorModel, describe_not_reported
from tests.unit.viewmodels.events import CPU_INVENTORY, DEVICES, GPU_INVENTORY, handle_all, ns, samples

NBSP = "\N{NO-BREAK SPACE}"


def rows() -> tuple[MonitorModel, tuple[MonitoredDevice, ...]]:
    model = MonitorModel()
    handle_all(model, (GPU_INVENTORY, *samples(0, 5)))
    return model, model.state().rows


def test_every_device_has_its_numbers_with_units() -> None:
    _, (first, _, host) = rows()
    shown = {figure.label: figure.value for figure in first.metrics}
    assert shown == {
        "Power": f"600{NBSP}W of 700{NBSP}W",
        "Load": f"97{NBSP}%",
        "Memory": f"4.0 of 140{NBSP}GiB",
        "Memory free": f"136{NBSP}GiB",
        "Temperature": f"55{NBSP}°C",
        "SM clock": f"1,980{NBSP}MHz",
    }
    assert [figure.label for figure in host.metrics] == ["CPU load", "Memory"]


def test_what_a_device_does_not_say_is_not_zero() -> None:
    _, (_, second, _) = rows()
    assert "Temperature" not in [figure.label for figure in second.metrics]
    assert second.not_reported == "Not reported by this GPU: temperature (This card has no sensor.)."


def test_a_lost_device_stays_with_the_reason() -> None:
    model, _ = rows()
    model.handle(DeviceLost(t_ns=ns(5), device="GPU-0", reason="it fell off the bus"))
    assert [row.lost for row in model.state(ns(70)).rows] == [f"Lost 1{NBSP}min ago. It fell off the bus.", "", ""]
    model.handle(GPU_INVENTORY)
    assert [row.lost for row in model.state().rows] == ["", "", ""], "it came back"


def test_one_that_was_lost_before_says_only_why() -> None:
    lost = msgspec.structs.replace(DEVICES[0], lost="the NVIDIA driver refuses it (Unknown Error)")
    model = MonitorModel()
    model.handle(msgspec.structs.replace(GPU_INVENTORY, devices=(lost, *DEVICES[1:])))
    assert model.state().rows[0].lost == "Lost. The NVIDIA driver refuses it (Unknown Error)."


def test_an_absent_value_clears_the_one_before() -> None:
    model, _ = rows()
    model.handle(SlowSample(t_ns=ns(5), device="GPU-0", tensor_active_pct=93.5))
    model.handle(Sample(t_ns=ns(5), device="GPU-0", load_pct=50.0))
    assert figures(model) == {"Load": f"50{NBSP}%", "Tensor cores active": f"93.5{NBSP}%"}
    model.handle(Sample(t_ns=ns(40), device="GPU-0"))
    assert figures(model) == {}, "the slow value is too old, too"
    assert model.state().rows[0].stale == f"No reading for 35{NBSP}s."
    assert model.state(ns(41)).rows[1].stale == f"No reading for 36{NBSP}s."


def test_an_implausible_value_is_called_so_until_the_next_plausible_one() -> None:
    model, _ = rows()
    model.handle(SlowSample(t_ns=ns(5), device="GPU-0", memory_temperature_c=70))
    model.handle(SlowSample(t_ns=ns(5), device="GPU-0", implausible=("memory_temperature_c", "energy_mj")))
    implausible = ("power_mw", "memory_bytes")
    model.handle(Sample(t_ns=ns(5), device="GPU-0", power_limit_mw=700_000, load_pct=1.0, implausible=implausible))
    assert figures(model) == {
        "Power": "implausible",
        "Load": f"1{NBSP}%",
        "Memory": "implausible",
        "Memory free": "–",
        "Memory temperature": "implausible",
    }
    first, second, _ = model.state().rows
    assert [panel.title for panel in first.panels] == ["Power (implausible)", "Load", "Memory (implausible)"]
    assert [panel.title for panel in second.panels] == ["Power", "Load", "Memory"]
    model.handle(Sample(t_ns=ns(6), device="GPU-0", power_mw=300_000, memory_bytes=2**30))
    model.handle(SlowSample(t_ns=ns(6), device="GPU-0", memory_temperature_c=71))
    assert "implausible" not in figures(model).values()


def test_without_a_gpu_the_host_is_there_and_the_reason_is_said() -> None:
    model = MonitorModel()
    model.handle(CPU_INVENTORY)
    state = model.state()
    assert [row.label for row in state.rows] == ["Host"]
    assert state.note == "No NVIDIA driver is installed."
    assert "Runs measured on two H200s" in state.gpu_hint


def test_with_a_gpu_nobody_is_told_what_one_would_show() -> None:
    model = MonitorModel()
    model.handle(GPU_INVENTORY)
    assert (model.state().note, model.state().gpu_hint) == ("", "")


def figures(model: MonitorModel, device: int = 0) -> dict[str, str]:
    return {figure.label: figure.value for figure in model.state().rows[device].metrics}


def test_slow_values_stay_until_the_next_and_throttled_time_counts_from_the_first() -> None:
    model, _ = rows()
    model.handle(SlowSample(t_ns=ns(1), device="GPU-0", throttled_power_ns=5_000_000_000, tensor_active_pct=93.5))
    assert figures(model)["Throttled"] == "never"
    model.handle(SlowSample(t_ns=ns(2), device="GPU-0", throttled_power_ns=6_500_000_000, pcie_tx_bytes_per_s=2**30))
    shown = figures(model)
    assert shown["Throttled"] == f"power 1.50{NBSP}s"
    assert (shown["Tensor cores active"], shown["PCIe out"]) == (f"93.5{NBSP}%", f"1.0{NBSP}GiB/s")
    assert "Fan" not in shown


def test_reserved_memory_is_not_free() -> None:
    model, _ = rows()
    model.handle(SlowSample(t_ns=ns(1), device="GPU-0", memory_reserved_bytes=6 * 2**30))
    assert figures(model)["Memory free"] == f"130{NBSP}GiB"


def test_a_gpu_names_its_processes_the_largest_first() -> None:
    model, _ = rows()
    assert model.state().rows[0].processes == ""
    model.handle(Processes(t_ns=ns(1), device="GPU-0", processes=()))
    assert model.state().rows[0].processes == "No process uses it"
    some = [GpuProcess(pid=n, name="python3", memory_bytes=n * 2**20) for n in range(1, 11)]
    model.handle(Processes(t_ns=ns(2), device="GPU-0", processes=(GpuProcess(pid=77, name="Xorg"), *some)))
    lines = model.state().rows[0].processes.splitlines()
    assert (lines[0], lines[-1], len(lines)) == (f"python3 (10) · unknown user · – · 10.0{NBSP}MiB", "and 3 more", 9)


def test_who_uses_a_gpu_is_one_line_in_the_terminal() -> None:
    used = GpuProcess(pid=4242, name="python3", memory_bytes=2**30, user="ann", running_s=7200.0)
    found = Processes(t_ns=ns(1), device="GPU-0", processes=(GpuProcess(pid=7, name="ffmpeg"), used))
    assert describe_users(found) == (
        f"used by python3 (4242) of ann, running for 2{NBSP}h, 1.0{NBSP}GiB; "
        "ffmpeg (7) of unknown user, running for –, –"
    )
    assert describe_users(Processes(t_ns=ns(1), device="GPU-0")) == "used by no process"
    unknown = Processes(t_ns=ns(1), device="GPU-0", reason="no permission")
    assert describe_users(unknown) == "who uses it is not known (no permission)"


def test_a_lost_device_shows_no_old_numbers_as_if_they_were_new() -> None:
    model = MonitorModel()
    gpu = msgspec.structs.replace(DEVICES[0], fields={"power_mw": FieldInfo(unit="mW")})
    handle_all(model, (msgspec.structs.replace(GPU_INVENTORY, devices=(gpu,)), *samples(0, 1)))
    model.handle(DeviceLost(t_ns=ns(5), device="GPU-0", reason="it fell off the bus"))
    assert figures(model) == {"Power": "–"}
    assert model.state().rows[0].panels[0].curves[0].y[-1] == 600.0, "its last minute stays"


def test_nobody_is_called_absent_where_processes_cannot_be_listed() -> None:
    model, _ = rows()
    model.handle(Processes(t_ns=ns(1), device="GPU-0", reason="no permission"))
    assert model.state().rows[0].processes == "Processes unknown: no permission"


def test_what_has_a_value_is_reported_whatever_the_probe_found() -> None:
    gpu = msgspec.structs.replace(DEVICES[0], absent={"fan_pct": "not supported", "sm_active_pct": "not supported"})
    assert describe_not_reported(gpu, {"sm_active_pct": 96.0}) == "Not reported by this GPU: fan (not supported)."
    model = MonitorModel()
    model.handle(msgspec.structs.replace(GPU_INVENTORY, devices=(gpu,)))
    model.handle(FieldsUpdated(device="GPU-0", fields={"sm_active_pct": FieldInfo(unit="%")}))
    assert model.state().rows[0].not_reported == ""


def test_what_is_not_told_is_grouped_by_reason() -> None:
    absent = {
        "fan_pct": "not supported",
        "sm_active_pct": "not supported",
        "dram_active_pct": "not supported",
        "pcie_tx_bytes_per_s": "no permission",
        "pcie_rx_bytes_per_s": "no permission",
    }
    gpu = msgspec.structs.replace(DEVICES[0], absent=absent)
    assert (
        describe_not_reported(gpu)
        == "Not reported by this GPU: fan, GPM metrics (not supported); PCIe bytes (no permission)."
    )
    assert describe_not_reported(DEVICES[0]) == ""


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (0, "none"),
        (0x1, "idle"),
        (0x2, "clocks set by the user"),
        (0x4, "power cap"),
        (0x44, "power cap, hardware thermal limit"),
        (0x1000, "reason 0x1000"),
    ],
)
def test_throttle_reasons_are_words(mask: int, words: str) -> None:
    assert format_clock_events(mask) == words


def test_every_field_has_a_word_and_a_unit() -> None:
    for name, field in FIELDS.items():
        assert field.label
        assert (field.unit == "bits") == (name == "throttle_reasons")
    assert format_field("power_mw", 688_123) == f"688.1{NBSP}W"
    assert format_field("throttled_power_ns", 0) == f"0{NBSP}s"
    assert format_field("fan_pct", None) == "–"
