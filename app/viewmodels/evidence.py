"""What really ran, as a screen shows it: a badge in words, asked beside ran, where the traced time went."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.records import Outcome, Portability, RunRow, StoredRun
from app.viewmodels import kernels, naming, units
from app.viewmodels.cells import AS_ASKED, Tone
from app.viewmodels.device_rows import DeviceRow, device_rows, imbalance_words
from app.viewmodels.kernels import ClassShare, KernelRow
from app.viewmodels.run_numbers import runs_words
from workloads.protocol import Evidence, RunSpec

_TITLES = {True: "Ran as asked", False: "Did not run as asked", None: "Not known whether it ran as asked"}
_SOURCES = {"graph": "the executed graph", "trace": "the profiler's trace", "hlo": "XLA's optimised program"}
_MOSTLY = 0.5
_BARE = ("on", "off", "partly")
"""Values that say nothing without the name of what they are a value of."""
_MEANT = {"auto": "cudnn"}
"""What a choice left to Keras is taken to ask for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """Whether what ran is what was asked; `detail` says what ran, or why it is not that, or why nobody knows."""

    symbol: str = ""
    title: str
    detail: str
    tone: Tone = "quiet"


class Aspect(NamedTuple):
    """One aspect of a variant, as it was asked and as it ran; `differs` is to be seen at once."""

    name: str
    asked: str
    ran: str
    differs: bool


