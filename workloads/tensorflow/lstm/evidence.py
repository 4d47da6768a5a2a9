"""Which LSTM implementation ran, by the operations that one device executed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workloads.protocol import Variant
from workloads.tensorflow.evidence.aspects import Aspect, Observation
from workloads.tensorflow.evidence.ops import CLUSTER, Op, main_products, ops_by_device


@dataclass(frozen=True, slots=True, kw_only=True)
class OpPattern:
    """What a forward pass through the layers is made of.

    cuDNN calls, block-fused calls, loops over time; of each loop's turn the matrix products, the batched ones, and
    whether it calls code compiled by XLA. `opaque`: XLA compiled the loops themselves and left their products as it saw
    fit, so only that there are loops can be told.
    """

    cudnn: int = 0
    blocks: int = 0
    loops: int = 0
    products: int = 0
    batched: int = 0
    kernel: bool = False
    fully_compiled: bool = False

    def __str__(self) -> str:
        """It in words, as `2 loops of 8 products a turn`."""
        iteration = _format_count(self.products + self.batched, "product")
        iteration += " and a compiled kernel" if self.kernel else ""
        parts = [_format_count(self.cudnn, "cuDNN call"), _format_count(self.blocks, "block-fused call")]
        parts += [f"{_format_count(self.loops, 'loop')} of {iteration} a turn" if self.loops else ""]
        return ", ".join(filter(None, parts))


def _format_count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}" if count else ""


def expected_patterns(variant: Variant) -> dict[str, OpPattern]:
    """The form of every implementation in a variant's sizes; the commonest name first.

    Keras makes each gate's products apart where there is recurrent dropout; a turn may be several time steps.
    """
    parts = int(variant["layers"]) * (2 if variant["bidirectional"] else 1)
    steps = int(variant.get("unroll", 1))
    return {
        "standard": OpPattern(loops=parts, products=8 if variant.get("recurrent_dropout") else 2),
        "cudnn": OpPattern(cudnn=parts),
        "cudnn_stack": OpPattern(cudnn=1),
        "block_fused": OpPattern(blocks=parts),
        "gemm8": OpPattern(loops=parts, products=8 * steps),
        "gemm2": OpPattern(loops=parts, products=2 * steps),
        "gemm_batched": OpPattern(loops=parts, batched=steps),
        "fused": OpPattern(loops=parts, batched=steps, kernel=True),
        "pretransposed": OpPattern(loops=parts, batched=steps, kernel=True),
        "combined_input": OpPattern(loops=parts, products=steps, kernel=True),
        "wavefront": OpPattern(loops=1, batched=steps, kernel=True),
    }


def observed_pattern(ops: Sequence[Op], *, fully_compiled: bool = False) -> OpPattern:
    """The form that operations of one device show; loops of several kinds give the counts of none."""
    forward = [op for op in ops if not op.backward]
    loops = {op.loop for op in forward if op.loop and op.is_product}
    iterations = {_iteration_pattern([op for op in forward if op.loop == loop]) for loop in loops}
    products, batched, kernel = iterations.pop() if len(iterations) == 1 else (0, 0, False)
    return OpPattern(
        cudnn=sum(op.type.startswith("CudnnRNN") for op in forward),
        blocks=sum(op.type.startswith("BlockLSTM") for op in forward),
        loops=len(loops),
        products=products,
        batched=batched,
        kernel=kernel,
        fully_compiled=fully_compiled,
    )


def _iteration_pattern(ops: Sequence[Op]) -> tuple[int, int, bool]:
    products = [op.type for op in ops if op.kind == "gemm"]
    batched = sum(type_.startswith("Batch") for type_ in products)
    return len(products) - batched, batched, any(op.type == CLUSTER for op in ops)


def matching_implementations(pattern: OpPattern, variant: Variant) -> tuple[str, ...]:
    """The implementations that look like this in the variant's sizes; none if none does."""
    known = expected_patterns(variant)
    if pattern.fully_compiled:
        looped = bool(pattern.loops) and not pattern.cudnn and not pattern.blocks
        return tuple(name for name, known_pattern in known.items() if known_pattern.loops and looped)
    return tuple(name for name, known_form in known.items() if known_form == pattern)


def lstm_implementation(observation: Observation) -> Aspect:
    """Which implementation's form the first step had; one that looks the same as the one asked for is taken for it."""
    requested = str(observation.variant["implementation"])
    groups = ops_by_device(observation.programs if observation.fully_compiled else observation.graph).values()
    found = {observed_pattern(ops, fully_compiled=observation.fully_compiled) for ops in groups if main_products(ops)}
    if not found:
        return Aspect(name="implementation", requested=requested, reason=observation.no_product_reason)
    names = matching_implementations(next(iter(found)), observation.variant) if len(found) == 1 else ()
    expected = "cudnn" if requested == "auto" else requested
    if expected in names:
        return Aspect(
            name="implementation",
            requested=requested,
            actual=expected,
            note=_ambiguity_note(names, fully_compiled=observation.fully_compiled),
        )
    shown = ", on another device ".join(sorted(map(str, found)))
    actual = names[0] if names else shown
    differs = (
        fallback_reason(observation.variant) if requested == "auto" else f"What ran is not {requested}: it has {shown}."
    )
    return Aspect(name="implementation", requested=requested, actual=actual, reason=differs)


def _ambiguity_note(names: Sequence[str], *, fully_compiled: bool) -> str | None:
    if fully_compiled:
        return "XLA compiled the loop over time as it saw fit: its program does not tell one such loop from another."
    return f"The executed graph looks the same for {' and '.join(names)}." if len(names) > 1 else None


_FALLBACK_REASONS: tuple[tuple[Callable[[Variant], bool], str], ...] = (
    (lambda v: int(v["gpus"]) == 0, "this run is on the CPU, and cuDNN needs an NVIDIA GPU"),
    (lambda v: bool(v["xla"]), "XLA cannot compile cuDNN's LSTM"),
    (lambda v: float(v.get("recurrent_dropout", 0.0)) > 0, "cuDNN's LSTM has no recurrent dropout"),
    (lambda v: v.get("activation", "tanh") != "tanh", "cuDNN's LSTM has no activation but tanh"),
    (lambda v: v.get("sequence_lengths") == "left_padded", "cuDNN's LSTM takes padding at the end only"),
)
"""Why Keras does not use cuDNN, as its layer decides (keras/src/layers/rnn/lstm.py, backend/tensorflow/rnn.py)."""


def fallback_reason(variant: Variant) -> str:
    """Why Keras, left to decide, did not use cuDNN."""
    known = next((reason for applies, reason in _FALLBACK_REASONS if applies(variant)), "it did not say why")
    return f"Keras was left to decide and did not use cuDNN: {known}."
