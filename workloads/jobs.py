"""One small job in one process: `python -m workloads.jobs`, request on stdin, result on stdout."""

import os
import sys
import traceback
from pathlib import Path

from workloads import weights
from workloads.build import approve, import_libraries
from workloads.control import claim_stdout, set_parent_death_signal
from workloads.errors import RefusedError, outcome_of
from workloads.protocol import (
    Calibrate,
    Calibration,
    DescribeFile,
    ExportModel,
    FileDescription,
    JobFailed,
    JobRequest,
    JobResult,
    OutputDifference,
    TryWeights,
    decode_job_request,
    encode,
)
from workloads.tensorflow.runtime import configure, import_tensorflow, prepare_environment
from workloads.weights import WeightsError, try_weights


def perform(request: JobRequest) -> JobResult:
    """The errand's answer, why there is none in words."""
    try:
        match request:
            case TryWeights():
                return try_weights(request)
            case ExportModel():
                return _export(request)
            case Calibrate():
                return _calibrate(request)
            case DescribeFile():
                return _describe(request)
    except (WeightsError, RefusedError) as error:
        return JobFailed(reason=str(error))
    except Exception as error:  # noqa: BLE001 - the process's edge: the end is told in words, its traceback on stderr
        traceback.print_exc()
        return JobFailed(reason=_failure_reason(error, request))


def _failure_reason(error: Exception, request: JobRequest) -> str:
    match request:
        case DescribeFile():
            found = outcome_of(error, {}, None, request.source)
        case ExportModel():
            found = outcome_of(error, request.trained, None)
        case _:
            found = outcome_of(error, request.spec.variant, None)
    return found.reason or str(error)


def _export(request: ExportModel) -> OutputDifference:
    saved = weights.read(Path(request.weights_path), request.trained)
    prepare_environment(())
    import_tensorflow(0)
    from workloads.tensorflow.saving import export_model

    try:
        return export_model(saved, [Path(path) for path in request.model_paths])
    except OSError as error:
        raise RefusedError(f"{error.filename or 'The model'} cannot be written: {error.strerror or error}.") from error


def _calibrate(request: Calibrate) -> Calibration:
    spec = approve(request.spec, request.gpu_uuids)
    import_libraries(spec, request.gpu_uuids)
    from workloads.tensorflow.calibration import calibrate

    tf_device = configure(spec.variant).devices[0]
    device = (*request.gpu_uuids, "cpu")[0]
    if (found := calibrate(tf_device, device, str(spec.variant["precision"]))) is None:
        raise RefusedError(f"{device} could not be calibrated now, most likely because other programs hold its memory.")
    return found


def _describe(request: DescribeFile) -> FileDescription:
    prepare_environment(())
    from workloads.custom.source import describe_file

    return describe_file(request.source, request.name)


def main() -> None:
    """Do one errand and be gone."""
    pipe = claim_stdout()
    set_parent_death_signal()
    result = perform(decode_job_request(sys.stdin.buffer.readline()))
    pipe.write(encode(result))
    pipe.flush()
    sys.stderr.flush()
    # TensorFlow's own teardown takes half a second and tells nobody anything.
    os._exit(0)


if __name__ == "__main__":
    main()
