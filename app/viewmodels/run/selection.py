"""The choices for one workload, one or several values for each parameter: its variants, plan and command."""

import contextlib
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from app.analysis.intervals import DEFAULT_REPEATS, MIN_REPEATS
from app.paths import PROGRAM
from app.values.plan import MAX_REPEATS, REPEATS_LIMIT, Plan
from app.values.units import sentence
from app.viewmodels.experiment.preview import RefusedGroup, group_refused
from app.viewmodels.format.naming import experiment_name, value_text, workload_argument
from app.viewmodels.format.sentences import without_advice
from workloads import catalog
from workloads.catalog import MAX_VARIANTS, Choice, Machine, Parameter, Refusal, UsageError, Workload, parse
from workloads.protocol import Command, RunSpec, Value

Values = tuple[Value, ...]

NO_STORED, RECENT, OLDER = "none", "recent", "older"
"""Which stored runs count: none, those of the last hour, or all."""

EXTENT = (
    Parameter(
        "repeats",
        "Repeats",
        "Runs of each variant, interleaved, each in a fresh process.",
        DEFAULT_REPEATS,
        limits=(1, REPEATS_LIMIT),
    ),
    Parameter(
        "until_pct",
        "Stop early at",
        "Stop once every speed-up is known that precisely; the number of repeats is then the maximum.",
        0.0,
        limits=(0.0, 50.0),
        unit="%",
        unset="never",
    ),
    Parameter(
        "budget_min",
        "Time limit",
        "Start no run that would not finish within this time; the experiment can be resumed.",
        0.0,
        limits=(0.0, 7 * 24 * 60),
        unit="min",
        unset="none",
    ),
    Parameter("side_by_side", "Side by side", "Run variants on different GPUs at the same time.", False),
    Parameter(
        "stored",
        "Stored runs",
        "Whether stored runs of the same variants count instead of being repeated.",
        NO_STORED,
        choices=(
            Choice(NO_STORED, "Repeat all", "Interleaved, under the same conditions."),
            Choice(RECENT, "Count the last hour's", "Run under about the same conditions."),
            Choice(OLDER, "Count all", "However old: conditions may have changed."),
        ),
    ),
)
"""The extent of an experiment, as parameters, so that their fields are like a workload's."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The values chosen for a workload, and the machine that their combinations are checked against.

    Nothing is refused until the machine is known. `chosen` and `extent` have only changed values, `baseline` only
    those of varied parameters.
    """

    workload: Workload
    machine: Machine | None
    chosen: Mapping[str, Values]
    extent: Mapping[str, Value]
    baseline: Mapping[str, Value]
    host: str

    @property
    def device(self) -> Machine:
        return self.machine or Machine()

    @cached_property
    def spec(self) -> RunSpec:
        """Return the complete variant of the first values, whether it can run or not."""
        return self.complete({})

    def complete(self, changes: Mapping[str, Value]) -> RunSpec:
        """Return the variant of the first values with some replaced; defaults that depend on `gpus` follow."""
        first = {name: values[0] for name, values in self.chosen.items()}
        return catalog.fill_defaults(self.workload, {**first, **changes}, self.device)

    @cached_property
    def varied(self) -> list[str]:
        """Return the parameters with several values, in the catalog's order."""
        names = (parameter.name for parameter in self.workload.parameters)
        return [name for name in names if len(self.chosen.get(name, ())) > 1]

    @cached_property
    def count(self) -> int:
        return math.prod(len(self.chosen[name]) for name in self.varied)

    @cached_property
    def _checked(self) -> list[tuple[RunSpec, tuple[Refusal, ...]]]:
        """Return every combination, the baseline's first, with its refusals; empty if there are too many."""
        if self.count > MAX_VARIANTS:
            return []
        fixed = {parameter.name: (self.spec.variant[parameter.name],) for parameter in self.workload.parameters}
        specs = catalog.combinations(self.workload, {**fixed, **self._lists}, self.device)
        return [(spec, self.check(spec)) for spec in specs]

    def check(self, spec: RunSpec) -> tuple[Refusal, ...]:
        """Return why a variant cannot run on the machine, in the window's words; empty until that is known."""
        refusals = catalog.check(spec, self.machine) if self.machine is not None else ()
        return tuple(Refusal(refusal.parameters, without_advice(refusal.reason)) for refusal in refusals)

    @cached_property
    def runnable(self) -> tuple[RunSpec, ...]:
        """Return the combinations that can run, the baseline first."""
        return tuple(spec for spec, refusals in self._checked if not refusals)

    @cached_property
    def refused(self) -> tuple[tuple[RunSpec, Refusal], ...]:
        return tuple((spec, refusal) for spec, refusals in self._checked for refusal in refusals)

    @cached_property
    def refused_groups(self) -> tuple[RefusedGroup, ...]:
        return group_refused([(spec, refusals[0]) for spec, refusals in self._checked if refusals], self.varied)

    @cached_property
    def ordered_variants(self) -> list[RunSpec]:
        """Return those that can run, in an order that does not depend on the baseline."""
        chosen = self.chosen
        return sorted(self.runnable, key=lambda spec: [chosen[name].index(spec.variant[name]) for name in self.varied])

    @property
    def _lists(self) -> dict[str, Values]:
        """Return the values of each varied parameter, the baseline's first."""
        base = self.baseline
        return {
            name: tuple(sorted(self.chosen[name], key=lambda value: value != base.get(name))) for name in self.varied
        }

    def extent_parameter(self, name: str) -> Parameter:
        """Return a parameter of `EXTENT`; an experiment that may stop early has another number of repeats."""
        parameter = next(candidate for candidate in EXTENT if candidate.name == name)
        if name == "repeats" and self.extent.get("until_pct"):
            return replace(
                parameter,
                label="Repeats at most",
                help="The most runs of each variant; fewer if the precision is reached earlier.",
                default=MAX_REPEATS,
                limits=(MIN_REPEATS, REPEATS_LIMIT),
            )
        return parameter

    def extent_value(self, name: str) -> Value:
        return self.extent.get(name, self.extent_parameter(name).default)

    @property
    def repeats(self) -> int:
        return int(self.extent_value("repeats"))

    @property
    def _parallel(self) -> int:
        is_side_by_side = self.extent_value("side_by_side") and len(self.device.gpus) > 1
        return len(self.device.gpus) if is_side_by_side else 1

    def plan(self) -> Plan:
        """Return the experiment; its notes say which combinations cannot run."""
        stored = self.extent_value("stored")
        return Plan(
            name=experiment_name(self.runnable) if self.runnable else self.workload.name,
            variants=self.runnable,
            repeats=self.repeats,
            until_pct=float(self.extent_value("until_pct")) or None,
            asked=next((name for name in self.chosen if name in self.varied), ""),
            has_baseline=bool(self.baseline),
            notes=tuple(f"{group.count} left out. {group.text}" for group in self.refused_groups),
            budget_s=60 * float(self.extent_value("budget_min")) or None,
            parallel=self._parallel,
            again=stored == NO_STORED,
            reuse=stored == OLDER,
            host=self.host,
        )

    def command(self) -> str:
        """Return the equivalent shell command, naming only what differs from the defaults on this machine."""
        file = self.workload.custom_file
        name = workload_argument(file.path if file else "", self.workload.name)
        words = [*PROGRAM.split(), "experiment" if self.varied else "run", name]
        words += [part for setting in self._settings() for part in ("-s", setting)]
        if self.varied:
            words += self._extent_options()
        return shlex.join([*words, *(["--on", self.host] if self.host else [])])

    def _settings(self) -> Iterator[str]:
        """Yield `name=a,b` for each parameter that is varied or changed."""
        fixed, lists = self.spec.variant, self._lists
        gpus = lists.get("gpus") or (fixed["gpus"],)
        default_gpus = catalog.fill_defaults(self.workload, {}, self.device).variant["gpus"]
        defaults = [catalog.fill_defaults(self.workload, {"gpus": count}, self.device).variant for count in gpus]
        for parameter in self.workload.parameters:
            name = parameter.name
            values = lists.get(name) or (fixed[name],)
            usual = [default_gpus] if name == "gpus" else [variant[name] for variant in defaults]
            if len(values) > 1 or any(values[0] != value for value in usual):
                yield f"{name}={_separator(parameter).join(map(value_text, values))}"

    def _extent_options(self) -> Iterator[str]:
        until, budget = self.extent_value("until_pct"), float(self.extent_value("budget_min"))
        stored = self.extent_value("stored")
        if "repeats" in self.extent:
            yield from ("--repeats", str(self.repeats))
        if until:
            yield from ("--until", f"{until:g}%")
        if budget:
            yield from ("--budget", f"{60 * budget:.0f}s")
        if self._parallel > 1:
            yield from ("--parallel", str(self._parallel))
        if stored != RECENT:
            yield "--again" if stored == NO_STORED else "--reuse"


