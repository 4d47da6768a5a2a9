"""Workers that say anything: whole runs end with an outcome, jobs with a result or one sentence."""

import itertools
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.cli.main import main
from app.report.documents import run_document
from app.runs import jobs
from app.runs.host import Host
from app.runs.jobs import JobError, run_job
from app.runs.launcher import Launcher
from app.runs.leases import Leases
from app.runs.session import RunServices, RunSession
from app.storage.store import Store
from app.telemetry.feed import TelemetryFeed
from app.values.samples import HOST, Device, Inventory
from tests.fakes.sessions import PATIENT, dummy
from tests.fuzz.budget import one_in
from workloads.catalog import Machine
from workloads.job_protocol import Calibrate
from workloads.protocol import PROTOCOL_VERSION, Calibration

S = 1_000_000_000
Line = dict[str, Any]
INVENTORY = Inventory(
    machine=Machine(cpu_count=2, platform="linux"),
    devices=(Device(device=HOST, kind="host", index=-1, name="A processor", memory_total_bytes=2**34),),
)


def block(number: int, **more: Any) -> Line:
    start_ns = (3 + number) * S
    times = {"start_ns": start_ns, "end_ns": start_ns + S}
    return {"type": "block", "phase": "measure", "first_step": number, "steps": 1, "examples": 8, **times, **more}


HELLO = {"type": "hello", "protocol": PROTOCOL_VERSION, "pid": 1, "t_ns": S, "utc_ns": S}
EVIDENCE = {"type": "evidence", "asked": {"xla": "off"}, "ran": {"xla": "off"}, "match": True}
SOUND: list[Line] = [
    HELLO,
    {"type": "phase", "phase": "import", "t_ns": S},
    {"type": "facts", "facts": {"python": "3.12"}},
    {"type": "phase", "phase": "build", "t_ns": S + 1000},
    {"type": "flops", "per_step": 1000},
    {"type": "phase", "phase": "warmup", "t_ns": 2 * S},
    block(0, phase="warmup", start_ns=2 * S, end_ns=3 * S - 1000),
    {"type": "phase", "phase": "measure", "t_ns": 3 * S},
    *(block(number, loss=1 / number) for number in range(1, 5)),
    {"type": "progress", "phase": "measure", "fraction": 0.5, "t_ns": 8 * S},
    {"type": "epoch", "epoch": 1, "steps": 4, "examples": 32, "start_ns": 4 * S, "end_ns": 7 * S, "tested_ns": 8 * S}
    | {"loss": 0.5, "accuracy": 0.9},
    {"type": "data_ready", "steps": 4, "time_ns": S},
    {"type": "phase", "phase": "evidence", "t_ns": 9 * S},
    EVIDENCE,
    {"type": "phase", "phase": "finish", "t_ns": 9 * S + 1000},
    {"type": "calibration", "device": "cpu", "precision": "float32", "size": 64, "flops_per_s": 1e9},
    {"type": "finished", "outcome": "completed", "t_ns": 10 * S},
]
"""What a sound worker says; its times are from the run's start, in a hundredth of the pace."""
TIMES = ("t_ns", "start_ns", "end_ns", "tested_ns")
numbers = st.one_of(
    st.sampled_from([0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, S, 1e308, -1e308, 5e-324]),
    st.integers(-10 * S, 20 * S),
    st.floats(),
)
texts = st.one_of(st.text(max_size=20), st.sampled_from(["", "\x00", "\x1b[2J", "x" * 100_000, "measure", "completed"]))
values = st.one_of(numbers, texts, st.none(), st.booleans(), st.just([]), st.dictionaries(texts, texts, max_size=2))
lines_of_bytes = st.one_of(
    st.binary(max_size=60), st.sampled_from([b"", b"[" * 5000, b"\xff\xfe", b'{"type":"block"}'])
)


@st.composite
def sequences(draw: st.DrawFn) -> list[Line | bytes]:
    """What a sound worker says, with lines left out, doubled, exchanged, changed, or not of the protocol."""
    lines: list[Line | bytes] = [dict(line) for line in SOUND]
    for _ in range(draw(st.integers(0, 6))):
        at, other = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        match draw(st.sampled_from(["change", "change", "drop", "double", "exchange", "noise"])):
            case "change" if isinstance(line, dict):
                name = draw(st.sampled_from(sorted(line)))
                lines[at] = {**line, name: draw(numbers if isinstance(line[name], int | float) else values)}
            case "drop" if len(lines) > 1:
                del lines[at]
            case "double":
                lines.insert(other, line)
            case "exchange":
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                lines.insert(at, draw(lines_of_bytes))
    return lines


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunServices]:
    """Return what makes services with a new database, whose workers run a command."""
    folder = tmp_path_factory.mktemp("messages")
    empty, counted = folder / "empty.db", itertools.count()
    Store.open(empty).close()
    telemetry = TelemetryFeed()
    telemetry._inventory = INVENTORY

    def make(command: str) -> RunServices:
        database = folder / f"{next(counted)}.db"
        shutil.copyfile(empty, database)
        launcher = Launcher(("sh", "-c", command))
        return RunServices(
            database=database,
            host=Host(telemetry=telemetry, launcher=launcher, leases=Leases(folder), describe=lambda inventory: {}),
            timeouts=PATIENT,
        )

    return make


