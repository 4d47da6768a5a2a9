"""JAX as the backend of workloads, for a worker and for jobs; only this module handles JAX's errors."""

import ctypes
import os
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workloads.calibration import calibrate
from workloads.catalog import is_custom
from workloads.errors import KnownError, RefusedError, describe_error
from workloads.framework import JAX, recorded_variables
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.libraries import PartialBackend, check_gpu_count, import_modules, loaded_versions
from workloads.protocol import Calibration, RunSpec, Source
from workloads.training import Task
from workloads.weights import Array, SavedWeights

if TYPE_CHECKING:
    from workloads.jax.evidence import EvidenceCollector


class JaxBackend(PartialBackend):
    """JAX in this process; see `Backend` for what each method promises."""

    framework = JAX

    def import_framework(self, gpu_uuids: Sequence[str], memory_limit_gib: float = 0.0, /) -> dict[str, str]:
        """Import JAX, check the GPUs that it sees, and limit its allocator on each."""
        users = dict(os.environ)
        self.prepare_environment(gpu_uuids)
        if memory_limit_gib and (total_bytes := _gpu_memory_bytes()):
            os.environ.pop("XLA_PYTHON_CLIENT_MEM_FRACTION", None)  # older name; JAX accepts only one of them
            os.environ["XLA_CLIENT_MEM_FRACTION"] = str(min(1.0, memory_limit_gib * 2**30 / total_bytes))
        import_modules(JAX)
        import jax
        import jaxlib
        import numpy as np

        if jax.config.jax_disable_jit:
            raise RefusedError("JAX_DISABLE_JIT keeps XLA from compiling the step; unset it, or use another framework.")
        if not gpu_uuids:
            jax.config.update("jax_platforms", "cpu")
        devices = jax.devices()
        gpus = [device for device in devices if device.platform == "gpu"]
        cause = "it has no plugin for CUDA, or one for another driver; packages=… installs a build that fits"
        check_gpu_count(JAX, gpu_uuids, len(gpus), cause)
        versions = {
            "python": platform.python_version(),
            JAX.version_key: jax.__version__,
            "jaxlib": jaxlib.__version__,
            "numpy": np.__version__,
            JAX.devices_key: ", ".join(gpu.device_kind for gpu in gpus) or "CPU",
        }
        return versions | recorded_variables(users)

    def build_task(self, spec: RunSpec, _source: Source | None, /) -> Task:
        """Configure JAX, and build the model and its step; raises `RefusedError` for a custom workload."""
        from workloads.jax.steps import build_task, configure

        if is_custom(spec.workload):
            raise RefusedError("Custom workloads cannot use JAX yet; write the file in Keras or PyTorch.")
        return build_task(spec, configure(spec.variant))

    def make_collector(self, spec: RunSpec, task: Task) -> "EvidenceCollector":
        from workloads.jax.evidence import EvidenceCollector

        return EvidenceCollector(spec, task)

    def loaded_versions(self) -> dict[str, str]:
        return loaded_versions()

    def calibrate(self, precision: str, gpu_uuids: Sequence[str]) -> Calibration | None:
        import jax

        from workloads.jax.steps import DTYPES, set_precision

        set_precision(precision)
        # cuBLAS also reaches the peak, and trying Triton's kernels takes XLA 36 s on an H200.
        multiply = jax.jit(jax.numpy.matmul, compiler_options={"xla_gpu_enable_triton_gemm": False})

        def matrices(size: int) -> Callable[[int], None]:
            keys = jax.random.split(jax.random.key(size))
            left, right = (jax.random.normal(key, (size, size)).astype(DTYPES[precision]) for key in keys)

            def products(count: int) -> None:
                jax.block_until_ready([multiply(left, right) for _ in range(count)][-1])

            return products

        return calibrate(matrices, gpu_uuids, precision, jax.errors.JaxRuntimeError)

    def infer(self, saved: SavedWeights, spec: RunSpec, /) -> Array:
        """Configure JAX for the variant, load the weights into its model and compute its outputs."""
        from workloads.jax.steps import configure, model_outputs

        return model_outputs(spec, list(saved.weights.values()), saved.reference, mesh=configure(spec.variant))

    def compute_gradients(self, request: ComputeGradients) -> ComputedGradients:
        """Configure JAX for the variant, and differentiate its loss without an update."""
        from workloads.jax.steps import compute_gradients, configure

        return compute_gradients(request, configure(request.spec.variant))

    def explain_error(self, error: Exception) -> KnownError | None:
        """Recognise a full device, and GPUs that cannot exchange gradients."""
        message = str(error)
        if "RESOURCE_EXHAUSTED" in message or "out of memory" in message.lower():
            return KnownError(outcome="out_of_memory")
        if "NCCL" in message:
            return KnownError(outcome="failed", reason=f"GPUs could not exchange gradients: {describe_error(error)}.")
        return None


def _gpu_memory_bytes() -> int:
    """Return the memory of the first visible GPU from CUDA, before JAX starts; 0 without a driver."""
    device, total = ctypes.c_int(), ctypes.c_size_t()
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device)
    return total.value
