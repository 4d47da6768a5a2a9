"""A run's evidence for display: verification badge, requested and actual settings, traced kernel time."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from app.analysis.equality import describe_differences, describe_excess, judge_check, known_checks
from app.analysis.steps import TOLERANCE, TracedStep, measured_step_ms, step_parts, traced_step
from app.values import units
from app.values.events import Outcome, Summary
from app.values.records import EqualityCheck, PortabilityResult, RunRow, StoredRun
from app.viewmodels.format import naming
from app.viewmodels.format.cells import VERIFICATIONS, Tone
from app.viewmodels.format.sentences import RunsWith, join_with_and, name_runs
from app.viewmodels.history import kernel_time
from app.viewmodels.history.kernel_time import ClassShare, KernelRow, describe_imbalance, device_time_rows
from workloads import catalog
from workloads.catalog import LAYOUT_PARAMETERS
from workloads.protocol import CHOICE, Evidence, EvidenceState, RunSpec

_SOURCES = {"graph": "the executed graph", "trace": "the profiler's trace", "hlo": "XLA's optimised program"}
_MAJORITY = 0.5
_MOST_DIGITS = 6
_SMALL_SHARE = 0.1
"""Below this share of the traced time the badge says how little of a step the products with its precision are."""
_BARE = ("on", "off", "partly")
"""Values that need the name of their aspect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """What was verified of a run; `detail` says what ran, what differs, or why something was not observed."""

    symbol: str = ""
    title: str
    detail: str
    tone: Tone = "quiet"


