"""The frameworks that workloads compute with, as the program names them; nothing here imports one.

Screens, messages and checks take names, packages and environment keys from `FRAMEWORKS`; a `workloads.backend.Backend`
implements each.
"""

import ast
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

VARIABLES_RECORDED_KEY = "variables_recorded"
"""The environment key for the prefixes of the environment variables that a run looked for.

A variable with such a prefix that the run does not list was not set, or is a secret.
"""
VARIABLE_PREFIX = "env "
"""The prefix of environment keys for environment variables; the variable's name follows."""
ONEDNN_KEY = "onednn"
"""The environment key that says whether the framework used oneDNN, `on` or `off`."""
ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
"""The environment variable that turns oneDNN on or off."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|USERNAME|AUTH|COOKIE|SIGNATURE", re.IGNORECASE)
"""Matches names of variables, or of members of their values, that are never stored, such as `NVIDIA_API_KEY`."""
_SECRET_VALUES = re.compile(
    rf"(?P<name>(?:{_SECRET.pattern})[\w-]*[\"']?\s*[=:]\s*(?:(?:bearer|basic)\s+)?)(?:\"[^\"]*\"?|'[^']*'?|[^\s,;&}}\]]+)"
    r"|(?<=://)[^/\s@]+(?=@)",
    re.IGNORECASE,
)
"""Matches what follows such a name in a value, and what precedes `@` in an address."""
_TERRAFORM = re.compile(r"TF_(VAR|TOKEN|CLI|HTTP|ENCRYPTION|REATTACH|CLOUD|DATA_DIR|WORKSPACE|LOG|STATE|INPUT)(_|$)")
"""Variables of Terraform, which shares the prefix `TF_` and keeps secrets in some of them.

