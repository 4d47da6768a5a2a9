"""What was seen of a run, and one aspect of it: what was asked beside what ran."""

from dataclasses import dataclass, field

from workloads.evidence.ops import Op, core
from workloads.evidence.xplane import Trace
from workloads.protocol import RunSpec, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The first step's graph, and a trace of later steps; each empty where it could not be had."""

    spec: RunSpec
    graph: tuple[Op, ...] = ()
    trace: Trace = field(default_factory=Trace)

    @property
    def variant(self) -> Variant:
        """What was asked."""
        return self.spec.variant

    @property
    def programs(self) -> tuple[Op, ...]:
        """The products of XLA's programs, and the batch norms they were made from."""
        return self.trace.programs

    @property
    def on_gpu(self) -> bool:
        """Whether GPUs were asked for."""
        return int(self.variant["gpus"]) > 0

    @property
    def opaque(self) -> bool:
        """Whether XLA compiled the step as a whole, so that TensorFlow has no graph of its products."""
        return not core(self.graph)

    @property
    def blindness(self) -> str:
        """Why no product was seen, where that is so, in one sentence."""
        if self.variant["xla"] and not self.trace.steps:
            return "XLA compiled the step as a whole, so only a trace after the measured part can show what ran."
        return "No matrix product was seen in what ran."

    @property
    def products(self) -> tuple[Op, ...]:
        """The products that carry the work, as TensorFlow's graph has them, else as XLA's program."""
        return core(self.programs) if self.opaque else core(self.graph)

    @property
    def computed(self) -> tuple[Op, ...]:
        """The same as they were computed at last: XLA's where it compiled them and its program was seen."""
        compiled = self.opaque or all(op.compiled for op in self.products)
        return (compiled and core(self.programs)) or self.products


@dataclass(frozen=True, slots=True, kw_only=True)
class Aspect:
    """`ran` is None where it could not be told; `reason` is one sentence where that is so, or where it does not fit.

    `note` is what else is to be known.
    """

    name: str
    asked: str
    ran: str | None = None
    reason: str | None = None
    note: str | None = None

    @property
    def fits(self) -> bool | None:
        """Whether what ran is what was asked; None where it could not be told."""
        return None if self.ran is None else self.reason is None