_SEPARATORS = re.compile(r"[,;\s]+")
_SEPARATORS_OF_DECIMALS = re.compile(r"(?:[;\s]|,(?!\d))+")
"""Keeps `0,5` together, which may be one number or two, so that it is refused."""
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_RANGE = re.compile(rf"(?P<first>{_NUMBER})\s*\.\.\s*(?P<last>{_NUMBER})(?:\s*(?P<sign>[x×*+])\s*(?P<step>{_NUMBER}))?")
"""`8..128`, with `x2` in multiples and with `+8` in steps; a range without either doubles."""
_LIKE_A_RANGE = re.compile(r"\.\.|\d-\d")
_NO_RANGE = "{} is not a range: write 8..128 x2 or 8..32 +8."


def parse_values(parameter: Parameter, text: str) -> tuple[Value, ...]:
    """Return the values in the order typed, each once; raises `UsageError` for an invalid one."""
    return tuple(dict.fromkeys(value for word in _split(parameter, text) for value in _parse(parameter, word)))


def parse_settings(settings: Sequence[str], option: str = "-s") -> dict[str, str]:
    """Return the texts of `name=text` by name; raises `UsageError`."""
    pairs: dict[str, str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"{option} takes name=value, not {setting!r}.")
        if name in pairs:
            raise UsageError(f"{name} is given twice.")
        pairs[name] = text
    return pairs


