"""What Compare can state: records with kind, numbers, names and runs, and one sentence for each kind."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean, stdev
from types import SimpleNamespace
from typing import Any, Literal

from app.analysis.equality import describe_differences, describe_excess
from app.analysis.intervals import Estimate
from app.analysis.steps import IdleCause
from app.analysis.why import PartKind
from app.values import environment_keys, units
from app.viewmodels.format.derived import describe_losses, format_implausible
from app.viewmodels.format.environment import environment_label, format_values_by_run
from app.viewmodels.format.naming import SEPARATOR, Name, value_text
from app.viewmodels.format.ratios import Unit, agree, describe_speed, format_interval, percent_of, unit_of
from app.viewmodels.format.sentences import NamedRuns, format_run_numbers, join_with_and, name_few
from app.viewmodels.history.evidence import describe_mismatches
from workloads.catalog import WORKLOADS

Severity = Literal["warning", "note"]
"""A warning may explain a difference; a note is useful information."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How many times as fast as a variant the fastest is."""

    name: Name
    ratio: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Which side is how many times as fast for some values of another setting, and whether that is decided.

    Attributes:
        settings: These values, neighbours in their order; empty if no setting explains the difference.
        is_lowest: Whether they begin with the first of all.
        is_highest: Whether they end with the last.
        is_number: Whether they are numbers, which can be stated as a range.
    """

    winner: Name
    ratio: Estimate
    decided: bool
    settings: tuple[Name, ...]
    is_lowest: bool
    is_highest: bool
    is_number: bool


@dataclass(frozen=True, slots=True)
class PartChange:
    """How much longer one part of a step takes, and whether that is certain."""

    kind: PartKind
    change_ms: float
    is_certain: bool

    @property
    def noun(self) -> str:
        return NOUNS[self.kind] if self.is_certain else f"{NOUNS[self.kind]} (not certain)"


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a comparison.

    Attributes:
        key: Its kind, of `SENTENCES`.
        facts: The numbers and names of its sentence. The name of a number ends in its unit. `possible_pct` is how much
            of a speed difference it may explain, None without a known limit; `interleave` has a run of each variant to
            measure again, interleaved, the baseline's first.
        runs: The runs that it is about; by number if each has its own facts.
    """

    key: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[int, ...] | Mapping[int, str] = ()
    severity: Severity = "note"

    @property
    def sentence(self) -> str:
        workload, template = self.facts.get("workload"), SENTENCES[self.key]
        facts = SimpleNamespace(**self.facts, key=self.key)
        if isinstance(template, str):
            words = {name: _format_fact(name, fact) for name, fact in self.facts.items() if name not in _JOINED}
            joined = {name: join(facts) for name, join in _JOINED.items() if name in self.facts}
            text = template.format(**words, **joined, consequence=self._consequence)
        else:
            text = template(facts)
        return f"{workload}: {text}" if workload else text

    @property
    def _consequence(self) -> str:
        if possible_pct := self.facts.get("possible_pct"):
            return f"That may change speed by up to {units.percent(possible_pct, 1)}."
        if possible_pct == 0 or self.severity == "note":
            return "No difference in speed is expected from that."
        return "A difference in speed may come from that."


EVIDENCE = "evidence"
"""The key of the warning that some runs did not run as requested."""

_UNITS = {"pct": "%", "mhz": "MHz", "c": "°C", "h": "h"}
"""The unit of a number by the end of its name."""


_MOST_LISTED = 4
"""The most reasons to list, and the most fields of a device with implausible readings."""
_DIFFERENCES = {
    "card": "The kind of GPU",
    "power_limit": "The GPUs' power limit",
    "clocks_set": "How the GPUs' clocks are set",
    "code": "The program's code",
    environment_keys.COMMIT_KEY: "The program's commit",
}
"""Differences between runs that are not environment keys."""


