"""The form as values: fields, their options, what cannot run, and cures."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from app.viewmodels.experiment.preview import RefusedGroup
from app.viewmodels.format.naming import value_text, variant_names
from app.viewmodels.format.sentences import without_advice
from app.viewmodels.run.selection import (
    EXTENT,
    NO_STORED,
    Selection,
    Values,
    describe_invalid,
    format_value,
    format_values,
)
from workloads import catalog
from workloads.catalog import MAX_VARIANTS, Parameter
from workloads.protocol import RunSpec, Value

EXPERIMENT = "experiment."
"""The prefix of fields for the extent of an experiment; parameters' names have no dot."""
BASELINE = f"{EXPERIMENT}baseline"
MOST_CURES = 3
"""The most cures to offer: buttons in one line."""
_SHARED = frozenset.intersection(*(frozenset(p.name for p in w.parameters) for w in catalog.WORKLOADS if not w.hidden))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One value, offered or chosen; `reason` is why it cannot run here."""

    value: Value
    label: str
    help: str = ""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One parameter as the form shows it.

    Attributes:
        name: Its name, after `EXPERIMENT` if it is about the extent of an experiment.
        text: The values as typed.
        unit: The unit of typed values.
        unset: The meaning of an empty text.
        options: Values to choose from; empty if they are typed.
        essential: Always visible; others if found by a search, or changed.
        default: Its default as text, if its value differs; else "".
        note: The line under it.
        problem: Whether the note says what is wrong with its value.
    """

    name: str
    label: str
    help: str
    chosen: tuple[Option, ...]
    text: str = ""
    unit: str = ""
    unset: str = ""
    maximum: float = 0
    options: tuple[Option, ...] = ()
    takes_several: bool = True
    enabled: bool = True
    essential: bool = True
    default: str = ""
    note: str = ""
    problem: bool = False

    @property
    def value(self) -> Value:
        return self.chosen[0].value

    def matches(self, text: str) -> bool:
        """Return whether its texts contain every word of a search."""
        texts = (self.label, self.name, self.help, self.unset, *(option.label for option in self.options))
        return all(word in " ".join(texts).lower() for word in text.lower().split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """A change of one parameter that makes refused variants run here, or leaves them out."""

    label: str
    name: str
    values: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class FormState:
    """The whole form as values.

    Attributes:
        workloads: Names and titles of all workloads.
        fields: Its parameters, then with several variants those of the experiment.
        problem: Why nothing can start, "" if it can.
        cures: At most `MOST_CURES` ways to let everything run.
        variants: How many of them can run here.
        refused: The others, by reason.
        runs: The most runs to make in all.
        machine_text: What the form waits for until the machine is known, then why it has no GPU, "" if it has one.
    """

    workload: str
    workloads: tuple[tuple[str, str], ...]
    help: str
    fields: tuple[Field, ...]
    problem: str
    cures: tuple[Cure, ...]
    combinations: int
    variants: int
    refused: tuple[RefusedGroup, ...]
    runs: int
    is_machine_known: bool
    custom_file_text: str = ""
    custom_file_invalid: bool = False
    machine_text: str = "Looking for GPUs …"

    @property
    def can_run(self) -> bool:
        return self.is_machine_known and not self.problem

    @property
    def is_experiment(self) -> bool:
        return self.combinations > 1


class Fields:
    """Creates the fields of a selection; `texts` are typed texts, such as ranges or invalid values, by field."""

    def __init__(self, selection: Selection, texts: Mapping[str, str]) -> None:
        self._selection = selection
        self._texts = texts

    def of_workload(self) -> Iterator[Field]:
        chosen, variant = self._selection.chosen, self._selection.spec.variant
        for parameter in self._selection.workload.parameters:
            values = chosen.get(parameter.name) or (variant[parameter.name],)
            yield self._parameter_field(parameter, values)

    def of_experiment(self, *, has_stored: bool) -> Iterator[Field]:
        """Yield the fields for the extent of the experiment; `has_stored` is whether stored runs could count."""
        selection, listed = self._selection, self._selection.ordered_variants
        if len(listed) > 1:
            options = tuple(Option(value=n, label=name) for n, name in enumerate(variant_names(listed)))
            yield Field(
                name=BASELINE,
                label="Baseline",
                help="The variant that all others are compared with.",
                chosen=(options[listed.index(selection.runnable[0])],),
                options=options,
                takes_several=False,
            )
        is_used = {
            "side_by_side": len(selection.device.gpus) > 1,
            "stored": has_stored or selection.extent_value("stored") != NO_STORED,
        }
        for name in (parameter.name for parameter in EXTENT if is_used.get(parameter.name, True)):
            parameter = selection.extent_parameter(name)
            values = (selection.extent_value(name),)
            yield replace(
                self._field(parameter, EXPERIMENT + name, values, _options(parameter), parameter.default),
                takes_several=False,
            )

    def problem(self) -> str:
        """Return why nothing can start; "" if it can."""
        selection = self._selection
        for name, text in self._texts.items():
            if describe_invalid(parameter := find_parameter(selection, name), text):
                return f"Correct {parameter.label} above."
        if selection.count > MAX_VARIANTS:
            return f"{selection.count:,} combinations are too many: choose fewer values, {MAX_VARIANTS} at most."
        if selection.count == 1:
            return next((refusal.reason for _, refusal in selection.refused), "")
        if len(selection.runnable) < 2:
            few = "Only one" if selection.runnable else "None"
            return f"{few} of these {selection.count} combinations can run here, so there is nothing to compare."
        return ""

    def cures(self) -> tuple[Cure, ...]:
        return tuple(islice(self._cures(), MOST_CURES))

    def _parameter_field(self, parameter: Parameter, values: Values) -> Field:
        selection, name = self._selection, parameter.name
        default = catalog.default_value(parameter, on_cpu=selection.spec.variant["gpus"] == 0)
        if name == "gpus":
            default = catalog.fill_defaults(selection.workload, {}, selection.device).variant["gpus"]
        field = self._field(parameter, name, values, self._options(parameter), default)
        is_custom = selection.workload.custom_file is not None and name not in _SHARED
        return replace(
            field,
            chosen=tuple(replace(option, reason=self._chosen_refusal(name, option.value)) for option in field.chosen),
            enabled=name != "devices" or bool(selection.device.gpus) or values != ("",),
            essential=is_custom or (parameter.common and self._is_of_chosen_framework(parameter)),
            note=field.note or self._note(parameter, values),
        )

    def _is_of_chosen_framework(self, parameter: Parameter) -> bool:
        selection = self._selection
        chosen = selection.chosen.get("framework") or (selection.spec.variant.get("framework", "tensorflow"),)
        return not parameter.frameworks or not set(chosen).isdisjoint(parameter.frameworks)

    def _field(
        self, parameter: Parameter, name: str, values: Values, options: tuple[Option, ...], default: Value
    ) -> Field:
        typed = self._texts.get(name)
        problem = describe_invalid(parameter, typed) if typed else ""
        options_by_value = {option.value: option for option in options}

        def option(value: Value) -> Option:
            label = format_value(parameter, value) or parameter.unset or "empty"
            return options_by_value.get(value) or Option(value=value, label=label)

        return Field(
            name=name,
            label=parameter.label,
            help=parameter.help,
            chosen=tuple(map(option, values)),
            text="" if options else format_values(parameter, values) if typed is None else typed,
            unit=parameter.unit,
            unset=parameter.unset,
            maximum=parameter.limits[1] if parameter.limits else 0,
            options=options,
            default="" if values == (default,) and not problem else option(default).label,
            note=problem,
            problem=bool(problem),
        )

    def _note(self, parameter: Parameter, values: Values) -> str:
        if parameter.name != "interpreter" or not self._selection.device.local or len(values) > 1 or not values[0]:
            return ""
        versions = {
            framework.name: catalog.installed_framework(str(values[0]), framework)
            for framework in catalog.FRAMEWORKS.values()
        }
        text = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        return f"{text}." if text else ""

    def _options(self, parameter: Parameter) -> tuple[Option, ...]:
        """Return the values to choose from, each with what refuses it together with the first values of all others."""
        selection, options = self._selection, _options(parameter)
        if parameter.name == "gpus":
            count = max(1, len(selection.device.gpus), *map(int, selection.chosen.get("gpus", ())))
            options = tuple(Option(value=n, label=str(n) if n else "CPU") for n in range(count + 1))
        return tuple(replace(option, reason=self._refusal(parameter.name, option.value)) for option in options)

    def _refusal(self, name: str, value: Value) -> str | None:
        selection = self._selection
        if selection.machine is None:
            return None
        spec = selection.complete({name: value}) if name == "gpus" else selection.spec  # others have defaults by it
        reason = catalog.refusal_reason(spec, name, value, selection.machine)
        return without_advice(reason) if reason else None

    def _chosen_refusal(self, name: str, value: Value) -> str | None:
        """Return why no combination with a chosen value can run here; None if one can, or another value is to blame."""
        selection = self._selection
        if any(spec.variant[name] == value for spec in selection.runnable):
            return None
        refused = (refusal for spec, refusal in selection.refused if spec.variant[name] == value)
        culprit = next((refusal for refusal in refused if name in refusal.parameters), None)
        if culprit is None or (
            name not in selection.chosen and any(other in selection.chosen for other in culprit.parameters)
        ):
            return None  # the user's choices are to blame, not the defaults
        return culprit.reason

    def _cures(self) -> Iterator[Cure]:
        selection = self._selection
        spec = next((spec for spec, _ in selection.refused), None)
        if spec is None:
            return
        missing = catalog.missing_framework(spec.variant, selection.device)
        if missing is not None and "framework" not in selection.varied and not spec.variant["interpreter"]:
            package = missing.package(on_gpus=bool(spec.variant["gpus"]))
            yield Cure(name="packages", values=(package,), label=f"Get {missing.name} …")
        refusals = (refusal for refused_spec, refusal in selection.refused if refused_spec is spec)
        names = dict.fromkeys(name for refusal in refusals for name in refusal.parameters)
        edited_first = sorted(names, key=lambda name: name not in selection.chosen)
        for parameter in map(selection.workload.parameter, edited_first):
            name, value = parameter.name, spec.variant[parameter.name]
            if name not in selection.varied:
                yield from self._changes(parameter, spec)
            elif self._chosen_refusal(name, value) is not None:
                others = tuple(chosen_value for chosen_value in selection.chosen[name] if chosen_value != value)
                labels = {option.value: option.label for option in self._options(parameter)}
                label = f"Leave out {parameter.label} {labels.get(value, value_text(value))}"
                yield Cure(name=name, values=others, label=label)

    def _changes(self, parameter: Parameter, spec: RunSpec) -> Iterator[Cure]:
        selection, name = self._selection, parameter.name
        for value, label in _alternatives(parameter):
            varied = {varied_name: spec.variant[varied_name] for varied_name in selection.varied}
            changed = selection.complete({**varied, name: value})
            if value != spec.variant[name] and not selection.check(changed):
                yield Cure(name=name, values=(value,), label=label)


def find_parameter(selection: Selection, name: str) -> Parameter:
    """Return the parameter of a field; raises `UsageError` if the workload lacks it."""
    if name.startswith(EXPERIMENT):
        return selection.extent_parameter(name.removeprefix(EXPERIMENT))
    return selection.workload.parameter(name)


def _options(parameter: Parameter) -> tuple[Option, ...]:
    if parameter.kind == "switch":
        return Option(value=False, label="Off"), Option(value=True, label="On")
    return tuple(Option(value=choice.value, label=choice.label, help=choice.help) for choice in parameter.choices)


def _alternatives(parameter: Parameter) -> list[tuple[Value, str]]:
    if parameter.name == "gpus":
        return [(0, "Use the CPU")]
    if parameter.kind == "switch":
        return [(True, f"Turn {parameter.label} on"), (False, f"Turn {parameter.label} off")]
    return [(choice.value, f"Use {choice.label}") for choice in parameter.choices]