class Aspect(NamedTuple):
    """One aspect of a variant, as requested and as it ran, with the symbol of its state; `differs` is highlighted."""

    name: str
    requested: str
    actual: str
    symbol: str
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """A run's evidence as text; without evidence, only the badge has content.

    `idle_share` is the share of the measured step without a kernel, "" if unknown and on the CPU; `noun` is the word
    for kernels (ops, on the CPU). `devices` has the parts of each of several devices, and `imbalance` says how alike
    they are. `warning` is what makes the run slower than its variant should be. `equality` has a sentence on each check
    against another variant. `has_step`: the kernels of one step are stored.
    """

    badge: Badge
    aspects: tuple[Aspect, ...] = ()
    traced: str = ""
    idle_share: str = ""
    noun: str = "kernel"
    classes: tuple[ClassShare, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    other_kernels: str = ""
    devices: tuple[tuple[str, ...], ...] = ()
    imbalance: str = ""
    sources: str = ""
    warning: str = ""
    notes: tuple[str, ...] = ()
    portability: tuple[tuple[str, str, str], ...] = ()
    equality: tuple[str, ...] = ()
    has_step: bool = False


def stored_evidence_view(run: StoredRun) -> EvidenceView:
    view = evidence_view(run.row.spec, run.evidence, run.row.outcome, run.row.summary, run.portability)
    return replace(view, equality=tuple(_describe_check(run.row.spec, check) for check in known_checks([run]).values()))


def evidence_view(
    spec: RunSpec,
    evidence: Evidence | None,
    outcome: Outcome | None,
    summary: Summary,
    portability: Sequence[PortabilityResult] = (),
) -> EvidenceView:
    """Return the evidence of a run as text.

    The evidence is None if the run left none, the outcome None while it runs.
    """
    trials = tuple(_portability_row(spec, trial) for trial in portability)
    if evidence is None:
        badge = Badge(title="No evidence yet", detail="It is collected after the measured part of a run.")
        if outcome is not None:
            badge = Badge(title="No evidence was stored", detail=_why_none(spec, outcome))
        return EvidenceView(badge=badge, portability=trials)
    noun = "op" if spec.variant.get("gpus") == 0 else "kernel"
    traced, step_ms = traced_step(evidence, spec.variant.get("gpus")), measured_step_ms(spec, summary)
    parts = step_parts(traced, step_ms)
    label = VERIFICATIONS[evidence.state]
    sources = [_SOURCES.get(source, source) for source in evidence.sources]
    kernels = sorted(evidence.kernels, key=attrgetter("time_ns"), reverse=True)
    return EvidenceView(
        badge=Badge(
            symbol=label.symbol, title=label.word.capitalize(), detail=_badge_detail(spec, evidence), tone=label.tone
        ),
        aspects=_aspects(spec, evidence),
        traced=_describe_trace(spec, evidence, traced, step_ms),
        idle_share=units.percent(100 * parts.idle_ms / parts.step_ms, 1) if parts else "",
        noun=noun,
        classes=kernel_time.class_shares(kernels),
        kernels=kernel_time.kernel_rows(kernels),
        other_kernels=kernel_time.describe_other_kernels(kernels, noun),
        devices=device_time_rows(evidence, step_ms),
        imbalance=describe_imbalance(evidence.devices),
        sources=f"Seen in {join_with_and(sources)}." if sources else "",
        warning=kernel_time.describe_slow_products(spec, evidence, step_ms),
        notes=tuple(filter(None, _notes(spec, evidence))),
        portability=trials,
        has_step=evidence.timeline is not None,
    )


def mismatches(rows: Sequence[RunRow]) -> tuple[RunsWith, ...]:
    """Return each kind of reason for which some runs did not run as requested."""
    kinds: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.evidence_state == "mismatch":
            # Without counts and names that are specific to one run.
            kinds.setdefault(re.sub(r"\b\d+ of \d+ | \([^)]*\)", "", row.evidence_reason or ""), []).append(row)
    reasons = ({row.evidence_reason or "" for row in group} for group in kinds.values())
    return tuple(
        RunsWith(of_group.pop() if len(of_group) == 1 else kind, name_runs([row.run for row in group], rows))
        for (kind, group), of_group in zip(kinds.items(), reasons, strict=True)
    )


def describe_mismatches(reasons: Sequence[RunsWith]) -> str:
    """Return a sentence on each reason and the runs with it; "" without any."""
    sentences = []
    for one in reasons:
        subject = "no run ran" if one.where.is_all else f"{one.where.text} did not run"
        sentences += [units.sentence(f"{subject} what was requested"), units.sentence(one.value)]
    return " ".join(sentences)


ABOUT_WHAT_RAN = "So this is about what ran, not what was requested."
"""The consequence for a statement on runs of which some did not run as requested."""


def unchecked_parameters(spec: RunSpec, evidence: Evidence) -> list[str]:
    """Return the parameters of a custom workload's function, whose meaning only its code knows.

    A layout is not among them: it is checked as an aspect.
    """
    workload = catalog.find_workload(spec.workload)
    if workload is None or not catalog.is_custom(spec.workload):
        return []
    checked = {catalog.SOURCE, *(parameter.name for parameter in workload.parameters)}
    if (layout := evidence.requested.get("layout")) is not None:
        checked |= {name for name in LAYOUT_PARAMETERS if spec.variant.get(name) == layout}
    return [name for name in spec.variant if name not in checked]


def _badge_detail(spec: RunSpec, evidence: Evidence) -> str:
    reason = units.sentence(evidence.reason or "")
    if evidence.state in ("mismatch", "not verifiable"):
        detail = reason
    else:
        why = reason if evidence.state == "verified" else _describe_unverified(spec, evidence)
        actual = _describe_actual(spec, evidence)
        detail = f"{actual}. {why}" if why else actual
    if not (names := unchecked_parameters(spec, evidence)):
        return detail
    return f"{detail.removesuffix('.')}. Not checked: what the code makes of {join_with_and(names)}."


def _describe_unverified(spec: RunSpec, evidence: Evidence) -> str:
    """Return which aspects were not observed, and why; "" without any."""

    def with_labels(name: str, reason: str) -> str:
        sentence, alike, values = reason.removesuffix(".").partition(" looks the same for ")
        labels = (naming.choice_label(spec, name, part) for part in values.split(" and "))
        return f"{sentence}{alike}{join_with_and(labels)}." if alike else reason

    if not evidence.unverified:
        return ""
    labels = [naming.parameter_label(spec, name) for name in evidence.unverified]
    names = join_with_and(label if label.isupper() else label.lower() for label in labels)
    reasons = [with_labels(name, units.sentence(reason)) for name, reason in evidence.unverified.items()]
    return f"Not verifiable: {names}. {' '.join(dict.fromkeys(reasons))}"


def _notes(spec: RunSpec, evidence: Evidence) -> Iterator[str]:
    """Yield the stored notes, and what the badge leaves out."""
    yield from map(units.tied, evidence.notes)
    yield kernel_time.describe_image_layouts(evidence)
    if evidence.state == "mismatch":
        yield _describe_unverified(spec, evidence)


def _describe_actual(spec: RunSpec, evidence: Evidence) -> str:
    """Return what ran in a few words: `cuDNN · TF32 products on tensor cores · XLA off · 1 GPU`."""
    actual = evidence.actual
    phrases = {name: _phrase(spec, name, value) for name, value in actual.items() if name not in ("device", "replicas")}
    if "precision" in phrases:
        phrases["precision"] += f" products{_describe_products(evidence)}"
    where, replicas = actual.get("device", ""), actual.get("replicas", "")
    if where == "GPU" and replicas.isdecimal() and len(replicas) < _MOST_DIGITS:
        where = naming.gpus_label(int(replicas))
    return " · ".join(filter(None, (*phrases.values(), where)))


def _describe_products(evidence: Evidence) -> str:
    """Return whether most products ran on tensor cores, and their share of the traced time if small."""
    share = kernel_time.products_share(evidence.kernels)
    small = "" if share is None or share >= _SMALL_SHARE else f" ({units.percent(100 * share, 1)} of the traced time)"
    on_tensor_cores = (kernel_time.named_tensor_share(evidence.kernels) or 0.0) > _MAJORITY
    return f"{' on tensor cores' if on_tensor_cores else ''}{small}"


def _why_none(spec: RunSpec, outcome: Outcome) -> str:
    if outcome.name == "refused":
        return "The run never began."
    if spec.variant.get("evidence") == "off":
        return "It was not requested."
    if outcome.name == "completed":
        return "The run is from a version that did not collect evidence yet."
    return "The run ended before it could be collected."


def _aspects(spec: RunSpec, evidence: Evidence) -> tuple[Aspect, ...]:
    label = partial(naming.parameter_label, spec)
    unchecked = (
        Aspect(label(name), _value(spec, name, str(spec.variant[name])), "not checked", "", differs=False)
        for name in unchecked_parameters(spec, evidence)
    )
    aspects = []
    for name in dict.fromkeys((*evidence.requested, *evidence.actual)):
        requested, actual = evidence.requested.get(name, ""), evidence.actual.get(name)
        # It is observed or not, so never verified in part.
        state: EvidenceState = "verified" if requested in (actual, CHOICE) else "mismatch"
        symbol = VERIFICATIONS["not verifiable" if actual is None else state].symbol
        values = _value(spec, name, requested), _value(spec, name, actual or "")
        aspects.append(Aspect(label(name), *values, symbol, differs=actual is not None and state == "mismatch"))
    return (*aspects, *unchecked)


def _value(spec: RunSpec, name: str, value: str) -> str:
    return naming.choice_label(spec, name, value) or units.ABSENT


def _phrase(spec: RunSpec, name: str, value: str) -> str:
    """Return an aspect for a badge; a self-explanatory value stands alone, a choice names who chose."""
    if value in _BARE:
        return f"{naming.parameter_label(spec, name)} {value}"
    value_text = _value(spec, name, value)
    return f"{_value(spec, name, CHOICE)}: {value_text}" if str(spec.variant.get(name)) == CHOICE else value_text


def _describe_trace(spec: RunSpec, evidence: Evidence, traced: TracedStep | None, step_ms: float | None) -> str:
    if not evidence.steps:
        return ""
    devices = max(1, int(spec.variant.get("gpus", 1)))
    a_step = units.milliseconds(evidence.span_ns / 1e6 / evidence.steps / devices)
    traced_steps = f"{evidence.steps} {units.plural('step', evidence.steps)} traced after the measured part"
    text = f"{traced_steps}, {a_step} each on average with the profiler."
    if traced is None or step_ms is None or traced.busy_ms <= (1 + TOLERANCE) * step_ms:
        return text
    kernels, step = units.milliseconds(traced.busy_ms), units.milliseconds(step_ms)
    return (
        f"{text} Their kernels run for {kernels}, longer than the measured step of {step}: the trace does not fit it."
    )


def _portability_row(spec: RunSpec, trial: PortabilityResult) -> tuple[str, str, str]:
    """Return which implementation was given the run's weights, and how much its outputs differ, of which size."""
    implementation = naming.choice_label(spec, "implementation", trial.implementation)
    where = f"{implementation} on {trial.device_name}, {naming.choice_label(spec, 'precision', trial.precision)}"
    difference = f"{trial.max_difference:.1e}" if trial.max_difference else "0"
    return where, difference, f"of outputs up to {units.number(trial.max_output)}"


def _describe_check(spec: RunSpec, check: EqualityCheck) -> str:
    specs = [spec, RunSpec(workload=spec.workload, variant=check.baseline)]
    other = naming.variant_names(specs, in_sentence=True)[1]
    equality = judge_check(check, spec)
    if equality.state == "not comparable":
        return f"Not checked whether it computes the same as {other}. {units.sentence(equality.reason or '')}"
    if equality.state == "same":
        return f"Computes the same as {other}: {describe_differences(equality)}."
    return f"Does not compute the same as {other}: {describe_excess(equality)}."
