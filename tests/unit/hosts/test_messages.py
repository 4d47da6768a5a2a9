"""The lines of a host: every event comes back as it was, and what is none is one sentence."""

from typing import get_args

import msgspec
import pytest

from app.hosts.messages import decode_report
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted, Summary
from app.values.fields import SlowSample
from app.values.samples import Device, DeviceLost, FieldInfo, FieldsUpdated, LogLine, TelemetryGap, Waiting
from tests.fakes.runs import BLOCKS, EPOCHS, EVIDENCE, GPU, HOST_DEVICE, PHASES, SAMPLES, SPEC
from workloads.protocol import (
    MOST_MESSAGE_BYTES,
    Calibration,
    DataReady,
    EnvironmentInfo,
    Flops,
    Progress,
    ProtocolError,
    encode,
)

EVENTS: list[RunEvent] = [
    Waiting(1, "It waits."),
    RunStarted(uid="ab12cd34", spec=SPEC, t_ns=2, utc_ns=3, devices=(GPU, HOST_DEVICE), environment={"os": "Debian"}),
    *PHASES,
    EnvironmentInfo(environment={"keras": "3.15.1"}),
    Progress(phase="measure", fraction=0.5, t_ns=4),
    *BLOCKS,
    *EPOCHS,
    *SAMPLES,
    SlowSample(t_ns=5, device="GPU-1", energy_mj=77),
    DataReady(steps=1, time_ns=5),
    Flops(per_step=6),
    Calibration(device="GPU-1", precision="tf32", flops_per_s=1e12, size=4096),
    EVIDENCE,
    LogLine(7, "a line"),
    DeviceLost(t_ns=8, device="GPU-1", reason="It fell off the bus."),
    FieldsUpdated(device="GPU-1", fields={"power_mw": FieldInfo(unit="mW")}),
    TelemetryGap(t_ns=9, reason="The sampler ended."),
    RunEnded(
        t_ns=10,
        outcome=Outcome(name="failed", reason="It failed.", exit_code=-9, ended_by="killed"),
        summary=Summary(allocator_peak_bytes=77),
    ),
]


def test_every_event_comes_back_as_it_was() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(RunEvent)), "every kind is tried"
    assert [decode_report(encode(event)) for event in EVENTS] == EVENTS


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"type":"unheard_of"}\n', "not a report of this program"),
        (b"[" * 1_000_000 + b"\n", "not a report of this program"),
        (b'{"type":"log_line","t_ns":' + b"9" * 400 + b',"text":"x"}\n', "not a report of this program"),
        (b'{"type":"log_line","t_ns":1,"text":"' + b"x" * MOST_MESSAGE_BYTES + b'"}\n', "more than"),
    ],
)
def test_what_is_no_report_is_one_sentence(line: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        decode_report(line)
    assert len(str(caught.value)) < 1_000
    assert "\n" not in str(caught.value)


def test_the_host_may_have_any_device() -> None:
    device = msgspec.structs.replace(GPU, name="\u0416 \U0001f600")
    started = RunStarted(uid="ab12cd34", spec=SPEC, t_ns=2, utc_ns=3, devices=(device,))
    again = decode_report(encode(started))
    assert isinstance(again, RunStarted)
    assert again.devices == (device,)
    assert isinstance(again.devices[0], Device)
