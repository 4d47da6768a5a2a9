"""The plan of an experiment, for form, preset, command line, queue entry and runner; and published results."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from workloads.catalog import MAX_VARIANTS, OUTSIDE_STEP, with_defaults
from workloads.protocol import RunSpec, Value

REPEATS_LIMIT = 999
"""Largest number of runs per variant that an experiment may request; more is a typing error."""

MAX_REPEATS = 20
"""The most runs per variant if only a precision was requested; `docs/internals/statistics.md` simulates this limit."""

MAX_THROTTLED_PCT = 5.0
"""The percentage of its measured part up to which a throttled run still counts."""

Repeats = Annotated[int, msgspec.Meta(ge=1, le=REPEATS_LIMIT)]
"""Runs per variant, checked when a plan is read from a file or the queue."""
Variants = Annotated[tuple[RunSpec, ...], msgspec.Meta(min_length=1, max_length=MAX_VARIANTS)]
"""The variants of an experiment, checked when a plan is read from the queue."""

HostWord = Annotated[str, msgspec.Meta(max_length=1000, pattern=r"^(?!-)[^\x00-\x20\x7f-\x9f]*$")]
"""A host's name, or an address, checked when a plan is read, because it may come from another user."""


class WeightTransfer(msgspec.Struct, frozen=True, kw_only=True):
    """A single run, after all others, whose saved weights are loaded into other implementations.

    Attributes:
        spec: The run that saves its weights.
        into: Implementations that load them.
        gpus: GPUs for the trials; 0 means the CPU.
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
    """An experiment's runs and limits. As JSON it is the plan of a queue entry.

    The JSON keys are those of every version so far: `carried` and `gate_s` are older names.

    Attributes:
        name: Name of the experiment.
        variants: The variants compared, the baseline first.
        repeats: Runs per variant; with `until_pct`, the largest number of them.
        until_pct: Stop when every speed-up is known to ± this many percent; None runs every repeat.
        weight_transfers: Runs besides those compared, whose weights are tried elsewhere.
        notes: Sentences on how the experiment was adapted to this machine.
        asked: The varied setting that it asks about; "" for the one with the largest effect.
        has_baseline: Whether the first variant was chosen as the baseline; else one with steady runs is used.
        preset: Key of its preset, None without one.
        budget_s: Time limit of one sitting, None for no limit.
        parallel: Largest number of concurrent runs.
        again: Count no runs that were stored before the experiment was queued.
        reuse: Count stored runs however old they are.
        max_idle_wait_s: Longest wait for an idle machine before a run, None for the default.
        max_throttled_pct: The percentage of its measured part up to which a throttled run still counts.
        check_equality: Whether to check first that the variants compute the same; None if that is cheap.
        host: The host to run on, as for `--on`; "" is this machine.
        order_seed: Seed of the order of runs in every round, drawn when it is queued; None, in older entries,
            alternates between forwards and backwards.
    """

    name: str
    variants: Variants
    repeats: Repeats
    until_pct: float | None = None
    weight_transfers: tuple[WeightTransfer, ...] = ()
    notes: tuple[str, ...] = ()
    asked: str = ""
    has_baseline: bool = False
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
        """Return the planned repeats as every run records them: `3`, or `until ± 0.5 %`."""
        return str(self.repeats) if self.until_pct is None else f"until ± {self.until_pct:g} %"

    @property
    def interpreters(self) -> tuple[str, ...]:
        """Return the Pythons that its runs name, each once."""
        named = (str(spec.variant.get("interpreter", "")) for spec in self.specs)
        return tuple(filter(None, dict.fromkeys(named)))

    @property
    def specs(self) -> tuple[RunSpec, ...]:
        """Return the spec of every run, the compared variants' first."""
        return (*self.variants, *(transfer.spec for transfer in self.weight_transfers))


def matching_variants(spec: RunSpec) -> tuple[RunSpec, ...]:
    """Return the variants to which a stored run belongs: its own, and the same one with any GPUs."""
    if spec.variant.get("devices") == "":
        return (spec,)
    return spec, RunSpec(workload=spec.workload, variant={**spec.variant, "devices": ""})


def encode_plan(plan: Plan) -> str:
    return msgspec.json.encode(plan).decode()


def decode_plan(text: str) -> Plan:
    """Read a plan from JSON of this or an earlier version; parameters it does not name get their defaults.

    Raises:
        msgspec.MsgspecError: The text is not a plan of this version.
    """
    plan = msgspec.json.decode(text, type=Plan)
    pairs = ((transfer, with_defaults(transfer.spec)) for transfer in plan.weight_transfers)
    transfers = (msgspec.structs.replace(transfer, spec=spec) for transfer, spec in pairs)
    return msgspec.structs.replace(
        plan, variants=tuple(map(with_defaults, plan.variants)), weight_transfers=tuple(transfers)
    )


class PublishedValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A published result of changing a setting to `after`, with other `settings` fixed.

    Attributes:
        figure: The figure afterwards, in the unit of the effect's metric.
        ratio: The speed-up, or the two ends of its range.
        says: Its words instead of figures.
    """

    after: Value
    settings: dict[str, Value] = {}
    figure: float | None = None
    ratio: float | tuple[float, float] | None = None
    says: str = ""

    @property
    def ends(self) -> tuple[float, ...]:
        """Return the two ends of the ratio; empty without one."""
        return () if self.ratio is None else self.ratio if isinstance(self.ratio, tuple) else (self.ratio, self.ratio)


class PublishedEffect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The published effect of changing one setting from `before`, with other `settings` fixed.

    `figure` is the key of a metric, `before_figure` its value before the change.
    """

    workload: str
    setting: str
    before: Value
    values: tuple[PublishedValue, ...]
    settings: dict[str, Value] = {}
    figure: Literal["throughput", "step_p50", "gpu_step", "gflops", "mean_power"] = "throughput"
    before_figure: float | None = None


class Article(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A publication that a preset repeats: its title, its figures, and their machine if stated."""

    title: str
    effects: tuple[PublishedEffect, ...] = ()
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    """An article, and the keys of the variants that repeat its measurements."""

    article: Article
    keys: frozenset[Hashable]


def step_key(spec: RunSpec) -> Hashable:
    """Return a key that variants with the same step share, however long they measure."""
    settings = (setting for setting in spec.variant.items() if setting[0] not in OUTSIDE_STEP)
    return spec.workload, frozenset(settings)
