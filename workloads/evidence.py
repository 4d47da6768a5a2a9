"""Evidence of what really ran, for every framework: aspects as requested and as observed, and their summary."""

import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from workloads.framework import framework_of
from workloads.kernels import makes_products
from workloads.protocol import CHOICE, Evidence, Kernel, Variant
from workloads.trace import Trace, step_timeline

Result = TypeVar("Result")
Failure = TypeVar("Failure")
AnyTrace = TypeVar("AnyTrace", bound=Trace)
_TIMEOUT_S = 120.0
_MAX_STEPS = 10
_BUDGET_S = 1.0
_BUDGET_EVENTS = 3_000
_MIN_STEPS = 3


def trace_steps(profile: Callable[[int], tuple[AnyTrace, float]]) -> AnyTrace:
    """Trace as many steps as fit into about a second and 3,000 events, at least one.

    Writing and reading an event costs more than tracing it: PyTorch took about 0.3 ms a kernel in all on an H200.

    The first trace of a process is of one step: it starts the profiler and shows how many fit. If only one does, this
    trace is the result. If several do and their steps do not differ clearly, its step is still the one displayed.

    `profile` traces that many steps, and returns the trace and the seconds that a step took under the profiler.
    """
    first_trace, step_s = profile(1)
    fitting = max(_MIN_STEPS, _BUDGET_EVENTS / max(1, first_trace.events))
    steps = int(min(_MAX_STEPS, _BUDGET_S / step_s, fitting))
    if steps <= 1:
        return first_trace
    trace, _ = profile(steps)
    return replace(trace, step=trace.step or first_trace.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    """One property of a run as requested and as it ran.

    Attributes:
        actual: The observed value; None if it could not be seen.
        reason: One sentence if it could not be seen, is not as requested, or was chosen by the framework.
        note: Further information.
    """

    name: str
    requested: str
    actual: str | None = None
    reason: str | None = None
    note: str | None = None

    @property
    def matches(self) -> bool | None:
        """Return whether it ran as requested; None if it could not be seen."""
        return None if self.actual is None else self.requested in (self.actual, CHOICE)


def compared(
    name: str, requested: str, actual: str | None, differs: str, unseen: str, note: str | None = None
) -> Aspect:
    """Return an aspect with its reason: `unseen` if nothing was observed, `differs` if it is not as requested."""
    if actual is None:
        return Aspect(name=name, requested=requested, reason=unseen)
    reason = None if actual == requested else differs
    return Aspect(name=name, requested=requested, actual=actual, reason=reason, note=note)


def memory_limit(variant: Variant, limits_bytes: Iterable[int]) -> Iterator[Aspect]:
    """Yield the most memory that the framework's allocator may take of each GPU, if a variant limits it."""
    if not variant["memory_limit"]:
        return
    requested, name = f"{float(variant['memory_limit']):g} GiB", framework_of(variant).name
    actual = " and ".join(f"{limit / 2**30:.4g} GiB" for limit in sorted(set(limits_bytes))) or None
    differs = f"{name} could take {actual} of a GPU, not {requested}."
    yield compared("memory_limit", requested, actual, differs, f"{name} told no memory limit of its GPUs.")


def tensor_core_share(kernels: Sequence[Kernel]) -> float | None:
    """Return the tensor cores' share of the products' time; None if kernel names reveal it for less than half of it."""
    products = [kernel for kernel in kernels if makes_products(kernel.name)]
    classed = [kernel for kernel in products if kernel.tensor_cores is not None]
    known_ns = sum(kernel.time_ns for kernel in classed)
    if not known_ns or 2 * known_ns < sum(kernel.time_ns for kernel in products):
        return None
    return sum(kernel.time_ns for kernel in classed if kernel.tensor_cores) / known_ns


def share_note(share: float | None) -> str | None:
    """Return a note on the tensor cores' share; None if it is unknown."""
    return None if share is None else f"{100 * share:.0f} % of the time in products was on tensor cores."


def exchange_note(trace: Trace) -> str | None:
    """Return a note on the number of gradient exchanges per step and device; None without any."""
    count = sum(kernel.count for kernel in trace.kernels if kernel.kind == "communication")
    if not (count and trace.devices):
        return None
    return (
        f"Kernels or copies that exchange gradients: {count / trace.steps / trace.devices:.4g} per step on each device."
    )


def summarise(aspects: Iterable[Aspect], trace: Trace, sources: tuple[str, ...], notes: tuple[str, ...]) -> Evidence:
    """Return the evidence; `match` is false if an aspect differs, else None if an aspect is unknown."""
    listed = list(aspects)
    matches = {aspect.matches for aspect in listed}
    match = False if False in matches else None if None in matches else True
    reasons = [aspect.reason for aspect in listed if aspect.reason and aspect.matches is match]
    return Evidence(
        requested={aspect.name: aspect.requested for aspect in listed},
        actual={aspect.name: aspect.actual for aspect in listed if aspect.actual is not None},
        unverified={aspect.name: aspect.reason or "" for aspect in listed if aspect.actual is None},
        match=match,
        reason=" ".join(dict.fromkeys(reasons)) or None,
        sources=sources,
        notes=(*(aspect.note for aspect in listed if aspect.note), *notes),
        steps=trace.steps,
        span_ns=trace.span_ns,
        busy_ns=trace.busy_ns,
        kernels=trace.kernels,
        devices=trace.times,
        timeline=step_timeline(trace.step, trace.kernels),
    )


def run_guarded(
    work: Callable[[], Result], failed: Callable[[str], Failure], timeout_s: float = _TIMEOUT_S
) -> Result | Failure:
    """Return what the work does, or what `failed` returns for its error; the traceback goes to the log.

    The work runs in a thread, which is abandoned if the profiler hangs: it cannot be interrupted.
    """
    results: list[Result | Failure] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 - a profiler's failure must not cost the run
            traceback.print_exc(file=sys.stderr)
            line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            results.append(failed(f"could not be used: {line}."))

    thread = threading.Thread(target=run, name="evidence", daemon=True)
    thread.start()
    thread.join(timeout_s)
    return results[0] if results else failed(f"did not answer within {timeout_s:.0f} s.")


def guarded_trace(work: Callable[[], AnyTrace], trace_type: type[AnyTrace], timeout_s: float = _TIMEOUT_S) -> AnyTrace:
    """Return the trace of the work; an empty one with a note if the profiler fails."""
    return run_guarded(work, lambda how: trace_type(notes=(f"The profiler {how}",)), timeout_s)