def _format_fact(name: str, fact: Any) -> str:
    if isinstance(fact, NamedRuns):
        return fact.text
    if fact is None or isinstance(fact, str):
        return fact or ""
    unit = next((unit for ending, unit in _UNITS.items() if name.endswith(f"_{ending}")), "")
    if isinstance(fact, tuple) and all(isinstance(part, str) for part in fact):
        return _painted(fact)
    if isinstance(fact, tuple) and isinstance(fact[0], tuple):
        return name_few(fact)
    if isinstance(fact, tuple):
        figures = units.range_of(fact, lambda number: f"{number:,.0f}")
    else:
        sign = "+" if name.startswith("change") else ""
        figures = units.with_minus(f"{fact:{sign},.{1 if unit in ('%', 'h') else 0}f}")
    return units.quantity(figures, unit) if unit else figures


def _painted(name: Name, *, begins: bool = False) -> str:
    """Return a name as text, capitalised at the beginning of a sentence, except cuDNN and workloads' names."""
    text = SEPARATOR.join(name)
    if not begins or any(text.split(" ")[0] == workload.name for workload in WORKLOADS):
        return text
    return units.sentence(text).rstrip(".")


def _is_faster(winner: Name, ratio: float, unit: Unit, *, trains: bool, begins: bool = False) -> str:
    """Return who is how fast, but not compared with what: `NCHW trains 6.4 % faster`, `cuDNN is 10.4× as fast`."""
    verb, fast = ("is", "as fast") if unit == "×" else ("trains" if trains else "runs", "faster")
    return f"{agree(_painted(winner, begins=begins), verb)} {_amount(ratio, unit)} {fast}"


def _amount(ratio: float, unit: Unit) -> str:
    return units.ratio(ratio) if unit == "×" else percent_of(ratio - 1)


def _beats(v: Any, unit: Unit) -> str:
    says = _is_faster(v.winner, v.ratio.value, unit, trains=v.trains, begins=True)
    return f"{says} {'as' if unit == '×' else 'than'} {_painted(v.other)}"


def _interval(ratio: Estimate, unit: Unit | None = None) -> str:
    return f" ({format_interval(ratio.interval, ratio.value, unit) or 'not yet sure'})"


def _in_pairs(v: Any) -> str:
    return f"{_interval(v.ratio)}{f', in {v.pairs} pairs' if v.pairs > 1 else ''}"


def _of_pairs(v: Any) -> str:
    show = "shows" if v.pairs_ahead == 1 else "show"
    return f"{_in_pairs(v)}{f', of which {v.pairs_ahead} {show} {_painted(v.winner)} ahead' if v.pairs_ahead else ''}"


def _at(region: Region) -> str:
    """Return for which values of a setting: `from batch size 256 up`, `at batch size 128`, `with JAX and PyTorch`."""
    first, last = _painted(region.settings[0]), _painted(region.settings[-1])
    if not region.is_number:
        return f"with {join_with_and(map(_painted, region.settings))}"
    if first == last:
        return f"at {first}"
    if region.is_highest:
        return f"from {first} up"
    return f"up to {last}" if region.is_lowest else f"from {first} to {last}"


def _by_region(v: Any) -> str:
    unit = unit_of([v.ratio.value, *(region.ratio.value for region in v.regions if region.decided)])
    first, *others = v.regions
    texts = [f"{_beats(v, unit)} {_at(first)}{_interval(v.ratio, unit)}"]
    for region in (region for region in others if region.decided):
        says = _is_faster(region.winner, region.ratio.value, unit, trains=v.trains)
        texts.append(f"{_at(region)} {says}{_interval(region.ratio, unit)}")
    if undecided := [_at(region) for region in others if not region.decided]:
        texts.append(f"{undecided[0] if len(undecided) == 1 else 'elsewhere'} it is not known")
    return f"{'; '.join(texts)}."


def _varies(v: Any) -> str:
    unit = unit_of([v.ratio.value, *(region.ratio.value for region in v.regions)])
    first, last = (_is_faster(region.winner, region.ratio.value, unit, trains=v.trains) for region in v.regions)
    if v.regions[0].winner == v.regions[1].winner:
        last = _amount(v.regions[1].ratio.value, unit)
    here, there = map(_at, v.regions) if v.by else ("in one", "in another")
    mean = f"{_beats(v, unit)} in the mean of {v.pairs} pairs{_interval(v.ratio, unit)}"
    return f"{mean}; {f'it depends on {v.by}' if v.by else 'they differ'}: {first} {here}, {last} {there}."


