"""Monitor's rows: which there are, in what order, their states and figures, and what is kept over time."""

import threading
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from app.values.fields import Sample, SlowSample
from app.values.samples import HOST, DeviceLost, FieldInfo, GpuProcess, Inventory, Processes
from app.viewmodels.hosts import HostState, Stage
from app.viewmodels.monitor.cells import COURSE_POINTS, TABLE_COLUMNS, Courses, host_state
from app.viewmodels.monitor.details import chosen_details
from app.viewmodels.monitor.model import MonitorModel, RowKey, TableSettings
from tests.unit.viewmodels.events import CPU_INVENTORY, DEVICES, GPU_INVENTORY, HOST_DEVICE, handle_all, samples
from tests.unit.viewmodels.monitor.test_readings import NBSP, Clock, layout_of, model_of
from workloads.catalog import Gpu, Machine

POWER_CAP = 4
GPU_1 = RowKey("", "GPU-1")


def machine(count: int) -> Inventory:
    gpus = tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", compute_capability=(9, 0)) for n in range(count))
    cards = [msgspec.structs.replace(DEVICES[0], device=gpu.uuid, index=gpu.index) for gpu in gpus]
    return Inventory(machine=Machine(gpus=gpus, cpu_count=16), devices=(HOST_DEVICE, *cards), driver="580.65.06")


def sample(device: str, load_pct: float = 50.0, **values: int) -> Sample:
    return Sample(t_ns=1, device=device, load_pct=load_pct, memory_bytes=2**30, **values)  # type: ignore[arg-type]


def row(model: MonitorModel, key: RowKey) -> dict[str, str]:
    """The text of each column of a row, in a frame of now."""
    model.read()
    cells = zip(TABLE_COLUMNS.items(), model.cells(key), strict=True)
    return {
        name: " ".join(filter(None, (cell.symbol, cell.text.replace(NBSP, " " if column.numeric else NBSP), cell.unit)))
        for (name, column), cell in cells
    }


def fleet(*stages: Stage) -> tuple[MonitorModel, Clock]:
    """This machine without a GPU, and hosts gpu0, gpu1 … with two GPUs each, whose links are so."""
    model, clock = model_of(CPU_INVENTORY)
    states = [
        HostState(name=f"gpu{n}", stage=stage, text="It fell." * (stage == "lost")) for n, stage in enumerate(stages)
    ]
    model.update(states)
    for state in states:
        if state.stage == "connected":
            model.handle(machine(2), state.name)
    return model, clock


def test_one_gpu_has_a_row_and_several_have_one_of_the_machine_over_theirs() -> None:
    one, _ = model_of(machine(1))
    assert layout_of(one) == [RowKey("", "GPU-0"), RowKey("", HOST)]
    three, _ = model_of(machine(3))
    assert layout_of(three) == [RowKey(""), *(RowKey("", f"GPU-{n}") for n in range(3)), RowKey("", HOST)]
    assert row(three, RowKey(""))["device"] == "▾ This machine · 3× H200"
    three.fold("", folded=True)
    assert layout_of(three) == [RowKey("")]


def test_each_state_has_a_mark_of_its_own_and_the_worst_is_told_first() -> None:
    model, clock = model_of(machine(7))
    for number in range(6):
        model.handle(sample(f"GPU-{number}", load_pct=0.0 if number == 1 else 90.0))
    users = tuple(GpuProcess(pid=pid, name="python3", user="ann") for pid in (1, 2))
    model.handle(Processes(t_ns=1, device="GPU-2", processes=users))
    model.handle(Processes(t_ns=1, device="GPU-3", processes=users))
    model.handle(sample("GPU-3", throttle_reasons=POWER_CAP))
    clock.now_s += 7
    for number in (0, 1, 2):
        model.handle(sample(f"GPU-{number}", load_pct=0.0 if number == 1 else 90.0))
    model.handle(sample("GPU-3", throttle_reasons=POWER_CAP))
    model.handle(DeviceLost(t_ns=1, device="GPU-5", reason="it fell off the bus"))
    states = {number: row(model, RowKey("", f"GPU-{number}"))["state"] for number in range(7)}
    assert states == {
        0: "● Busy",
        1: "○ Idle",
        2: "◆ Shared by 2 processes",
        3: "▲ Throttled: power cap · shared by 2",
        4: f"? No reading for 7{NBSP}s",
        5: f"✖ Lost 0{NBSP}s ago. It fell off the bus.",
        6: "○ No reading yet",
    }
    assert len({state[0] for state in states.values()}) == 6
    assert row(model, RowKey(""))["state"] == "✖ 1 lost · 1 not read · 1 throttled · 1 shared"
    assert model.summary() == "7 GPUs · 1 lost · 1 not read · 1 throttled · 1 shared"
    assert [model.reason(key) for key in (RowKey("", "GPU-4"), RowKey("", "GPU-5"))] == ["", "it fell off the bus"]