def parse_script_values(command: Command, texts: Mapping[str, str]) -> dict[str, Sequence[Value]]:
    """Return the values of a command's placeholders and of the program's parameters, by name; raises `UsageError`.

    Commas separate a placeholder's values. A value is a number only if written as Python would; a switch is on or off.
    """
    switches = catalog.command_names(command)
    parameters = {parameter.name: parameter for parameter in catalog.script_workload("script:").parameters}
    values: dict[str, Sequence[Value]] = {}
    for name, text in texts.items():
        words = [word.strip() for word in text.split(",")]
        if name in parameters:
            values[name] = parse_values(parameters[name], text)
        elif switches.get(name):
            switch = Parameter(name, name, "", False)
            values[name] = tuple(dict.fromkeys(parse(switch, word) for word in words))
        else:
            values[name] = tuple(dict.fromkeys(map(_number_or_text, words)))
    return values


def _number_or_text(word: str) -> Value:
    with contextlib.suppress(ValueError, OverflowError):
        return next((value for value in (int(float(word)), float(word)) if str(value) == word), word)
    return word


def describe_invalid(parameter: Parameter, text: str) -> str:
    """Return a sentence for each invalid value typed in the window; "" if all are valid."""
    sentences = []
    has_decimals = parameter.kind == "number" and "." not in text
    for word in _split(parameter, text, _SEPARATORS_OF_DECIMALS if has_decimals else _SEPARATORS):
        try:
            _parse(parameter, word)
        except UsageError as error:
            sentences.append(sentence(str(error).replace(parameter.name, parameter.label, 1)))
    return " ".join(dict.fromkeys(sentences))


def format_value(parameter: Parameter, value: Value) -> str:
    if parameter.unset and parameter.limits and value == parameter.limits[0]:
        return parameter.unset
    return value_text(value)


def format_values(parameter: Parameter, values: Sequence[Value]) -> str:
    return f"{_separator(parameter)} ".join(format_value(parameter, value) for value in values)


def _parse(parameter: Parameter, word: str) -> Sequence[Value]:
    """Return the value of a word, or the values of a range; raises `UsageError`."""
    if parameter.kind not in ("integer", "number"):
        return (parse(parameter, word),)
    if parameter.unset and word == parameter.unset and parameter.limits:
        return (parse(parameter, f"{parameter.limits[0]:g}"),)
    match = _RANGE.fullmatch(word)
    if match is None and _LIKE_A_RANGE.search(word):
        raise UsageError(_NO_RANGE.format(word))
    if match is None:
        return (parse(parameter, word),)
    first, last = (float(parse(parameter, match[end])) for end in ("first", "last"))
    values = list(_range(first, last, match["sign"] or "x", float(match["step"] or 2), word))
    return [parse(parameter, f"{value:.10g}") for value in values]


def _range(first: float, last: float, sign: str, step: float, word: str) -> Iterator[float]:
    if last < first or (sign == "+" and step <= 0) or (sign != "+" and (step <= 1 or first <= 0)):
        raise UsageError(_NO_RANGE.format(word))
    for count in range(MAX_VARIANTS + 1):
        value = first + count * step if sign == "+" else first * step**count
        if value > last and not math.isclose(value, last):
            return
        yield value


def _split(parameter: Parameter, text: str, separators: re.Pattern[str] = _SEPARATORS) -> list[str]:
    if parameter.kind not in ("integer", "number"):
        # An empty word is a value too: this program's Python, or the first free GPUs.
        separator = catalog.BETWEEN_PACKAGES if parameter.name == "packages" else _separator(parameter)
        return [word.strip() for word in re.split(separator, text)]
    if parameter.unset and text.strip() == parameter.unset:
        return [parameter.unset]
    ranges = [match[0] for match in _RANGE.finditer(text)]
    blanked = _RANGE.sub("\0", text)
    return [ranges.pop(0) if word == "\0" else word for word in separators.split(blanked) if word]


def _separator(parameter: Parameter) -> str:
    return ";" if parameter.name == "devices" else ","
