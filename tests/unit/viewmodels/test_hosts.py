"""Hosts as the window shows them: their state in words, and the choice in the form."""

import pytest

from app.values.samples import HOST, Device, Inventory
from app.viewmodels.hosts import (
    MANAGE,
    HostState,
    describe_absence,
    describe_stage,
    host_field,
    host_line,
    host_machine,
)
from workloads.catalog import Gpu, Machine

CONNECTED = HostState(name="gpu1", stage="connected")
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
        (CONNECTED, "connected", "good"),
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
    assert field.note == "1× H200 · driver 580 · connected"
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
    assert describe_absence(lost)[1].endswith("ssh was killed. The plots end with its last reading.")
    assert describe_absence(silent)[1] == "Its last reading came 1\u00a0min ago; the plots end there."
    assert describe_absence(CONNECTED) == ("", "")


def test_a_host_is_two_lines_in_their_list() -> None:
    assert host_line("gpu1", "ssh://gpu1", CONNECTED, INVENTORY) == "gpu1   ssh://gpu1\nconnected · 1× H200"
    assert host_line("gpu1", "ssh://gpu1", HostState(name="gpu1"), None) == "gpu1   ssh://gpu1\nnot connected"