def test_throttling_that_comes_and_goes_within_two_seconds_stays_in_sight() -> None:
    model, clock = model_of(machine(1))
    model.handle(sample("GPU-0", throttle_reasons=POWER_CAP))
    clock.now_s += 1.5
    model.handle(sample("GPU-0", throttle_reasons=1))
    assert row(model, RowKey("", "GPU-0"))["state"] == "▲ Throttled: power cap"
    clock.now_s += 1.0
    model.handle(sample("GPU-0", throttle_reasons=1))
    assert row(model, RowKey("", "GPU-0"))["state"] == "● Busy", "idle clocks are no throttling"


def test_a_row_has_the_figures_and_who_uses_the_gpu() -> None:
    model, _ = model_of(GPU_INVENTORY, *samples(0, 1))
    model.handle(Processes(t_ns=1, device="GPU-0", processes=(GpuProcess(pid=7, name="python3", user="ann"),)))
    model.handle(Processes(t_ns=1, device="GPU-1"))
    assert list(row(model, RowKey("", "GPU-0")).values()) == [
        "GPU 0 · H200",
        "● Busy",
        "97 %",
        "600 of 700 W",
        "4.0 of 140 GiB",
        "55 °C",
        "python3 (ann)",
    ]
    second = row(model, RowKey("", "GPU-1"))
    assert (second["temperature_c"], second["processes"]) == ("", "No process")
    assert chosen_details(model, RowKey("")).processes == (
        ("GPU 0", "", "", ""),
        ("python3 (7)", "ann", "–", "–"),
    )
    assert row(model, RowKey("", HOST))["device"] == "CPU · CPU"
    assert row(model, RowKey(""))["power_mw"] == "1,201 of 1,400 W"


def test_figures_of_earlier_are_faint_and_do_not_count_in_sums() -> None:
    model, clock = model_of(GPU_INVENTORY, *samples(0, 1))
    clock.now_s += 5
    model.handle(sample("GPU-1", power_mw=100_000))
    model.read()
    load = model.cells(RowKey("", "GPU-0"))[2]
    assert (load.text, load.tone) == (f"97{NBSP}%", "quiet")
    assert row(model, RowKey(""))["power_mw"] == "100 W"
    assert row(model, RowKey(""))["memory_bytes"] == "1.0 of 140 GiB"


def test_a_sum_is_of_a_total_where_every_device_in_it_has_one() -> None:
    model, _ = model_of(machine(2))
    model.handle(sample("GPU-0", power_mw=600_000, power_limit_mw=700_000))
    assert row(model, RowKey(""))["power_mw"] == "600 of 700 W"
    model.handle(sample("GPU-1", power_mw=200_000))
    assert row(model, RowKey(""))["power_mw"] == "800 W"


def test_a_click_on_a_column_sorts_within_hosts_or_over_all_and_the_third_ends_it() -> None:
    model, _ = fleet("connected", "connected")
    for host, device, load in (("gpu0", 0, 10.0), ("gpu0", 1, 30.0), ("gpu1", 0, 20.0), ("gpu1", 1, 90.0)):
        model.handle(sample(f"GPU-{device}", load), host)
    natural = layout_of(model)
    model.sort_by("load_pct")
    assert [place for place in layout_of(model) if place.device == "GPU-1"] == [
        RowKey("gpu1", "GPU-1"),
        RowKey("gpu0", "GPU-1"),
    ]
    assert layout_of(model)[-1] == RowKey("", HOST), "what has no load comes last"
    model.change(replace(model.settings, grouped=False))
    gpus = [f"{place.host} {place.device}" for place in layout_of(model) if place.host]
    assert gpus == ["gpu1 GPU-1", "gpu0 GPU-1", "gpu1 GPU-0", "gpu0 GPU-0"]
    assert row(model, RowKey("gpu1", "GPU-1"))["device"] == "gpu1 · GPU 1 · H200"
    model.sort_by("load_pct")
    assert layout_of(model)[0] == RowKey("gpu0", "GPU-0"), "the smallest first"
    model.sort_by("load_pct")
    model.change(replace(model.settings, grouped=True))
    assert layout_of(model) == natural


