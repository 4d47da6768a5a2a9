"""How each implementation of the LSTM layers can be told from the operations that one device executed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from workloads.evidence.ops import CLUSTER, Op, core, on_device
from workloads.evidence.seen import Aspect, Seen
from workloads.protocol import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
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
    opaque: bool = False

    def __str__(self) -> str:
        """It in words, as `2 loops of 8 products a turn`."""
        turn = _counted(self.products + self.batched, "product")
        turn += " and a compiled kernel" if self.kernel else ""
        words = [_counted(self.cudnn, "cuDNN call"), _counted(self.blocks, "block-fused call")]
        words += [f"{_counted(self.loops, 'loop')} of {turn} a turn" if self.loops else ""]
        return ", ".join(filter(None, words))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}" if count else ""


def forms(variant: Variant) -> dict[str, Form]:
    """The form of every implementation in a variant's sizes; the commonest name first.

    Keras makes each gate's products apart where there is recurrent dropout; a turn may be several time steps.
    """
    parts = int(variant["layers"]) * (2 if variant["bidirectional"] else 1)
    steps = int(variant.get("unroll", 1))
    return {
        "standard": Form(loops=parts, products=8 if variant.get("recurrent_dropout") else 2),
        "cudnn": Form(cudnn=parts),
        "cudnn_stack": Form(cudnn=1),
        "block_fused": Form(blocks=parts),
        "gemm8": Form(loops=parts, products=8 * steps),
        "gemm2": Form(loops=parts, products=2 * steps),
        "gemm_batched": Form(loops=parts, batched=steps),
        "fused": Form(loops=parts, batched=steps, kernel=True),
        "pretransposed": Form(loops=parts, batched=steps, kernel=True),
        "combined_input": Form(loops=parts, products=steps, kernel=True),
        "wavefront": Form(loops=1, batched=steps, kernel=True),
    }


def form_of(ops: Sequence[Op], *, opaque: bool = False) -> Form:
    """The form that operations of one device show; loops of several kinds give the counts of none."""
    forward = [op for op in ops if not op.backward]
    loops = {op.loop for op in forward if op.loop and op.is_product}
    turns = {_turn_form([op for op in forward if op.loop == loop]) for loop in loops}
    products, batched, kernel = turns.pop() if len(turns) == 1 else (0, 0, False)
    return Form(
        cudnn=sum(op.type.startswith("CudnnRNN") for op in forward),
        blocks=sum(op.type.startswith("BlockLSTM") for op in forward),
        loops=len(loops),
        products=products,
        batched=batched,
        kernel=kernel,
        opaque=opaque,
    )


def _turn_form(ops: Sequence[Op]) -> tuple[int, int, bool]:
    products = [op.type for op in ops if op.kind == "gemm"]
    batched = sum(type_.startswith("Batch") for type_ in products)
    return len(products) - batched, batched, any(op.type == CLUSTER for op in ops)


def names_of(form: Form, variant: Variant) -> tuple[str, ...]:
    """The implementations that look like this in the variant's sizes; none if none does."""
    known = forms(variant)
    if form.opaque:
        looped = bool(form.loops) and not form.cudnn and not form.blocks
        return tuple(name for name, known_form in known.items() if known_form.loops and looped)
    return tuple(name for name, known_form in known.items() if known_form == form)


def implementation(seen: Seen) -> Aspect:
    """Which implementation's form the first step had; one that looks the same as the one asked for is taken for it."""
    asked = str(seen.variant["implementation"])
    groups = on_device(seen.programs if seen.opaque else seen.graph).values()
    found = {form_of(ops, opaque=seen.opaque) for ops in groups if core(ops)}
    if not found:
        return Aspect(name="implementation", asked=asked, reason=seen.blindness)
    names = names_of(next(iter(found)), seen.variant) if len(found) == 1 else ()
    wanted = "cudnn" if asked == "auto" else asked
    if wanted in names:
        return Aspect(name="implementation", asked=asked, ran=wanted, note=_alike(names, opaque=seen.opaque))
    shown = ", on another device ".join(sorted(map(str, found)))
    ran = names[0] if names else shown
    differs = fallback_reason(seen.variant) if asked == "auto" else f"What ran is not {asked}: it has {shown}."
    return Aspect(name="implementation", asked=asked, ran=ran, reason=differs)


def _alike(names: Sequence[str], *, opaque: bool) -> str | None:
    if opaque:
        return "XLA compiled the loop over time as it saw fit: its program does not tell one such loop from another."
    return f"The executed graph looks the same for {' and '.join(names)}." if len(names) > 1 else None


_FALLBACKS: tuple[tuple[Callable[[Variant], bool], str], ...] = (
    (lambda v: int(v["gpus"]) == 0, "this run is on the CPU, and cuDNN needs an NVIDIA GPU"),
    (lambda v: bool(v["xla"]), "XLA cannot compile cuDNN's LSTM"),
    (lambda v: float(v.get("recurrent_dropout", 0.0)) > 0, "cuDNN's LSTM has no recurrent dropout"),
    (lambda v: v.get("activation", "tanh") != "tanh", "cuDNN's LSTM has no activation but tanh"),
    (lambda v: v.get("sequence_lengths") == "left_padded", "cuDNN's LSTM takes padding at the end only"),
)
"""Why Keras does not use cuDNN, as its layer decides (keras/src/layers/rnn/lstm.py, backend/tensorflow/rnn.py)."""


def fallback_reason(variant: Variant) -> str:
    """Why Keras, left to decide, did not use cuDNN."""
    known = next((reason for applies, reason in _FALLBACKS if applies(variant)), "it did not say why")
    return f"Keras was left to decide and did not use cuDNN: {known}."