def _ranks(v: Any) -> str:
    """Return who is fastest, ahead of whom; if another may be, both; if more, how many."""
    unit = unit_of(gap.ratio.value for gap in v.gaps)
    words = (" as fast as", " as") if unit == "×" else (" ahead of", " of")
    winner, slowest = _painted(v.winner, begins=True), ", the slowest" if 1 < len(v.gaps) < v.count - 1 else ""
    ends, of = _interval(v.gaps[0].ratio, unit), f"fastest of {v.count}"
    gaps = v.gaps[1:] if v.rivals == 1 else v.gaps
    texts = [f"{_amount(gap.ratio.value, unit)}{words[gap != gaps[0]]} {_painted(gap.name)}" for gap in gaps]
    if v.rivals == 1:
        two = f"{winner} and {_painted(v.gaps[0].name)} are the {of} {v.of}"
        lead = f"; {agree(_painted(v.winner), 'is')} {', '.join(texts)}{slowest}" if texts else ""
        return f"{two}{lead}; which of the two leads is unknown{ends}."
    texts[0] += ends
    if v.rivals:
        return f"{winner} measured {of} {v.of}: {texts[0]}; {v.rivals} others may be as fast."
    return f"{agree(winner, 'is')} the {of}: {', '.join(texts)}{slowest}."


_APART = {
    "other_work": "with other work",
    "few_runs": "with too few runs",
    "other_workloads": "of other workloads",
    "unmeasured": "without a complete run",
}


def _energy(v: Any) -> str:
    if v.rivals and v.count == 2:
        return f"No difference seen in energy per {v.example}{_interval(v.ratio)}."
    if v.rivals:
        head = f"{_painted(v.least, begins=True)} measured the least energy per {v.example} of {v.count}"
        return f"{head}; {v.rivals} {'other' if v.rivals == 1 else 'others'} may use as little."
    unit, of_two = unit_of([v.ratio.value]), v.count == 2
    what = ("the energy" if of_two else "as much") if unit == "×" else ("more energy" if of_two else "more")
    more = agree(_painted(v.more, begins=of_two), "uses")
    uses = f"{more} {_amount(v.ratio.value, unit)} {what} per {v.example}{_interval(v.ratio)}."
    return uses if of_two else f"{agree(_painted(v.least, begins=True), 'uses')} least energy of {v.count}: {uses}"


def _margin(v: Any) -> str:
    labels = {"equal": "equal to the baseline", "cannot tell": "undecided"}
    parts = [f"{count} {labels.get(decision, f'{decision} by more')}" for decision, count in v.counts.items()]
    return f"With a margin of {units.exactly(v.margin_pct, '%')}: {join_with_and(parts)}."


def _other_work(v: Any) -> str:
    subject, do = ("It is not", "it does") if len(v.ratios) == 1 else ("None is", "the others do")
    operations = f"{units.range_of(v.ratios, units.ratio_figures)}× the operations per {v.example}"
    return f"{subject} directly comparable: {do} {operations}."


def _repeats_for_a_width(v: Any) -> str:
    range_ = f" ({v.fewest:,}–{v.most:,})" if v.fewest < v.most else ""
    more = f"{v.repeats:,} more {units.plural('repeat', v.repeats)} of each{range_}"
    width = units.plus_minus(units.exactly(v.half_width_pct, "%"))
    return f"With about {more} the {units.plural('ratio', v.ratios)} would be known to {width}."


def format_reason(key: str, reason: Any) -> str:
    """Return what happened to a run, from its record or its readings, as text."""
    writers: dict[str, Callable[[Any], str]] = {
        environment_keys.STOOD_STILL_KEY: lambda seconds: units.quantity(f"{seconds:.0f}", "s"),
        "lost": describe_losses,
        "implausible": lambda devices: format_implausible(devices, _MOST_LISTED),
    }
    return writers.get(key, str)(reason)


def _reasons(v: Any) -> str:
    """Return which runs have which reason, one sentence each; of many reasons only the first."""
    texts = [units.sentence(f"{one.where.text}: {format_reason(v.key, one.value)}") for one in v.reasons]
    left_out = [f"{len(texts) - _MOST_LISTED} more."] if len(texts) > _MOST_LISTED else []
    return " ".join([*texts[:_MOST_LISTED], *left_out])


