"""What an experiment would run on this machine: stored runs, time left, refused combinations, presets."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.analysis.intervals import MIN_REPEATS, WIDEST_KNOWN
from app.queries import ExpectedResolution, ExperimentProgress
from app.values import units
from app.values.plan import Plan
from app.values.records import RunRow
from app.values.units import plural, sentence
from app.viewmodels.format.naming import differing_parameters, format_setting, gpus_label, short_gpu_name, variant_names
from app.viewmodels.format.ratios import percent_of
from app.viewmodels.format.sentences import format_time_left, without_advice
from workloads.catalog import Machine, Refusal, check, runnable
from workloads.protocol import RunSpec

_MAX_NAMED = 4
"""The most variants that an experiment's name lists."""


QUIET_WAIT_S = 600.0
"""How long each run waits for a quiet machine if requested."""


def interleaved_plan(variants: Sequence[RunSpec], repeats: int) -> Plan:
    """Return the experiment that measures variants again, interleaved; the first is the baseline."""
    names = variant_names(variants)
    named = ", ".join(names) if len(names) <= _MAX_NAMED else f"{len(names)} variants"
    return Plan(name=f"Interleaved: {named}", variants=tuple(variants), repeats=repeats, again=True)


def experiment_label(runs: int, ahead: ExperimentProgress | None, *, most: bool) -> str:
    """Return the label of the button that starts an experiment: `Run 18 (6 to 9 min, shows 5 %)`.

    Args:
        runs: The total number of runs.
        ahead: Its progress; None until it is known.
        most: Whether it may end early.
    """
    left = runs if ahead is None else ahead.planned - ahead.done
    facts = []
    if ahead is not None and left:
        facts.append(format_time_left(ahead.left))
    resolution = ahead.resolution.estimate if ahead is not None and ahead.resolution else None
    if resolution is not None and resolution.smallest < WIDEST_KNOWN:
        facts.append(f"shows {percent_of(resolution.smallest)}")
    suffix = f" ({', '.join(facts)})" if facts else ""
    if not left:
        return f"Show the {runs:,} stored"
    return f"Run {'up to ' if most else ''}{left:,}{suffix}"


def describe_estimate(ahead: ExperimentProgress, *, at_most: bool = False, budget_s: float | None = None) -> list[str]:
    """Return sentences on stored and remaining runs, and on runs that do not count and why.

    `at_most` means that it may end early.
    """
    left = ahead.planned - ahead.done
    if not left:
        sentences = [f"All {ahead.planned:,} are already stored: nothing is left to run."]
    else:
        sentences = [_describe_remaining(ahead, left, "at most " if at_most else "")]
    if budget_s is not None and budget_s < ahead.left.most_s:
        sentences.append(f"It stops within {units.duration(budget_s)} and can be resumed.")
    dates = describe_dates(ahead.counted_utc_ns, ahead.older_utc_ns)
    return [*sentences, *dates, *describe_uncounted(ahead.excluded, ahead.excluded_due_to)]


def describe_dates(counted_utc_ns: Sequence[int], older_utc_ns: Sequence[int]) -> list[str]:
    """Return a sentence on the time of the stored runs that count, and one on those that are too old."""
    counted, older = map(_runs_of, (counted_utc_ns, older_utc_ns))
    return [
        *([f"Counted: {counted}."] if counted else []),
        *([f"Not counted, because they are older than an hour: {older}."] if older else []),
    ]


def describe_size(plan: Plan) -> str:
    most = "at most " if plan.until_pct is not None else ""
    runs = f"{most}{plan.repeats:,} {plural('run', plan.repeats)}"
    return f"{len(plan.variants):,} variants, {runs} each."


def describe_stored(ahead: ExperimentProgress, countable: ExperimentProgress) -> list[str]:
    """Return sentences on the stored runs that count, and on those that would if the user wanted."""
    others = [utc_ns for utc_ns in countable.counted_utc_ns if utc_ns not in ahead.counted_utc_ns]
    both = " and ".join(filter(None, map(_runs_of, (others, countable.older_utc_ns))))
    counted = [f"{ahead.done:,} of {ahead.planned:,} already stored."] if ahead.done else []
    return [*counted, *([f"Not counted: {both}."] if both else [])]


def _runs_of(utc_ns: Sequence[int]) -> str:
    """Return the number and times of stored runs, such as `4 stored runs of 2026-03-01 14:05 to 15:10`."""
    if not utc_ns:
        return ""
    first, last = units.local_time(min(utc_ns)), units.local_time(max(utc_ns))
    until = "" if last == first else f" to {last.removeprefix(first[:11])}"
    return f"{len(utc_ns):,} stored {plural('run', len(utc_ns))} of {first}{until}"


