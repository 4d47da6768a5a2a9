from app.records import DeviceLost
from app.viewmodels.monitor import DeviceRow, MonitorModel
from tests.unit.viewmodels.events import CPU_INVENTORY, GPU_INVENTORY, ns, samples, tell

NBSP = "\N{NO-BREAK SPACE}"


def rows() -> tuple[MonitorModel, tuple[DeviceRow, ...]]:
    model = MonitorModel()
    tell(model, (GPU_INVENTORY, *samples(0, 5)))
    return model, model.state().rows


def test_every_device_has_its_numbers_with_units() -> None:
    _, (first, _, host) = rows()
    shown = {figure.label: figure.value for figure in first.figures}
    assert shown == {
        "Power": f"600{NBSP}W of 700{NBSP}W",
        "Load": f"97{NBSP}%",
        "Memory": f"4.0 of 140{NBSP}GiB",
        "Temperature": f"55{NBSP}°C",
        "SM clock": f"1,980{NBSP}MHz",
    }
    assert [figure.label for figure in host.figures] == ["Load", "Memory"]


def test_what_a_device_does_not_say_is_not_zero() -> None:
    _, (_, second, _) = rows()
    temperature = next(figure for figure in second.figures if figure.label == "Temperature")
    assert (temperature.value, temperature.reason) == ("not supported", "This card has no sensor.")


def test_a_lost_device_stays_with_the_reason() -> None:
    model, _ = rows()
    model.handle(DeviceLost(t_ns=ns(5), device="GPU-0", reason="it fell off the bus"))
    assert [row.lost for row in model.state().rows] == ["it fell off the bus", "", ""]


def test_without_a_gpu_the_host_is_there_and_the_reason_is_said() -> None:
    model = MonitorModel()
    model.handle(CPU_INVENTORY)
    state = model.state()
    assert [row.label for row in state.rows] == ["Host"]
    assert state.note == "No NVIDIA driver is installed."