def _values(v: Any) -> str:
    """Return two values with their runs; of more, and of lists of GPUs, how many: the line's details have them."""
    few = len(v.values) <= 2 and v.name != "gpus_present"
    return format_values_by_run(v.values) if few else f"{len(v.values)} values in {v.where.text}"


_JOINED: Mapping[str, Callable[[Any], str]] = {
    "choices": lambda v: join_with_and(v.choices),
    "differences": lambda v: describe_differences(v.differences),
    "excess": lambda v: describe_excess(v.excess),
    "mismatches": lambda v: describe_mismatches(v.mismatches),
    "name": lambda v: _DIFFERENCES.get(v.name) or environment_label(v.name),
    "reason": lambda v: units.sentence(v.reason),
    "reasons": _reasons,
    "values": _values,
}
"""Formatters of facts that are records, by name."""

_MOST_VALUES = 5
"""The most seeds or lengths to name in a note."""
_REPEATED_IN = {
    "seed": "their seed",
    "seconds": "the seconds that they measured",
    "steps": "the steps that they measured",
    "warmup_steps": "their warm-up steps",
}


def _repeats(v: Any) -> str:
    listed = join_with_and(map(value_text, v.settings))
    settings = listed if len(v.settings) <= _MOST_VALUES else f"{len(v.settings)} values"
    return f"Runs that differ in {_REPEATED_IN[v.parameter]} alone ({settings}) are repeats of one variant."


def _seeds(accuracies_pct: Sequence[float]) -> str:
    """Return mean and deviation of an accuracy and the number of seeds: `91.24 ± 0.18 (3)`."""
    deviation = f" {units.plus_minus(f'{stdev(accuracies_pct):.2f}')}" if len(accuracies_pct) > 1 else ""
    return f"{mean(accuracies_pct):.2f}{deviation} ({len(accuracies_pct)})"


def _accuracy(v: Any) -> str:
    value, *ends = (units.with_minus(f"{points:+.2f}") for points in (v.points.value, *(v.points.interval or ())))
    return (
        f"Accuracy over seeds, {_painted(v.variant)} against {_painted(v.base)}: {_seeds(v.accuracies_pct)} against "
        f"{units.quantity(_seeds(v.base_accuracies_pct), '%')}; {value}{f' ({units.span(*ends)})' if ends else ''}, "
        f"{v.decision} (points; equal is within {units.plus_minus(f'{v.margin_points:g}')})."
    )


MainCause = IdleCause | Literal["no tensor cores"]
"""The possible source of nearly all of a part's change."""
NOUNS: dict[PartKind, str] = {
    "gemm": "GEMM",
    "convolution": "convolutions",
    "rnn": "RNN kernels",
    "attention": "attention",
    "batch_norm": "batch norm",
    "layer_norm": "layer norm",
    "pooling": "pooling",
    "reduction": "reductions",
    "pointwise": "point-wise kernels",
    "transpose": "transposes",
    "copy": "copies",
    "communication": "communication",
    "other": "other kernels",
    "idle": "idle time",
    "overlap": "overlap of kernels",
    "unexplained": "what is unexplained",
}
CAUSES: dict[MainCause, str] = {
    "host": "waiting for the host to launch",
    "kernel": "between two kernels",
    "other": "other waiting",
    "no tensor cores": "one kernel without tensor cores",
}


def _step(v: Any) -> str:
    """Return `NCHW takes 2.00 ms less per step than NHWC (1.90–2.10 ms).`."""
    change, figures = v.change, v.figures
    amount = f"{figures.ms(abs(change.value))} {'less' if change.value < 0 else 'more'} {figures.per}"
    low, high = sorted(map(abs, change.interval or (0.0, 0.0)))
    interval = f" ({units.span(figures.number(low), figures.ms(high))})" if change.interval else ""
    return f"{agree(_painted(v.first, begins=True), 'takes')} {amount} than {_painted(v.base)}{interval}."


