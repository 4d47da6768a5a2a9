"""Settings as words, for the scripts of this folder."""

from workloads import catalog
from workloads.protocol import Value


def value_of(workload: str, name: str, text: str) -> Value:
    """The value of a parameter that a word stands for."""
    return catalog.parse(catalog.workload(workload).parameter(name), text)
