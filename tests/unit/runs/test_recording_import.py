"""A recording is imported like any file of somebody else's: whole, by value, or not at all."""

import gzip
from pathlib import Path

import msgspec
import pytest

from app import recording
from app.errors import DatabaseError, UserError
from app.events import RunEnded, RunEvent, RunStarted
from app.log import run_number
from app.recording import head_line, is_recording
from app.runs.experiment.queue import import_with_queue
from app.samples import LogLine, TelemetryGap, Waiting
from app.storage.store import Store
from app.storage.transfer.progress import StoppedError, TransferProgress
from tests.fakes.runs import (
    BLOCKS,
    EVIDENCE,
    GPU,
    HOST_DEVICE,
    LOG,
    LOST,
    OUTCOME,
    PHASES,
    SAMPLES,
    SPEC,
    UTC_NS,
    S,
    keep,
)
from workloads.protocol import EnvironmentInfo, Flops, Progress, RunSpec, encode

HEAD = head_line("1.2.3")
STARTED = RunStarted(uid="uid-1", spec=SPEC, t_ns=S // 2, utc_ns=UTC_NS, devices=(GPU, HOST_DEVICE))
EVENTS: tuple[RunEvent, ...] = (
    Waiting(S // 3, "GPU 0 is leased."),
    *PHASES,
    *BLOCKS,
    *SAMPLES,
    *LOG,
    LOST,
    EVIDENCE,
    TelemetryGap(t_ns=S, reason="The sampler ended."),
    Progress(phase="measure", fraction=0.5, t_ns=4 * S),
    Flops(per_step=12),
)
ENDED = RunEnded(t_ns=6 * S, outcome=OUTCOME)
BOMB = gzip.compress(b"[" * 10_000_000)


def lines(*events: RunEvent) -> bytes:
    return HEAD + b"".join(map(encode, events))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.vscope"


@pytest.mark.parametrize("is_compressed", [True, False])
def test_a_recording_becomes_its_run(file: Path, database_path: Path, is_compressed: bool) -> None:
    text = lines(STARTED, *EVENTS, ENDED)
    file.write_bytes(gzip.compress(text) if is_compressed else text)
    shares: list[float] = []
    done = import_with_queue(database_path, file, TransferProgress(shares.append))
    assert (done.runs, shares[-1], shares == sorted(shares)) == ((1,), 1.0, True)
    with Store.open(database_path) as store:
        run = store.load(1)
    assert (run.row.uid, run.row.spec, run.row.outcome, run.evidence) == ("uid-1", SPEC, OUTCOME, EVIDENCE)
    assert run.row.summary.measured_steps == 8
    assert [line.text for line in run.log] == [*(line.text for line in LOG), "The sampler ended."]
    assert sum(columns.t_ns.size for columns in run.samples) == len(SAMPLES)


@pytest.mark.parametrize("in_trash", [True, False])
def test_a_run_that_has_its_id_is_never_touched(file: Path, database_path: Path, in_trash: bool) -> None:
    with Store.open(database_path) as store:
        run = keep(store)
        stored = store.load(run)
        if in_trash:
            store.library.delete([run])
    file.write_bytes(lines(STARTED, ENDED))
    done = import_with_queue(database_path, file)
    assert (done.runs, [(run.run, run.in_trash) for run in done.already]) == ((), [(1, in_trash)])
    with Store.open(database_path) as store:
        assert store.load(run).blocks.first_step.tolist() == stored.blocks.first_step.tolist()


def changed(**values: object) -> RunStarted:
    return msgspec.structs.replace(STARTED, **values)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (lines(), "it does not begin as one"),
        (lines(*EVENTS), "it does not begin as one"),
        (lines(STARTED, *EVENTS), "ends before the run does"),
        (lines(STARTED, *EVENTS, ENDED)[:-1], "ends before the run does"),
        (lines(STARTED, STARTED, ENDED), "a second beginning"),
        (lines(STARTED, ENDED, ENDED), "more comes after its end"),
        (lines(STARTED, ENDED, changed(uid="uid-2"), ENDED), "more comes after its end"),
        (lines(STARTED, msgspec.structs.replace(SAMPLES[0], device="GPU-b"), ENDED), "samples of 'GPU-b'"),
        (lines(STARTED, EVIDENCE, EVIDENCE, ENDED), "UNIQUE"),
        (lines(STARTED, BLOCKS[0], BLOCKS[0], ENDED), "UNIQUE"),
        (lines(STARTED, msgspec.structs.replace(BLOCKS[1], end_ns=3 * S), ENDED), "blocks.end_ns"),
        (lines(changed(uid="../../etc"), ENDED), "runs.uid"),
        (lines(changed(spec=RunSpec(workload="cnn10", variant={"gpus": "many"})), ENDED), "runs.variant"),
        (lines(changed(devices=(GPU, GPU)), ENDED), "a device twice"),
        (lines(changed(devices=(msgspec.structs.replace(GPU, absent={"x": "\x1b[2J"}),)), ENDED), "devices.absent"),
        (lines(STARTED, EnvironmentInfo(environment={"keras": "3"}), ENDED).replace(b'"3"', b'"\\u0000"'), "an event"),
        (lines(STARTED, msgspec.structs.replace(SAMPLES[0], power_mw=2**63), ENDED), "a number of 64 bits"),
        (HEAD.replace(b'"version":1', b'"version":2'), "a recording of program version 1.2.3"),
        (
            lines(STARTED) + encode(ENDED).replace(b'"exit_code":0', b'"exit_code":1' + b"0" * 30),
            "not an event of a run",
        ),
        (HEAD + b"[" * 4_000_000 + b"\n", "not an event of a run"),
        (HEAD + b"[" * 10_000_000 + b"\n", "a line of more than 4.0.MiB"),
        (gzip.compress(HEAD) + BOMB, "a line of more than 4.0.MiB"),
        (gzip.compress(lines(STARTED, *EVENTS, ENDED))[:-20], "damaged or only half copied"),
        (gzip.compress(HEAD) + b"\x1f\x8b" + bytes(40), "damaged or only half copied"),
    ],
)
def test_what_is_no_run_is_refused_in_one_sentence(file: Path, database_path: Path, text: bytes, sentence: str) -> None:
    file.write_bytes(text)
    assert is_recording(file)
    with pytest.raises(DatabaseError, match=sentence) as raised:
        import_with_queue(database_path, file)
    assert str(raised.value).endswith("; nothing was imported.")
    assert ("\n" in str(raised.value), len(str(raised.value)) < 700) == (False, True)
    with Store.open(database_path) as store:
        assert store.list_runs() == []
    assert [path.name for path in file.parent.iterdir() if "import-" in path.name] == []
    assert run_number.get() is None


