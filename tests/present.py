"""What a test needs not to be None."""

from typing import TypeVar

Value = TypeVar("Value")


def present(value: Value | None) -> Value:
    assert value is not None
    return value
