"""What an entry of the queue asks for: a plan, and how it is to be made; kept as JSON."""

from dataclasses import replace
from typing import Self

import msgspec

from app.analysis.fairness import MOST_THROTTLED_PCT
from app.errors import UserError
from app.queries import QueueEntry, Repeats, Variants
from app.runs.schedule import Carried, Plan
from app.storage.store import Store
from workloads.catalog import find_workload, with_defaults


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and how it is to be made.

    `budget_s` is for one sitting, not for all together; `parallel` how many runs may go on at once; `gate_s` how long
    a run waits for a machine at rest at most, None as long as usual. With `again` no run counts that was made before
    it was asked for.
    """

    name: str
    variants: Variants
    repeats: Repeats
    until_pct: float | None = None
    carried: tuple[Carried, ...] = ()
    notes: tuple[str, ...] = ()
    budget_s: float | None = None
    parallel: int = 1
    again: bool = False
    gate_s: float | None = None
    max_throttled_pct: float = MOST_THROTTLED_PCT

    @classmethod
    def of(
        cls,
        plan: Plan,
        *,
        budget_s: float | None = None,
        parallel: int = 1,
        again: bool = False,
        gate_s: float | None = None,
        max_throttled_pct: float = MOST_THROTTLED_PCT,
    ) -> Self:
        """What is asked for with this plan."""
        return msgspec.structs.replace(
            msgspec.convert(plan, cls, from_attributes=True),
            budget_s=budget_s,
            parallel=parallel,
            again=again,
            gate_s=gate_s,
            max_throttled_pct=max_throttled_pct,
        )

    @property
    def plan(self) -> Plan:
        """The plan itself; what an older version did not name has its default."""
        plan = msgspec.convert(self, Plan, from_attributes=True)
        return replace(plan, variants=tuple(map(with_defaults, plan.variants)))


def _identity(asked: Asked) -> tuple[object, ...]:
    """What makes it this experiment: its variants and its baseline, not how often it is asked for or in what words."""
    baseline, *others = (msgspec.json.encode(spec, order="sorted") for spec in asked.plan.variants)
    return baseline, sorted(others), asked.carried, asked.again


def _with_more(mine: Asked, other: Asked) -> Asked:
    """The one with the repeats and the width of whichever asks for more runs."""
    more = max(mine, other, key=lambda each: (each.repeats, -(each.until_pct or 0.0)))
    return msgspec.structs.replace(mine, repeats=more.repeats, until_pct=more.until_pct)


def encode(asked: Asked) -> str:
    """The JSON that is kept."""
    return msgspec.json.encode(asked).decode()


def asked_of(entry: QueueEntry) -> Asked:
    """What an entry asks for; raises `UserError` where another version of the program wrote what is not known here."""
    try:
        asked = msgspec.json.decode(entry.plan, type=Asked)
        unknown = {spec.workload for spec in asked.plan.specs if find_workload(spec.workload) is None}
    except msgspec.MsgspecError as error:
        raise _not_known(entry, str(error)) from error
    if unknown:
        raise _not_known(entry, f"there is no workload called {', '.join(sorted(unknown))}")
    return asked


def _not_known(entry: QueueEntry, why: str) -> UserError:
    return UserError(
        f"What entry {entry.entry} of the queue asks for is not known here ({why}): update the program,"
        f" or take it out with `python -m app queue remove {entry.entry}`."
    )


def add_asked(store: Store, asked: Asked, preset: str | None = None) -> int:
    """Adds an entry at the end of the queue and returns its number.

    A single run is a plan of one variant and one repeat, `again`: what was stored before would count as it otherwise.
    """
    return store.queue.add(name=asked.name, preset=preset, plan=encode(asked))


def enter(store: Store, asked: Asked, preset: str | None = None) -> tuple[QueueEntry, bool]:
    """The entry of an experiment, and whether it is new: an unfinished one waits again, as it is asked for now.

    One that a living program makes is only asked for more repeats where it had fewer: a second entry would make runs
    twice. However many programs ask at once, they get the same one.
    """

    def is_same(entry: QueueEntry) -> bool:
        try:
            other = asked_of(entry)
        except UserError:  # what another version wrote is none of ours
            return False
        return entry.preset == preset and _identity(other) == _identity(asked)

    def more(entry: QueueEntry) -> str:
        return encode(_with_more(asked_of(entry), asked))

    return store.queue.enter(name=asked.name, preset=preset, plan=encode(asked), is_same=is_same, more=more)
