"""Exceptions to last words, and what TensorFlow's surroundings refuse."""

import os
import re
import sys
from pathlib import Path

import pytest

from workloads.build import approve
from workloads.errors import CustomWorkloadError, RefusedError, TrainingError, outcome_of
from workloads.protocol import MOST_REASON_CHARS, Finished, RunSpec, Source, Variant, decode_message, encode
from workloads.tensorflow.backend import TensorflowBackend, _import_libraries, environment_info

VARIANT: Variant = {"batch_size": 512}


def ending_of(error: Exception, peak_bytes: int | None = None) -> Finished:
    return outcome_of(error, VARIANT, peak_bytes, cause=TensorflowBackend().explain_error(error))


def test_tensorflows_own_out_of_memory_names_batch_and_peak() -> None:
    import tensorflow as tf

    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
    ending = ending_of(error, 3 * 2**30)
    assert (ending.outcome, ending.traceback) == ("out_of_memory", None)
    assert "batch size 512 (TensorFlow held 3.0 GiB at most)" in (ending.reason or "")


def test_out_of_memory_names_the_limit_that_the_user_set() -> None:
    reason = outcome_of(MemoryError(), {**VARIANT, "memory_limit": 10.0}, 9 * 2**30).reason
    assert reason == (
        "Memory ran out at batch size 512 under a memory limit of 10 GiB (TensorFlow held 9.0 GiB at most); "
        "try a smaller batch size."
    )


@pytest.mark.parametrize(
    "text",
    [
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 68719476736 bytes.",
        "CUDNN_STATUS_ALLOC_FAILED in cudnn/cuda_dnn.cc",
        "failed to allocate memory",
    ],
)
def test_allocation_failures_of_xla_and_cudnn_are_out_of_memory(text: str) -> None:
    ending = ending_of(RuntimeError(text))
    assert ending.outcome == "out_of_memory"
    assert "GiB" not in (ending.reason or "")


def test_memory_that_runs_out_where_there_is_no_batch_is_told_as_it_is() -> None:
    source = Source(path="/somewhere/mine.py", text="")
    sentence = "mine.py: memory ran out while the file was read; move what needs it into its functions."
    assert outcome_of(MemoryError(), {}, None, source).reason == sentence
    assert outcome_of(MemoryError(), {}, None).reason == "Memory ran out; other programs may hold it."


def test_texts_of_an_error_have_an_end() -> None:
    ending = outcome_of(RefusedError("x" * 5_000_000), VARIANT, None)
    assert decode_message(encode(ending)) == ending
    assert outcome_of(RefusedError("a\x00\x1b[31mb\tc\n"), VARIANT, None).reason == "a\ufffd\ufffd[31mb\tc"
    try:
        raise ValueError("\x1b" + "x" * 5_000_000)
    except ValueError as error:
        ending = outcome_of(error, VARIANT, None, Source(path="mine.py", text=""))
    assert decode_message(encode(ending)) == ending
    assert (ending.traceback or "").endswith("xxx\n")


@pytest.mark.parametrize(
    "text",
    [
        "Default AvgPoolingOp only supports NHWC on device type CPU",
        "could not create a primitive descriptor for the convolution forward propagation primitive.",
    ],
)
def test_a_missing_kernel_of_a_layout_is_a_refusal(text: str) -> None:
    ending = ending_of(RuntimeError(text))
    assert ending.outcome == "refused"
    # A custom workload need not have a parameter `layout`.
    assert re.search(r"use NHWC \(channels_last\), precision=float32, or xla=true\.$", ending.reason or "")
    error = RuntimeError(f'{text}\n  File "/mine/mine.py", line 7, in small')
    known = TensorflowBackend().explain_error(error)
    custom = outcome_of(error, VARIANT, None, Source(path="/mine/mine.py", text=""), known)
    assert (custom.outcome, custom.reason) == ("refused", f"mine.py:7: {ending.reason}")