def test_a_host_says_how_its_link_is_and_what_can_be_done() -> None:
    model, clock = fleet("connected", "lost", "off")
    model.handle(sample("GPU-0", power_mw=300_000), "gpu0")
    assert row(model, RowKey("gpu0"))["state"] == "● Busy"
    clock.now_s += 30
    assert row(model, RowKey("gpu0"))["state"] == f"? No data for 30{NBSP}s"
    lost, off = row(model, RowKey("gpu1")), row(model, RowKey("gpu2"))
    assert (lost["device"], lost["state"], lost["processes"]) == ("gpu1", "✖ It fell.", "Try again")
    assert (off["state"], off["processes"]) == ("○ Not connected.", "Connect")
    assert model.reason(RowKey("gpu1")) == "It fell."
    assert model.summary() == "2 GPUs on 2 of 4 machines, 1 not reached · 1 not read"


def test_a_search_finds_hosts_states_users_and_processes() -> None:
    model, _ = fleet("connected", "connected")
    model.handle(sample("GPU-1", throttle_reasons=POWER_CAP), "gpu1")
    user = GpuProcess(pid=4242, name="python3", user="ann")
    model.handle(Processes(t_ns=1, device="GPU-0", processes=(user,)), "gpu0")
    for text, found in {
        "GPU1": ["gpu1", "gpu1 GPU-0", "gpu1 GPU-1", "gpu1 host"],
        "throttled": ["gpu1", "gpu1 GPU-1"],
        "ann": ["gpu0", "gpu0 GPU-0"],
        "ann 4242": ["gpu0", "gpu0 GPU-0"],
        "nobody": [],
    }.items():
        model.search(text)
        assert [" ".join(filter(None, place)) for place in layout_of(model)] == found, text


def test_of_many_hosts_only_their_own_rows_are_shown_until_they_are_unfolded() -> None:
    many: list[Stage] = ["connected"] * 200
    model, _ = fleet(*many)
    assert len(layout_of(model)) == 2 + 200, "this machine and its processors are always in sight"
    model.fold("gpu7")
    assert len(layout_of(model)) == 2 + 200 + 3
    model.fold(None, folded=False)
    assert len(layout_of(model)) == 2 + 200 * 4
    model.fold(None, folded=True)
    assert len(layout_of(model)) == 1 + 200


def test_what_was_remembered_of_another_version_is_left_out() -> None:
    model, _ = model_of(machine(1))
    model.change(TableSettings(range="3 weeks", sort="gone"))
    assert model.settings == TableSettings()


def test_hosts_that_are_heard_on_other_threads_have_details_too() -> None:
    model, clock = fleet("connected")
    for load in (20.0, 40.0):
        clock.now_s += 1
        model.handle(sample("GPU-0", load, temperature_c=60), "gpu0")
        model.handle(sample("GPU-1", load + 10), "gpu0")
        model.tick()
    model.read()
    details = chosen_details(model, RowKey("gpu0", "GPU-0"))
    assert details.subtitle == "GPU-0 · gpu0"
    assert details.plots.panels[0].curves[0].y.tolist() == [20.0, 40.0]
    host = chosen_details(model, RowKey("gpu0"))
    assert (host.title, host.subtitle) == ("gpu0", "2× H200 · driver 580.65.06 · 16 processors")
    assert [curve.label for curve in host.plots.panels[0].curves] == ["GPU 0", "GPU 1"]
    mean = model.cells(RowKey("gpu0"))[2]
    assert [value for value in mean.spark if np.isfinite(value)] == pytest.approx([0.25, 0.45]), "the mean of both"


def test_eight_hours_are_kept_in_bounded_memory_the_newest_minutes_whole() -> None:
    """Nine hours of a saw-tooth of a minute, a value a second."""
    model, _ = model_of()
    series = model.series("", "GPU-0", "load_pct")
    for second in range(9 * 3600):
        series.append(float(second), float(second % 60))
    end = 9 * 3600 - 1.0
    x, low, high = series.window(end - 240, end, 1200)
    assert len(x) == 242
    assert low is high
    x, low, high = series.window(end - 8 * 3600, end, 1200)
    assert x[0] <= end - 8 * 3600
    assert len(x) < 1_500
    assert np.all(np.diff(x) > 0)
    assert (low.min(), high.max()) == (0.0, 59.0), "no peak is lost"
    assert series.memory_bytes <= 45_056
    assert series.range_at(end) == (59.0, 59.0)
    assert series.range_at(end - 5 * 3600) == (0.0, 59.0)


