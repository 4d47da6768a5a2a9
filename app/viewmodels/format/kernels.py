"""Short names of kernels: what identifies a kernel for a reader, without namespaces, template arguments and types.

A name as the profiler has it may be 2,500 characters long, most of them types.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

_RETURN_TYPE = re.compile(r"^(void|std::enable_if<.*?>::type) ")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::")
_CUTLASS = re.compile(r"::Kernel2?<(cutlass_\w+)")
"""CUTLASS wraps every kernel in one template; the argument is the kernel."""
_EIGEN = "EigenMetaKernel"
_EIGEN_OPERATION = re.compile(r"scalar_(\w+?)_op\b|Tensor(?!Assign|Cwise)([A-Z]\w+?)Op<")
"""Eigen has one kernel for every expression; its template arguments name the operations."""
_MANGLED = re.compile(r"^_ZN.*?\d([A-Z][a-z]+[A-Z][A-Za-z]{8,}?)(?=I[A-Z]|E)")
"""The class of a mangled C++ name, which begins in capitals: ImplicitGemmConvolution."""
_XMMA_SETTINGS = re.compile(
    r"_warp(group)?size\dx\dx\d|_(execute|kernel|segment|stage\d|strided|aligna\d|alignc\d)(?=_|$)|__5x_\w+$"
)
"""Settings of cuBLAS's and cuDNN's xmma kernels behind the size of a tile."""
_MAX_OPERATIONS = 3
_MAX_ARGUMENTS = 40
"""Characters of template arguments that are shown where they tell two kernels apart."""


def short_kernel_names(names: Sequence[str]) -> list[str]:
    """Return a short name for each kernel; kernels that would have the same are told apart by arguments or a number.

    Template arguments are only shown where they tell two of these kernels apart and are few.
    """
    short = list(map(_short_name, names))
    counts = Counter(short)
    detailed = [
        short_name + _template_arguments(name) if counts[short_name] > 1 else short_name
        for short_name, name in zip(short, names, strict=True)
    ]
    repeated, numbers = Counter(detailed), Counter[str]()
    unique = []
    for kernel_name in detailed:
        numbers[kernel_name] += 1
        unique.append(f"{kernel_name} #{numbers[kernel_name]}" if repeated[kernel_name] > 1 else kernel_name)
    return unique


@lru_cache(maxsize=4096)
def _short_name(name: str) -> str:
    if wrapped := _CUTLASS.search(name):
        return wrapped[1]
    if mangled := _MANGLED.match(name):
        return mangled[1]
    if _EIGEN in name:
        operations = dict.fromkeys(scalar or tensor for scalar, tensor in _EIGEN_OPERATION.findall(name))
        return f"Eigen {', '.join(list(operations)[:_MAX_OPERATIONS])}" if operations else _EIGEN
    plain = _ANONYMOUS.sub("", _RETURN_TYPE.sub("", name))
    plain = re.split(r"[<(]", plain, maxsplit=1)[0].rpartition("::")[2]
    return (_XMMA_SETTINGS.sub("", plain) if "_xmma_" in plain else plain) or name


def _template_arguments(name: str) -> str:
    """Return the arguments of a kernel's outermost template if they are few, `<float, 128>`."""
    match = None if _EIGEN in name else re.search(r"<([^<>]*)>", name)
    return f"<{match[1]}>" if match and len(match[1]) <= _MAX_ARGUMENTS else ""
