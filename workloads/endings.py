"""From an exception to a worker's last word: outcome and one plain sentence."""

import time
import traceback

from workloads.errors import OutOfMemoryError, OwnWorkloadError, RefusedError, TrainingError
from workloads.own.blame import file_name, place_of, words_of
from workloads.protocol import Finished, Source, Variant

_MEMORY_WORDS = (
    "RESOURCE_EXHAUSTED",
    "out of memory",
    "OOM when allocating",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "failed to allocate memory",
)
_LAYOUT_WORDS = ("only supports NHWC", "only supports the NHWC", "only support NHWC", "NHWC tensor format")

_CUDNN_WORDS = (
    "DNN library initialization failed",
    "DNN library is not found",
    "No DNN in stream executor",
    "VERSION_MISMATCH",
    "CuDNN library needs to have matching major version",
)
_CUDNN_SENTENCE = (
    "cuDNN could not be started, most often because another version of it was loaded than TensorFlow was built for: "
    "the log names both. Install the right one with `pip install 'tensorflow[and-cuda]>=2.21,<2.22'`, and take other "
    "ones out of LD_LIBRARY_PATH."
)


def ending_of(error: Exception, variant: Variant, peak_bytes: int | None, source: Source | None = None) -> Finished:
    """How a run ends that raised this; `peak_bytes` is the allocator's peak, if known.

    What goes wrong in a user's own `source` is told with its file and line.
    """
    now_ns = time.monotonic_ns()
    if isinstance(error, RefusedError):
        return Finished(outcome="refused", t_ns=now_ns, reason=str(error))
    if isinstance(error, TrainingError):
        reason = f"{file_name(source)}: {error}" if source else str(error)
        return Finished(outcome="failed", t_ns=now_ns, reason=reason, allocator_peak_bytes=peak_bytes)
    if _is_out_of_memory(error):
        reason = _memory_sentence(variant, peak_bytes)
        return Finished(outcome="out_of_memory", t_ns=now_ns, reason=reason, allocator_peak_bytes=peak_bytes)
    if any(words in str(error) for words in _LAYOUT_WORDS):
        reason = "TensorFlow on this processor has no NCHW kernels for this variant; use layout=NHWC, or xla=true."
        return Finished(outcome="refused", t_ns=now_ns, reason=reason)
    return Finished(
        outcome="failed",
        t_ns=now_ns,
        reason=_CUDNN_SENTENCE if any(words in str(error) for words in _CUDNN_WORDS) else _told(error, source),
        traceback="".join(traceback.format_exception(error)),
        allocator_peak_bytes=peak_bytes,
    )


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, OutOfMemoryError | MemoryError) or type(error).__name__ == "ResourceExhaustedError":
        return True
    return any(words in str(error) for words in _MEMORY_WORDS)


def _memory_sentence(variant: Variant, peak_bytes: int | None) -> str:
    peak = f" (TensorFlow held {peak_bytes / 2**30:.1f} GiB at most)" if peak_bytes else ""
    return f"Memory ran out at batch_size={variant.get('batch_size')}{peak}; try a smaller batch size."


def _told(error: Exception, source: Source | None) -> str:
    if isinstance(error, OwnWorkloadError):
        return str(error)
    return f"{place_of(error, source)}: {words_of(error)}" if source else words_of(error)
