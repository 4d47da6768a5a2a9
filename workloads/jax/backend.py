"""JAX as the backend of workloads, for a worker and for jobs; errors of JAX are known here alone."""

import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.calibration import calibrate
from workloads.catalog import is_custom
from workloads.errors import BROKEN_PACKAGE, KnownError, RefusedError, describe_error
from workloads.framework import JAX
from workloads.interpreter import MINIMUM_VERSIONS, install_command, is_older
from workloads.job_protocol import ComputedGradients, ComputeGradients, OutputDifference
from workloads.libraries import loaded_versions
from workloads.processor import ProcessorSupport
from workloads.protocol import Calibration, RunSpec, Source
from workloads.training import Task
from workloads.weights import Array, SavedWeights

if TYPE_CHECKING:
    from workloads.jax.evidence import EvidenceCollector

_TENSORFLOW_ALONE = "JAX cannot do this here so far; use framework=tensorflow."


class JaxBackend:
    """JAX in this process; see `Backend` for what each method promises."""

    def prepare_environment(self, gpu_uuids: Sequence[str]) -> None:
        """Set the GPUs that JAX may see, and their order."""
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu_uuids) or "-1"
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        for name, value in JAX.default_variables.items():
            os.environ.setdefault(name, value)

    def preimport(self) -> None:
        """Import JAX for a run that is not known yet; it looks for no device before it is asked for one."""
        self.prepare_environment(())
        _import_jax()

    def import_framework(self, gpu_uuids: Sequence[str]) -> dict[str, str]:
        """Import JAX and check the GPUs that it sees."""
        users = dict(os.environ)
        self.prepare_environment(gpu_uuids)
        _import_jax()
        import jax
        import jaxlib

        if jax.config.jax_disable_jit:
            raise RefusedError("JAX_DISABLE_JIT keeps XLA from compiling the step; unset it, or use another framework.")
        if not gpu_uuids:
            jax.config.update("jax_platforms", "cpu")
        devices = jax.devices()
        gpus = [device for device in devices if device.platform == "gpu"]
        if len(gpus) < len(gpu_uuids):
            raise RefusedError(
                f"This run was given {len(gpu_uuids)} of the machine's GPUs, and JAX sees {len(gpus)}: it has no "
                "plugin for CUDA, or one for another driver; `env add` makes an environment that fits."
            )
        versions = {
            "python": platform.python_version(),
            JAX.version_key: jax.__version__,
            "jaxlib": jaxlib.__version__,
            JAX.devices_key: ", ".join(gpu.device_kind for gpu in gpus) or "CPU",
        }
        return versions | JAX.variables(users)

    def processor_support(self) -> ProcessorSupport:
        """XLA computes both layouts in every precision on every processor: nothing is to be tried."""
        raise RefusedError(_TENSORFLOW_ALONE)

    def build_task(self, spec: RunSpec, _source: Source | None, /) -> Task:
        """Configure JAX, and make the model and its step; raises `RefusedError` for a custom workload."""
        from workloads.jax.steps import build_task, configure

        if is_custom(spec.workload):
            raise RefusedError("Custom workloads cannot be in JAX so far; write the file in Keras or PyTorch.")
        return build_task(spec, configure(spec.variant))

    def make_collector(self, spec: RunSpec, task: Task) -> "EvidenceCollector":
        """Return the collector that reads JAX's profiler and the compiled program."""
        from workloads.jax.evidence import EvidenceCollector

        return EvidenceCollector(spec, task)

    def loaded_versions(self) -> dict[str, str]:
        """Return the versions of CUDA's libraries loaded now."""
        return loaded_versions()

    def calibrate(self, precision: str, gpu_uuids: Sequence[str]) -> Calibration | None:
        """Measure matrix products on the first device, in the precision that JAX is set to for it."""
        import jax

        from workloads.jax.steps import DTYPES, set_precision

        set_precision(precision)
        device = gpu_uuids[0] if gpu_uuids else "cpu"
        multiply = jax.jit(jax.numpy.matmul)

        def matrices(size: int) -> Callable[[int], None]:
            keys = jax.random.split(jax.random.key(size))
            first, second = (jax.random.normal(key, (size, size)).astype(DTYPES[precision]) for key in keys)

            def products(count: int) -> None:
                jax.block_until_ready([multiply(first, second) for _ in range(count)][-1])

            return products

        try:
            return calibrate(matrices, device, precision)
        except jax.errors.JaxRuntimeError as error:
            print(f"No calibration of {device} in {precision}: {error}", file=sys.stderr)  # noqa: T201
            return None

    def infer(self, _saved: SavedWeights, _spec: RunSpec, /) -> Array:
        """Refuse: no weights of JAX's are saved."""
        raise RefusedError(_TENSORFLOW_ALONE)

    def compute_gradients(self, request: ComputeGradients) -> ComputedGradients:
        """Configure JAX for the variant, and differentiate its loss without an update."""
        from workloads.jax.steps import compute_gradients, configure

        return compute_gradients(request, configure(request.spec.variant))

    def export_model(self, _saved: SavedWeights, _paths: Sequence[Path], /) -> OutputDifference:
        """Refuse: no weights of JAX's are saved."""
        raise RefusedError(_TENSORFLOW_ALONE)

    def explain_error(self, error: Exception) -> KnownError | None:
        """Recognise a full device, and GPUs that cannot exchange gradients."""
        message = str(error)
        if "RESOURCE_EXHAUSTED" in message or "out of memory" in message.lower():
            return KnownError(outcome="out_of_memory")
        if "NCCL" in message:
            return KnownError(outcome="failed", reason=f"GPUs could not exchange gradients: {describe_error(error)}.")
        return None


def _import_jax() -> None:
    try:
        import jax
    except BROKEN_PACKAGE as error:
        raise RefusedError(
            f"JAX cannot be imported ({error}): `env add` makes an environment that has it, or "
            f"{install_command(['jax'])}, or use framework=tensorflow."
        ) from error
    if is_older(jax.__version__, "jax"):
        oldest = MINIMUM_VERSIONS["jax"]
        raise RefusedError(f"jax {jax.__version__} is older than {oldest}; {install_command(['jax'])}.")
