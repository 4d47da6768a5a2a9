"""PyTorch as the backend of workloads, for a worker and for jobs; errors of PyTorch are known here alone."""

import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.calibration import calibrate
from workloads.catalog import is_custom
from workloads.errors import BROKEN_PACKAGE, KnownError, RefusedError, describe_error
from workloads.framework import PYTORCH
from workloads.interpreter import MINIMUM_VERSIONS, install_command, is_older
from workloads.job_protocol import ComputedGradients, ComputeGradients, OutputDifference
from workloads.processor import ProcessorSupport
from workloads.protocol import Calibration, RunSpec, Source
from workloads.training import Task
from workloads.weights import Array, SavedWeights

if TYPE_CHECKING:
    from workloads.pytorch.evidence import EvidenceCollector

_TENSORFLOW_ALONE = "PyTorch cannot do this here so far; use framework=tensorflow."
_NO_COMPILER = (
    "PyTorch's Inductor found no working compiler, which it needs: a C++ compiler on the CPU, on GPUs Triton and a C "
    "compiler; install g++ and triton, or use compile=false."
)
_FULL = ("out of memory", "ALLOC_FAILED", "can't allocate memory")
_WITHOUT_COMPILER = ("C compiler", "C++ compiler")


class PytorchBackend:
    """PyTorch in this process; see `Backend` for what each method promises."""

    def prepare_environment(self, gpu_uuids: Sequence[str]) -> None:
        """Set the GPUs that PyTorch may see, and their order."""
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu_uuids) or "-1"
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"

    def preimport(self) -> None:
        """Import PyTorch for a run that is not known yet; CUDA is asked for no GPU before that is."""
        self.prepare_environment(())
        _import_torch()

    def import_framework(self, gpu_uuids: Sequence[str]) -> dict[str, str]:
        """Import PyTorch and check the GPUs that it sees."""
        self.prepare_environment(gpu_uuids)
        users = dict(os.environ)
        _import_torch()
        import torch

        count = torch.cuda.device_count()
        if count < len(gpu_uuids):
            raise RefusedError(
                f"This run was given {len(gpu_uuids)} of the machine's GPUs, and PyTorch sees {count}: it was built "
                "without CUDA, or for another driver; `env add` makes an environment that fits."
            )
        cudnn = torch.backends.cudnn.version()
        versions = {
            "python": platform.python_version(),
            PYTORCH.version_key: torch.__version__.partition("+")[0],  # the CUDA has a key
            "pytorch_cuda": torch.version.cuda,
            "pytorch_cudnn": f"{cudnn // 10_000}.{cudnn // 100 % 100}.{cudnn % 100}" if cudnn else None,
            "triton": _triton_version(),
            PYTORCH.devices_key: ", ".join(torch.cuda.get_device_name(n) for n in range(count)) or "CPU",
        }
        return {name: str(value) for name, value in versions.items() if value} | PYTORCH.variables(users)

    def processor_support(self) -> ProcessorSupport:
        """PyTorch computes both layouts in every precision on every processor: nothing is to be tried."""
        raise RefusedError(_TENSORFLOW_ALONE)

    def build_task(self, spec: RunSpec, source: Source | None) -> Task:
        """Configure PyTorch, and make the model and its step."""
        from workloads.pytorch.custom import build_custom_task
        from workloads.pytorch.steps import build_task, configure

        device = configure(spec.variant)
        if is_custom(spec.workload):
            return build_custom_task(spec, source, device)
        return build_task(spec, device)

    def make_collector(self, spec: RunSpec, task: Task) -> "EvidenceCollector":
        """Return the collector that reads PyTorch's profiler."""
        from workloads.pytorch.evidence import EvidenceCollector

        return EvidenceCollector(spec, task)

    def loaded_versions(self) -> dict[str, str]:
        """Return nothing more: PyTorch says at its import which libraries it brings."""
        return {}

    def calibrate(self, precision: str, gpu_uuids: Sequence[str]) -> Calibration | None:
        """Measure matrix products on the first device, in the precision that PyTorch is set to for it."""
        import torch

        from workloads.pytorch.steps import DTYPES, set_precision

        set_precision(precision)
        torch_device, device = ("cuda", gpu_uuids[0]) if gpu_uuids else ("cpu", "cpu")

        def matrices(size: int) -> Callable[[int], None]:
            torch.manual_seed(size)
            first, second = (torch.randn(size, size, device=torch_device).to(DTYPES[precision]) for _ in range(2))

            def products(count: int) -> None:
                for _ in range(count):
                    torch.matmul(first, second)
                if gpu_uuids:
                    torch.cuda.synchronize()

            return products

        try:
            return calibrate(matrices, device, precision)
        except torch.OutOfMemoryError as error:
            print(f"No calibration of {device} in {precision}: {error}", file=sys.stderr)  # noqa: T201
            return None

    def infer(self, _saved: SavedWeights, _spec: RunSpec, /) -> Array:
        """Refuse: no weights of PyTorch's are saved."""
        raise RefusedError(_TENSORFLOW_ALONE)

    def compute_gradients(self, request: ComputeGradients) -> ComputedGradients:
        """Configure PyTorch for the variant, and make its step without an update."""
        from workloads.pytorch.gradients import compute_gradients
        from workloads.pytorch.steps import configure

        return compute_gradients(request, configure(request.spec.variant))

    def export_model(self, _saved: SavedWeights, _paths: Sequence[Path], /) -> OutputDifference:
        """Refuse: no weights of PyTorch's are saved."""
        raise RefusedError(_TENSORFLOW_ALONE)

    def explain_error(self, error: Exception) -> KnownError | None:
        """Recognise a full device, a broken exchange, and a machine without a compiler for Inductor."""
        message, name = str(error), type(error).__name__
        if name == "OutOfMemoryError" or any(words in message for words in _FULL):
            return KnownError(outcome="out_of_memory")
        if name.startswith("Dist") or "gloo" in message or "NCCL" in message:
            return KnownError(outcome="failed", reason=f"GPUs could not exchange gradients: {describe_error(error)}.")
        if name == "TritonMissing" or any(words in message for words in _WITHOUT_COMPILER):
            return KnownError(outcome="refused", reason=_NO_COMPILER)
        return None


def _import_torch() -> None:
    try:
        import torch
    except BROKEN_PACKAGE as error:
        raise RefusedError(
            f"PyTorch cannot be imported ({error}): `env add` makes an environment that has it, or "
            f"{install_command(['torch'])}, or use framework=tensorflow."
        ) from error
    if is_older(torch.__version__, "torch"):
        raise RefusedError(
            f"torch {torch.__version__} is older than {MINIMUM_VERSIONS['torch']}; {install_command(['torch'])}."
        )


def _triton_version() -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None
