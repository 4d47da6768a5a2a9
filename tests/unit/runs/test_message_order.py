"""The table of what a worker may say when: a true run passes, and each lie is one sentence."""

import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from app.runs.host import ClockAnchor
from app.runs.supervisor import MessageOrder
from workloads.protocol import (
    PROTOCOL_VERSION,
    Block,
    Calibration,
    DataReady,
    EnvironmentInfo,
    Epoch,
    Evidence,
    Finished,
    Flops,
    Hello,
    Kernel,
    Message,
    PhaseName,
    PhaseStarted,
    Progress,
    ProtocolError,
    StepKernel,
    StepTimeline,
    Stream,
    TimedPhase,
)

S = 1_000_000_000
NOW = time.monotonic_ns()
START = NOW - 100 * S
"""The run began so long ago; times below are seconds after it."""


def phase(name: PhaseName, at_s: float) -> PhaseStarted:
    return PhaseStarted(phase=name, t_ns=START + int(at_s * S))


def block(name: TimedPhase, first: int, start_s: float, end_s: float, steps: int = 1) -> Block:
    start_ns, end_ns = START + int(start_s * S), START + int(end_s * S)
    return Block(phase=name, first_step=first, steps=steps, examples=8, start_ns=start_ns, end_ns=end_ns)


def epoch(number: int, start_s: float, end_s: float, tested_s: float) -> Epoch:
    start_ns, end_ns, tested_ns = (START + int(each * S) for each in (start_s, end_s, tested_s))
    return Epoch(
        epoch=number, steps=1, examples=8, start_ns=start_ns, end_ns=end_ns, tested_ns=tested_ns, loss=None, accuracy=1
    )


def progress(name: PhaseName, at_s: float) -> Progress:
    return Progress(phase=name, fraction=0.5, t_ns=START + int(at_s * S))


def traced(at_s: float, *, stream: int = 0, rank: int = 0) -> Evidence:
    step = StepTimeline(
        start_ns=START + int(at_s * S),
        duration_ns=S,
        streams=(Stream(device="GPU:0", name="Stream #13"),),
        kernels=(StepKernel(stream, rank, 0, 1),),
    )
    kernel = Kernel(name="gemm", kind="gemm", count=1, time_ns=1)
    return Evidence(requested={}, actual={}, match=None, kernels=(kernel,), timeline=step)


HELLO = Hello(protocol=PROTOCOL_VERSION, pid=1, t_ns=NOW - 900 * S, utc_ns=1)
"""A standby worker says it long before its run."""
FACTS = EnvironmentInfo(environment={"a": "b"})
FLOPS = Flops(per_step=1)
READY = DataReady(steps=1, time_ns=1)
EVIDENCE = Evidence(requested={}, actual={}, match=None)
CALIBRATION = Calibration(device="cpu", precision="float32", size=1, flops_per_s=1.0)
COMPLETED = Finished(outcome="completed", t_ns=NOW)
STOPPED = Finished(outcome="stopped", t_ns=NOW)
BEGUN: tuple[Message, ...] = (HELLO, phase("import", 1), FACTS, phase("build", 2), FLOPS)
COMPILED: tuple[Message, ...] = (*BEGUN, phase("compile", 3), block("compile", 0, 3, 4), progress("compile", 4))
MEASURED: tuple[Message, ...] = (
    *COMPILED,
    phase("warmup", 5),
    block("warmup", 1, 5, 6),
    phase("measure", 6.5),
    block("measure", 2, 7, 8, steps=5),
    progress("measure", 8),
)
WHOLE: tuple[Message, ...] = (
    *MEASURED,
    epoch(1, 7, 8, 9),
    block("measure", 7, 10, 11),
    epoch(2, 10, 11, 12),
    READY,
    phase("evidence", 13),
    EVIDENCE,
    phase("finish", 14),
    CALIBRATION,
    FACTS,
    COMPLETED,
)


def check(messages: Sequence[Message]) -> None:
    order = MessageOrder(ClockAnchor(START, 0))
    for message in messages:
        order.check(message)


@pytest.mark.parametrize(
    "messages",
    [
        WHOLE,
        (*COMPILED, phase("measure", 5), block("measure", 1, 5, 6), phase("finish", 7), COMPLETED),
        (HELLO, Finished(outcome="refused", t_ns=NOW)),
        (STOPPED,),
        (HELLO, phase("import", 1), phase("finish", 2), STOPPED),
        (*MEASURED, traced(9), Finished(outcome="failed", t_ns=START + 7 * S)),
    ],
)
def test_what_a_worker_says_passes(messages: Sequence[Message]) -> None:
    check(messages)


