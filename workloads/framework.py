"""The framework that workloads compute with, as the program speaks of it; nothing here imports it.

Screens, messages and checks take its name, its packages and its environment keys from `FRAMEWORK`; what it does is
behind `workloads.backend.Backend`.
"""

from collections.abc import Mapping
from dataclasses import dataclass


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
        labels: Each of its environment keys as a reader knows it.
    """

    name: str
    distributions: tuple[str, ...]
    minimum_versions: Mapping[str, str]
    version_key: str
    devices_key: str
    library_keys: tuple[str, ...]
    labels: Mapping[str, str]


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
    },
)