def describe_order(plan: Plan) -> list[str]:
    """Return a sentence on the order of the runs; none with a single variant, or in the former order."""
    if plan.order_seed is None or len(plan.variants) < 2:
        return []
    return [f"Every round but the first has its own order, drawn with seed {plan.order_seed}."]


def describe_resolution(expected: ExpectedResolution | None, *, at_most: bool = False) -> list[str]:
    """Return a sentence on the smallest difference that the experiment can show; none if it compares nothing.

    `at_most` means that it may end early.
    """
    if expected is None:
        return []
    if expected.repeats < MIN_REPEATS:
        return [f"Fewer than {MIN_REPEATS} repeats have no interval, so they show no difference."]
    repeats = f"{'at most ' if at_most else ''}{expected.repeats} repeats"
    if expected.estimate is None:
        return [f"How small a difference {repeats} can show is not known yet: too few stored runs."]
    judged = f"{expected.noise_runs:,} stored runs of {'other' if expected.of_other_variants else 'these'} variants"
    if expected.estimate.smallest >= WIDEST_KNOWN:
        sufficient = expected.estimate.sufficient_repeats
        more = "" if sufficient is None else f"; about {sufficient:,} can show smaller ones"
        least = units.percent(100 * WIDEST_KNOWN)
        return [sentence(f"{repeats} can show only differences of {least} or more, as {judged} vary so much{more}")]
    smallest, half = (percent_of(share) for share in (expected.estimate.smallest, expected.estimate.half_width))
    shows = (
        f"can show a difference of about {smallest} (interval {units.plus_minus(half)}, from the spread of {judged})"
    )
    return [sentence(f"{repeats} {shows}")]


def describe_uncounted(uncounted: int, causes: Sequence[str]) -> list[str]:
    """Return a sentence on stored runs of the same variants that do not count; none if all count.

    `causes` are the differences of their environments.
    """
    if not uncounted:
        return []
    runs = f"{uncounted:,} stored {units.plural('run', uncounted)}"
    return [f"Not counted: {runs} of these variants with another {', another '.join(causes)}."]


def sequential_reason(specs: Sequence[RunSpec], machine: Machine) -> str:
    """Return why none of these runs can run concurrently; "" if some can."""
    counts = [int(spec.variant["gpus"]) for spec in runnable(specs, machine)]
    on_gpus = sorted(count for count in counts if count)
    if not counts:
        return ""
    if not on_gpus:
        return "One run after another: only one at a time can measure on the CPU."
    if on_gpus[0] + on_gpus[min(1, len(on_gpus) - 1)] > len(machine.gpus) and not machine.scheduled:
        return f"One run after another: no two of them fit on the {gpus_label(len(machine.gpus))} of this machine."
    return ""


def _describe_remaining(ahead: ExperimentProgress, left: int, most: str) -> str:
    stored = f"{ahead.done:,} of {ahead.planned:,} already stored" if ahead.done else ""
    subject = f"{stored}; the other {left:,} will take" if stored else "This takes"
    judged = f"{ahead.timing_runs:,} stored {units.plural('run', ahead.timing_runs)}"
    others = " of other workloads" if ahead.from_other_workloads else ""
    source = f"{judged}{others}" if ahead.timing_runs else "runs on other machines, as none is stored here"
    return f"{subject} {most}{format_time_left(ahead.left)} (estimated from {source})."


