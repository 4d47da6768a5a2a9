"""One small job in one process: `python -m workloads.jobs`, request on stdin, result on stdout."""

import os
import sys
import traceback
from pathlib import Path

from workloads import catalog
from workloads.backend import Backend, load_backend
from workloads.build import approve, machine_of
from workloads.control import claim_stdout, set_parent_death_signal
from workloads.custom.source import describe_file
from workloads.errors import RefusedError, outcome_of
from workloads.job_protocol import (
    Calibrate,
    ComputeGradients,
    DescribeFile,
    ExportModel,
    JobFailed,
    JobRequest,
    JobResult,
    OutputDifference,
    TryWeights,
    decode_job_request,
    framework_of_job,
)
from workloads.protocol import Variant, encode, sentence
from workloads.weights import WeightsError, compare_outputs, read


def perform(request: JobRequest) -> JobResult:
    backend = load_backend(framework_of_job(request))
    try:
        match request:
            case TryWeights():
                saved = read(Path(request.weights_path), request.trained)
                spec = approve(request.spec, request.gpu_uuids)
                backend.import_framework(request.gpu_uuids)
                return compare_outputs(saved, backend.infer(saved, spec))
            case ExportModel():
                return _export_model(request, backend)
            case Calibrate():
                uuids = request.gpu_uuids
                if (reason := catalog.precision_refusal(request.precision, machine_of(uuids))) is not None:
                    raise RefusedError(reason)
                backend.import_framework(uuids)
                if (calibration := backend.calibrate(request.precision, uuids)) is None:
                    device = (*uuids, "cpu")[0]
                    raise RefusedError(
                        f"{device} could not be calibrated now, most likely because other programs hold its memory."
                    )
                return calibration
            case ComputeGradients():
                approve(request.spec, request.gpu_uuids)
                backend.import_framework(request.gpu_uuids)
                return backend.compute_gradients(request)
            case DescribeFile():
                backend.prepare_environment(())
                return describe_file(request.source, request.name)
    except (WeightsError, RefusedError) as error:
        return JobFailed(reason=sentence(str(error)))
    except Exception as error:  # noqa: BLE001 - the process's edge: the reason is the result, the traceback goes to stderr
        traceback.print_exc()
        return JobFailed(reason=_failure_reason(error, request, backend))


def _failure_reason(error: Exception, request: JobRequest, backend: Backend) -> str:
    variant: Variant = {}
    if isinstance(request, TryWeights | ComputeGradients):
        variant = request.spec.variant
    elif isinstance(request, ExportModel):
        variant = request.trained.variant
    source = request.source if isinstance(request, DescribeFile | ComputeGradients) else None
    outcome = outcome_of(error, variant, None, source, backend.explain_error(error))
    return outcome.reason or sentence(str(error))


def _export_model(request: ExportModel, backend: Backend) -> OutputDifference:
    saved = read(Path(request.weights_path), request.trained)
    backend.import_framework(())
    try:
        return backend.export_model(saved, [Path(path) for path in request.model_paths])
    except OSError as error:
        raise RefusedError(f"{error.filename or 'The model'} cannot be written: {error.strerror or error}.") from error


def main() -> None:
    set_parent_death_signal()
    pipe = claim_stdout()
    result = perform(decode_job_request(sys.stdin.buffer.readline()))
    pipe.write(encode(result))
    pipe.flush()
    sys.stderr.flush()
    # The framework's own teardown takes half a second and achieves nothing.
    os._exit(0)


if __name__ == "__main__":
    main()
