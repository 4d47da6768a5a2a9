"""Prepared experiments as the window lists them: what each asks, how it fits this machine, how long it takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.queries import Ahead
from app.viewmodels.ahead import ahead_sentences
from app.viewmodels.matrix_refused import refused_groups
from app.viewmodels.units import plural
from app.viewmodels.variants import differing
from workloads.catalog import Machine, check
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetLine:
    """One prepared experiment; `key` is its name or the path of its file; `problem`: the file cannot be used."""

    key: str
    name: str
    question: str = ""
    size: str = ""
    time: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""


def refused_notes(variants: Sequence[RunSpec], machine: Machine) -> tuple[str, ...]:
    """How many variants cannot run on this machine, a sentence for a reason."""
    checked = [(spec, check(spec, machine)) for spec in variants]
    groups = refused_groups([(spec, found[0]) for spec, found in checked if found], differing(variants))
    return tuple(f"{group.count} {plural('variant', group.count)} cannot run here. {group.words}" for group in groups)


def preset_line(
    key: str, name: str, question: str, variants: Sequence[RunSpec], notes: Sequence[str], ahead: Ahead
) -> PresetLine:
    """A preset on this machine; `notes` say how it was made to fit."""
    runs = f"{ahead.planned:,} {plural('run', ahead.planned)}"
    return PresetLine(
        key=key,
        name=name,
        question=question,
        size=f"{len(variants):,} {plural('variant', len(variants))}, {runs}",
        time=" ".join(ahead_sentences(ahead)),
        notes=tuple(notes),
    )
