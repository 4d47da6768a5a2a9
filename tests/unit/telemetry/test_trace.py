"""A trace read again: what `watch --json` writes, what people write by hand, and what is no trace."""

import json
from pathlib import Path

import pytest

from app.errors import UserError
from app.fields import Sample, SlowSample
from app.report.documents import TelemetryMessage, device_lines, iso_utc, telemetry_line
from app.samples import HOST, Device, DeviceLost, GpuProcess, Inventory, Processes
from app.telemetry.replay import Replay, TraceStarted
from app.telemetry.trace import read_trace
from workloads.catalog import Machine

S = 1_000_000_000
START_NS, UTC_NS = 7_000 * S, 1_760_000_000 * S
GPU = Device(
    device="GPU-a",
    kind="gpu",
    index=0,
    name="NVIDIA H200",
    memory_total_bytes=150 * 10**9,
    absent={"fan_pct": "not supported"},
)
HERE = Device(device=HOST, kind="host", index=-1, name="Xeon", memory_total_bytes=2**36)
INVENTORY = Inventory(machine=Machine(cpu_count=32), devices=(GPU, HERE))
TELEMETRY: tuple[TelemetryMessage, ...] = (
    Sample(t_ns=START_NS, device="GPU-a", power_mw=600_000, load_pct=90.0),
    Sample(t_ns=START_NS + 1, device=HOST, load_pct=3.5),
    SlowSample(t_ns=START_NS + S, device="GPU-a", energy_mj=7),
    Processes(t_ns=START_NS + S, device="GPU-a", processes=(GpuProcess(pid=11, name="python"),)),
    Sample(t_ns=START_NS + 2 * S, device="GPU-a", power_mw=610_000),
    DeviceLost(t_ns=START_NS + 3 * S, device="GPU-a", reason="GPU is lost"),
)


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def by_watch(path: Path, inventory: Inventory, *telemetry: TelemetryMessage) -> Path:
    """As `watch --json` writes it."""
    head = device_lines(inventory, t_ns=START_NS - 1, utc=iso_utc(UTC_NS), source="live")
    lines = (telemetry_line(m, utc=iso_utc(UTC_NS + m.t_ns - START_NS), source="live") for m in telemetry)
    return written(path, *head, *lines)


def sample(t_ns: int, device: str = "card 1", **fields: object) -> dict[str, object]:
    return {"t_ns": t_ns, "utc": "2026-03-01T14:05:09Z", "device": device, **fields}


def test_what_watch_wrote_comes_back_whole(tmp_path: Path) -> None:
    trace = read_trace(by_watch(tmp_path / "night.jsonl", INVENTORY, *TELEMETRY))
    assert trace.inventory == INVENTORY
    assert (trace.name, trace.gpu_names) == ("night.jsonl", ("NVIDIA H200",))
    assert (trace.start_ns, trace.end_ns, trace.utc_ns) == (START_NS, START_NS + 3 * S, UTC_NS)
    timed = list(trace.events())
    assert timed[0].event == TraceStarted(t_ns=START_NS, devices=(GPU, HERE))
    assert tuple(each.event for each in timed[1:]) == TELEMETRY
    assert [each.t_ns for each in timed[1:]] == [message.t_ns for message in TELEMETRY]


def test_a_trace_is_played_like_a_run(tmp_path: Path) -> None:
    now_s = [0.0]
    replay = Replay(read_trace(by_watch(tmp_path / "a.jsonl", INVENTORY, *TELEMETRY)), clock=lambda: now_s[0])
    assert replay.devices == (GPU, HERE)
    assert [type(event) for event in replay.read()] == [TraceStarted, Sample]
    now_s[0] = 2.0
    assert len(replay.read()) == 4
    assert replay.next_s == pytest.approx(1.0)
    replay.restart()
    assert len(replay.read()) == 2


def test_a_trace_written_by_hand_needs_no_more_than_time_and_device(tmp_path: Path) -> None:
    lines = (sample(5), sample(5, kind="weather"), sample(6, "card 2", power_mw=1), sample(7, HOST, load_pct=1.0))
    trace = read_trace(written(tmp_path / "own.jsonl", *lines))
    devices = [(device.kind, device.index, device.name) for device in trace.inventory.devices]
    assert devices == [("gpu", 0, "card 1"), ("gpu", 1, "card 2"), ("host", -1, HOST)]
    assert trace.inventory.machine == Machine(cpu_count=0)
    assert len(list(trace.events())) == 4, "a kind of a later version is left out"


def test_readings_that_cannot_be_true_are_left_out(tmp_path: Path) -> None:
    garbage = sample(START_NS, power_mw=4_294_967_295, load_pct=50.0, worker_load_pct=-1.0)
    counter = {"kind": "slow_sample"}
    back = [sample(START_NS + n * S, energy_mj=energy_mj) | counter for n, energy_mj in enumerate((9, 8, 10), 1)]
    played = [each.event for each in read_trace(written(tmp_path / "t.jsonl", garbage, *back)).events()]
    fast, *slow = (each for each in played if isinstance(each, Sample | SlowSample))
    assert isinstance(fast, Sample)
    assert (fast.power_mw, fast.load_pct, fast.implausible) == (None, 50.0, ("power_mw",))
    assert [(each.energy_mj, each.implausible) for each in slow if isinstance(each, SlowSample)] == [
        (9, ()),
        (None, ("energy_mj",)),
        (10, ()),
    ]


def test_a_line_that_is_still_being_written_does_not_count(tmp_path: Path) -> None:
    path = by_watch(tmp_path / "going_on.jsonl", INVENTORY, *TELEMETRY)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"t_ns": 7003')
    assert read_trace(path).end_ns == START_NS + 3 * S


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "a.jsonl holds no telemetry, so there is nothing to replay."),
        ([sample(5), "hello"], "Line 2 of a.jsonl is no event of a trace (Expected `object`, got `str`)."),
        ([{"power": 3}], "Line 1 of a.jsonl is no event of a trace (Object missing required field `t_ns`)."),
        ([sample(5, power_mw="much")], "Line 1 of a.jsonl is no event of a trace (Expected `int | null`"),
        ([sample(5), sample(4)], "Line 2 of a.jsonl goes back in time: a trace holds one recording."),
    ],
)
def test_a_file_that_is_no_trace_is_one_sentence(tmp_path: Path, lines: list[object], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        read_trace(written(tmp_path / "a.jsonl", *lines))
    assert str(caught.value).startswith(sentence)


def test_an_exported_timeline_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"displayTimeUnit": "ms", "traceEvents": [\n{"name": "run 3"}\n]}')
    with pytest.raises(UserError, match=r"^This is a timeline for Perfetto; open it at ui\.perfetto\.dev\.$"):
        read_trace(tmp_path / "t.json")


def test_brackets_without_end_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "deep.jsonl").write_text(f'{{"t_ns": 1, "x": {"[" * 100_000}{"]" * 100_000}}}\n')
    with pytest.raises(UserError, match=r"^Line 1 of deep.jsonl is no event of a trace"):
        read_trace(tmp_path / "deep.jsonl")


def test_a_file_of_bytes_or_none_at_all_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    with pytest.raises(UserError, match=r"^Line 1 of picture.png is no event of a trace"):
        read_trace(tmp_path / "picture.png")
    with pytest.raises(
        UserError,
        match=r"gone.jsonl cannot be read \(No such file or directory\); put it back",
    ):
        read_trace(tmp_path / "gone.jsonl")
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\); "):
        read_trace(tmp_path)
