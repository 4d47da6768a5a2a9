"""Messages survive the pipe; what is no message is told apart."""

import pytest

from workloads.job_protocol import (
    Calibrate,
    ExportModel,
    JobFailed,
    JobRequest,
    JobResult,
    OutputDifference,
    TryWeights,
    decode_job_request,
    decode_job_result,
)
from workloads.protocol import (
    PROTOCOL_VERSION,
    Block,
    Calibration,
    DataReady,
    EnvironmentInfo,
    Epoch,
    Finished,
    Hello,
    Message,
    PhaseStarted,
    Progress,
    ProtocolError,
    RunSpec,
    Start,
    Variant,
    decode_message,
    decode_start,
    encode,
)
from workloads.worker import environment_message

MESSAGES: list[Message] = [
    Hello(protocol=PROTOCOL_VERSION, pid=7, t_ns=1, utc_ns=2),
    PhaseStarted(phase="compile", t_ns=3),
    EnvironmentInfo(environment={"tensorflow": "2.21.0", "name": "GPU · µ\n"}),
    Progress(phase="measure", fraction=0.25, t_ns=4),
    Block(phase="measure", first_step=5, steps=6, examples=48, start_ns=7, end_ns=8, loss=0.5, allocator_bytes=2**40),
    Block(phase="warmup", first_step=0, steps=1, examples=8, start_ns=7, end_ns=8),
    Epoch(epoch=1, steps=48, examples=49_152, start_ns=7, end_ns=8, tested_ns=9, loss=None, accuracy=0.5),
    DataReady(steps=20, time_ns=10),
    Finished(outcome="failed", t_ns=9, reason="It broke.", traceback="Traceback\n  line"),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_one_line_and_comes_back(message: Message) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_message(line) == message


def test_an_order_comes_back_with_its_types() -> None:
    variant: Variant = {"xla": True, "seconds": 10.0, "gpus": 2, "layout": "NCHW"}
    spec = RunSpec(workload="cnn10", variant=dict(variant))
    start = decode_start(encode(Start(protocol=PROTOCOL_VERSION, spec=spec, gpu_uuids=("GPU-a", "GPU-b"))))
    assert start.spec == spec
    assert {name: type(value) for name, value in start.spec.variant.items()} == {
        name: type(value) for name, value in variant.items()
    }
    assert start.gpu_uuids == ("GPU-a", "GPU-b")


def test_jobs_and_results_come_back() -> None:
    spec = RunSpec(workload="lstm", variant={"implementation": "standard", "gpus": 0})
    requests: list[JobRequest] = [
        TryWeights(weights_path="/a.npz", trained=spec, spec=spec, gpu_uuids=("GPU-a",)),
        ExportModel(weights_path="/a.npz", trained=spec, model_paths=("/m.keras", "/m")),
        Calibrate(precision="tf32", gpu_uuids=("GPU-0",)),
    ]
    results: list[JobResult] = [
        OutputDifference(max_difference=1e-7, max_output=1.5, tolerance=1e-5),
        Calibration(device="cpu", precision="float32", size=512, flops_per_s=1e9),
        JobFailed(reason="It cannot be."),
    ]
    assert [decode_job_request(encode(request)) for request in requests] == requests
    assert [decode_job_result(encode(result)) for result in results] == results
    with pytest.raises(ProtocolError, match="not a result"):
        decode_job_result(encode(requests[0]))
    with pytest.raises(ProtocolError, match="not a job"):
        decode_job_request(b"export, please\n")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"Epoch 1/10\n",
        b"\xff\xfe\n",
        b'{"type":"unheard_of"}\n',
        b'{"type":"phase","phase":"lunch","t_ns":1}\n',
        b'{"type":"phase","phase":"build"}\n',
        b'{"type":"block","phase":"build","first_step":0,"steps":1,"examples":1,"start_ns":1,"end_ns":2}\n',
        b'{"type":"finished","outcome":"crashed","t_ns":1}\n',
        b'{"type":"phase","phase":"build","t_ns":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        b'{"type":"' + b"x" * 100_000 + b'"}\n',
        b'{"type":"phase","phase":"build","t_ns":-1}\n',
        b'{"type":"phase","phase":"build","t_ns":9223372036854775808}\n',
        b'{"type":"flops","per_step":' + b"9" * 5_000 + b"}\n",
        b'{"type":"flops","per_step":0}\n',
        b'{"type":"block","phase":"measure","first_step":0,"steps":0,"examples":1,"start_ns":1,"end_ns":2}\n',
        b'{"type":"block","phase":"measure","first_step":0,"steps":1,"examples":1e300,"start_ns":1,"end_ns":2}\n',
        b'{"type":"block","phase":"measure","first_step":0,"steps":1,"examples":1,"start_ns":1,"end_ns":2,"loss":1e999}\n',
        b'{"type":"progress","phase":"measure","fraction":1.5,"t_ns":1}\n',
        b'{"type":"calibration","device":"cpu","precision":"float32","size":1,"flops_per_s":0.0}\n',
        b'{"type":"finished","outcome":"failed","t_ns":1,"reason":"' + b"x" * 2_001 + b'"}\n',
        b'{"type":"facts","facts":{"a":"\\u0000"}}\n',
        b'{"type":"facts","facts":{"\\u001b[2J":"a"}}\n',
        b'{"type":"finished","outcome":"failed","t_ns":1,"reason":"\xc2\x9b"}\n',
        b'{"type":"facts","facts":{"a":"' + b"x" * 20_001 + b'"}}\n',
        b'{"type":"facts","facts":{' + b",".join(b'"%d":""' % n for n in range(201)) + b"}}\n",
    ],
    ids=lambda line: line[:70].decode(errors="replace"),
)
def test_what_is_no_message_is_told_apart(line: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a message of this protocol") as error:
        decode_message(line)
    assert len(str(error.value)) < 800


def test_an_order_of_another_protocol_is_told_apart() -> None:
    spec = RunSpec(workload="dummy", variant={})
    with pytest.raises(ProtocolError, match=f"protocol {PROTOCOL_VERSION + 1}"):
        decode_start(encode(Start(protocol=PROTOCOL_VERSION + 1, spec=spec)))


def test_a_spec_with_an_unknown_field_is_no_order() -> None:
    line = b'{"type":"start","protocol":1,"spec":{"workload":"dummy","variant":{},"surprise":1}}\n'
    with pytest.raises(ProtocolError, match="surprise"):
        decode_start(line)


def test_whatever_is_in_a_variable_of_the_environment_is_a_message() -> None:
    found = {
        "XLA_FLAGS": "x" * 100_000,
        "TF_A": "\udc80\x1b[2J\0",
        "N" * 300: "long",
        **{f"NCCL_{n}": "" for n in range(300)},
    }
    message = environment_message(found)
    assert decode_message(encode(message)) == message
    first = list(message.environment.items())[:3]
    assert first == [("XLA_FLAGS", "x" * 20_000), ("TF_A", "\ufffd\ufffd[2J\ufffd"), ("N" * 200, "long")]
    assert len(message.environment) == 200
