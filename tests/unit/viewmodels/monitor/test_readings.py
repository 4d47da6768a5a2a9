"""What the details of a device say: its figures, its processes, its state, and what it does not report."""

import msgspec
import pytest

from app.values.fields import FIELDS, Sample, SlowSample
from app.values.samples import HOST, DeviceLost, FieldInfo, FieldsUpdated, GpuProcess, Processes
from app.viewmodels.format.telemetry_fields import describe_process, describe_users, format_clock_events, format_field
from app.viewmodels.monitor.details import DeviceDetails, chosen_details
from app.viewmodels.monitor.model import MonitorModel, RowKey
from app.viewmodels.monitor.readings import Readings, describe_not_reported
from tests.unit.viewmodels.events import CPU_INVENTORY, DEVICES, GPU_INVENTORY, handle_all, ns, samples

NBSP = "\N{NO-BREAK SPACE}"


class Clock:
    """Seconds that a test moves on."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def model_of(*events: object) -> tuple[MonitorModel, Clock]:
    """A model that has heard these events just now."""
    clock = Clock()
    model = MonitorModel(clock=clock)
    handle_all(model, events)  # type: ignore[arg-type]
    return model, clock


def rows() -> tuple[MonitorModel, Clock]:
    return model_of(GPU_INVENTORY, *samples(0, 5))


def layout_of(model: MonitorModel) -> list[RowKey]:
    """The places of the rows in a frame of now."""
    model.read()
    return model.layout()


def details(model: MonitorModel, device: str = "GPU-0") -> DeviceDetails:
    model.read()
    return chosen_details(model, RowKey("", device))


def test_every_device_has_its_numbers_with_units() -> None:
    model, _ = rows()
    assert figures(model) == {
        "Power": f"600{NBSP}W of 700{NBSP}W",
        "Load": f"97{NBSP}%",
        "Memory": f"4.0 of 140{NBSP}GiB",
        "Memory free": f"136{NBSP}GiB",
        "Temperature": f"55{NBSP}°C",
        "SM clock": f"1,980{NBSP}MHz",
    }
    assert list(figures(model, HOST)) == ["CPU load", "Memory"]


def test_what_a_device_does_not_say_is_not_zero() -> None:
    model, _ = rows()
    assert "Temperature" not in figures(model, "GPU-1")
    assert details(model, "GPU-1").not_reported == "Not reported by this GPU: temperature (This card has no sensor.)."


def test_a_lost_device_stays_with_the_reason() -> None:
    model, clock = rows()
    model.handle(DeviceLost(t_ns=ns(5), device="GPU-0", reason="it fell off the bus"))
    clock.now_s += 65
    lost = details(model).state
    assert (lost.text, lost.tone, lost.reason) == ("Lost", "bad", f"Lost 1{NBSP}min ago. It fell off the bus.")
    model.handle(GPU_INVENTORY)
    assert details(model).state.text == "No reading yet", "it came back"


def test_one_that_was_lost_before_says_only_why() -> None:
    lost = msgspec.structs.replace(DEVICES[0], lost="the NVIDIA driver refuses it (Unknown Error)")
    model, _ = model_of(msgspec.structs.replace(GPU_INVENTORY, devices=(lost, *DEVICES[1:])))
    assert details(model).state.reason == "Lost. The NVIDIA driver refuses it (Unknown Error)."


def test_a_driver_that_is_away_is_told_from_a_card_that_is_lost() -> None:
    model, _ = rows()
    model.handle(DeviceLost(t_ns=ns(5), device="GPU-0", reason="NVIDIA H200 stopped answering (Driver Not Loaded)."))
    assert details(model).state.text == "Driver away"


def test_an_absent_value_clears_the_one_before() -> None:
    model, clock = rows()
    model.handle(SlowSample(t_ns=ns(5), device="GPU-0", tensor_active_pct=93.5))
    model.handle(Sample(t_ns=ns(5), device="GPU-0", load_pct=50.0))
    assert figures(model) == {"Load": f"50{NBSP}%", "Tensor cores active": f"93.5{NBSP}%"}
    clock.now_s += 35
    model.handle(Sample(t_ns=ns(40), device="GPU-0"))
    assert figures(model) == {}, "the slow value is too old, too"
    assert details(model).state.text == f"No reading for 35{NBSP}s"
    assert not details(model, "GPU-1").is_current


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
    legends = {
        device: {panel.title: panel.curves[0].value_text for panel in details(model, device).plots.panels}
        for device in ("GPU-0", "GPU-1")
    }
    assert (legends["GPU-0"]["Power"], legends["GPU-0"]["Memory"]) == ("implausible", "implausible")
    assert list(legends["GPU-0"]) == ["Load", "Power", "Memory", "Temperature"]
    assert legends["GPU-1"]["Temperature"] == "This card has no sensor."
    model.handle(Sample(t_ns=ns(6), device="GPU-0", power_mw=300_000, memory_bytes=2**30))
    model.handle(SlowSample(t_ns=ns(6), device="GPU-0", memory_temperature_c=71))
    assert "implausible" not in figures(model).values()


def test_without_a_gpu_the_host_is_there_and_the_reason_is_said() -> None:
    model, _ = model_of(CPU_INVENTORY)
    assert layout_of(model) == [RowKey("", HOST)]
    reason, hint = details(model, HOST).no_gpu
    assert reason == "No NVIDIA driver is installed."
    assert "Runs measured on H200s" in hint
    model, _ = model_of(GPU_INVENTORY)
    assert details(model, HOST).no_gpu == ("", "")


def figures(model: MonitorModel, device: str = "GPU-0") -> dict[str, str]:
    return dict(details(model, device).metrics)


def test_slow_values_stay_until_the_next_and_throttled_time_counts_from_the_first() -> None:
    model, _ = rows()
    model.handle(SlowSample(t_ns=ns(1), device="GPU-0", throttled_power_ns=5_000_000_000, tensor_active_pct=93.5))
    assert figures(model)["Throttled"] == "never"
    model.handle(Sample(t_ns=ns(1), device="GPU-0", throttle_reasons=4))
    assert figures(model)["Throttled"] == "now", "as its state says, before a counter does"
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
    assert details(model).processes_note == ""
    model.handle(Processes(t_ns=ns(1), device="GPU-0", processes=()))
    assert details(model).processes_note == "No process uses it"
    some = [GpuProcess(pid=n, name="python3", memory_bytes=n * 2**20, user="ann", running_s=70.0) for n in (1, 2)]
    model.handle(Processes(t_ns=ns(2), device="GPU-0", processes=(GpuProcess(pid=77, name="Xorg"), *some)))
    assert details(model).processes == (
        ("python3 (2)", "ann", f"1{NBSP}min", f"2.0{NBSP}MiB"),
        ("python3 (1)", "ann", f"1{NBSP}min", f"1.0{NBSP}MiB"),
        ("Xorg (77)", "–", "–", "–"),
    )
    model.handle(Processes(t_ns=ns(3), device="GPU-0", processes=(GpuProcess(pid=99),)))
    assert details(model).processes == (("process (99)", "–", "–", "–"),)
    model.read()
    assert "process 99" in [cell.text for cell in model.cells(RowKey("", "GPU-0"))]


def test_who_uses_a_gpu_is_one_line_in_the_terminal() -> None:
    used = GpuProcess(pid=4242, name="python3", memory_bytes=2**30, user="ann", running_s=7200.0)
    found = Processes(t_ns=ns(1), device="GPU-0", processes=(GpuProcess(pid=7, name="ffmpeg"), used))
    assert describe_users(found) == (
        f"used by python3 (4242) of ann, running for 2{NBSP}h, 1.0{NBSP}GiB; ffmpeg (7), whose user the system hides"
    )
    assert describe_users(Processes(t_ns=ns(1), device="GPU-0")) == "used by no process"
    hidden = GpuProcess(pid=9, memory_bytes=2**30)
    assert describe_process(hidden) == f"process (9), whose user the system hides, 1.0{NBSP}GiB"
    unknown = Processes(t_ns=ns(1), device="GPU-0", reason="no permission")
    assert describe_users(unknown) == "who uses it is not known (no permission)"


def test_a_lost_device_shows_no_old_numbers_as_if_they_were_new() -> None:
    gpu = msgspec.structs.replace(DEVICES[0], fields={"power_mw": FieldInfo(unit="mW")})
    model, clock = model_of(msgspec.structs.replace(GPU_INVENTORY, devices=(gpu,)), *samples(0, 1))
    clock.now_s = ns(1) / 1e9
    model.handle(DeviceLost(t_ns=ns(5), device="GPU-0", reason="it fell off the bus"))
    assert figures(model) == {"Power": "–"}
    (power,) = [panel for panel in details(model).plots.panels if panel.key == "power_mw"]
    assert power.curves[0].y[-1] == 600.0, "its last minute stays"


def test_nobody_is_called_absent_where_processes_cannot_be_listed() -> None:
    model, _ = rows()
    model.handle(Processes(t_ns=ns(1), device="GPU-0", reason="no permission"))
    assert details(model).processes_note == "Processes unknown: no permission"


def test_what_has_a_value_is_reported_whatever_the_probe_found() -> None:
    gpu = msgspec.structs.replace(DEVICES[0], absent={"fan_pct": "not supported", "sm_active_pct": "not supported"})
    assert describe_not_reported(gpu, {"sm_active_pct": 96.0}) == "Not reported by this GPU: fan (not supported)."
    model, _ = model_of(msgspec.structs.replace(GPU_INVENTORY, devices=(gpu,)))
    model.handle(FieldsUpdated(device="GPU-0", fields={"sm_active_pct": FieldInfo(unit="%")}))
    assert details(model).not_reported == ""


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
    assert format_field("power_mw", 688_123) == f"688{NBSP}W"
    assert format_field("throttled_power_ns", 0) == f"0{NBSP}s"
    assert format_field("fan_pct", None) == "–"


@pytest.mark.parametrize(
    ("device", "load_pct", "state"),
    [
        ("GPU-0", 0.9, "Idle"),
        ("GPU-0", 1.0, "In use"),
        ("GPU-0", 9.9, "In use"),
        ("GPU-0", 10.0, "Busy"),
        (HOST, 9.9, "Idle"),
        (HOST, 10.0, "Busy"),
    ],
)
def test_a_device_is_in_use_and_busy_from_a_load_on(device: str, load_pct: float, state: str) -> None:
    readings = Readings(Clock())
    readings.add(Sample(t_ns=1, device=device, load_pct=load_pct))
    listed = next(each for each in GPU_INVENTORY.devices if each.device == device)
    assert readings.state(listed).text == state


def test_an_inventory_that_lists_a_lost_gpu_again_does_not_forget_since_when() -> None:
    clock = Clock()
    readings = Readings(clock)
    readings.lose(DeviceLost(t_ns=1, device="GPU-0", reason="it fell off the bus"), "it fell off the bus")
    clock.now_s += 30
    readings.lose(None, "it fell off the bus")
    assert readings.lost_s == clock.now_s - 30
    fresh = Readings(clock)
    fresh.lose(None, "it was lost before")
    assert fresh.lost_s is None
