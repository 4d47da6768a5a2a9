"""Cheap NVML calls made ready once, so that a reading costs little more than the driver's own answer.

nvidia-ml-py looks its function up and makes arguments and buffers anew at every call. Twenty times a second, from cold
caches, that costs more than the answers do (docs/measurements/2026-11-21-telemetry.md). Library, structures and errors
here are nvidia-ml-py's own. What is prepared belongs to one thread: every reading uses the same buffers.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

Number = int | float
Read = Callable[[], Sequence[Number]]

_VALUE_FORMATS = ("d", "I4x", "Q", "Q", "q", "i4x", "H6x")
"""How the eight bytes of an `nvmlValue_t` are read, by `nvmlValueType_t`."""


def number(name: str, *arguments: int, kind: type[Any] = ctypes.c_uint) -> Callable[[Any], Read]:
    """A function of a device and these numbers that gives one number of a C type."""

    def prepare(handle: Any) -> Read:
        return _reading(name, handle, arguments, kind(), kind._type_)

    return prepare


def structure(name: str, make: Callable[[], Any], form: str) -> Callable[[Any], Read]:
    """A function of a device that fills a structure, of which `form` reads what is wanted and skips the rest."""

    def prepare(handle: Any) -> Read:
        return _reading(name, handle, (), make(), form)

    return prepare


def field_values(*ids: int) -> Callable[[Any], Read]:
    """Several fields in one `nvmlDeviceGetFieldValues`; fails as a whole if one of them is not there.

    A field's type is the driver's and stays the same: it is learnt by a first call. `nvmlFieldValue_t` has 40 bytes,
    its outcome at 28 and its value at 32.
    """

    def prepare(handle: Any) -> Read:
        function, values = _function("nvmlDeviceGetFieldValues"), (pynvml.c_nvmlFieldValue_t * len(ids))()
        for value, wanted in zip(values, ids, strict=True):
            value.fieldId = wanted
        given = (handle, ctypes.c_int(len(ids)), ctypes.byref(values))
        _check(function(*given))
        numbers = struct.Struct("".join(f"32x{_VALUE_FORMATS[value.valueType]}" for value in values))
        outcomes = struct.Struct("28xi8x" * len(ids))
        memory = memoryview(values).cast("B")

        def read() -> Sequence[Number]:
            _check(function(*given))
            if any(codes := outcomes.unpack_from(memory)):
                _check(next(filter(None, codes)))
            return numbers.unpack_from(memory)

        read()
        return read

    return prepare


def _reading(name: str, handle: Any, arguments: Sequence[int], buffer: Any, form: str) -> Read:
    function, unpack, memory = _function(name), struct.Struct(form).unpack_from, memoryview(buffer).cast("B")
    given = (handle, *map(ctypes.c_uint, arguments), ctypes.byref(buffer))

    def read() -> Sequence[Number]:
        code = function(*given)
        if code:
            raise pynvml.NVMLError(code)
        return unpack(memory)

    return read


def _function(name: str) -> Any:
    """A function of the loaded library; raises `pynvml.NVMLError` where this driver has none of that name."""
    try:
        return getattr(pynvml.nvmlLib, name)
    except AttributeError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def _check(code: int) -> None:
    if code:
        raise pynvml.NVMLError(code)
