"""Prepared experiments as the window lists them: what each asks, how it fits this machine, how long it takes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.queries import Ahead
from app.records import RunRow
from app.viewmodels.ahead import ahead_sentences
from app.viewmodels.cards import card_name
from app.viewmodels.matrix_refused import refused_groups
from app.viewmodels.units import plural
from app.viewmodels.variants import differing
from workloads.catalog import Machine, check
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetLine:
    """One prepared experiment; `key` is its name or the path of its file; `problem`: the file cannot be used.

    `notes` say how it was made to fit the machine, `is_made` that nothing is left to run, `reference` what the
    reference runs of it that are stored are called, if any are.
    """

    key: str
    name: str
    title: str
    question: str = ""
    size: str = ""
    time: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""
    is_made: bool = False
    reference: str = ""

    @property
    def amount(self) -> str:
        """How much it is and how long it takes; its name before that where its title is another one."""
        named = "" if self.title == self.name else self.name
        return ". ".join(filter(None, (" · ".join(filter(None, (named, self.size))), self.time)))


def refused_notes(variants: Sequence[RunSpec], machine: Machine) -> tuple[str, ...]:
    """How many variants cannot run on this machine, a sentence for a reason."""
    checked = [(spec, check(spec, machine)) for spec in variants]
    groups = refused_groups([(spec, found[0]) for spec, found in checked if found], differing(variants))
    return tuple(f"{group.count} {plural('variant', group.count)} cannot run here. {group.words}" for group in groups)


def reference_words(runs: Sequence[RunRow]) -> str:
    """What these reference runs are called, `H200 reference`; "" where there is none."""
    cards = dict.fromkeys(card_name(name) for row in runs for name in row.gpu_names)
    return f"{', '.join(cards) or 'The'} reference" if runs else ""


def preset_line(known: PresetLine, variants: Sequence[RunSpec], ahead: Ahead) -> PresetLine:
    """What is known of a preset, with its size and what it has before it on this machine."""
    runs = f"{ahead.planned:,} {plural('run', ahead.planned)}"
    return replace(
        known,
        size=f"{len(variants):,} {plural('variant', len(variants))}, {runs}",
        time=" ".join(ahead_sentences(ahead)),
        is_made=ahead.done == ahead.planned,
    )
