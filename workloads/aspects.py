"""The observation of a run, and the aspects that all workloads have: precision, XLA, device, replicas, all-reduce."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workloads.catalog import is_custom
from workloads.custom.evidence import NOT_INSPECTED, Findings
from workloads.evidence import Aspect, compared, exchange_note, share_note, tensor_core_share
from workloads.operations import Op, main_products
from workloads.protocol import RunSpec, Variant
from workloads.training import Layer
from workloads.xla import XlaTrace

NO_KERNEL = "The profiler saw no kernel: NVIDIA's libcupti is missing, or its driver allows profiling to root alone."


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The first step's graph, and a trace of later steps; each is empty if nothing was observed.

    `layers` and `findings` are a custom model's, `findings` a sentence where its task could not be inspected;
    `memory_limits_bytes` is the most that each GPU's allocator may hold.
    """

    spec: RunSpec
    layers: tuple[Layer, ...] = ()
    graph: tuple[Op, ...] = ()
    trace: XlaTrace = field(default_factory=XlaTrace)
    memory_limits_bytes: tuple[int, ...] = ()
    findings: Findings | str = NOT_INSPECTED

    @property
    def variant(self) -> Variant:
        return self.spec.variant

    @property
    def programs(self) -> tuple[Op, ...]:
        """Return the products of XLA's programs, and the batch norms that they come from."""
        return self.trace.programs

    @property
    def on_gpu(self) -> bool:
        return int(self.variant["gpus"]) > 0

    @property
    def fully_compiled(self) -> bool:
        """Return whether XLA compiled the step as a whole, so that TensorFlow has no graph of its products."""
        return not main_products(self.graph)

    @property
    def no_product_reason(self) -> str:
        if (self.variant["xla"] or self.variant.get("framework") == "jax") and not self.trace.steps:
            return "XLA compiled the step as a whole, so only a trace after the measured part can show what ran."
        return self.python_reason or "No matrix product was seen in what ran."

    @property
    def python_reason(self) -> str | None:
        """Return one sentence on the work that ran in Python, where nothing observes it; None if there is none."""
        calls = {op.name for op in self.graph if op.in_python}
        if not calls:
            return None
        operations = "1 operation" if len(calls) == 1 else f"{len(calls)} operations"
        return f"{operations} ran in Python (py_function), where nothing shows what is computed."

    @property
    def products(self) -> tuple[Op, ...]:
        """Return the products that carry the work, from TensorFlow's graph, else from XLA's program."""
        return self._main_products(self.programs if self.fully_compiled else self.graph)

    @property
    def executed_products(self) -> tuple[Op, ...]:
        """Return the products as they were executed: XLA's if it compiled them and its program was seen."""
        compiled = self.fully_compiled or all(op.compiled for op in self.products)
        return (compiled and self._main_products(self.programs)) or self.products

    def _main_products(self, ops: Sequence[Op]) -> tuple[Op, ...]:
        """Return the products that the workload measures; for a custom workload all products."""
        return tuple(op for op in ops if op.is_product) if is_custom(self.spec.workload) else main_products(ops)


FLOAT32_OR_TF32 = "Without kernel names that show it, float32 and TF32 products look the same."
TENSOR_CORE_THRESHOLD = 0.01
"""The least share of the products' time on tensor cores that counts as using them."""
_OTHER_TYPES_LIMIT = 0.05
"""The largest share of the products' time that other types may have: a small last layer is often in float32."""


def precision(observation: Observation) -> Aspect:
    """Return the type that took most of the time in products; on a GPU the kernels distinguish float32 and TF32."""
    requested = str(observation.variant["precision"])
    shares = _time_shares(observation)
    tensor_share = tensor_core_share(observation.trace.kernels)
    float32 = _float32_or_tf32(observation, tensor_share) if observation.on_gpu else "float32"
    unseen = _unseen_precision(observation, shares, float32)
    named = {str(float32) if dtype == "float32" else dtype: share for dtype, share in shares.items()}
    if reason := unseen or (_is_mostly(requested, named) and observation.python_reason):
        return Aspect(name="precision", requested=requested, reason=reason)
    return judge_precision(requested, named, share_note(tensor_share))


def _unseen_precision(observation: Observation, shares: Mapping[str, float], float32: str | None) -> str | None:
    """Return why the types of products, or the time in each, are unknown; None if they are known."""
    if not shares:
        return observation.no_product_reason
    if not any(shares.values()):
        return f"Products are in {' and '.join(shares)}, and no trace shows how long those of each took."
    if "float32" in shares and float32 is None:
        return FLOAT32_OR_TF32
    return None