https://developer.hashicorp.com/terraform/cli/config/environment-variables
"""

VARIABLE_PREFIXES = (
    *("TF_", "XLA_", "KERAS_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_", "JAX_"),
    *("CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "NCCL_"),
    *("OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "MALLOC_", "TCMALLOC_", "LD_PRELOAD"),
)
"""Prefixes of the environment variables that change what a framework does, or how fast."""
OWN_VARIABLES = frozenset(
    (
        *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES"),
        *("KERAS_BACKEND", "TF_CPP_MIN_LOG_LEVEL", ONEDNN_VARIABLE, "XLA_PYTHON_CLIENT_PREALLOCATE"),
        "TORCHINDUCTOR_CACHE_DIR",  # Inductor sets it on import
    )
)
"""Variables that the worker itself sets, by a run's devices or always to the same value."""
MINOR_VARIABLES = frozenset(
    (
        *("CUDA_HOME", "CUDA_PATH", "CUDA_VERSION", "NCCL_VERSION", "CUDNN_VERSION", "KERAS_HOME", "TORCH_HOME"),
        *("NVIDIA_BUILD_ID", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_PRODUCT_NAME", "NVIDIA_REQUIRE_CUDA"),
        *("TORCH_LOGS", "NCCL_DEBUG"),
        *("KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),  # in older runs: scikit-learn sets them
    )
)
"""Variables that describe a container or an installation, or control logging."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework by name.

    Attributes:
        name: Its name in sentences.
        distributions: Names of the packages that provide it; the first one found gives the version.
        gpu_package: The package to install for runs on GPUs; for other runs it is the first distribution.
        modules: The modules that a file using it imports.
        minimum_versions: The oldest version of each library that workloads can use.
        version_key: The environment key that holds its version.
        devices_key: The environment key that holds the devices it sees.
        library_keys: Environment keys of the libraries that decide how fast a step is.
        default_variables: Variables that every worker sets to these values unless the user has set them.
    """

    name: str
    distributions: tuple[str, ...]
    gpu_package: str
    modules: tuple[str, ...]
    minimum_versions: Mapping[str, str]
    version_key: str
    devices_key: str
    library_keys: tuple[str, ...]
    labels: Mapping[str, str]
    default_variables: Mapping[str, str]

    def package(self, *, on_gpus: bool) -> str:
        return self.gpu_package if on_gpus else self.distributions[0]

    def prepare_environment(self, gpu_uuids: Sequence[str]) -> None:
        """Set which GPUs the framework may see, in the order of their addresses, and its default variables."""
        from workloads.machine import UUID_PREFIXES  # here: a Python without msgspec also reads this module

        # CUDA does not accept a Jetson's UUID, only an index: its GPU is the only one of its machine.
        named = all(uuid.startswith(UUID_PREFIXES) for uuid in gpu_uuids)
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpu_uuids if named else map(str, range(len(gpu_uuids)))) or "-1"
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        for name, value in self.default_variables.items():
            os.environ.setdefault(name, value)


def recorded_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables to record as parts of a run's environment, and the prefixes looked for."""
    variables = {
        f"{VARIABLE_PREFIX}{name}": _without_secrets(value)
        for name, value in sorted(environment.items())
        if name.startswith(VARIABLE_PREFIXES) and not _SECRET.search(name) and not _TERRAFORM.match(name)
    }
    return variables | {VARIABLES_RECORDED_KEY: " ".join(VARIABLE_PREFIXES)}


def _without_secrets(value: str) -> str:
    """Return a variable's value, which may be JSON, flags or an address, with secrets removed by their names."""
    try:
        document = json.loads(value) if value.lstrip().startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        document = None
    if document is None:
        return _masked(value)
    public = _public(document)
    return value if public == document else json.dumps(public, ensure_ascii=False)


def _public(value: object) -> object:
    if isinstance(value, dict):
        return {name: "…" if _SECRET.search(name) else _public(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_public(member) for member in value]
    return _without_secrets(value) if isinstance(value, str) else value


def _masked(text: str) -> str:
    return _SECRET_VALUES.sub(lambda match: f"{match['name'] or ''}…", text)


_LOADED_LABELS = {"cuda_loaded": "CUDA loaded", "cudnn_loaded": "cuDNN loaded", "nccl_loaded": "NCCL loaded"}

# TensorFlow has come with Keras 3 since 2.16; `use_cudnn` came with Keras 3.2.
FRAMEWORK = Framework(
    name="TensorFlow",
    distributions=("tensorflow", "tensorflow-cpu"),
    gpu_package="tensorflow[and-cuda]",
    modules=("tensorflow", "keras"),
    minimum_versions={"tensorflow": "2.16", "keras": "3.2"},
    version_key="tensorflow",
    devices_key="tensorflow_devices",
    library_keys=("tensorflow", "keras", "cuda_built", "cudnn_built", "cuda_loaded", "cudnn_loaded", "nccl_loaded"),
    labels={
        "tensorflow": "TensorFlow",
        "keras": "Keras",
        "cuda_built": "CUDA of TensorFlow",
        "cudnn_built": "cuDNN of TensorFlow",
        **_LOADED_LABELS,
        "tensorflow_devices": "TensorFlow sees",
        ONEDNN_KEY: "oneDNN",
    },
    # By default TensorFlow turns oneDNN on for some processors only, and NCHW on the CPU needs it. `ONEDNN_KEY` records
    # what took effect, so the variable is one of the worker's own.
    default_variables={ONEDNN_VARIABLE: "1"},
)
# `torch.backends.fp32_precision` came with 2.9.
PYTORCH = Framework(
    name="PyTorch",
    distributions=("torch",),
    gpu_package="torch",
    modules=("torch",),
    minimum_versions={"torch": "2.9"},
    version_key="pytorch",
    devices_key="pytorch_devices",
    library_keys=("pytorch", "pytorch_cuda", "pytorch_cudnn", "triton"),
    labels={
        "pytorch": "PyTorch",
        "pytorch_cuda": "CUDA of PyTorch",
        "pytorch_cudnn": "cuDNN of PyTorch",
        "triton": "Triton",
        "pytorch_devices": "PyTorch sees",
        **_LOADED_LABELS,
    },
    default_variables={},
)
# `jax.shard_map` came with 0.7; 0.8 is the oldest version tried.
JAX = Framework(
    name="JAX",
    distributions=("jax",),
    gpu_package="jax[cuda12]",
    modules=("jax",),
    minimum_versions={"jax": "0.8"},
    version_key="jax",
    devices_key="jax_devices",
    library_keys=("jax", "jaxlib", "cuda_loaded", "cudnn_loaded", "nccl_loaded"),
    labels={"jax": "JAX", "jaxlib": "jaxlib", "jax_devices": "JAX sees", **_LOADED_LABELS},
    # By default JAX takes three quarters of a GPU's memory when it starts.
    default_variables={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
)
FRAMEWORKS: Mapping[str, Framework] = {"tensorflow": FRAMEWORK, "pytorch": PYTORCH, "jax": JAX}
"""By the parameter's value; a variant without that parameter uses the first."""


def framework_of(variant: Mapping[str, object]) -> Framework:
    """Return the framework of a variant; one without the parameter is older than it."""
    return FRAMEWORKS.get(str(variant.get("framework")), FRAMEWORK)


def imported_frameworks(text: str) -> dict[str, int]:
    """Return the frameworks that a Python file imports, each with the first line that does so, in the order of lines.

    Nothing is run or imported; a text that is not Python has none.
    """
    try:
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    except (SyntaxError, ValueError, RecursionError):
        return {}
    lines: dict[str, int] = {}
    for node in sorted(nodes, key=lambda node: node.lineno):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        modules = {name.partition(".")[0] for name in names}
        for key, framework in FRAMEWORKS.items():
            if modules.intersection(framework.modules):
                lines.setdefault(key, node.lineno)
    return lines


def framework_of_file(text: str) -> str:
    """Return the framework of a user's file, as in the parameter; without an import it is TensorFlow."""
    return next(iter(imported_frameworks(text)), "tensorflow")