@pytest.mark.parametrize("limit", ["MOST_RECORDING_BYTES", "MOST_RECORDING_EVENTS"])
def test_a_file_of_many_lines_ends_at_a_limit(
    file: Path, database_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    text = lines(STARTED, *(LogLine(t_ns, "x") for t_ns in range(1_000)), ENDED)
    size = len(text) if limit == "MOST_RECORDING_BYTES" else text.count(b"\n") - 1
    file.write_bytes(gzip.compress(text))
    monkeypatch.setattr(recording, limit, size - 1)
    with pytest.raises(DatabaseError, match="longer than any recording"):
        import_with_queue(database_path, file)
    monkeypatch.setattr(recording, limit, size)
    assert import_with_queue(database_path, file).runs == (1,)


def test_an_import_can_be_stopped(file: Path, database_path: Path) -> None:
    file.write_bytes(lines(STARTED, *EVENTS, ENDED))
    with pytest.raises(StoppedError):
        import_with_queue(database_path, file, TransferProgress(should_stop=lambda: True))
    with Store.open(database_path) as store:
        assert store.list_runs() == []


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", gzip.compress(b"{}"), b"SQLite format 3\0", BOMB])
def test_other_files_are_no_recordings(file: Path, content: bytes) -> None:
    assert not is_recording(file)
    file.write_bytes(content)
    assert not is_recording(file)


def test_a_file_that_cannot_be_read_is_a_sentence(file: Path, database_path: Path) -> None:
    with pytest.raises(UserError, match="There is no file"):
        import_with_queue(database_path, file)