@pytest.mark.parametrize(
    ("messages", "sentence"),
    [
        ((phase("import", 1),), "`phase` came before `hello`"),
        ((COMPLETED,), "it completed at once"),
        ((STOPPED, HELLO), "`hello` came after `finished`"),
        ((HELLO, HELLO), "`hello` came twice"),
        ((*WHOLE, FACTS), "`facts` came after `finished`"),
        ((*COMPILED, COMPLETED), "it completed without a measured block"),
        ((*MEASURED, COMPLETED), "it completed without a measured block"),
        ((*COMPILED, phase("compile", 5)), "the phase compile came in the phase compile"),
        ((*MEASURED, phase("build", 9)), "the phase build came in the phase measure"),
        ((*COMPILED, phase("warmup", 4)), "times go back, or stand still"),
        ((HELLO, phase("import", -2)), "a time is outside the run"),
        ((HELLO, phase("import", 1_000_000)), "a time is outside the run"),
        ((*MEASURED, phase("finish", 9), Finished(outcome="stopped", t_ns=1)), "a time is outside the run"),
        ((HELLO, FACTS), "`facts` came before any phase"),
        ((HELLO, phase("import", 1), FLOPS), "`flops` came in the phase import"),
        ((*BEGUN, FLOPS), "`flops` came twice"),
        ((*BEGUN, EVIDENCE), "`evidence` came in the phase build"),
        ((*MEASURED, EVIDENCE, EVIDENCE), "`evidence` came twice"),
        ((*MEASURED, READY, READY), "`data_ready` came twice"),
        ((*COMPILED, READY), "`data_ready` came in the phase compile"),
        ((*MEASURED, CALIBRATION), "`calibration` came in the phase measure"),
        ((*BEGUN, block("compile", 0, 3, 4)), "`block` came in the phase build"),
        ((*COMPILED, block("measure", 1, 5, 6)), "a `block` of the phase measure came in the phase compile"),
        ((*COMPILED, progress("measure", 5)), "a `progress` of the phase measure came in the phase compile"),
        ((*MEASURED, block("measure", 3, 8, 9)), "a block begins with step 3 instead of step 7"),
        ((*MEASURED, block("measure", 7, 7, 9)), "times go back, or stand still"),
        ((*MEASURED, block("measure", 7, 9, 9)), "times go back, or stand still"),
        ((*MEASURED, block("measure", 7, 10, 1_000_000)), "a time is outside the run"),
        ((*MEASURED, progress("measure", 7)), "times go back, or stand still"),
        ((*MEASURED, epoch(2, 7, 8, 9)), "epoch 2 came instead of epoch 1"),
        ((*MEASURED, epoch(1, 6, 8, 9)), "the times of epoch 1 go back"),
        ((*MEASURED, epoch(1, 8, 8, 9)), "the times of epoch 1 go back"),
        ((*MEASURED, epoch(1, 7, 9, 8)), "the times of epoch 1 go back"),
        ((*MEASURED, epoch(1, 7, 8, 9), epoch(2, 8, 10, 11)), "the times of epoch 2 go back"),
        ((*COMPILED, epoch(1, 3, 4, 5)), "`epoch` came in the phase compile"),
        ((*MEASURED, traced(1_000_000)), "a time is outside the run"),
        ((*MEASURED, traced(9, stream=1)), "the timeline of a step has a kernel without a name or a stream"),
        ((*MEASURED, traced(9, rank=1)), "the timeline of a step has a kernel without a name or a stream"),
    ],
)
def test_what_cannot_be_true_is_told(messages: Sequence[Message], sentence: str) -> None:
    check(messages[:-1])
    with pytest.raises(ProtocolError) as error:
        check(messages)
    assert str(error.value) == sentence


def test_each_message_of_a_whole_run_is_wrong_one_place_earlier_or_passes_on_its_own() -> None:
    """Only facts and what is not timed may change places with a neighbour."""
    moved = 0
    for n, (one, other) in enumerate(pairwise(WHOLE)):
        try:
            check((*WHOLE[:n], other, one, *WHOLE[n + 2 :]))
        except ProtocolError:
            continue
        moved += 1
        assert {type(one), type(other)} & {EnvironmentInfo, Flops, DataReady, Evidence, Calibration}
    assert moved


def test_what_is_told_of_the_environment_has_an_end() -> None:
    order = MessageOrder(ClockAnchor(START, 0))
    for message in BEGUN:
        order.check(message)
    order.check(EnvironmentInfo(environment={"key": "x" * 999_000}))
    with pytest.raises(ProtocolError, match="`facts` have more than 1,000,000 characters"):
        order.check(EnvironmentInfo(environment={"key": "x" * 1_000}))