def test_time_without_readings_is_a_gap() -> None:
    model, _ = model_of()
    series = model.series("", "GPU-0", "load_pct")
    for t_s, value in ((1.0, 5.0), (2.0, 5.0), (100.0, 6.0)):
        series.append(t_s, value)
    assert str(series.window(0.0, 200.0, 100)[1].tolist()) == "[5.0, 5.0, nan, 6.0]", "the machine slept"
    course = Courses(model.history, 0.0, 100.0)._course(series)
    assert np.flatnonzero(np.isfinite(course)).tolist() == [0, 1, COURSE_POINTS - 1]
    assert not len(model.series("", "GPU-9", "load_pct").points()[0])


def test_a_sparkline_has_no_gap_where_a_reading_came_a_little_late() -> None:
    model, _ = model_of()
    series = model.series("", "GPU-0", "load_pct")
    for t_s in (*range(30), 31.5, *range(32, 60)):
        series.append(float(t_s), 5.0)
    assert np.isfinite(Courses(model.history, 0.0, 59.0)._course(series)).all()


def test_of_very_many_devices_only_the_fields_of_the_table_are_kept() -> None:
    model, clock = model_of()
    model.handle(machine(101))
    handle_all(model, [sample("GPU-0"), SlowSample(t_ns=1, device="GPU-0", tensor_active_pct=1.0)])
    clock.now_s += 1
    model.tick()
    assert {field for *_, field in model.history} == {"load_pct", "memory_bytes"}


@pytest.mark.parametrize("is_heard_first", [True, False])
def test_header_rows_and_details_of_a_frame_are_of_one_moment(is_heard_first: bool) -> None:
    model, clock = model_of(machine(2), sample("GPU-0", power_mw=192_000), sample("GPU-1", power_mw=192_000))
    news = sample("GPU-1", 90.0, power_mw=332_000, throttle_reasons=POWER_CAP)
    if is_heard_first:
        model.handle(news)
    model.read()
    if not is_heard_first:
        model.handle(news)
    clock.now_s += 30  # the painter is slow
    details, of_both = (chosen_details(model, *rows) for rows in ([GPU_1], [RowKey("", "GPU-0"), GPU_1]))
    legend = {panel.key: panel.curves[-1].value_text for panel in of_both.plots.panels}
    frame = (
        model.summary(),
        host_state(model.host("")).text,
        model.cells(GPU_1)[1].text,
        model.cells(GPU_1)[3].text,
        details.state.text,
        legend["power_mw"],
    )
    if is_heard_first:
        power, states = "332", ("2 GPUs · 1 throttled", "1 throttled", "Throttled: power cap")
    else:
        power, states = "192", ("2 GPUs", "Busy", "Busy")
    assert frame == (*states, f"{power}{NBSP}W", states[-1], f"{power}{NBSP}W")
    assert details.is_current, "then"
    model.read()
    assert model.summary() == "2 GPUs · 2 not read", "now"


def test_a_row_that_goes_between_two_frames_is_there_until_the_next() -> None:
    model, _ = model_of(machine(2), sample("GPU-1"))
    model.update([HostState(name="gpu0", stage="connected")])
    model.read()
    model.handle(machine(1))
    model.update([])
    model.fold("gpu0", folded=True)
    keys = [*(RowKey("", device) for device in (None, "GPU-0", "GPU-1", HOST)), RowKey("gpu0")]
    assert [place for place in model.layout() if model.cells(place)] == keys
    assert row(model, RowKey("", "GPU-0"))["device"] == "GPU 0 · H200"
    assert model.layout() == [RowKey("", "GPU-0"), RowKey("", HOST)]


class TwoThreads(Clock):
    """A clock in which one thread meets another: the first time `early` asks, it lets `late` begin and try to end."""

    early: threading.Thread
    late: threading.Thread
    is_met = True

    def __call__(self) -> float:
        if not self.is_met and threading.current_thread() is self.early:
            self.is_met = True
            self.late.start()
            self.late.join(0.1)
        return self.now_s


