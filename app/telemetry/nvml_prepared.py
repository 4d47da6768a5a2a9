"""Cheap NVML calls made ready once, so that a reading costs little more than the driver's own answer.

nvidia-ml-py looks its function up and makes arguments and buffers anew at every call. Twenty times a second, from cold
caches, that costs more than the answers do (docs/measurements/2026-11-21-telemetry.md). Library, structures and errors
here are nvidia-ml-py's own. What is prepared belongs to one thread: every reading uses the same buffers.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

Number = int | float
Read = Callable[[], Sequence[Number]]

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""The members of `nvmlValue_t`, by `nvmlValueType_t`."""


def number(name: str, *arguments: int, kind: type[Any] = ctypes.c_uint) -> Callable[[Any], Read]:
    """A function of a device and these numbers that gives one number of a C type."""

    def prepare(handle: Any) -> Read:
        function, value = _function(name), kind()
        given = (handle, *map(ctypes.c_uint, arguments), ctypes.byref(value))

        def read() -> Sequence[Number]:
            _check(function(*given))
            return (value.value,)

        return read

    return prepare


def structure(name: str, make: Callable[[], Any], *members: str) -> Callable[[Any], Read]:
    """A function of a device that fills a structure, of which some members are wanted."""

    def prepare(handle: Any) -> Read:
        function, filled = _function(name), make()
        given = (handle, ctypes.byref(filled))

        def read() -> Sequence[Number]:
            _check(function(*given))
            return [getattr(filled, member) for member in members]

        return read

    return prepare


def field_values(*ids: int) -> Callable[[Any], Read]:
    """Several fields in one `nvmlDeviceGetFieldValues`; fails as a whole if one of them is not there."""

    def prepare(handle: Any) -> Read:
        function, values = _function("nvmlDeviceGetFieldValues"), (pynvml.c_nvmlFieldValue_t * len(ids))()
        for value, wanted in zip(values, ids, strict=True):
            value.fieldId = wanted
        given = (handle, ctypes.c_int(len(ids)), ctypes.byref(values))

        def read() -> Sequence[Number]:
            _check(function(*given))
            return [_field_value(value) for value in values]

        return read

    return prepare


def _field_value(value: Any) -> Number:
    """The number of an `nvmlFieldValue_t`, from the union's member that its type names."""
    _check(value.nvmlReturn)
    found: Number = getattr(value.value, _MEMBERS[value.valueType])
    return found


def _function(name: str) -> Any:
    """A function of the loaded library; raises `pynvml.NVMLError` where this driver has none of that name."""
    try:
        return getattr(pynvml.nvmlLib, name)
    except AttributeError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def _check(code: int) -> None:
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