def _shares(v: Any) -> str:
    first, *others = (f"{units.percent(100 * part.change_ms / v.change_ms)}{{}} in {part.noun}" for part in v.parts)
    return f"Of that, {join_with_and([first.format(' is'), *(other.format('') for other in others)])}."


def _parts(v: Any) -> str:
    """Return `3.17 ms in convolutions and 0.20 ms in copies`."""
    return join_with_and(f"{v.figures.ms(abs(part.change_ms))} in {part.noun}" for part in v.parts)


def _what_if(v: Any) -> str:
    """Return `NHWC with the pooling of NCHW: 5.5 % faster (+5.4 to +5.7 %), 23.70 ms per step`."""
    interval = format_interval(v.speedup.interval, v.speedup.value)
    faster = f"{describe_speed(v.speedup.value)}{f' ({interval})' if interval else ''}"
    parts = f"the {join_with_and(NOUNS[kind] for kind in v.kinds)} of {_painted(v.giver)}"
    return f"{_painted(v.taker)} with {parts}: {faster}, {v.figures.ms(v.step_ms)} {v.figures.per}"


def _part(v: Any) -> str:
    """Return `−3.17 ms in convolutions`."""
    return f"{v.figures.change(v.part.change_ms)} in {v.part.noun}"


SENTENCES: Mapping[str, str | Callable[[Any], str]] = {
    "effect": lambda v: f"{_beats(v, unit_of([v.ratio.value]))}{_in_pairs(v)}.",
    "not sure": lambda v: f"{_beats(v, unit_of([v.ratio.value]))}{_in_pairs(v)}.",
    "no difference": lambda v: (
        f"No difference seen between {_painted(v.winner)} and {_painted(v.other)}{_of_pairs(v)}."
    ),
    "not known": lambda v: f"Not known yet which is faster, {_painted(v.winner)} or {_painted(v.other)}{_of_pairs(v)}.",
    "equal": lambda v: (
        f"{_painted(v.winner, begins=True)} and {_painted(v.other)} are equal within "
        f"{units.exactly(v.margin_pct, '%')}{_in_pairs(v)}."
    ),
    "by region": _by_region,
    "varies": _varies,
    "fastest": _ranks,
    "leads": _ranks,
    "not ranked": lambda v: f"Not ranked: {', '.join(f'{count} {_APART[why]}' for why, count in v.counts.items())}.",
    "one variant": "All chosen runs are of one variant: there is nothing to compare it with.",
    "different workloads": lambda v: (
        f"{join_with_and(v.workloads)} are different workloads, so their speeds are not compared."
    ),
    "no result": lambda v: f"No run of {_painted(v.name)} measured to its end ({'; '.join(v.endings)}).",
    "no other result": "No variant but the baseline has a complete run.",
    "no runs": "No run of this experiment has a result yet.",
    "only one": "Only {variant} has runs yet: there is nothing to compare it with so far.",
    "energy": _energy,
    "settings": lambda v: f"They differ in {len(v.labels)} settings: {join_with_and(v.labels)}.",
    "margin": _margin,
    "other work": _other_work,
    "includes other work": "That includes another amount of work per example.",
    "sure": lambda v: f"The intervals hold at {units.percent(v.level_pct)}, however often you look.",
    "repeats for an interval": "An interval takes {repeats} runs of each variant.",
    "repeats for a width": _repeats_for_a_width,
    "repeats to tell": lambda v: (
        f"{v.repeats} more {units.plural('repeat', v.repeats)} of these {v.count} would tell which is fastest."
    ),
    "repeats hardly help": "More repeats would hardly help, as runs of one variant differ too much.",
    "baseline": "The baseline is {variant}: its runs are enough and steady. You can choose another.",
    "noisy baseline": lambda v: (
        f"Runs of the baseline differ by {_amount(v.ratio, unit_of([v.ratio]))}, which makes "
        "intervals wide; choose a steadier one or repeat it."
    ),
    "unchanged": "The same kernels ran as often and as long in {variants}: what differs changed nothing that ran, "
    "unless it is the work of the host.",
    "examples": "How many examples a step has is not known: speeds are in steps/s, by which a larger batch looks "
    "slower. Give the examples of a step (--examples; in the window, Examples per step).",
    "uncounted": lambda v: units.sentence(
        f"{v.where.text} ({v.outcome}) {'does' if len(v.where.runs) == 1 else 'do'} not count. {v.reason}".rstrip()
    ),
    "left_out": "At most {most} runs are compared; of those chosen, {count} are not.",
    "equality": "The baseline does not compute the same as {variants}: {excess}.",
    "equality_same": "The baseline computes the same as {variants}: {differences}.",
    "equality_unknown": "Not checked whether the baseline computes the same as {variants}. {reason}",
    EVIDENCE: "{mismatches} So the verdict is about what ran, not what was requested.",
    "alike": "The evidence does not show that {choices} ran different code. A difference in speed proves nothing. "
    "{reason}",
    "tensor_cores": "Products ran without tensor cores although the precision is meant for them. They take {share_pct} "
    "of a step in {where}, which would be faster with them.",
    "dropout": "Dropout is not the same: cuDNN's whole stack leaves out other values at each step, and none of the "
    "first layer's inputs. Compare variants without dropout.",
    "order": "All or most runs of {variants} were made before or after those of the baseline. A change in the machine "
    "in between would look like a difference between variants. {consequence}",
    "apart": "Runs of {variants} were made up to {gap_h} before or after those of the baseline. A change in the "
    "machine in between would look like a difference between variants. {consequence}",
    "restart": "The machine was restarted between the runs of {variants} and those of the baseline. A change in the "
    "machine would look like a difference between variants. {consequence}",
    "throttled heat": "GPUs were throttled because of heat in {where}, for {share_pct} of the measured part. "
    "That slows them.",
    "throttled power limit": "GPUs were throttled by the power limit in {where}, for {share_pct} of the measured part. "
    "That slows them.",
    "throttled hardware slowdown": "GPUs were throttled by a hardware slowdown in {where}, for {share_pct} of the "
    "measured part. That slows them.",
    "clocks": "The GPU clock was {clock_mhz} of {highest_mhz} in {where}. {consequence}",
    "clocks_power": "The power limit kept the GPU clock at {clock_mhz} of {highest_mhz} in {where}. {consequence}",
    environment_keys.OTHERS_ON_GPU_KEY: "Other processes used the GPU during a run, which makes it slower. {reasons}",
    environment_keys.IDLE_WAIT_KEY: "The wait for idle GPUs timed out; runs may be slower. {reasons}",
    environment_keys.STOOD_STILL_KEY: "Everything was suspended during a run, and its figures hold that time too. "
    "{reasons}",
    environment_keys.OTHERS_UNKNOWN_KEY: "Whether other processes used the GPU is unknown: nobody could list them. "
    "Any would have made the run slower. {reasons}",
    "lost": "A device stopped answering during a run, which may have slowed it. {reasons}",
    "implausible": "Readings of telemetry that cannot be true were left out. {consequence} {reasons}",
    "others_on_host": "Other programs used the CPU while a run measured: {share_pct} in {where}. {consequence}",
    environment_keys.CONCURRENT_GPUS_KEY: "Runs on other GPUs shared the machine with {where}, which may be slower "
    "for it.",
    environment_keys.GPUS_USED_KEY: "{gpus} {kind} were used, each for {uses} of the runs.",
    "gpus_uneven": "Variants are spread unevenly over {gpus} {kind}, so energy is compared within GPUs. {consequence}",
    "gpus_apart": "Some variants ran on other GPUs than those they are compared with, of {gpus} {kind}. {consequence}",
    "differs": "{name} differs: {values}. {consequence}",
    environment_keys.HOST_KEY: "The host differs: {values}. Its processor, driver, cooling and users may explain a "
    "difference, even with the same kind of GPU. Compare variants on one host.",
    "unknown_code": "The program's code is unknown in {where}, and may differ.",
    "drift": "The baseline has drifted: its speed has changed by {change_pct} from older runs of the same variant in "
    "the same environment. Do not compare with those.",
    "temperature": "GPUs were at {warmest_c} before runs of {variants}, and at {baseline_c} before runs of the "
    "baseline. Energy may differ by that, and speed by the clocks alone.",
    "other workload": lambda v: (
        f"{join_with_and(v.workloads)} are different workloads: their steps have nothing in common to compare."
    ),
    "nothing measured": "No run of {lacking} has a measured step.",
    "no trace": "Why is not known: there is no trace of {lacking}. Runs with evidence “Graph and trace” would tell.",
    "no trace to have": "Why is not known: there is no trace of {lacking}; the evidence of its runs says why.",
    "processor and GPU": "Only one of {first} and {base} ran on GPUs. A step on the CPU has other parts.",
    "batch": lambda v: (
        f"{'Each GPU has' if v.figures.of_gpu else 'The batch is'} {v.batch:,.6g} in place of "
        f"{v.base_batch:,.6g} {units.plural(v.figures.example)}, so times are {v.figures.per}."
    ),
    "work": lambda v: (
        f"{agree(_painted(v.first, begins=True), 'does')} {units.ratio(v.ratio)} the operations per {v.example}: "
        "some of this is other work."
    ),
    "cpu step": lambda v: (
        f"{agree(_painted(v.first, begins=True), 'takes')} {v.figures.number(v.step_ms)} against "
        f"{v.figures.ms(v.figures.baseline_ms)} {v.figures.per}. Which operations make up the difference is not known: "
        "on the CPU several run at once, and tracing slows them."
    ),
    "same": lambda v: f"Steps of {_painted(v.first)} and {_painted(v.base)} do not differ significantly.",
    "same_single": lambda v: (
        f"{_painted(v.first, begins=True)} and {_painted(v.base)} differ no more than runs of one variant do."
    ),
    "step": _step,
    "clock": lambda v: (
        f"Up to {units.percent(v.share_pct)} of that comes from the clock of the GPU, "
        f"{units.megahertz(v.clock_mhz)} in place of {units.megahertz(v.base_clock_mhz)}."
    ),
    "data": lambda v: (
        f"Waiting for training data takes {v.figures.number(v.wait_ms)} in place of {v.figures.ms(v.base_wait_ms)}."
    ),
    "launches": lambda v: (
        f"The host launches {v.launches:,.0f} in place of {v.base_launches:,.0f} kernels {v.figures.per}."
    ),
    "shares": _shares,
    "lost_again": lambda v: f"Some of it is lost again: {_parts(v)}.",
    "won_back": lambda v: f"Some of it is won back: {_parts(v)}.",
    "saves": lambda v: f"The first saves {_parts(v)}.",
    "loses": lambda v: f"The first loses {_parts(v)}.",
    "one_cause": lambda v: f"Nearly all of that in {NOUNS[v.part]} is {CAUSES[v.cause]}.",
    "hardly": lambda v: f"Hardly any of it is in {join_with_and(NOUNS[part] for part in v.parts)}.",
    "no_part": lambda v: f"No part of a step surely changes by more than {units.percent(v.share_pct)} of it.",
    "largest_part": lambda v: f"The largest part is {_part(v)}.",
    "largest_change": lambda v: f"The largest change is {_part(v)}.",
    "what_if": _what_if,
    "mean_of_gpus": "Times of several GPUs are their mean.",
    "merged_kernels": lambda v: (
        f"{join_with_and(v.compilers)} {'merges' if len(v.compilers) == 1 else 'merge'} operations into kernels of "
        f"{'its' if len(v.compilers) == 1 else 'their'} own (fusions), each of which counts in one class. "
        "What only moved to another class is no gain or loss."
    ),
    "untraced": lambda v: (
        f"{format_run_numbers(v.runs).capitalize()} "
        f"{'has no trace and is' if len(v.runs) == 1 else 'have no trace and are'} left out."
    ),
    "idle_by_cause": "Idle time is split by the trace's gaps; only their shares count: tracing makes them longer.",
    "repeats": _repeats,
    "curves": lambda v: f"Curves show {v.drawn} of {v.count} runs; table and verdict use all.",
    "zero": "Without a measured part, time zero is the start of the run.",
    "accuracy": _accuracy,
    "no_intervals": "No intervals: they take two traced runs or more of each variant.",
}
"""One sentence for each kind of statement: a template of its facts, or a function that formats them."""
