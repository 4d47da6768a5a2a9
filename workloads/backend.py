"""The interface between a worker and its framework, and the one place that chooses the backend.

Worker, training loop, jobs and benchmarks use only this interface. `workloads.tensorflow`, `workloads.pytorch` and
`workloads.jax` implement it; another framework would be another package. The workload `dummy` computes nothing and has
no backend.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from workloads.errors import KnownError
from workloads.job_protocol import ComputedGradients, ComputeGradients, OutputDifference
from workloads.protocol import Calibration, Evidence, RunSpec, Source
from workloads.script.definitions import is_script
from workloads.training import Task

if TYPE_CHECKING:
    from workloads.weights import Array, SavedWeights


class EvidenceCollector(Protocol):
    """Collects what a task really runs, at no cost to its measured part."""

    def start(self) -> None: ...
    def first_step_done(self) -> None: ...
    def trace(self) -> None:
        """After the measured part, run a few more steps under the profiler."""

    def inspect(self) -> None:
        """After the measured part, inspect what the task's steps changed and computed."""

    def evidence(self) -> Evidence | None:
        """Return the evidence so far, or None before the first step."""


class Backend(Protocol):
    """The framework in this process. It can be configured only once, so a process executes one run or one job."""

    def prepare_environment(self, gpu_uuids: Sequence[str]) -> None:
        """Set what the framework reads on import: the GPUs that it may see (none means the CPU), and their order."""

    def preimport(self) -> None:
        """Import the framework for a run that is still unknown, without touching a GPU; raises `RefusedError`."""

    def import_framework(self, gpu_uuids: Sequence[str], memory_limit_gib: float = 0.0, /) -> dict[str, str]:
        """Import the framework so that it sees these GPUs only, and return versions, devices and flags.

        The memory limit of each GPU is for frameworks that need it when they start; 0 means no limit.

        Raises:
            RefusedError: It is missing, too old, or sees fewer GPUs.
        """

    def build_task(self, spec: RunSpec, source: Source | None, /) -> Task:
        """Configure the framework for a variant and return it ready to step; after `import_framework`.

        The spec is complete. Errors in a custom workload's own source pass unchanged.

        Raises:
            RefusedError: The variant's data cannot be used, or the framework lacks what the variant needs.
        """

    def make_collector(self, spec: RunSpec, task: Task) -> EvidenceCollector: ...
    def loaded_versions(self) -> dict[str, str]:
        """Return the versions of the libraries that the framework loads on demand; call it at the end of a run."""

    def calibrate(self, precision: str, gpu_uuids: Sequence[str]) -> Calibration | None:
        """Measure the rate of a large matrix product on the first device.

        The GPUs are those of `import_framework`; none means the CPU.

        Returns:
            The rate; None, with a line in the log, if the device cannot be calibrated now.
        """

    def infer(self, saved: "SavedWeights", spec: RunSpec, /) -> "Array":
        """Load weights into another variant's model and return its outputs [examples, 1] for the saved sequences."""

    def compute_gradients(self, request: ComputeGradients) -> ComputedGradients:
        """Write a variant's loss and gradients on a first batch to a file; in inference its outputs.

        Raises:
            RefusedError: The weights to start from have other shapes, or gradients are not finite.
        """

    def export_model(self, saved: "SavedWeights", paths: Sequence[Path], /) -> OutputDifference:
        """Write a plain model with these weights to each path if its outputs equal the trained model's.

        Raises:
            RefusedError: The outputs differ; nothing is written.
            OSError: A path cannot be written.
        """

    def explain_error(self, error: Exception) -> KnownError | None:
        """Return what an error of the framework means for a run, or None for any other error."""


def load_backend(framework: str = "tensorflow") -> Backend:
    """Return the backend of a framework, named as in the parameter; nothing is imported yet."""
    if framework == "pytorch":
        from workloads.pytorch.backend import PytorchBackend

        return PytorchBackend()
    if framework == "jax":
        from workloads.jax.backend import JaxBackend

        return JaxBackend()
    from workloads.tensorflow.backend import TensorflowBackend

    return TensorflowBackend()


def backend_of(spec: RunSpec) -> Backend | None:
    """Return the backend of a run; None for a workload that computes nothing, or computes in another process."""
    if spec.workload == "dummy" or is_script(spec.workload):
        return None
    return load_backend(str(spec.variant.get("framework", "tensorflow")))