_NUMBER = re.compile(r"\d+")
_REASONS_SHOWN = 2
"""Reasons shown at first; the others are one click away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedGroup:
    """Combinations refused for the same reason; `values` are those that they share, "" for all combinations."""

    count: int
    values: str
    reason: str

    @property
    def text(self) -> str:
        return f"{self.values}: {self.reason}" if self.values else self.reason


def describe_refused(groups: Sequence[RefusedGroup], combinations: int, *, show_all: bool) -> tuple[str, str]:
    """Return what cannot run, one line per reason, and the label of the button for the others; "" without any."""
    if not groups:
        return "", ""
    count, more = sum(group.count for group in groups), len(groups) - _REASONS_SHOWN
    top_groups = groups if show_all else groups[:_REASONS_SHOWN]
    lines = [f"{count:,} of {combinations:,} combinations cannot run here and are left out:"]
    lines += [f"{group.count:,} ×  {group.text}" for group in top_groups]
    more_label = "Fewer reasons" if show_all else f"{more} more {plural('reason', more)} …"
    return "\n".join(lines), more_label if more > 0 else ""


def group_refused(refused: Sequence[tuple[RunSpec, Refusal]], varied: Sequence[str]) -> tuple[RefusedGroup, ...]:
    """Return the refused combinations by reason, largest group first; reasons may differ in their numbers."""
    groups: dict[tuple[tuple[str, ...], str], list[tuple[RunSpec, Refusal]]] = {}
    for spec, refusal in refused:
        key = refusal.parameters, _NUMBER.sub("#", refusal.reason)
        groups.setdefault(key, []).append((spec, refusal))
    refused_groups = [_group(members, varied) for members in groups.values()]
    return tuple(sorted(refused_groups, key=lambda group: -group.count))


def _group(members: Sequence[tuple[RunSpec, Refusal]], varied: Sequence[str]) -> RefusedGroup:
    first = members[0][1]
    names = [name for name in varied if name in first.parameters]
    values = (" / ".join(dict.fromkeys(format_setting(spec, name) for spec, _ in members)) for name in names)
    return RefusedGroup(count=len(members), values=" with ".join(values), reason=without_advice(first.reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetLine:
    """One prepared question.

    Attributes:
        key: Its name, or the path of its file.
        size: Its variants and runs; "" if its file cannot be used.
        time: The time of its remaining runs.
        answer: Its answer so far, and from which runs.
        notes: How it was adapted to this machine.
        problem: Why its file cannot be used, "" if it can.
        has_verdict: Whether there are stored runs to compare, of any age.
        can_start: Whether a variant can run on this machine.
        reference: Label of its stored reference runs, "" if there are none.
    """

    key: str
    name: str
    title: str
    question: str = ""
    size: str = ""
    time: str = ""
    stored: str = ""
    answer: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""
    is_complete: bool = False
    has_verdict: bool = False
    can_start: bool = True
    reference: str = ""

    @property
    def adapted(self) -> str:
        """Return how it was adapted to this machine: its notes, shortened unless it has no size."""
        if not self.size:
            return " ".join(self.notes)
        return " ".join(sentence(note.partition(". ")[0].partition(": ")[0]) for note in self.notes)

    @property
    def is_users(self) -> bool:
        return self.key.endswith(".toml")


def refused_notes(variants: Sequence[RunSpec], machine: Machine) -> tuple[str, ...]:
    """Return a note on how many variants cannot run on this machine, with the reasons; empty if all can."""
    checked = [(spec, check(spec, machine)) for spec in variants]
    refused = [(spec, refusals[0]) for spec, refusals in checked if refusals]
    reasons = " ".join(group.text for group in group_refused(refused, differing_parameters(variants)))
    return (f"{len(refused)} {plural('variant', len(refused))} cannot run here. {reasons}",) if refused else ()


def reference_label(runs: Sequence[RunRow]) -> str:
    """Return the label of reference runs, such as `H200 reference`; "" without any."""
    names = dict.fromkeys(short_gpu_name(name) for row in runs for name in row.gpu_names)
    return f"{', '.join(names) or 'The'} reference" if runs else ""


def preset_line(line: PresetLine, plan: Plan, machine: Machine) -> PresetLine:
    variants, runs = len(plan.variants), plan.repeats * len(plan.variants) + len(plan.weight_transfers)
    return replace(
        line,
        size=f"{variants:,} {plural('variant', variants)}, {runs:,} {plural('run', runs)}",
        notes=(*plan.notes, *refused_notes(plan.variants, machine)),
        can_start=any(not check(spec, machine) for spec in plan.variants),
    )


def preset_progress(line: PresetLine, ahead: ExperimentProgress, *, reference: str, answer: str) -> PresetLine:
    if ahead.done == ahead.planned:
        sentences = describe_estimate(ahead)
    else:
        counted = [f"{ahead.done:,} of {ahead.planned:,} already stored."] if ahead.done else []
        sentences = [*counted, *describe_dates(ahead.counted_utc_ns, ahead.older_utc_ns)]
    return replace(
        line,
        time=format_time_left(ahead.left) if line.can_start and ahead.done < ahead.planned else "",
        stored=" ".join(sentences) if line.can_start else "",
        answer=answer,
        is_complete=ahead.done == ahead.planned,
        has_verdict=bool(ahead.counted_utc_ns or ahead.older_utc_ns),
        reference=reference,
    )