def written(path: Path, lines: list[Line | bytes]) -> Path:
    now_ns = time.monotonic_ns()
    path.write_bytes(b"".join(_encoded(_timed(line, now_ns)) + b"\n" for line in lines))
    return path


def _timed(line: Line | bytes, now_ns: int) -> Line | bytes:
    """Return the line with times that are of a run that begins now; impossible ones stay as they are."""
    if isinstance(line, bytes):
        return line
    times = {name: line[name] for name in TIMES if isinstance(line.get(name), int) and abs(line[name]) <= 20 * S}
    return {**line, **{name: now_ns + value // 100 for name, value in times.items()}}


def _encoded(line: Line | bytes) -> bytes:
    return line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogatepass")


def place(kind: str) -> int:
    """The place of the last message of that kind."""
    return max(number for number, line in enumerate(SOUND) if line["type"] == kind)


def with_changes(kind: str, **changes: Any) -> list[Line | bytes]:
    return [{**line, **changes} if number == place(kind) else line for number, line in enumerate(SOUND)]


def doubled(kind: str) -> list[Line | bytes]:
    at = place(kind) + 1
    return [*SOUND[:at], *SOUND[at - 1 :]]


@given(lines=sequences(), exit_code=st.sampled_from([0, 0, 0, 1, 7]))
@example(lines=doubled("phase"), exit_code=0)
@example(lines=doubled("evidence"), exit_code=0)
@example(lines=with_changes("block", steps=-1), exit_code=0)
@example(lines=with_changes("block", steps=0), exit_code=0)
@example(lines=with_changes("data_ready", steps=0), exit_code=0)
@example(lines=with_changes("flops", per_step=2**63), exit_code=0)
@example(lines=with_changes("block", end_ns=0), exit_code=0)
@example(lines=with_changes("block", end_ns=SOUND[place("block")]["start_ns"]), exit_code=0)
@example(lines=with_changes("finished", outcome="failed", reason="x" * 5_000_000), exit_code=0)
@example(lines=list(SOUND), exit_code=7)
@one_in(3)
def test_a_worker_may_say_anything(
    lines: list[Line | bytes],
    exit_code: int,
    services: Callable[[str], RunServices],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = written(tmp_path / "lines", lines)
    made = services(f"cat {script}; exit {exit_code}")
    session = RunSession(dummy(INVENTORY), made)
    outcome = session.run()
    assert outcome.name == "completed" or lines != SOUND
    if outcome.name != "completed":
        assert outcome.reason
        assert len(outcome.reason) < 2_000
        assert "\n" not in outcome.reason
    assert session.stored is not None
    document = json.loads(json.dumps(run_document(session.stored), allow_nan=False))
    throughput = session.stored.row.summary.throughput
    assert throughput is None or 0 < throughput < 1e12
    assert document["outcome"] == outcome.name
    assert main(["show", str(session.number), "--db", str(made.database)]) == 0
    assert "Traceback" not in capsys.readouterr().err


job_lines = st.one_of(
    lines_of_bytes,
    st.builds(
        lambda line, name, value: json.dumps({**line, name: value}).encode("utf-8", "surrogatepass"),
        st.sampled_from(
            [
                {"type": "calibration", "device": "cpu", "precision": "float32", "size": 64, "flops_per_s": 1e9},
                {"type": "declined", "reason": "It cannot be done."},
                {"type": "gradients", "losses": [1.0], "batch": []},
            ]
        ),
        st.sampled_from(["type", "device", "size", "flops_per_s", "reason", "losses"]),
        values,
    ),
)


@given(line=job_lines, exit_code=st.sampled_from([0, 0, 1]))
@example(line=b'{"type":"gradients","losses":[1.0],"batch":[]}', exit_code=0)
@example(line=b"", exit_code=0)
@one_in(5)
def test_a_job_may_answer_anything(line: bytes, exit_code: int, tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    answer.write_bytes(line)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "_JOB_COMMAND", ("sh", "-c", f"read request; cat {answer}; exit {exit_code}"))
        said = ""
        try:
            run_job(Calibrate(precision="float32"), Calibration)
        except JobError as error:
            said = str(error)
    assert len(said) < 2_000
    assert "Traceback" not in said
