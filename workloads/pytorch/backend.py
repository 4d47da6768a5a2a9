"""PyTorch as the backend of workloads, for a worker and for jobs; only this module handles PyTorch's errors."""

import os
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workloads.calibration import calibrate
from workloads.catalog import is_custom
from workloads.errors import CustomWorkloadError, KnownError, describe_error
from workloads.framework import PYTORCH, recorded_variables
from workloads.job_protocol import ComputedGradients, ComputeGradients
from workloads.libraries import PartialBackend, check_gpu_count, import_modules
from workloads.protocol import Calibration, RunSpec, Source
from workloads.training import Task
from workloads.weights import Array, SavedWeights

if TYPE_CHECKING:
    from workloads.pytorch.evidence import EvidenceCollector

_NO_COMPILER = (
    "PyTorch's Inductor found no working compiler, which it needs: a C++ compiler on the CPU, on GPUs Triton and a C "
    "compiler; install g++ and triton, or use compile=false."
)
_FULL = ("out of memory", "ALLOC_FAILED", "can't allocate memory")
_WITHOUT_COMPILER = ("C compiler", "C++ compiler")


class PytorchBackend(PartialBackend):
    """PyTorch in this process; see `Backend` for what each method promises."""

    framework = PYTORCH

    def preimport(self) -> None:
        """Import PyTorch for a run that is still unknown, without CUDA looking for GPUs."""
        super().preimport()
        # Otherwise the run's optimizer imports it, which takes 5 s on some machines. Inductor must wait: its import
        # asks CUDA for GPUs.
        import torch._dynamo  # noqa: F401

    def import_framework(self, gpu_uuids: Sequence[str], _memory_limit_gib: float = 0.0, /) -> dict[str, str]:
        """Import PyTorch and check the GPUs that it sees."""
        self.prepare_environment(gpu_uuids)
        users = dict(os.environ)
        import_modules(PYTORCH)
        import numpy as np
        import torch

        count = torch.cuda.device_count()
        cause = "it was built without CUDA, or for another driver; packages=… installs a build that fits"
        check_gpu_count(PYTORCH, gpu_uuids, count, cause)
        cudnn = torch.backends.cudnn.version()
        versions = {
            "python": platform.python_version(),
            PYTORCH.version_key: torch.__version__.partition("+")[0],  # a separate key holds the CUDA version
            "numpy": np.__version__,
            "pytorch_cuda": torch.version.cuda,
            "pytorch_cudnn": f"{cudnn // 10_000}.{cudnn // 100 % 100}.{cudnn % 100}" if cudnn else None,
            "triton": _triton_version(),
            PYTORCH.devices_key: ", ".join(torch.cuda.get_device_name(n) for n in range(count)) or "CPU",
        }
        return {name: str(value) for name, value in versions.items() if value} | recorded_variables(users)

    def build_task(self, spec: RunSpec, source: Source | None) -> Task:
        """Configure PyTorch, and build the model and its step."""
        from workloads.pytorch.custom import build_custom_task
        from workloads.pytorch.steps import build_task, configure

        device = configure(spec.variant)
        if is_custom(spec.workload):
            return build_custom_task(spec, source, device)
        return build_task(spec, device)

    def make_collector(self, spec: RunSpec, task: Task) -> "EvidenceCollector":
        from workloads.pytorch.evidence import EvidenceCollector

        return EvidenceCollector(spec, task)

    def loaded_versions(self) -> dict[str, str]:
        """Return nothing: PyTorch reports its libraries at import."""
        return {}

    def calibrate(self, precision: str, gpu_uuids: Sequence[str]) -> Calibration | None:
        import torch

        from workloads.pytorch.steps import DTYPES, set_precision

        set_precision(precision)
        device = "cuda" if gpu_uuids else "cpu"

        def matrices(size: int) -> Callable[[int], None]:
            torch.manual_seed(size)
            left, right = (torch.randn(size, size, device=device).to(DTYPES[precision]) for _ in range(2))

            def products(count: int) -> None:
                for _ in range(count):
                    torch.matmul(left, right)
                if gpu_uuids:
                    torch.cuda.synchronize()

            return products

        return calibrate(matrices, gpu_uuids, precision, torch.OutOfMemoryError)

    def infer(self, saved: SavedWeights, spec: RunSpec, /) -> Array:
        """Configure PyTorch for the variant, load the weights into its model and compute its outputs."""
        from workloads.pytorch.steps import configure, model_outputs

        device = configure(spec.variant)
        return model_outputs(spec, list(saved.weights.values()), saved.reference, device=device)

    def compute_gradients(self, request: ComputeGradients) -> ComputedGradients:
        """Configure PyTorch for the variant, and run its step without an update."""
        from workloads.pytorch.gradients import compute_gradients
        from workloads.pytorch.steps import configure

        return compute_gradients(request, configure(request.spec.variant))

    def explain_error(self, error: Exception) -> KnownError | None:
        """Recognise a full device, a broken exchange, and a machine without a compiler for Inductor."""
        if isinstance(error, CustomWorkloadError) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        message, name = str(error), type(error).__name__
        if name == "OutOfMemoryError" or any(words in message for words in _FULL):
            return KnownError(outcome="out_of_memory")
        if name.startswith("Dist") or "gloo" in message or "NCCL" in message:
            return KnownError(outcome="failed", reason=f"GPUs could not exchange gradients: {describe_error(error)}.")
        if name == "TritonMissing" or any(words in message for words in _WITHOUT_COMPILER):
            return KnownError(outcome="refused", reason=_NO_COMPILER)
        return None


def _triton_version() -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None