@pytest.mark.parametrize("is_heard_first", [True, False])
def test_a_frame_has_what_another_thread_says_whole_or_not_at_all(is_heard_first: bool) -> None:
    clock = TwoThreads()
    model = MonitorModel(clock=clock)
    handle_all(model, [machine(1), sample("GPU-0")])
    lost = DeviceLost(t_ns=1, device="GPU-0", reason="it fell")
    threads = [threading.Thread(target=model.handle, args=(lost,)), threading.Thread(target=model.read)]
    clock.early, clock.late = threads if is_heard_first else threads[::-1]
    clock.is_met = False
    clock.early.start()
    clock.early.join()
    clock.late.join()
    readings = model.host("").readings_of("GPU-0")
    frame = bool(readings.loss), readings.lost_s is not None, readings.sample is None
    assert frame == (is_heard_first,) * 3
    model.read()
    readings = model.host("").readings_of("GPU-0")
    assert readings.loss == "it fell"
    assert readings.at(model.clock) == replace(readings, clock=model.clock), "nothing is left out"


def test_several_rows_have_their_figures_together_and_a_curve_each() -> None:
    cpu = msgspec.structs.replace(HOST_DEVICE, absent={"power_mw": "not supported"})
    known = msgspec.structs.replace(machine(8), devices=(cpu, *machine(8).devices[1:]))
    model, clock = model_of(known, *(sample(f"GPU-{n}", power_mw=100_000 * n, temperature_c=n) for n in range(8)))
    model.handle(Processes(t_ns=1, device="GPU-7", processes=(GpuProcess(pid=7, name="python3", user="ann"),)))
    model.handle(sample(HOST, 30.0))
    model.update([HostState(name="gpu0", stage="connected")])
    model.handle(machine(1), "gpu0")
    model.handle(sample("GPU-0", power_mw=50_000), "gpu0")
    clock.now_s += 1
    model.tick()
    model.read()
    here = [RowKey("", "GPU-1"), RowKey("", "GPU-7")]
    both = chosen_details(model, *here)
    assert (both.title, both.subtitle) == ("2 GPUs", "GPU 1, GPU 7")
    assert list(both.metrics)[1:2] == [("Total power", f"800{NBSP}W")]
    assert both.processes[0][0] == "GPU 7"
    curves = {panel.key: [(curve.label, curve.mark) for curve in panel.curves] for panel in both.plots.panels}
    assert curves["power_mw"] == [("GPU 1", "1"), ("GPU 7", "7")]
    mixed = chosen_details(model, *here, RowKey("", HOST))
    assert (mixed.title, mixed.state.text) == ("3 devices", "Busy")
    drawn = {panel.title: tuple(curve.label for curve in panel.curves) for panel in mixed.plots.panels}
    assert drawn == {
        **dict.fromkeys(("Load", "Power", "Memory", "Temperature"), ("GPU 1", "GPU 7")),
        **dict.fromkeys(("CPU load", "Host memory"), ("CPU",)),
    }
    assert len({panel.key for panel in mixed.plots.panels}) == 6
    apart = chosen_details(model, RowKey("", "GPU-0"), RowKey("gpu0"))
    (first, second) = apart.plots.panels[1].curves
    assert (first.label, second.label) == ("This machine GPU 0", "gpu0 GPU 0")
    assert first.key != second.key
    assert first.colour != second.colour
    assert second.y.tolist() == [50_000.0 / 1e3]
    whole = chosen_details(model, RowKey(""), RowKey("", "GPU-1"))
    assert whole.title == "8 GPUs", "one that is chosen twice counts once"


def test_without_a_gpu_there_are_no_columns_that_stay_empty() -> None:
    fields = {name: FieldInfo(unit="") for name in ("load_pct", "memory_bytes")}
    cpu = msgspec.structs.replace(HOST_DEVICE, fields=fields)
    model, _ = model_of(msgspec.structs.replace(CPU_INVENTORY, devices=(cpu,)))
    assert len(layout_of(model)) == 1
    assert list(model.columns()) == ["device", "state", "load_pct", "memory_bytes"]
    assert len(model.cells(RowKey("", HOST))) == 4
    model.handle(msgspec.structs.replace(machine(1), devices=(cpu, *machine(1).devices[1:])))
    assert layout_of(model)
    assert {"power_mw", "temperature_c", "processes"} < set(model.columns())
