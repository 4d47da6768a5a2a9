"""The messages between the program and the process of a small job: one `JobRequest` in, one `JobResult` out."""

from typing import Annotated, Literal

import msgspec

from workloads.framework import framework_of_file
from workloads.protocol import TAG, AtLeastOne, Calibration, Name, RunSpec, Sentence, Source, Text, Texts, decode


class TryWeights(msgspec.Struct, frozen=True, kw_only=True, tag="try_weights", tag_field=TAG):
    """Load saved weights into the variant `spec`, on these GPUs (none means the CPU).

    `trained` is the spec of the run that saved them.
    """

    weights_path: str
    trained: RunSpec
    spec: RunSpec
    gpu_uuids: tuple[str, ...] = ()


class ExportModel(msgspec.Struct, frozen=True, kw_only=True, tag="export_model", tag_field=TAG):
    """Write a plain Keras model with saved weights to each path: a .keras file or a folder."""

    weights_path: str
    trained: RunSpec
    model_paths: tuple[str, ...]


class Calibrate(msgspec.Struct, frozen=True, kw_only=True, tag="calibrate", tag_field=TAG):
    """Measure the matrix-product rate of one GPU, or of the CPU, in a precision."""

    precision: str
    gpu_uuids: tuple[str, ...] = ()


class ComputeGradients(msgspec.Struct, frozen=True, kw_only=True, tag="compute_gradients", tag_field=TAG):
    """Compute the loss and gradients of a first step, in inference the outputs; nothing is updated.

    Attributes:
        gpu_uuids: The GPUs in replica order; none means the CPU.
        parts: Equal parts of the batch, computed one by one and averaged, as several GPUs would share it.
        path: The .npz file to write: `names`, and the arrays `gradient0`, `start0` … by weight.
        start_path: A file of this kind with the weights to start from; None starts from the seed's weights, and writes
            them.
    """

    spec: RunSpec
    gpu_uuids: tuple[str, ...] = ()
    parts: int = 1
    path: str
    start_path: str | None = None
    source: Source | None = None


class DescribeFile(msgspec.Struct, frozen=True, kw_only=True, tag="describe", tag_field=TAG):
    """Describe a user's file: the workload of that name in it, or all of them if `name` is empty."""

    source: Source
    name: str = ""


Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
CustomParameterKind = Literal["choice", "integer", "number", "switch", "text"]


class CustomParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of a custom workload, from its function's signature; `choices` if it is a choice."""

    name: Name
    kind: CustomParameterKind
    default: bool | Int64 | float | Text
    help: Text = ""
    choices: Texts = ()


class CustomWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """A function in a user's file that defines a workload; `batch_size` is its default there."""

    name: Name
    framework: Literal["tensorflow", "pytorch"] = "tensorflow"
    help: Text
    batch_size: AtLeastOne
    parameters: Annotated[tuple[CustomParameter, ...], msgspec.Meta(max_length=200)] = ()


class FileDescription(msgspec.Struct, frozen=True, kw_only=True, tag="described", tag_field=TAG):
    """The workloads of a user's file, at least one, in its order; `source` has the user's modules that it needs.

    `left_out`: why other functions with a `batch_size` are not workloads.
    """

    workloads: Annotated[tuple[CustomWorkload, ...], msgspec.Meta(min_length=1, max_length=200)]
    source: Source
    left_out: Texts = ()


Size = Annotated[float, msgspec.Meta(ge=0.0)]


class OutputDifference(msgspec.Struct, frozen=True, kw_only=True, tag="compared", tag_field=TAG):
    """The outputs of a model with saved weights against the trained model's outputs to the same inputs.

    Attributes:
        max_difference: The largest absolute difference of an output.
        max_output: The largest absolute output of the trained model.
        tolerance: The largest difference that the rounding of its precision explains.
    """

    max_difference: Size
    max_output: Size
    tolerance: Size


class ComputedGradients(msgspec.Struct, frozen=True, kw_only=True, tag="gradients", tag_field=TAG):
    """What was computed, apart from the arrays in the file.

    Attributes:
        losses: The loss, computed twice from the same weights and batch; empty in inference.
        batch: Mean and mean square of each tensor of the batch, which identify the batch.
    """

    losses: Annotated[tuple[float, ...], msgspec.Meta(max_length=2)]
    batch: Annotated[tuple[float, ...], msgspec.Meta(max_length=1_000)]


class JobFailed(msgspec.Struct, frozen=True, kw_only=True, tag="declined", tag_field=TAG):
    """Why a job could not be done, in one sentence."""

    reason: Sentence


JobRequest = TryWeights | ExportModel | Calibrate | ComputeGradients | DescribeFile
JobResult = OutputDifference | Calibration | ComputedGradients | FileDescription | JobFailed


def framework_of_job(request: JobRequest) -> str:
    match request:
        case DescribeFile():
            return framework_of_file(request.source.text)
        case TryWeights() | ComputeGradients():
            return str(request.spec.variant.get("framework", "tensorflow"))
    return "tensorflow"


_request_decoder: msgspec.json.Decoder[JobRequest] = msgspec.json.Decoder(JobRequest)
_result_decoder: msgspec.json.Decoder[JobResult] = msgspec.json.Decoder(JobResult)


def decode_job_request(line: bytes) -> JobRequest:
    return decode(_request_decoder, line, "a job")


def decode_job_result(line: bytes) -> JobResult:
    return decode(_result_decoder, line, "a result")
