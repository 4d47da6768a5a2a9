"""The outcome as a table: the worker's word, its exit code, and what the program knows."""

from dataclasses import replace

import pytest

from app.runs.launcher import error_message, fatal_message
from app.runs.supervisor import (
    BROKEN_PYTHON,
    EndMethod,
    WorkerExit,
    form_outcome,
    with_file_name,
    with_host,
    with_memory_size,
)
from app.values.events import Outcome
from app.values.samples import Device
from workloads.protocol import Finished, WorkerOutcome

LOST = "NVIDIA H200 stopped answering (GPU is lost)."
STATUS_3 = "The worker ended with exit status 3 without reporting a result; see the end of its log."


def word(outcome: WorkerOutcome, reason: str | None = None) -> Finished:
    return Finished(outcome=outcome, t_ns=1, reason=reason)


def ending(
    finished: Finished | None = None,
    exit_code: int = 0,
    *,
    began: bool = True,
    stop_requested: bool = False,
    fault: str | None = None,
    lost: str | None = None,
    ended_by: EndMethod = "itself",
) -> WorkerExit:
    return WorkerExit(
        finished=finished,
        exit_code=exit_code,
        started=began,
        stop_requested=stop_requested,
        fault=fault,
        gpu_lost=lost,
        ended_by=ended_by,
    )


@pytest.mark.parametrize(
    ("known", "name", "reason"),
    [
        (ending(word("completed")), "completed", None),
        (ending(word("completed"), stop_requested=True), "completed", None),
        (ending(word("completed"), -15, ended_by="terminated"), "completed", None),
        (ending(word("completed"), lost=LOST), "completed", None),
        (
            ending(word("completed"), 7),
            "completed",
            "Everything was measured; then its process ended with exit status 7, see its log.",
        ),
        (
            ending(word("completed"), -11),
            "completed",
            "Everything was measured; then its process ended with SIGSEGV, see its log.",
        ),
        (ending(word("stopped"), stop_requested=True), "stopped", "Stopped by the user."),
        (ending(word("stopped", "Stopped early."), stop_requested=True), "stopped", "Stopped early."),
        (ending(None, -9, stop_requested=True, ended_by="killed"), "stopped", "Stopped by the user."),
        (ending(word("out_of_memory", "Memory ran out.")), "out_of_memory", "Memory ran out."),
        (ending(word("refused", "No NCHW here.")), "refused", "No NCHW here."),
        (ending(word("failed", "It broke."), lost=LOST), "failed", f"{LOST} It broke."),
        (ending(None, 3), "crashed", STATUS_3),
        (ending(None, 0), "crashed", STATUS_3.replace("3", "0")),
        (
            ending(None, 3, began=False),
            "crashed",
            f"{BROKEN_PYTHON} it ended with exit status 3 before the run began; see the end of its log.",
        ),
        (ending(None, 3, lost=LOST), "crashed", f"{LOST} {STATUS_3}"),
        (ending(None, -11), "crashed", "The worker died of SIGSEGV; see the end of its log."),
        (ending(None, -15, fault="The disk is full."), "failed", "The disk is full."),
        (ending(word("completed"), fault="The disk is full."), "failed", "The disk is full."),
        (ending(None, -15, fault="Silent.", stop_requested=True), "failed", "Silent."),
    ],
)
def test_outcome(known: WorkerExit, name: str, reason: str | None) -> None:
    outcome = form_outcome(known)
    assert (outcome.name, outcome.reason) == (name, reason)
    assert (outcome.exit_code, outcome.ended_by) == (known.exit_code, known.ended_by)


def test_the_traceback_is_the_detail() -> None:
    finished = Finished(outcome="failed", t_ns=1, reason="It broke.", traceback="Traceback …")
    assert form_outcome(ending(finished)) == Outcome(
        name="failed", reason="It broke.", detail="Traceback …", exit_code=0, ended_by="itself"
    )


def test_a_killed_worker_hints_at_memory() -> None:
    assert "ran out of memory" in (form_outcome(ending(None, -9)).reason or "")


def test_a_real_time_signal_has_a_number_if_no_name() -> None:
    assert form_outcome(ending(None, -35)).reason == "The worker died of signal 35; see the end of its log."