@pytest.mark.parametrize(
    "text",
    [
        "{{function_node __inference_step_42}} DNN library initialization failed. Look at the errors above for more.",
        "No DNN in stream executor",
        "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH in cudnn/cuda_dnn.cc",
    ],
)
def test_a_cudnn_that_does_not_fit_is_told_with_what_to_install(text: str) -> None:
    import tensorflow as tf

    ending = ending_of(tf.errors.FailedPreconditionError(None, None, text), 5)
    assert ending.outcome == "failed"
    assert (ending.reason or "").startswith("cuDNN could not be started, most often because TensorFlow was built")
    assert "pip install 'tensorflow[and-cuda]" in (ending.reason or "")
    assert text in (ending.traceback or "")


def test_a_reason_is_on_one_line() -> None:
    assert ending_of(RefusedError("Not here,\r\n nor\u2028there.\n")).reason == "Not here, nor there."
    assert ending_of(CustomWorkloadError("mine.py:3: two\n\n  lines")).reason == "mine.py:3: two lines"
    assert len(ending_of(TrainingError("long " * 2_000)).reason or "") == MOST_REASON_CHARS


def test_other_ends() -> None:
    assert ending_of(RefusedError("Not here.")).reason == "Not here."
    assert ending_of(TrainingError("Lost.")).outcome == "failed"
    bug = ending_of(KeyError("units"))
    assert (bug.outcome, bug.reason) == ("failed", "KeyError: 'units'")
    assert "KeyError" in (bug.traceback or "")


@pytest.mark.parametrize("code", ["raise ModuleNotFoundError('tensorflow')", "raise OSError('libz.so: no such file')"])
def test_without_a_sound_tensorflow_a_run_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "before")
    (tmp_path / "tensorflow.py").write_text(code)
    monkeypatch.delitem(sys.modules, "tensorflow")
    monkeypatch.syspath_prepend(tmp_path)
    _import_libraries.cache_clear()
    with pytest.raises(RefusedError, match=r"TensorFlow cannot be imported.*pip install 'tensorflow"):
        TensorflowBackend().import_framework(())


def test_the_environment_shows_tensorflow_the_leased_gpus_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL"):
        monkeypatch.setenv(name, "before")
    TensorflowBackend().prepare_environment(["GPU-b", "GPU-a"])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "before", "the user's own choice stays"
    TensorflowBackend().prepare_environment(["54d0709b-6a31-5d9e-8a76-0b9a5c9d1f20"])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0", "CUDA takes no UUID without GPU- or MIG-"
    TensorflowBackend().prepare_environment([])
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"


def test_facts_keep_tensorflows_flags_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    monkeypatch.setenv("TF_VAR_password", "secret")
    facts = environment_info(os.environ)
    assert facts["env TF_ENABLE_ONEDNN_OPTS"] == "1"
    assert "secret" not in facts.values()
    assert {"python", "tensorflow", "keras", "numpy"} <= set(facts)


def test_the_gpus_given_decide_not_the_names_asked_for() -> None:
    spec = RunSpec(workload="cnn10", variant={"gpus": 1, "devices": "3"})
    assert approve(spec, ("GPU-x",)).variant["devices"] == "3"
    with pytest.raises(RefusedError, match="2 GPUs asked for"):
        approve(RunSpec(workload="cnn10", variant={"gpus": 2}), ("GPU-x",))


@pytest.mark.parametrize("as_graph", [False, True])
def test_cudnns_own_operation_on_a_cpu_says_what_runs_there(as_graph: bool) -> None:
    import tensorflow as tf

    def call() -> object:
        state = tf.zeros([1, 2, 3])
        return tf.raw_ops.CudnnRNN(
            input=tf.zeros([4, 2, 3]), input_h=state, input_c=state, params=tf.zeros([84])
        ).output

    with pytest.raises(tf.errors.OpError) as caught:
        (tf.function(call) if as_graph else call)()
    ending = ending_of(caught.value)
    assert ending.outcome == "refused"
    assert (ending.reason or "").startswith("cuDNN's recurrent operations run on NVIDIA GPUs only")
