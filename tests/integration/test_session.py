"""Whole runs with real workers: every way they can end, what is told meanwhile, and what is stored afterwards."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from app.crash import new_reports
from app.report.documents import run_document
from app.runs.host import WorkerTimeouts
from app.runs.session import RunSession
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.events import Outcome, RunEnded, RunEvent, RunStarted
from app.values.fields import Sample, SlowSample
from app.values.samples import FieldsUpdated, LogLine, Waiting
from tests.fakes.experiments import header_of
from tests.fakes.sessions import (
    HELLO,
    LIMIT_S,
    PATIENT,
    dummy,
    going,
    is_measured,
    run_through,
    services,
    started_feed,
    with_values,
)
from tests.present import present
from workloads.protocol import Block, PhaseStarted, Progress

ROOT = Path(__file__).parents[2]
PHASES = ["import", "build", "compile", "warmup", "measure", "finish"]


@pytest.fixture(scope="module")
def feed() -> Iterator[TelemetryFeed]:
    with started_feed() as feed:
        feed.wait_inventory()
        yield feed


def other_worker(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", HELLO + code)


def event_names(events: list[RunEvent]) -> list[str]:
    """The events but telemetry, log and progress: kinds, with the phase where there is one; equal ones once."""
    words: list[str] = []
    for event in events:
        if not isinstance(event, Sample | SlowSample | FieldsUpdated | LogLine | Progress):
            word = f"{type(event).__name__} {getattr(event, 'phase', '')}".strip()
            words += [word] if words[-1:] != [word] else []
    return words


def test_a_completed_run_is_told_in_order_and_stored_as_it_was_told(tmp_path: Path, feed: TelemetryFeed) -> None:
    spec = dummy(feed.wait_inventory(), steps=1000)
    outcome, recorder, stored = run_through(spec, services(tmp_path, feed))
    assert outcome == Outcome(name="completed", exit_code=0, ended_by="itself")
    assert event_names(recorder.events) == [
        "RunStarted",
        "PhaseStarted import",
        "PhaseStarted build",
        "PhaseStarted compile",
        "Block compile",
        "PhaseStarted warmup",
        "Block warmup",
        "PhaseStarted measure",
        "Block measure",
        "PhaseStarted finish",
        "RunEnded",
    ]
    (started,), (ended,) = recorder.of(RunStarted), recorder.of(RunEnded)
    assert (started.run, started.spec, ended.run, ended.outcome) == (stored.row.run, spec, stored.row.run, outcome)
    summary = stored.row.summary
    assert (stored.row.outcome, summary) == (outcome, ended.summary)
    assert [phase.name for phase in stored.phases] == PHASES
    assert all(phase.end_ns is not None for phase in stored.phases)
    blocks = recorder.of(Block)
    assert stored.blocks.first_step.tolist() == [block.first_step for block in blocks]
    assert stored.blocks.end_ns.tolist() == [block.end_ns for block in blocks]
    measured = [block.steps for block in blocks if is_measured(block)]
    assert sum(measured) == 1000
    assert summary.measured_steps == sum(measured[summary.blocks_cut or 0 :])
    (host,) = stored.samples
    assert host.t_ns.tolist() == [sample.t_ns for sample in recorder.of(Sample)]
    assert stored.anchor_t_ns < stored.blocks.start_ns[0] < host.t_ns[-1], "one clock"
    assert 0 < present(summary.throughput) < 8 * 1000, "8 examples in a step that sleeps 1 ms"
    assert present(summary.loss_last) < present(summary.loss_first)
    assert (summary.energy_mj_per_example, summary.mean_power_mw) == (None, None), "no GPU, no energy"
    assert {"cpu", "os", "program_version", "kernel"} <= set(stored.environment)


@pytest.mark.parametrize("gpus", [0, 64], ids=["completed", "refused"])
def test_a_session_hands_on_the_run_as_it_is_stored(tmp_path: Path, feed: TelemetryFeed, gpus: int) -> None:
    used = services(tmp_path, feed)
    session = RunSession(dummy(feed.wait_inventory(), gpus=gpus), used)
    session.run()
    assert session.stored is not None
    with Store.open(used.database) as store:
        stored = store.load(session.stored.row.run)
    assert run_document(session.stored) == run_document(stored)
    assert header_of(session.stored) == header_of(stored)
    assert session.stored.phases == stored.phases


@pytest.mark.parametrize(
    ("behaviour", "name", "reason", "exit_code"),
    [
        ("fail", "failed", "ValueError: the dummy fails, as asked", 0),
        ("out_of_memory", "out_of_memory", "Memory ran out at batch size 8; try a smaller batch size.", 0),
        ("not_finite", "failed", "The loss was nan after step", 0),
        ("kill_self", "crashed", "The worker was killed (SIGKILL)", -signal.SIGKILL),
    ],
)
def test_a_bad_end_is_told_and_keeps_what_was_measured(
    tmp_path: Path, feed: TelemetryFeed, behaviour: str, name: str, reason: str, exit_code: int
) -> None:
    outcome, recorder, stored = run_through(dummy(feed.wait_inventory(), behaviour), services(tmp_path, feed))
    assert (outcome.name, outcome.exit_code, outcome.ended_by) == (name, exit_code, "itself")
    assert present(outcome.reason).startswith(reason)
    assert stored.row.outcome == outcome
    assert stored.blocks.steps.tolist()[:2] == [1, 1]
    assert [phase.name for phase in stored.phases] == PHASES[: len(stored.phases)]
    assert stored.row.ended_utc_ns is not None
    assert isinstance(recorder.events[-1], RunEnded)


def test_a_crashed_run_leaves_a_report_with_its_log(
    tmp_path: Path, feed: TelemetryFeed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("VARIANTSCOPE_LOG_DIR", str(tmp_path / "log"))
    caplog.set_level("INFO", "variantscope")
    run_through(dummy(feed.wait_inventory()), services(tmp_path, feed))
    assert new_reports() == []
    _, _, stored = run_through(dummy(feed.wait_inventory(), "kill_self"), services(tmp_path, feed))
    (report,) = new_reports()
    text = report.read_text(encoding="utf-8")
    assert text.startswith(f"Run {stored.row.run} crashed: The worker was killed (SIGKILL)")
    assert "End of the run's log:" in text
    said = [record.getMessage() for record in caplog.records if record.name == "variantscope.run"]
    assert [line.partition(":")[0] for line in said if line.startswith(("starts", "ended"))] == ["starts", "ended"] * 2


def test_what_cannot_run_here_is_refused_and_stored(tmp_path: Path, feed: TelemetryFeed) -> None:
    inventory = feed.wait_inventory()
    outcome, recorder, stored = run_through(dummy(inventory, gpus=64), services(tmp_path, feed))
    assert outcome.name == "refused"
    expected = "64 GPUs asked for" if inventory.machine.gpus else "This machine shows no NVIDIA GPU"
    assert (outcome.reason or "").startswith(expected)
    assert event_names(recorder.events) == ["RunStarted", "RunEnded"]
    assert (stored.row.outcome, stored.phases, stored.row.ended_utc_ns is None) == (outcome, (), False)


def test_a_clock_that_is_set_back_meanwhile_changes_no_duration(
    tmp_path: Path, feed: TelemetryFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time_ns

    class HourBack:
        def handle(self, event: RunEvent) -> None:
            if isinstance(event, PhaseStarted) and event.phase == "measure":
                monkeypatch.setattr("app.runs.host.time.time_ns", lambda: real() - 3600 * 10**9)

    outcome, _, stored = run_through(dummy(feed.wait_inventory()), services(tmp_path, feed), HourBack())
    row = stored.row
    assert outcome.name == "completed"
    assert row.ended_utc_ns is not None
    assert 0 < row.ended_utc_ns - row.started_utc_ns < LIMIT_S * 1e9
    assert stored.phases[-1].end_ns == stored.anchor_t_ns + row.ended_utc_ns - row.started_utc_ns


def test_garbage_goes_to_the_log_and_the_run_completes(tmp_path: Path, feed: TelemetryFeed) -> None:
    spec = dummy(feed.wait_inventory(), "print_garbage", steps=7)
    outcome, recorder, stored = run_through(spec, services(tmp_path, feed))
    assert outcome.name == "completed"
    texts = [line.text for line in stored.log]
    assert texts[0] == "garbage from Python"
    assert texts[1].startswith('{"type":"finished"')
    assert texts[2].endswith("garbage below Python")
    assert [line.text for line in recorder.of(LogLine)] == texts
    assert stored.row.summary.measured_steps == 7, "of so few blocks none is cut as a warm-up"


@pytest.mark.parametrize(
    ("behaviour", "limits", "ended_by", "exit_code"),
    [
        ("train", PATIENT, "closed stdin", 0),
        ("hang", msgspec.structs.replace(PATIENT, closed_stdin_s=0.3), "terminated", -signal.SIGTERM),
        (
            "ignore_stop",
            msgspec.structs.replace(PATIENT, closed_stdin_s=0.3, terminated_s=0.3),
            "killed",
            -signal.SIGKILL,
        ),
    ],
)
def test_stop_climbs_the_ladder_as_far_as_needed(
    tmp_path: Path, feed: TelemetryFeed, behaviour: str, limits: WorkerTimeouts, ended_by: str, exit_code: int
) -> None:
    spec = dummy(feed.wait_inventory(), behaviour, steps=1_000_000, warmup_steps=0)
    with going(spec, services(tmp_path, feed, limits=limits)) as run:
        run.recorder.wait(Block, is_measured)
        run.session.stop()
        outcome = run.result()
    assert (outcome.name, outcome.ended_by, outcome.exit_code) == ("stopped", ended_by, exit_code)
    with Store.open(tmp_path / "profiles.db") as store:
        (row,) = store.list_runs()
    assert row.outcome == outcome
    assert row.summary.measured_steps > 0


def test_stopping_twice_and_before_the_start_is_one_stop(tmp_path: Path, feed: TelemetryFeed) -> None:
    session = RunSession(dummy(feed.wait_inventory(), seconds=60.0, steps=0), services(tmp_path, feed))
    session.stop()
    session.stop()
    assert session.run().name == "stopped"


COUNTS = (
    "start = decode_start(sys.stdin.buffer.readline())\n"
    "print(start.calibrate, start.weights_path, file=sys.stderr, flush=True)\n"
    "say(Hello(protocol=PROTOCOL_VERSION, **hello)); begin('build'); say(Flops(per_step=123)); measure()\n"
    "if start.calibrate: say(Calibration(device='cpu', precision='float32', size=512, flops_per_s=4e9))\n"
    "end()"
)


def test_a_device_is_calibrated_once_and_every_run_knows_its_rate(tmp_path: Path, feed: TelemetryFeed) -> None:
    spec, both = dummy(feed.wait_inventory()), services(tmp_path, feed, command=other_worker(COUNTS))
    runs = [run_through(with_values(spec, evidence=how), both)[2] for how in ("off", "trace", "graph")]
    assert [run.log[0].text.split()[0] for run in runs] == ["False", "True", "False"]
    assert [run.row.summary.peak_flops_per_s for run in runs] == [None, 4e9, 4e9]
    assert {run.row.summary.flops_per_step for run in runs} == {123}


def test_half_a_processor_is_not_calibrated(tmp_path: Path, feed: TelemetryFeed) -> None:
    spec = with_values(dummy(feed.wait_inventory(), cpu_threads=1), evidence="trace")
    run = run_through(spec, services(tmp_path, feed, command=other_worker(COUNTS)))[2]
    assert (run.log[0].text, run.row.summary.peak_flops_per_s) == ("False None", None)


def test_weights_go_beside_the_database_under_the_run_s_own_name(tmp_path: Path, feed: TelemetryFeed) -> None:
    spec = with_values(dummy(feed.wait_inventory()), evidence="off", save_weights=True)
    run = run_through(spec, services(tmp_path, feed, command=other_worker(COUNTS)))[2]
    assert run.log[0].text == f"False {tmp_path}/profiles.db.weights/{run.row.uid}.npz"


def test_a_run_that_waits_says_so_once_and_can_be_stopped(tmp_path: Path, feed: TelemetryFeed) -> None:
    spec = dummy(feed.wait_inventory(), steps=0, seconds=600.0)
    both = services(tmp_path, feed)
    with going(spec, both) as first:
        first.recorder.wait(RunStarted)
        with going(spec, both) as second:
            second.recorder.wait(Waiting)
            second.session.stop()
            outcome = second.result()
        assert not first.outcomes, "the other goes on"
    assert outcome == Outcome(name="stopped", reason="Stopped by the user while it waited for a free device.")
    assert event_names(second.recorder.events) == ["Waiting", "RunStarted", "RunEnded"]
    with Store.open(both.database) as store:
        assert {row.outcome.name for row in store.list_runs() if row.outcome} == {"stopped"}


def test_the_terminal_s_interrupt_does_not_reach_the_worker(tmp_path: Path, feed: TelemetryFeed) -> None:
    with going(dummy(feed.wait_inventory(), steps=0, seconds=600.0), services(tmp_path, feed)) as run:
        run.recorder.wait(PhaseStarted)
        (worker,) = [child for child in psutil.Process().children() if "workloads.worker" in child.cmdline()]
        assert os.getpgid(worker.pid) != os.getpgid(0)
        worker.send_signal(signal.SIGINT)
        run.recorder.wait(Block, is_measured)
        assert worker.is_running()