def _time_shares(observation: Observation) -> dict[str, float]:
    """Return each product type's share of the traced time; all 0 if that is unknown."""
    products = {(op.kernel or op.name, op.dtype) for op in observation.executed_products if op.dtype}
    types = sorted({dtype for _, dtype in products})
    if len(types) == 1:
        return dict.fromkeys(types, 1.0)
    times = observation.trace.op_times_ns
    spent = {dtype: sum(times.get(name, 0) for name, type_ in products if type_ == dtype) for dtype in types}
    total = sum(spent.values())
    return {dtype: time_ns / total if total else 0.0 for dtype, time_ns in spent.items()}


def _is_mostly(requested: str, shares: Mapping[str, float]) -> bool:
    return 1 - shares.get(requested, 0.0) <= _OTHER_TYPES_LIMIT


def judge_precision(requested: str, shares: Mapping[str, float], note: str | None) -> Aspect:
    """Return the aspect of a run whose products took these shares of their time in each type."""
    if _is_mostly(requested, shares):
        return Aspect(name="precision", requested=requested, actual=requested, note=note)
    large = sorted((dtype for dtype in shares if shares[dtype] > _OTHER_TYPES_LIMIT), key=lambda dtype: -shares[dtype])
    other_type = next(dtype for dtype in large if dtype != requested)
    differs = f"{100 * shares[other_type]:.0f} % of the time in products was in {other_type}, not in {requested}."
    if len(large) == 1:
        differs = f"The products were computed in {other_type}, not in {requested}."
    return Aspect(name="precision", requested=requested, actual=" and ".join(large), reason=differs)


def _float32_or_tf32(observation: Observation, share: float | None) -> str | None:
    """Decide by the kernels' names, else by the precision that XLA's products have to keep."""
    exact = {op.exact for op in main_products(observation.programs)}
    if share is None:
        return {True: "float32", False: "tf32"}.get(exact.pop()) if len(exact) == 1 else None  # type: ignore[arg-type]
    return "tf32" if share >= TENSOR_CORE_THRESHOLD else "float32"


def xla(observation: Observation) -> Aspect:
    """Return whether XLA compiled the products; point-wise kernels that an implementation compiles do not count."""
    requested, count = "on" if observation.variant["xla"] else "off", len(observation.products)
    compiled = sum(op.compiled for op in observation.products)
    actual = ("on" if compiled == count else "partly" if compiled else "off") if count else None
    differs = f"XLA compiled {compiled} of the {count} products."
    return compared("xla", requested, actual, differs, observation.no_product_reason)


def device(observation: Observation) -> Aspect:
    """Return whether the products were computed on GPUs or on the CPU."""
    requested = "GPU" if observation.on_gpu else "CPU"
    counts = Counter(op.device.partition(":")[0] for op in observation.products if op.device)
    if not counts and observation.trace.devices:
        counts[requested] = 1
    differs = f"{counts['CPU']} of the {counts.total()} products ran on the CPU."
    return compared("device", requested, " and ".join(sorted(counts)) or None, differs, observation.no_product_reason)


def replicas(observation: Observation) -> Aspect:
    requested = str(max(1, int(observation.variant["gpus"])))
    count = len({op.device for op in observation.products if op.device}) or observation.trace.devices
    differs = f"{count} device(s) computed the products, not {requested}."
    return compared("replicas", requested, str(count) if count else None, differs, observation.no_product_reason)


def all_reduce(observation: Observation) -> Aspect:
    """Return how gradients were exchanged: NCCL by its kernels, copies by the devices that add what they receive."""
    requested = str(observation.variant["all_reduce"])
    actual = _actual_method(observation)
    differs = f"Gradients were exchanged by {_METHODS[actual]}." if actual else ""
    unseen = "How gradients were exchanged is not known: TensorFlow's graph does not say, and no trace shows it."
    return compared("all_reduce", requested, actual, differs, unseen, exchange_note(observation.trace))


_METHODS = {
    "nccl": "NCCL",
    "hierarchical": "copies, added on several devices",
    "one_device": "copies, added on one device",
    "ring": "TensorFlow's own ring, without NCCL",
    "none": "nobody: each device trained alone",
}


def _actual_method(observation: Observation) -> str | None:
    if any("nccl" in kernel.name.lower() for kernel in observation.trace.kernels):
        return "nccl"
    adding = {op.device for op in observation.graph if op.received}
    if adding:
        return "one_device" if len(adding) == 1 else "hierarchical"
    if not observation.graph:
        return None
    if not any(op.kind == "communication" for op in observation.graph):
        return "none"
    return "ring" if observation.trace.kernels else None
