"""The plan of an experiment: one record for form, preset, command line, queue entry and runner."""

from typing import Annotated

import msgspec

from workloads.catalog import MAX_VARIANTS, with_defaults
from workloads.protocol import RunSpec

REPEATS_LIMIT = 999
"""Largest number of runs per variant that an experiment may request; more is a typing error."""

MAX_REPEATS = 20
"""Runs per variant at most where only a precision was requested; `docs/statistics.md` simulates with as many."""

MAX_THROTTLED_PCT = 5.0
"""Percent of its measured part that a run may be throttled and still count at once."""

Repeats = Annotated[int, msgspec.Meta(ge=1, le=REPEATS_LIMIT)]
"""Runs per variant, checked where a plan is read from a file or from the queue."""
Variants = Annotated[tuple[RunSpec, ...], msgspec.Meta(min_length=1, max_length=MAX_VARIANTS)]
"""The variants of an experiment, checked where a plan is read from the queue."""

HostWord = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^(?!-)[^\x00-\x20\x7f-\x9f]*$")]
"""A host of the user's by name, or an address, checked where a plan is read: it may come from another's file."""


class WeightTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """A run made once, after all others, whose saved weights are loaded into other implementations.

    Attributes:
        spec: The run that saves its weights.
        into: Implementations that load them.
        gpus: GPUs that the trials use; 0 is the CPU.
    """

    spec: RunSpec
    into: tuple[str, ...]
    gpus: int


class Plan(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"weight_transfers": "carried", "max_idle_wait_s": "gate_s"},
):
    """What an experiment runs, and under which limits. As JSON it is the plan of a queue entry.

    The JSON keys are those of every version so far: `carried` and `gate_s` are older names.

    Attributes:
        name: Name of the experiment.
        variants: The variants compared, the baseline first.
        repeats: Runs per variant; with `until_pct`, the largest number of them.
        until_pct: Stop when every speed-up is known to ± this many percent; None makes every repeat.
        weight_transfers: Runs besides those compared, whose weights are tried elsewhere.
        notes: Sentences on how the experiment was adapted to this machine.
        asked: The setting that it asks about, of those that vary; "" for the one that its runs show best.
        preset: Key of the preset the plan was made from, None for any other.
        budget_s: Time limit of one sitting, None for no limit.
        parallel: Largest number of concurrent runs.
        again: Count no runs that were stored before the experiment was queued.
        reuse: Count stored runs however old they are.
        max_idle_wait_s: Longest wait for an idle machine before a run, None for the default.
        max_throttled_pct: Percent of its measured part that a run may be throttled and still count at once.
        check_equality: Whether to check first that the variants compute the same; None where that is cheap.
        host: The host it is made on, as `--on` takes it; "" is this machine.
        order_seed: Seed of the order of runs in every round, drawn when it is queued; None, in entries of before, is
            forwards and backwards in turn.
    """

    name: str
    variants: Variants
    repeats: Repeats
    until_pct: float | None = None
    weight_transfers: tuple[WeightTransfer, ...] = ()
    notes: tuple[str, ...] = ()
    asked: str = ""
    preset: str | None = None
    budget_s: float | None = None
    parallel: int = 1
    again: bool = False
    reuse: bool = False
    max_idle_wait_s: float | None = None
    max_throttled_pct: float = MAX_THROTTLED_PCT
    check_equality: bool | None = None
    host: HostWord = ""
    order_seed: int | None = None

    @property
    def extent(self) -> str:
        """Return how many repeats are planned, as every run says it: `3`, or `until ± 0.5 %`."""
        return str(self.repeats) if self.until_pct is None else f"until ± {self.until_pct:g} %"

    @property
    def interpreters(self) -> tuple[str, ...]:
        """Return the Pythons that its runs name, each once."""
        named = (str(spec.variant.get("interpreter", "")) for spec in self.specs)
        return tuple(filter(None, dict.fromkeys(named)))

    @property
    def specs(self) -> tuple[RunSpec, ...]:
        """Return the spec of every run, those of the variants compared first."""
        return (*self.variants, *(transfer.spec for transfer in self.weight_transfers))


def encode_plan(plan: Plan) -> str:
    return msgspec.json.encode(plan).decode()


def decode_plan(text: str) -> Plan:
    """Read a plan from JSON of this or an earlier version; parameters it does not name get their defaults.

    Raises:
        msgspec.MsgspecError: The text is no plan of this version.
    """
    plan = msgspec.json.decode(text, type=Plan)
    pairs = ((transfer, with_defaults(transfer.spec)) for transfer in plan.weight_transfers)
    transfers = (msgspec.structs.replace(transfer, spec=spec) for transfer, spec in pairs)
    return msgspec.structs.replace(
        plan, variants=tuple(map(with_defaults, plan.variants)), weight_transfers=tuple(transfers)
    )
