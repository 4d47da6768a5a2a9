"""What the variant form shows: every parameter with its limits, what cannot run here and why, the same as a command."""

import shlex
from dataclasses import dataclass, replace

from app.viewmodels.naming import value_text
from app.viewmodels.units import sentence
from workloads import catalog
from workloads.catalog import Machine, Parameter
from workloads.protocol import RunSpec, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One value of a choice; `reason` says why it cannot be chosen here."""

    value: Value
    label: str
    help: str = ""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One parameter as the form shows it. `note` is the line under it; `problem`: the value itself fails."""

    name: str
    label: str
    kind: str
    value: Value
    help: str
    unit: str = ""
    minimum: float = 0
    maximum: float = 0
    options: tuple[Option, ...] = ()
    enabled: bool = True
    advanced: bool = False
    note: str = ""
    problem: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormState:
    """The whole form as values; `refusals` says why the variant cannot run here, empty when it can."""

    workload: str
    workloads: tuple[tuple[str, str], ...]
    help: str
    fields: tuple[Field, ...]
    refusals: tuple[str, ...]
    command: str
    known_machine: bool


class VariantForm:
    """The choices a user made, workload by workload; all else follows the catalog's defaults for this machine."""

    def __init__(self, workload: str = "cnn10", *, hidden: bool = False) -> None:
        self._workload = workload
        self._edited: dict[str, dict[str, Value]] = {}
        self._machine: Machine | None = None
        self._no_gpu_reason: str | None = None
        self._offered = tuple((w.name, w.title) for w in catalog.WORKLOADS if hidden or not w.hidden)

    @property
    def machine(self) -> Machine:
        """The machine variants are checked against; an empty one until the inventory came."""
        return self._machine or Machine()

    def set_machine(self, machine: Machine, no_gpu_reason: str | None = None) -> None:
        """Check against this machine from now on."""
        self._machine = machine
        self._no_gpu_reason = no_gpu_reason

    def choose(self, workload: str) -> None:
        """Turn to another workload; what was edited of the others is kept. Raises `UsageError`."""
        self._workload = catalog.workload(workload).name

    def edit(self, name: str, value: Value) -> None:
        """Set one parameter; raises `UsageError` for one that does not exist or a value out of range."""
        given = {**self._given, name: value}
        catalog.complete(self._workload, given, self.machine)
        self._edited[self._workload] = given

    def fill(self, spec: RunSpec) -> None:
        """Take over a whole variant; raises `UsageError` for a workload or a value that this version does not have."""
        known = catalog.workload(spec.workload)
        names = {parameter.name for parameter in known.parameters}
        given = {name: value for name, value in spec.variant.items() if name in names}
        catalog.complete(known.name, given, self.machine)
        self._workload = known.name
        self._edited[known.name] = given

    def reset(self) -> None:
        """Forget every edit of this workload."""
        self._edited.pop(self._workload, None)

    def spec(self) -> RunSpec:
        """The full variant chosen."""
        return catalog.complete(self._workload, self._given, self.machine)

    def state(self) -> FormState:
        """Everything the form shows."""
        chosen, spec = catalog.workload(self._workload), self.spec()
        refusals = catalog.check(spec, self.machine) if self._machine is not None else ()
        return FormState(
            workload=self._workload,
            workloads=self._offered,
            help=chosen.help,
            fields=tuple(self._field(parameter, spec) for parameter in chosen.parameters),
            refusals=tuple(refusal.reason for refusal in refusals),
            command=self.command(),
            known_machine=self._machine is not None,
        )

    def command(self) -> str:
        """The same run as a shell command, naming only what is not the default on this machine."""
        spec = self.spec()
        gpus = spec.variant["gpus"]
        plain = catalog.complete(self._workload, {"gpus": gpus}, self.machine).variant
        words = [f"{name}={value_text(value)}" for name, value in spec.variant.items() if value != plain[name]]
        if gpus != catalog.complete(self._workload, {}, self.machine).variant["gpus"]:
            words.insert(0, f"gpus={gpus}")
        settings = [part for word in words for part in ("-s", word)]
        return shlex.join(["python", "-m", "app", "run", self._workload, *settings])

    @property
    def _given(self) -> dict[str, Value]:
        return self._edited.get(self._workload, {})

    def _field(self, parameter: Parameter, spec: RunSpec) -> Field:
        value = spec.variant[parameter.name]
        options = self._options(parameter)
        own = self._why_not(parameter.name, value)
        shown = Field(
            name=parameter.name,
            label=parameter.label,
            kind="choice" if options else parameter.kind,
            value=value,
            help=parameter.help,
            unit=parameter.unit,
            minimum=parameter.minimum or 0,
            maximum=parameter.maximum or 0,
            options=options,
            advanced=parameter.advanced,
            note=own or "",
            problem=own is not None,
        )
        if own:
            return shown
        enabled, note = self._limits(parameter, options, value)
        return replace(shown, enabled=enabled, note=note)

    def _limits(self, parameter: Parameter, options: tuple[Option, ...], value: Value) -> tuple[bool, str]:
        """Whether a field that is fine itself can be changed, and why not; options say so themselves."""
        if parameter.kind == "switch":
            reason = self._why_not(parameter.name, not value)
            return reason is None, reason or ""
        if parameter.name == "devices" and not self.machine.gpus:
            return False, ""
        if parameter.name == "interpreter" and (version := catalog.installed_tensorflow(str(value))):
            return True, f"TensorFlow {version}."
        return True, self._no_gpu_words if parameter.name == "gpus" and any(o.reason for o in options) else ""

    @property
    def _no_gpu_words(self) -> str:
        return sentence(self._no_gpu_reason) if self._no_gpu_reason else ""

    def _options(self, parameter: Parameter) -> tuple[Option, ...]:
        if parameter.name == "gpus":
            count = max(1, len(self.machine.gpus), int(self._given.get("gpus", 0)))
            options = [Option(value=n, label=str(n) if n else "None, on the CPU") for n in range(count + 1)]
        else:
            options = [Option(value=c.value, label=c.label, help=c.help) for c in parameter.choices]
        return tuple(replace(option, reason=self._why_not(parameter.name, option.value)) for option in options)

    def _why_not(self, name: str, value: Value) -> str | None:
        if self._machine is None:
            return None
        spec = catalog.complete(self._workload, {**self._given, name: value}, self._machine)
        return catalog.why_not(spec, name, value, self._machine)
