"""Hosts as the window shows them: their state in words, the choice in the form, and Monitor's list."""

import pytest

from app.fields import Sample
from app.samples import HOST, Device, DeviceLost, Inventory
from app.viewmodels.hosts import (
    MANAGE,
    HostState,
    describe_absence,
    describe_address,
    describe_stage,
    host_cells,
    host_field,
    host_machine,
)
from app.viewmodels.monitor_hosts import DeviceLine, HostLine, HostsModel
from workloads.catalog import Gpu, Machine

CONNECTED = HostState(name="gpu1", stage="connected", round_trip_ms=12.34)
GPU = Gpu(index=0, uuid="GPU-0", name="NVIDIA H200", compute_capability=(9, 0))
DEVICES = (
    Device(device=HOST, kind="host", index=-1, name="A processor"),
    Device(device="GPU-0", kind="gpu", index=0, name="NVIDIA H200", memory_total_bytes=2**37),
)
INVENTORY = Inventory(machine=Machine(gpus=(GPU,)), devices=DEVICES, driver="580.1")


@pytest.mark.parametrize(
    ("state", "words", "tone"),
    [
        (HostState(name="gpu1"), "not connected", "quiet"),
        (HostState(name="gpu1", stage="connecting"), "connecting …", "busy"),
        (CONNECTED, "connected, 12.3\u00a0ms", "good"),
        (HostState(name="gpu1", stage="connected", silent_s=7.9), "silent for 7\u00a0s", "warning"),
        (HostState(name="gpu1", stage="lost", text="It fell."), "lost", "bad"),
        (HostState(name="gpu1", stage="failed", text="No route."), "not reached", "bad"),
    ],
)
def test_a_connection_is_a_word_or_two(state: HostState, words: str, tone: str) -> None:
    assert describe_stage(state) == (words, tone)


def test_the_form_offers_this_machine_all_hosts_and_their_dialog() -> None:
    only = host_field("", (), None)
    assert [(option.value, option.label) for option in only.options] == [("", "This machine"), (MANAGE, "Add host …")]
    states = (CONNECTED, HostState(name="gpu2", stage="failed", text="gpu2 refuses the connection."))
    field = host_field("gpu1", states, INVENTORY)
    assert [option.label for option in field.options] == ["This machine", "gpu1", "gpu2", "Hosts …"]
    assert (field.value, field.problem) == ("gpu1", False)
    assert field.note == "1× H200 · driver 580 · connected, 12.3\u00a0ms"
    failed = host_field("gpu2", states, None)
    assert (failed.note, failed.problem) == ("gpu2 refuses the connection.", True)
    by_address = host_field("ssh://gpu9", states, None)
    assert by_address.value in [option.value for option in by_address.options]
    assert host_field("", states, None).note == ""


def test_the_head_and_the_plots_say_what_is_wrong_with_the_link() -> None:
    assert host_machine(CONNECTED, INVENTORY)[:2] == ("gpu1 · 1× H200 · driver 580", "good")
    silent = HostState(name="gpu1", stage="connected", silent_s=65.0)
    assert host_machine(silent, INVENTORY)[:2] == ("gpu1 · silent for 1\u00a0min", "warning")
    assert host_machine(HostState(name="gpu1", stage="connecting"), None)[:2] == ("gpu1 · connecting …", "muted")
    lost = HostState(name="gpu1", stage="lost", text="The link to gpu1 is lost: ssh was killed.")
    assert host_machine(lost, INVENTORY)[:2] == ("gpu1 · lost", "bad")
    assert describe_absence(lost)[1].endswith("ssh was killed. The plots end where it was last heard.")
    assert describe_absence(silent)[1] == "It was last heard 1\u00a0min ago; the plots end there."
    assert describe_absence(CONNECTED) == ("", "")


