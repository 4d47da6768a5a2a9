"""The backend: what a worker needs of the framework that computes, and the one place that chooses it.

Worker, training loop, jobs and benchmarks know this interface alone. `workloads.tensorflow`, `workloads.pytorch` and
`workloads.jax` implement it; another framework would be another package. The workload `dummy` computes nothing and has
no backend.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from workloads.errors import KnownError
from workloads.job_protocol import ComputedGradients, ComputeGradients, OutputDifference
from workloads.libraries import ProcessorSupport
from workloads.protocol import Calibration, Evidence, RunSpec, Source
from workloads.script.definitions import is_script
from workloads.training import Task

if TYPE_CHECKING:
    from workloads.weights import Array, SavedWeights


class EvidenceCollector(Protocol):
    """Collects what a task really runs, without cost to its measured part."""

    def start(self) -> None:
        """Start watching, before the first step."""

    def first_step_done(self) -> None:
        """Record the first step, after it ended."""

    def trace(self) -> None:
        """Run a few more steps under the profiler, after the measured part."""

    def inspect(self) -> None:
        """Look at what the task's steps changed and computed, after the measured part."""

    def evidence(self) -> Evidence | None:
        """Return what is known so far, or None before the first step."""


class Backend(Protocol):
    """The framework in this process. It can be configured once, so a process executes one run or one job."""

    def prepare_environment(self, gpu_uuids: Sequence[str]) -> None:
        """Set what the framework reads when it is imported: which GPUs it may see (none: the CPU), and their order."""

    def preimport(self) -> None:
        """Import the framework for a run that is not known yet, without touching a GPU; raises `RefusedError`."""

    def import_framework(self, gpu_uuids: Sequence[str], memory_limit_gib: float = 0.0, /) -> dict[str, str]:
        """Import the framework so that it sees these GPUs only, and return versions, devices and flags.

        A limit of each GPU's memory is for a framework that has to know it as it starts; 0 is none.

        Raises:
            RefusedError: It is missing, too old, or sees fewer GPUs.
        """

    def processor_support(self) -> ProcessorSupport:
        """Import the framework without GPUs and find out what it computes on this processor.

        Raises:
            RefusedError: It is missing or too old.
        """

    def build_task(self, spec: RunSpec, source: Source | None, /) -> Task:
        """Configure the framework for a variant and return it ready to step; after `import_framework`.

        The spec is complete. Errors of a custom workload's own source are raised as they come.

        Raises:
            RefusedError: The variant's data cannot be used, or the framework lacks what the variant needs.
        """

    def make_collector(self, spec: RunSpec, task: Task) -> EvidenceCollector:
        """Return the collector of a task's evidence."""

    def loaded_versions(self) -> dict[str, str]:
        """Return the versions of the libraries that the framework loaded on demand; ask at the end of a run."""

    def calibrate(self, precision: str, gpu_uuids: Sequence[str]) -> Calibration | None:
        """Measure the rate of a large matrix product on the first device.

        The GPUs are those of `import_framework`; none is the CPU.

        Returns:
            The rate, or None, with a line in the log, if the device cannot do it now.
        """

    def infer(self, saved: "SavedWeights", spec: RunSpec, /) -> "Array":
        """Load weights into the model of another variant and return its outputs [examples, 1] to their sequences."""

    def compute_gradients(self, request: ComputeGradients) -> ComputedGradients:
        """Compute a variant's loss and gradients on a first batch, in inference its outputs, and write them to a file.

        Raises:
            RefusedError: Its weights are not of the shapes of those to start from, or its gradients are not finite.
        """

    def export_model(self, saved: "SavedWeights", paths: Sequence[Path], /) -> OutputDifference:
        """Write a plain model with these weights to each path, once it answers as the trained one.

        Raises:
            RefusedError: It answers differently; nothing is written.
            OSError: A path cannot be written.
        """

    def explain_error(self, error: Exception) -> KnownError | None:
        """Return what an error of the framework means for a run, or None for any other error."""


def load_backend(framework: str = "tensorflow") -> Backend:
    """Return the backend of a framework, by the value of the parameter; the framework is not imported yet."""
    if framework == "pytorch":
        from workloads.pytorch.backend import PytorchBackend

        return PytorchBackend()
    if framework == "jax":
        from workloads.jax.backend import JaxBackend

        return JaxBackend()
    from workloads.tensorflow.backend import TensorflowBackend

    return TensorflowBackend()


def backend_of(spec: RunSpec) -> Backend | None:
    """Return the backend that a run computes with, or None for a workload that computes nothing, or elsewhere."""
    if spec.workload == "dummy" or is_script(spec.workload):
        return None
    return load_backend(str(spec.variant.get("framework", "tensorflow")))
