"""Several interpreters in one word of the command line."""

from app.cli.settings import several_variants
from workloads.catalog import Machine, workload


def test_no_interpreter_is_a_value_too() -> None:
    found = several_variants(workload("cnn10"), ["interpreter=,/envs/tf216"], Machine())
    assert [spec.variant["interpreter"] for spec in found] == ["", "/envs/tf216"]
