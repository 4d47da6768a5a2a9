"""One small job in one process: `python -m workloads.errands`, errand on stdin, answer on stdout, noise on stderr."""

import os
import sys
import traceback
from pathlib import Path

from workloads import weights
from workloads.build import approve, import_for
from workloads.endings import ending_of
from workloads.errors import RefusedError
from workloads.lifeline import claim_stdout, die_with_parent
from workloads.portability import try_weights
from workloads.protocol import (
    Answer,
    Calibrate,
    Calibration,
    Compared,
    Declined,
    Describe,
    Described,
    Errand,
    ExportModel,
    TryWeights,
    decode_errand,
    encode,
)
from workloads.runtime import configure, import_tensorflow, prepare_environment
from workloads.weights import WeightsError


def perform(errand: Errand) -> Answer:
    """The errand's answer, why there is none in words."""
    try:
        match errand:
            case TryWeights():
                return try_weights(errand)
            case ExportModel():
                return _export(errand)
            case Calibrate():
                return _calibrate(errand)
            case Describe():
                return _describe(errand)
    except (WeightsError, RefusedError) as error:
        return Declined(reason=str(error))
    except Exception as error:  # noqa: BLE001 - the process's edge: the end is told in words, its traceback on stderr
        traceback.print_exc()
        return Declined(reason=_reason(error, errand))


def _reason(error: Exception, errand: Errand) -> str:
    match errand:
        case Describe():
            found = ending_of(error, {}, None, errand.source)
        case ExportModel():
            found = ending_of(error, errand.trained, None)
        case _:
            found = ending_of(error, errand.spec.variant, None)
    return found.reason or str(error)


def _export(errand: ExportModel) -> Compared:
    saved = weights.read(Path(errand.weights_path), errand.trained)
    prepare_environment(())
    import_tensorflow(0)
    from workloads.export import export_model

    try:
        return export_model(saved, [Path(path) for path in errand.model_paths])
    except OSError as error:
        raise RefusedError(f"{error.filename or 'The model'} cannot be written: {error.strerror or error}.") from error


def _calibrate(errand: Calibrate) -> Calibration:
    spec = approve(errand.spec, errand.gpu_uuids)
    import_for(spec, errand.gpu_uuids)
    from workloads.calibration import calibrate

    place = configure(spec.variant).devices[0]
    device = (*errand.gpu_uuids, "cpu")[0]
    if (found := calibrate(place, device, str(spec.variant["precision"]))) is None:
        raise RefusedError(f"{device} could not be calibrated now, most likely because other programs hold its memory.")
    return found


def _describe(errand: Describe) -> Described:
    prepare_environment(())
    from workloads.own.signature import describe

    return describe(errand.source, errand.name)


def main() -> None:
    """Do one errand and be gone."""
    pipe = claim_stdout()
    die_with_parent()
    answer = perform(decode_errand(sys.stdin.buffer.readline()))
    pipe.write(encode(answer))
    pipe.flush()
    sys.stderr.flush()
    # TensorFlow's own teardown takes half a second and tells nobody anything.
    os._exit(0)


if __name__ == "__main__":
    main()
