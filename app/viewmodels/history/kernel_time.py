"""Time of the traced steps by kernel class, by kernel and by device."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.analysis.steps import imbalance, slow_products, step_parts, traced_device
from app.values import units
from app.viewmodels.format.naming import choice_label, short_kernel_names
from app.viewmodels.format.sentences import join_with_and
from workloads.kernels import KernelClass, image_layout, makes_products
from workloads.protocol import DeviceTime, Evidence, Kernel, RunSpec

DEVICE_COLUMNS = ("", "Step", "Computing", "Communicating alone", "No kernel", "Kernels")


def device_time_rows(evidence: Evidence, step_ms: float | None) -> tuple[tuple[str, ...], ...]:
    """Return the parts of the measured step of each of several devices, in `DEVICE_COLUMNS`."""
    rows = []
    for device in evidence.devices if len(evidence.devices) > 1 else ():
        traced = traced_device(device, evidence.steps)
        parts = step_parts(traced, step_ms)
        idle_ms = parts.idle_ms if parts else None
        times_ms = step_ms, traced.compute_ms, traced.busy_ms - traced.compute_ms, idle_ms
        rows.append((device.device, *map(units.milliseconds, times_ms), units.number(traced.kernels)))
    return tuple(rows)


def describe_imbalance(devices: Sequence[DeviceTime]) -> str:
    """Return how evenly the devices computed, in a sentence; "" for one device."""
    share = imbalance(devices)
    if share is None:
        return ""
    slowest = max(devices, key=lambda device: device.compute_ns)
    return f"The slowest, {slowest.device}, computes {units.percent(100 * share, 1)} longer than the fastest."


MAX_KERNELS = 12
"""The most kernels to list."""

KERNEL_CLASSES: dict[KernelClass, tuple[str, int]] = {
    "gemm": ("GEMM", 0),
    "convolution": ("convolution", 1),
    "rnn": ("RNN", 2),
    "attention": ("attention", 2),
    "batch_norm": ("batch norm", 8),
    "layer_norm": ("layer norm", 8),
    "pooling": ("pooling", 9),
    "reduction": ("reduction", 10),
    "pointwise": ("point-wise", 3),
    "transpose": ("transpose", 4),
    "copy": ("copy", 5),
    "communication": ("communication", 6),
    "other": ("other", 7),
}
"""The name of each class, and the index of its colour (`Palette.kernel_class`); a network rarely has two of one."""


@dataclass(frozen=True, slots=True)
class ClassShare:
    """A class of kernels with its share of all kernels' time, from 0 to 1."""

    name: str
    colour: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel by its short name; `share` is of all kernels' time, from 0 to 1.

    `tensor_cores` and `occupancy` are "" if unknown; `help` has the full name.
    """

    name: str
    kind: str
    colour: int
    share: float
    count: int
    tensor_cores: str
    occupancy: str
    help: str


def named_tensor_share(kernels: Iterable[Kernel]) -> float | None:
    """Return the tensor cores' share of the products' time, by conclusive kernel names; None without any."""
    named_kernels = [kernel for kernel in kernels if kernel.tensor_cores is not None]
    total_ns = _total_ns(named_kernels)
    return _total_ns(kernel for kernel in named_kernels if kernel.tensor_cores) / total_ns if total_ns else None


def products_share(kernels: Iterable[Kernel]) -> float | None:
    kernels = tuple(kernels)
    total_ns = _total_ns(kernels)
    return _total_ns(kernel for kernel in kernels if makes_products(kernel.name)) / total_ns if total_ns else None


def class_shares(kernels: Sequence[Kernel]) -> tuple[ClassShare, ...]:
    """Return the kernel classes that took any time, largest first."""
    total_ns, times = _total_ns(kernels), dict[KernelClass, int]()
    for kernel in kernels:
        times[kernel.kind] = times.get(kernel.kind, 0) + kernel.time_ns
    ranked = sorted(times.items(), key=lambda item: item[1], reverse=True)
    return tuple(ClassShare(*KERNEL_CLASSES[kind], time_ns / total_ns) for kind, time_ns in ranked if time_ns)


def kernel_rows(kernels: Sequence[Kernel]) -> tuple[KernelRow, ...]:
    total_ns = _total_ns(kernels)
    names = short_kernel_names([kernel.name for kernel in kernels[:MAX_KERNELS]])
    rows = []
    for kernel, name in zip(kernels, names, strict=False):
        kind, colour = KERNEL_CLASSES[kernel.kind]
        mean = units.amount(kernel.time_ns / kernel.count / 1e3 if kernel.count else None, "µs")
        rows.append(
            KernelRow(
                name=name,
                kind=kind,
                colour=colour,
                share=kernel.time_ns / total_ns if total_ns else 0.0,
                count=kernel.count,
                tensor_cores={True: "yes", False: "no", None: ""}[kernel.tensor_cores],
                occupancy="" if kernel.occupancy_pct is None else units.percent(kernel.occupancy_pct, 1),
                help=f"{kernel.name}\n{kernel.count:,} times, {mean} each on average",
            )
        )
    return tuple(rows)


def describe_other_kernels(kernels: Sequence[Kernel], noun: str) -> str:
    """Return the rest of the kernels: `13 more kernels, 2.1 % together`; "" without any."""
    left, total_ns = kernels[MAX_KERNELS:], _total_ns(kernels)
    if not left or not total_ns:
        return ""
    share = units.percent(100 * _total_ns(left) / total_ns, 1)
    return f"{len(left)} more {units.plural(noun, len(left))}, {share} together"


_LEAST_SHARE = 0.01
"""The least share of the kernels' time for which layouts are mentioned."""


def describe_slow_products(spec: RunSpec, evidence: Evidence, step_ms: float | None) -> str:
    """Return how much of a step products without tensor cores take, if much; else ""."""
    products = slow_products(spec, evidence, step_ms)
    if products is None:
        return ""
    precision = choice_label(spec, "precision", spec.variant["precision"])
    (longest,) = short_kernel_names([products.longest.name])
    return (
        f"Products without tensor cores take {units.milliseconds(products.time_ms)} of a step "
        f"({units.percent(100 * products.share, 1)}) although {precision} was requested; "
        f"the longest is {longest}: {units.milliseconds(products.longest_ms)}."
    )


def describe_image_layouts(evidence: Evidence) -> str:
    """Return how long kernels read images in another layout than requested, and how long transposes took.

    Within an operation in the requested layout, a library may use another one internally. "" if this hardly happened.
    """
    requested = evidence.requested.get("layout")
    if requested not in ("NCHW", "NHWC") or not evidence.steps:
        return ""
    times: dict[str, int] = {}
    for kernel in evidence.kernels:
        layout = image_layout(kernel.name)
        if layout not in (None, requested):
            name = f"{KERNEL_CLASSES[kernel.kind][0]} in {layout}"
            times[name] = times.get(name, 0) + kernel.time_ns
    least_ns = max(1, _LEAST_SHARE * _total_ns(evidence.kernels))
    long_times = {name: time_ns for name, time_ns in times.items() if time_ns >= least_ns}
    if not long_times:
        return ""
    long_times["transposes"] = _total_ns(kernel for kernel in evidence.kernels if kernel.kind == "transpose")
    steps = 1e6 * evidence.steps * max(1, len(evidence.devices))
    parts = [f"{units.milliseconds(time_ns / steps)} of {name}" for name, time_ns in long_times.items() if time_ns]
    return f"Libraries compute in layouts of their own: of a step, by kernel names, {join_with_and(parts)}."


def _total_ns(kernels: Iterable[Kernel]) -> int:
    return sum(kernel.time_ns for kernel in kernels)