def test_an_address_is_explained_and_a_host_has_a_cell_a_column() -> None:
    assert "Your own ssh connects to ssh://me@gpu1" in describe_address("ssh", "ssh://me@gpu1")
    assert "agent there" not in describe_address("sh", "sh:")
    cells = host_cells("gpu1", "ssh://gpu1", CONNECTED, INVENTORY, "")
    assert [cell.text for cell in cells] == ["gpu1", "ssh://gpu1", "connected, 12.3\u00a0ms", "1× H200", "none"]


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def model(*states: HostState) -> tuple[HostsModel, Clock]:
    clock = Clock()
    made = HostsModel(clock)
    made.update(states)
    return made, clock


def sample(load_pct: float, device: str = "GPU-0") -> Sample:
    return Sample(t_ns=1, device=device, load_pct=load_pct, power_mw=500_000, memory_bytes=2**36, temperature_c=60)


def test_a_host_has_a_line_and_one_for_each_gpu() -> None:
    shown, clock = model(CONNECTED)
    shown.handle("gpu1", INVENTORY)
    shown.handle("gpu1", sample(80.0))
    shown.handle("gpu1", sample(10.0, HOST))
    assert shown.layout() == [("gpu1", None), ("gpu1", 0)]
    head, gpu = (shown.line(*place) for place in shown.layout())
    assert isinstance(head, HostLine)
    assert isinstance(gpu, DeviceLine)
    assert (head.machine, head.load_pct, head.age, head.is_stale) == ("1× H200", 80.0, "now", False)
    assert (gpu.label, gpu.load, gpu.power, gpu.temperature) == ("GPU 0", "80\u00a0%", "500\u00a0W", "60\u00a0°C")
    assert shown.summary() == "1 of 1 host connected · 1 GPU"
    clock.now_s += 30
    stale = shown.line("gpu1", None)
    assert isinstance(stale, HostLine)
    assert (stale.age, stale.is_stale) == ("data 30\u00a0s old", True)
    shown.handle("gpu1", DeviceLost(t_ns=2, device="GPU-0", reason="It fell off the bus."))
    lost = shown.line("gpu1", 0)
    assert isinstance(lost, DeviceLine)
    assert lost.lost == "It fell off the bus."


def test_loads_of_the_last_minute_are_kept_once_a_second() -> None:
    shown, _ = model(CONNECTED)
    shown.handle("gpu1", INVENTORY)
    for turn in range(70):
        shown.handle("gpu1", sample(float(turn)))
        shown.tick()
    line = shown.line("gpu1", 0)
    assert isinstance(line, DeviceLine)
    assert list(line.history) == [float(turn) for turn in range(10, 70)]


def test_hosts_are_ordered_by_load_and_those_away_come_last_with_their_reason() -> None:
    away = HostState(name="gpu2", stage="lost", text="The link to gpu2 is lost.")
    shown, _ = model(CONNECTED, away, HostState(name="gpu3", stage="connected"))
    for host, load in (("gpu1", 5.0), ("gpu3", 95.0), ("gpu2", 50.0)):
        shown.handle(host, INVENTORY)
        shown.handle(host, sample(load))
    assert shown.hosts == ("gpu1", "gpu2", "gpu3")
    shown.sort("load")
    assert shown.hosts == ("gpu3", "gpu1", "gpu2")
    line = shown.line("gpu2", None)
    assert isinstance(line, HostLine)
    assert (line.problem, line.load_pct, line.can_connect, line.age) == ("The link to gpu2 is lost.", None, True, "")


def test_of_many_hosts_only_their_own_lines_are_shown_until_they_are_unfolded() -> None:
    shown, _ = model(*(HostState(name=f"gpu{n}", stage="connected") for n in range(200)))
    for number in range(200):
        shown.handle(f"gpu{number}", INVENTORY)
    assert len(shown.layout()) == 200
    shown.fold("gpu7")
    assert len(shown.layout()) == 201
    shown.fold(None, folded=False)
    assert len(shown.layout()) == 400
    shown.fold(None, folded=True)
    assert len(shown.layout()) == 200
