"""Runs as a timeline in the Trace Event Format: what its viewers need of a file, and what the database holds."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from app.analysis.comparability import ClockEvent
from app.errors import UserError
from app.report.trace import export_trace
from app.storage.store import Store
from app.storage.transfer.progress import StoppedError, TransferProgress
from app.values.events import Outcome, Summary
from app.values.fields import Sample, SlowSample
from app.values.samples import LogLine
from tests.fakes.reference import copy_reference
from tests.fakes.runs import GPU, HOST_DEVICE, UTC_NS, S, begin, keep
from workloads.catalog import own_variant
from workloads.kernels import KernelClass
from workloads.protocol import Block

Event = dict[str, Any]
REQUIRED = {"X": {"ts", "dur", "cat"}, "i": {"ts", "s"}, "C": {"ts", "args"}, "M": {"args"}}
"""What an event needs beside its name, its kind and where it stands, by its kind."""


@pytest.fixture
def stored(database_path: Path) -> Path:
    """Two runs that ended, the first with values that JSON has no words for and clocks held back."""
    with Store.open(database_path) as store:
        run = keep(store)
        keep(store, uid="uid-2")
        reasons = (
            ClockEvent.IDLE,
            ClockEvent.POWER_CAP,
            ClockEvent.POWER_CAP | ClockEvent.IDLE,
            0,
            ClockEvent.SYNC_BOOST,
        )
        store.write(
            run,
            [
                *(
                    Sample(t_ns=4 * S + n * S // 10, device=GPU.device, throttle_reasons=int(mask))
                    for n, mask in enumerate(reasons, 1)
                ),
                SlowSample(t_ns=4 * S, device=GPU.device, energy_mj=7_500, tensor_active_pct=93.5),
                Block(phase="measure", first_step=9, steps=1, examples=8, start_ns=5 * S, end_ns=6 * S, loss=math.inf),
            ],
        )
    return database_path


def events_of(database: Path, runs: Sequence[int], target: Path) -> list[Event]:
    """The events of a file that was written, which is JSON as RFC 8259 has it."""
    export_trace(database, runs, target)

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    document = json.loads(target.read_text(encoding="utf-8"), parse_constant=refuse)
    assert document["displayTimeUnit"] == "ms"
    events: list[Event] = document["traceEvents"]
    return events


def named(events: Iterable[Event], name: str, kind: str) -> list[Event]:
    return [event for event in events if event["name"] == name and event["ph"] == kind]


def check_viewable(events: Sequence[Event]) -> None:
    """Every event has what its kind needs, threads are known by their number alone, and slices never overlap."""
    processes = defaultdict(set)
    slices = defaultdict(list)
    for event in events:
        assert {"name", "ph", "pid", "tid"} | REQUIRED[event["ph"]] <= event.keys()
        exact = (int, float) if event["ph"] == "X" and event["cat"] in get_args(KernelClass) else int
        assert all(
            isinstance(event[key], exact) and event[key] >= 0 for key in ("ts", "dur", "pid", "tid") if key in event
        ), event
        processes[event["tid"]].add(event["pid"])
        if event["ph"] == "X":
            slices[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] == "C":
            assert all(math.isfinite(value) for value in event["args"].values())
    assert all(len(of) == 1 for of in processes.values())
    for of_thread in slices.values():
        open_ends: list[int] = []
        # As viewers do: by start, those that enclose others first, which is the file's order where they start together.
        for start, end in sorted(of_thread, key=lambda each: each[0]):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_a_run_is_a_process_with_phases_and_blocks_within_it(stored: Path, tmp_path: Path) -> None:
    events = events_of(stored, [2], tmp_path / "one.json")
    check_viewable(events)
    process, _ = named(events, "process_name", "M")
    assert process["args"] == {"name": "run 2 · cnn10 TensorFlow Native NCHW · 1 GPU · batch 1024 · TF32 · XLA"}
    main = [event for event in events if event["ph"] == "X" and event["tid"] == 2]
    assert [(event["name"], event["cat"], event["ts"], event["ts"] + event["dur"]) for event in main] == [
        ("run 2", "run", 0, 5_500_000),
        ("compile", "phase", 500_000, 2_500_000),
        ("measure", "phase", 2_500_000, 5_500_000),
        ("block", "block", 500_000, 2_500_000),
        ("block", "block", 2_500_000, 3_500_000),
        ("block", "block", 3_500_000, 5_500_000),
    ]
    assert [event["args"] for event in main[3:5]] == [
        {"first_step": 0, "steps": 1, "examples": 8, "images/s": 4.0, "loss": 2.5, "measured": False},
        {"first_step": 1, "steps": 4, "examples": 32, "images/s": 32.0, "measured": True},
    ]
    epochs = [
        event["args"]["accuracy"] for event in events if event["ph"] == "X" and event["name"].startswith("epoch ")
    ]
    assert epochs == [0.5, 0.75, 0.7]


def test_the_run_s_slice_says_what_ran_on_what_and_how_it_ended(stored: Path, tmp_path: Path) -> None:
    with Store.open(stored) as store:
        store.add_environment(2, {"own_source": "def mine(): ..."})
        run = store.load(2)
    (details,) = (event["args"] for event in named(events_of(stored, [2], tmp_path / "one.json"), "run 2", "X"))
    assert (details["variant"], details["outcome"], details["reason"]) == (
        own_variant(run.row.spec),
        "failed",
        "It failed.",
    )
    assert details["devices"] == {"GPU 0": GPU.name, "Host": HOST_DEVICE.name}
    assert details["environment"] == {"tensorflow": "2.21.0", "cpu": "A processor", "keras": "3.15.1"}
    assert (details["uid"], details["match"]) == ("uid-2", False)


def test_fields_are_counters_by_device_in_a_reader_s_units_and_what_is_absent_is_left_out(
    stored: Path, tmp_path: Path
) -> None:
    events = events_of(stored, [1], tmp_path / "one.json")
    check_viewable(events)
    counters = defaultdict(list)
    for event in events:
        if event["ph"] == "C":
            counters[event["name"]].append((event["ts"], event["args"]))
    assert counters == {
        "Throughput": [
            (500_000, {"images/s": 4.0}),
            (2_500_000, {"images/s": 32.0}),
            (3_500_000, {"images/s": 16.0}),
            (4_500_000, {"images/s": 8.0}),
        ],
        "Loss": [(2_500_000, {"of the last step": 2.5})],
        "GPU 0 · Power": [(2_500_000, {"W": 688.123})],
        "GPU 0 · Load": [(2_500_000, {"%": 99.0}), (3_500_000, {"%": 0.0})],
        "GPU 0 · Memory": [(2_500_000, {"bytes": 4e9})],
        "GPU 0 · Energy counter": [(3_500_000, {"J": 7.5})],
        "GPU 0 · Tensor cores active": [(3_500_000, {"%": 93.5})],
        "Host · CPU load": [(2_500_000, {"%": 12.5})],
        "Host · Worker load": [(2_500_000, {"%": 100.0})],
        "Host · Worker memory": [(2_500_000, {"bytes": 1000.0})],
    }


def test_stretches_of_held_back_clocks_are_slices_of_their_own_thread(stored: Path, tmp_path: Path) -> None:
    events = events_of(stored, [1], tmp_path / "one.json")
    held = [event for event in events if event.get("cat") == "clock_event"]
    assert [(event["name"], event["ts"], event["dur"]) for event in held] == [
        ("power cap", 3_700_000, 200_000),
        ("sync boost", 4_000_000, 0),
    ]
    threads = {event["tid"]: event["args"]["name"] for event in named(events, "thread_name", "M")}
    assert {threads[event["tid"]] for event in held} == {"GPU 0 throttled"}


def test_lines_of_the_log_and_a_device_s_end_are_instants(stored: Path, tmp_path: Path) -> None:
    with Store.open(stored) as store:
        store.write(1, [LogLine(3 * S, '"quoted" · \x1b[1m')], first_log_line=2)
    instants = [event for event in events_of(stored, [1], tmp_path / "one.json") if event["ph"] == "i"]
    assert [(event["name"], event["ts"], event["s"]) for event in instants] == [
        ("GPU 0 stopped answering", 4_500_000, "p"),
        ("first line", 1_500_000, "t"),
        ("zweite Zeile · 二", 1_500_000, "t"),
        ('"quoted" · \x1b[1m', 2_500_000, "t"),
    ]


def test_the_kernels_of_one_step_are_on_the_streams_of_a_gpu_at_the_step_s_time(stored: Path, tmp_path: Path) -> None:
    events = events_of(stored, [1], tmp_path / "a.json")
    check_viewable(events)
    (gpu,) = (each for each in named(events, "process_name", "M") if each["args"]["name"].endswith("one traced step"))
    assert gpu["args"]["name"] == "run 1 · GPU:0 · one traced step"
    threads = {
        each["tid"]: each["args"]["name"] for each in named(events, "thread_name", "M") if each["pid"] == gpu["pid"]
    }
    assert list(threads.values()) == ["Step", "Stream #13(Compute)", "Stream #20(nccl)"]
    step, *kernels = (each for each in events if each["ph"] == "X" and each["pid"] == gpu["pid"])
    assert (step["ts"], step["dur"], step["args"]) == (4_500_000, 250, {"kernels": 3, "kernels_left_out": 2})
    assert [(threads[each["tid"]], each["cat"], each["ts"] - step["ts"], each["dur"]) for each in kernels] == [
        ("Stream #13(Compute)", "convolution", 0, 150),
        ("Stream #20(nccl)", "pointwise", 100, 20),
        ("Stream #13(Compute)", "pointwise", 200, 30),
    ]
    assert (kernels[0]["name"], kernels[0]["args"]) == ("sm90_xmma_fprop_tf32f32", {"occupancy_pct": 12.5})


def test_several_runs_are_processes_in_the_order_asked_for_that_start_together(stored: Path, tmp_path: Path) -> None:
    events = events_of(stored, [2, 1], tmp_path / "two.json")
    check_viewable(events)
    order = {event["pid"]: event["args"]["sort_index"] for event in named(events, "process_sort_index", "M")}
    assert list(order.values()) == [0, 0, 1, 1], "each with the step of its GPU behind it"
    assert (order[2], order[1]) == (0, 1)
    assert [event["ts"] for event in events if event.get("cat") == "run"] == [0, 0]


def test_a_run_that_never_began_is_a_timeline_too(stored: Path, tmp_path: Path) -> None:
    with Store.open(stored) as store:
        run = begin(store, uid="refused")
        store.finish(run, outcome=Outcome(name="refused", reason="No."), summary=Summary(), t_ns=S, utc_ns=UTC_NS + S)
    events = events_of(stored, [run], tmp_path / "refused.json")
    check_viewable(events)
    (run_slice,) = (event for event in events if event["ph"] == "X")
    assert (run_slice["ts"], run_slice["dur"], run_slice["args"]["outcome"]) == (0, 0, "refused")


def test_runs_of_real_gpus_have_every_sample_in_their_file(tmp_path: Path) -> None:
    database = tmp_path / "h200.db"
    copy_reference("cnn", database)
    with Store.open(database) as store:
        runs = [row.run for row in store.list_runs() if row.spec.variant["gpus"] == 2][:2]
        loaded = [store.load(run) for run in runs]
    assert len(runs) == 2
    target = tmp_path / "h200.json"
    events = events_of(database, runs, target)
    check_viewable(events)
    assert target.stat().st_size < 3_000_000
    counted = Counter((event["pid"], event["name"]) for event in events if event["ph"] == "C")
    for run in loaded:
        gpu = run.samples[0]
        assert counted[run.row.run, "GPU 0 · Power"] == gpu.t_ns.size > 100
        assert counted[run.row.run, "Throughput"] == run.blocks.steps.size


def test_a_run_that_goes_on_is_not_exported_and_a_stopped_export_leaves_nothing(stored: Path, tmp_path: Path) -> None:
    with Store.open(stored) as store:
        begin(store, uid="uid-3")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match="Run 3 is still in progress"):
        export_trace(stored, [1, 3], tmp_path / "out.json")
    with pytest.raises(StoppedError):
        export_trace(stored, [1, 2], tmp_path / "out.json", TransferProgress(should_stop=lambda: True))
    assert sorted(tmp_path.iterdir()) == before
    shares: list[float] = []
    export_trace(stored, [1, 2], tmp_path / "out.json", TransferProgress(report=shares.append))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
