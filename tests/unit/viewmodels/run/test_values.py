"""Values as they are typed: one, several, and ranges."""

import pytest

from app.viewmodels.run.selection import describe_invalid, format_value, format_values, parse_values
from workloads.catalog import MAX_VARIANTS, workload
from workloads.protocol import Value

LSTM = workload("lstm")


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("batch_size", "8, 32,128", (8, 32, 128)),
        ("batch_size", "8 32;8", (8, 32)),
        ("batch_size", "8..128 x2", (8, 16, 32, 64, 128)),
        ("batch_size", "8..128", (8, 16, 32, 64, 128)),
        ("batch_size", "8..127 ×2", (8, 16, 32, 64)),
        ("batch_size", "8 .. 32 + 8, 64", (8, 16, 24, 32, 64)),
        ("batch_size", "8..8", (8,)),
        ("seconds", "0.5..2 +0.5", (0.5, 1.0, 1.5, 2.0)),
        ("seconds", "2, 5", (2.0, 5.0)),
        ("seconds", "2.0,5", (2.0, 5.0)),
        ("steps", "off, 5", (0, 5)),
        ("input_steps", "all", (0,)),
        ("devices", "0,1; 1", ("0,1", "1")),
        ("packages", ",torch==2.9.1, torch==2.11.0", ("", "torch==2.9.1", "torch==2.11.0")),
        ("packages", "torch>=2.9,<2.11 numpy<2,jax[cuda12,k8s]", ("torch>=2.9,<2.11 numpy<2", "jax[cuda12,k8s]")),
        ("precision", "tf32, float32", ("tf32", "float32")),
    ],
)
def test_what_is_typed_is_read(name: str, text: str, values: tuple[Value, ...]) -> None:
    parameter = LSTM.parameter(name)
    assert parse_values(parameter, text) == values
    assert describe_invalid(parameter, text) == ""
    assert parse_values(parameter, format_values(parameter, values)) == values


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("batch_size", "0", "Batch size must be from 1 to 1,048,576, not 0."),
        ("batch_size", "8..9999999", "Batch size must be from 1 to 1,048,576, not 9,999,999."),
        ("batch_size", "many", "Batch size takes a whole number, not 'many'."),
        ("batch_size", "8-64", "8-64 is not a range: write 8..128 x2 or 8..32 +8."),
        ("batch_size", "8..", "8.. is not a range: write 8..128 x2 or 8..32 +8."),
        ("batch_size", "128..8", "128..8 is not a range: write 8..128 x2 or 8..32 +8."),
        ("batch_size", "8..32 x1", "8..32 x1 is not a range: write 8..128 x2 or 8..32 +8."),
        ("batch_size", "8..32 +0", "8..32 +0 is not a range: write 8..128 x2 or 8..32 +8."),
        ("seconds", "0,5; 1", "Measure for takes a number, not '0,5'."),
    ],
)
def test_what_is_no_value_is_said(name: str, text: str, says: str) -> None:
    assert describe_invalid(LSTM.parameter(name), text) == says


def test_a_range_without_an_end_in_sight_ends_after_as_many_values_as_an_experiment_may_have() -> None:
    assert len(parse_values(LSTM.parameter("batch_size"), "1..1000000 +1")) == MAX_VARIANTS + 1


def test_a_number_is_written_with_all_its_digits() -> None:
    parameter = LSTM.parameter("seconds")
    for value in (1200.25, 86399.5, 0.1):
        assert parse_values(parameter, format_value(parameter, value)) == (value,)
