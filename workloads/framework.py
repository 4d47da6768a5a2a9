"""The framework that workloads compute with, as the program speaks of it; nothing here imports it.

Screens, messages and checks take its name, its packages and its environment keys from `FRAMEWORK`; what it does is
behind `workloads.backend.Backend`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

VARIABLES_RECORDED_KEY = "variables_recorded"
"""The environment key of a run with the prefixes of the environment variables that it looked for.

A variable with such a prefix that the run does not name was not set, or is a secret.
"""
VARIABLE_PREFIX = "env "
"""How the environment key of an environment variable begins; its name follows."""
ONEDNN_KEY = "onednn"
"""The environment key that says whether the framework used oneDNN, `on` or `off`."""
ONEDNN_VARIABLE = "TF_ENABLE_ONEDNN_OPTS"
"""The environment variable that turns oneDNN on or off."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|USERNAME|AUTH|COOKIE|SIGNATURE", re.IGNORECASE)
"""In the name of a variable, or of a member of its value, that is never stored, such as `NVIDIA_API_KEY`."""
_SECRET_VALUES = re.compile(
    rf"(?P<name>(?:{_SECRET.pattern})[\w-]*[\"']?\s*[=:]\s*(?:(?:bearer|basic)\s+)?)(?:\"[^\"]*\"?|'[^']*'?|[^\s,;&}}\]]+)"
    r"|(?<=://)[^/\s@]+(?=@)",
    re.IGNORECASE,
)
"""In a value: what stands behind such a name, and what an address has before `@`."""
_TERRAFORM = re.compile(r"TF_(VAR|TOKEN|CLI|HTTP|ENCRYPTION|REATTACH|CLOUD|DATA_DIR|WORKSPACE|LOG|STATE|INPUT)(_|$)")
"""Variables of Terraform, which shares the prefix `TF_` and keeps secrets in some of them.

https://developer.hashicorp.com/terraform/cli/config/environment-variables
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """A framework by name.

    Attributes:
        name: The name in sentences.
        distributions: Names of the packages that provide it; the first one found gives the version.
        minimum_versions: The oldest version of each library that workloads can use.
        version_key: The environment key that holds its version.
        devices_key: The environment key that holds the devices it sees.
        library_keys: Environment keys of the libraries that decide how fast a step is.
        variable_prefixes: How the names of the environment variables begin that change what it does, or how fast.
        default_variables: Those that every worker sets, to these values, where the user has not set them.
        own_variables: Those of them that the worker itself sets, by the devices of a run or always alike.
        minor_variables: Those that describe a container or an installation, or say what is logged.
    """

    name: str
    distributions: tuple[str, ...]
    minimum_versions: Mapping[str, str]
    version_key: str
    devices_key: str
    library_keys: tuple[str, ...]
    labels: Mapping[str, str]
    variable_prefixes: tuple[str, ...]
    default_variables: Mapping[str, str]
    own_variables: frozenset[str]
    minor_variables: frozenset[str]

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that matter as parts of a run's environment, and which were looked for."""
        found = {
            f"{VARIABLE_PREFIX}{name}": _without_secrets(value)
            for name, value in sorted(environment.items())
            if name.startswith(self.variable_prefixes) and not _SECRET.search(name) and not _TERRAFORM.match(name)
        }
        return found | {VARIABLES_RECORDED_KEY: " ".join(self.variable_prefixes)}


def _without_secrets(value: str) -> str:
    """Return a variable's value, which may be JSON, flags or an address, without what is named as a secret in it."""
    try:
        found = json.loads(value) if value.lstrip().startswith(("{", "[")) else None
    except (ValueError, RecursionError):
        found = None
    if found is None:
        return _masked(value)
    public = _public(found)
    return value if public == found else json.dumps(public, ensure_ascii=False)


def _public(part: object) -> object:
    """Return a part of JSON with "…" in place of secrets."""
    if isinstance(part, dict):
        return {name: "…" if _SECRET.search(name) else _public(member) for name, member in part.items()}
    if isinstance(part, list):
        return [_public(member) for member in part]
    return _without_secrets(part) if isinstance(part, str) else part


def _masked(text: str) -> str:
    return _SECRET_VALUES.sub(lambda found: f"{found['name'] or ''}…", text)


# Keras 3 is TensorFlow's own since 2.16; `use_cudnn` came with Keras 3.2.
FRAMEWORK = Framework(
    name="TensorFlow",
    distributions=("tensorflow", "tensorflow-cpu"),
    minimum_versions={"tensorflow": "2.16", "keras": "3.2"},
    version_key="tensorflow",
    devices_key="tensorflow_devices",
    library_keys=("tensorflow", "keras", "cuda_built", "cudnn_built", "cuda_loaded", "cudnn_loaded", "nccl_loaded"),
    labels={
        "tensorflow": "TensorFlow",
        "keras": "Keras",
        "cuda_built": "CUDA of TensorFlow",
        "cudnn_built": "cuDNN of TensorFlow",
        "cuda_loaded": "CUDA loaded",
        "cudnn_loaded": "cuDNN loaded",
        "nccl_loaded": "NCCL loaded",
        "tensorflow_devices": "TensorFlow sees",
        ONEDNN_KEY: "oneDNN",
    },
    variable_prefixes=(
        *("TF_", "XLA_", "KERAS_", "CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "NCCL_"),
        *("OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "MALLOC_", "TCMALLOC_", "LD_PRELOAD"),
    ),
    # By itself TensorFlow turns oneDNN on for some processors only, and NCHW on the CPU needs it. `ONEDNN_KEY` says
    # what was in force, so the variable is one of the worker's own.
    default_variables={ONEDNN_VARIABLE: "1"},
    own_variables=frozenset(
        ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "KERAS_BACKEND", "NVIDIA_VISIBLE_DEVICES", ONEDNN_VARIABLE)
    ),
    minor_variables=frozenset(
        (
            *("CUDA_HOME", "CUDA_PATH", "CUDA_VERSION", "NCCL_VERSION", "CUDNN_VERSION", "KERAS_HOME"),
            *("NVIDIA_BUILD_ID", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_PRODUCT_NAME", "NVIDIA_REQUIRE_CUDA"),
            *("TF_CPP_MIN_LOG_LEVEL", "NCCL_DEBUG"),
        )
    ),
)