def test_the_last_words_of_a_library_are_the_reason() -> None:
    line = "F0000 00:00:1763654400.1 77 cuda_dnn.cc:123] Check failed: no descriptor"
    assert fatal_message(line) == "Check failed: no descriptor"
    assert fatal_message("W0000 00:00:1 77 cuda_dnn.cc:123] Check failed") is None
    crashed = form_outcome(replace(ending(None, -6), fatal_message=fatal_message(line)))
    assert (crashed.name, crashed.reason) == ("crashed", "TensorFlow gave up: Check failed: no descriptor")


def test_a_crash_names_the_file_of_the_user_s_that_ran() -> None:
    crashed = form_outcome(ending(None, 3))
    assert with_file_name(crashed, "mine.py:small").reason == f"mine.py: {STATUS_3}"
    assert with_file_name(crashed, "lstm") == crashed
    completed = form_outcome(ending(word("completed")))
    assert with_file_name(completed, "mine.py:small") == completed


def test_out_of_memory_says_how_much_there_is() -> None:
    full = Outcome(name="out_of_memory", reason="Memory ran out at batch size 512; try a smaller batch size.")
    cards = [
        Device(device=f"GPU-{gib}", kind="gpu", index=0, name="NVIDIA H200", memory_total_bytes=gib * 2**30)
        for gib in (141, 80)
    ]
    host = Device(device="host", kind="host", index=-1, name="A processor", memory_total_bytes=8 * 2**30)
    assert with_memory_size(full, [host, *cards]).reason == f"{full.reason} NVIDIA H200 has 80.0\xa0GiB."
    assert with_memory_size(full, [host]).reason == f"{full.reason} This machine has 8.0\xa0GiB."
    assert with_memory_size(full, []) == full
    assert with_memory_size(Outcome(name="completed"), cards).reason is None


def test_a_reason_names_the_host() -> None:
    refused = Outcome(name="refused", reason="No such Python on this machine.")
    assert with_host(refused, "gpu1").reason == "No such Python on gpu1."
    assert with_host(refused, "") == refused
    assert with_host(Outcome(name="completed"), "gpu1") == Outcome(name="completed")


def test_a_reason_of_several_lines_is_stored_as_one() -> None:
    outcome = with_host(form_outcome(ending(word("failed", "w.py:3: [SGD (\n    lr: 0.1\n)] is none."), 1)), "")
    assert outcome.reason == "w.py:3: [SGD ( lr: 0.1 )] is none."


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("ValueError: 64 is odd", "ValueError: 64 is odd"),
        (
            "[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory.",
            "torch.cuda.OutOfMemoryError: CUDA out of memory.",
        ),
        ("AssertionError", "AssertionError"),
        ("torch._dynamo.exc.Unsupported: graph break", "torch._dynamo.exc.Unsupported: graph break"),
        ("train.py: error: unrecognized arguments: --amp", "train.py: error: unrecognized arguments: --amp"),
        ("/usr/bin/python3: No module named train", "/usr/bin/python3: No module named train"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", None),
        ("subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1.", None),
        ("epoch 3: error 0.25", None),
        ('  File "train.py", line 3, in ValueError', None),
    ],
)
def test_an_error_in_a_log_is_told_from_what_a_script_prints(line: str, error: str | None) -> None:
    assert error_message(line) == error


def test_an_error_in_the_log_explains_an_end_that_nothing_else_explains() -> None:
    failed = Finished(outcome="failed", t_ns=1, reason="It ended.")
    for known, reason in (
        (ending(failed), "It ended. It says “E”."),
        (ending(Finished(outcome="failed", t_ns=1, reason="It ended.", traceback="T")), "It ended."),
        (ending(word("completed")), None),
        (ending(None, -15, fault="Silent."), "Silent."),
        (ending(None, 3), f"{STATUS_3} It says “E”."),
    ):
        assert form_outcome(replace(known, error_message="E", last_line="no data")).reason == reason
    full = replace(ending(failed), last_line="no data")
    assert form_outcome(full, of_script=True).reason == "It ended. Its log ends with “no data”."
    assert form_outcome(full).reason == form_outcome(ending(failed), of_script=True).reason == "It ended."
    no_file = replace(full, error_message="RuntimeError: Dataset not found.")
    assert "--link" in (form_outcome(no_file, of_script=True).reason or "")