class Trial(NamedTuple):
    """Another implementation that was given the run's weights, and how far its outputs are from the run's own."""

    where: str
    difference: str
    of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """A run's evidence in words; where none was kept, only the badge says something.

    `between` is the share of the traced time in which `idle`: no kernel ran, on the CPU nothing of TensorFlow's; `noun`
    is what kernels are called there (ops, on the CPU); `rest` is what `kernels` leave out; `seen` tells where all this
    was read. `devices` has each one's own part where there are several, and `imbalance` says how alike they are.
    """

    badge: Badge
    aspects: tuple[Aspect, ...] = ()
    traced: str = ""
    between: str = ""
    idle: str = "no kernel ran"
    noun: str = "kernel"
    classes: tuple[ClassShare, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    rest: str = ""
    devices: tuple[DeviceRow, ...] = ()
    imbalance: str = ""
    seen: str = ""
    notes: tuple[str, ...] = ()
    portability: tuple[Trial, ...] = ()


def of_stored(run: StoredRun) -> EvidenceView:
    """The evidence of a stored run."""
    return evidence_view(run.row.spec, run.evidence, run.row.outcome, run.portability)


def evidence_view(
    spec: RunSpec, evidence: Evidence | None, outcome: Outcome | None, portability: Sequence[Portability] = ()
) -> EvidenceView:
    """The evidence of a run of `spec`, which may have left none; without an outcome it still runs."""
    trials = tuple(_trial(spec, found) for found in portability)
    if evidence is None:
        return EvidenceView(badge=_no_badge(spec, outcome), portability=trials)
    noun, idle = ("op", "nothing ran") if spec.variant.get("gpus") == 0 else ("kernel", "no kernel ran")
    return EvidenceView(
        badge=_badge(spec, evidence),
        aspects=_aspects(spec, evidence),
        traced=_traced(spec, evidence),
        between=_between(evidence),
        idle=idle,
        noun=noun,
        classes=kernels.class_shares(evidence.kernels),
        kernels=kernels.kernel_rows(evidence.kernels),
        rest=kernels.rest_words(evidence.kernels, noun),
        devices=device_rows(evidence),
        imbalance=imbalance_words(evidence.devices),
        seen=_seen(evidence.sources),
        notes=evidence.notes,
        portability=trials,
    )


def mislabelled(rows: Iterable[RunRow]) -> str:
    """One sentence for each kind of reason why some of these runs are not what their names say; "" if none is known.

    Reasons are of one kind where only their counts and the names in brackets differ.
    """
    kinds: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.match is False:
            kinds.setdefault(_kind(row.mismatch_reason or ""), []).append(row)
    return " ".join(_told_of(kind, own) for kind, own in kinds.items())


def _told_of(kind: str, rows: Sequence[RunRow]) -> str:
    reasons = {row.mismatch_reason or "" for row in rows}
    reason = reasons.pop() if len(reasons) == 1 else kind
    runs = runs_words([row.run for row in rows])
    return f"{runs.capitalize()} did not run what was asked. {units.sentence(reason)}"


def _kind(reason: str) -> str:
    """A reason without the counts and names that are one run's own."""
    return re.sub(r"\b\d+ of \d+ | \([^)]*\)", "", reason)


def _badge(spec: RunSpec, evidence: Evidence) -> Badge:
    shown = AS_ASKED[evidence.match]
    detail = units.sentence(evidence.reason) if evidence.reason else _ran_words(spec, evidence)
    return Badge(symbol=shown.symbol, title=_TITLES[evidence.match], detail=detail, tone=shown.tone)


def _ran_words(spec: RunSpec, evidence: Evidence) -> str:
    """What ran in a few words: `cuDNN · TF32 on tensor cores · XLA off · 1 GPU`."""
    ran = evidence.ran
    words = {name: _phrase(spec, name, value) for name, value in ran.items() if name not in ("device", "replicas")}
    if "precision" in words and (kernels.named_tensor_share(evidence.kernels) or 0.0) > _MOSTLY:
        words["precision"] += " on tensor cores"
    where = ran.get("device", "")
    if where == "GPU" and "replicas" in ran:
        where = naming.gpus_words(int(ran["replicas"]))
    return " · ".join(filter(None, (*words.values(), where)))


def _no_badge(spec: RunSpec, outcome: Outcome | None) -> Badge:
    if outcome is None:
        return Badge(title="No evidence yet", detail="It is collected after the measured part.")
    return Badge(title="No evidence was kept", detail=_why_none(spec, outcome))


def _why_none(spec: RunSpec, outcome: Outcome) -> str:
    if outcome.name == "refused":
        return "The run never began."
    asked = spec.variant.get("evidence")
    if asked is None:
        return "The run is older than the collecting of evidence."
    return "It was not asked for." if asked == "off" else "The run ended before it could be collected."


def _aspects(spec: RunSpec, evidence: Evidence) -> tuple[Aspect, ...]:
    return tuple(
        Aspect(
            name=_label(spec, name),
            asked=_value(spec, name, evidence.asked.get(name, "")),
            ran=_value(spec, name, evidence.ran.get(name, "")),
            differs=evidence.match is False and _differs(evidence, name),
        )
        for name in dict.fromkeys((*evidence.asked, *evidence.ran))
    )


def _differs(evidence: Evidence, name: str) -> bool:
    asked, ran = evidence.asked.get(name, ""), evidence.ran.get(name)
    return ran is not None and ran != _MEANT.get(asked, asked)


def _label(spec: RunSpec, name: str) -> str:
    label = naming.parameter_label(spec, name)
    return label if label != name else name.replace("_", " ").capitalize()


def _value(spec: RunSpec, name: str, value: str) -> str:
    return naming.choice_label(spec, name, value) or units.ABSENT


def _phrase(spec: RunSpec, name: str, value: str) -> str:
    """An aspect in a badge: a value that speaks for itself stands alone."""
    return f"{_label(spec, name)} {value}" if value in _BARE else _value(spec, name, value)


def _traced(spec: RunSpec, evidence: Evidence) -> str:
    if not evidence.steps:
        return ""
    devices = max(1, int(spec.variant.get("gpus", 1)))
    a_step = units.milliseconds(evidence.span_ns / 1e6 / evidence.steps / devices)
    return f"{evidence.steps} {units.plural('step', evidence.steps)} traced after the measured part, {a_step} each."


def _between(evidence: Evidence) -> str:
    busy = kernels.busy_share(evidence)
    return "" if busy is None else units.percent(100 * (1 - busy), 1)


def _seen(sources: Sequence[str]) -> str:
    words = [_SOURCES.get(source, source) for source in sources]
    return f"Seen in {' and '.join(filter(None, (', '.join(words[:-1]), words[-1])))}." if words else ""


def _trial(spec: RunSpec, found: Portability) -> Trial:
    implementation = naming.choice_label(spec, "implementation", found.implementation)
    precision = naming.choice_label(spec, "precision", found.precision)
    return Trial(
        where=f"{implementation} on {found.device_name}, {precision}",
        difference=f"{found.max_difference:.1e}" if found.max_difference else "0",
        of=f"of outputs up to {units.number(found.max_output)}",
    )
