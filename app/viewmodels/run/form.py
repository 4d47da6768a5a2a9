"""The variant form: parameters with their limits, refused values, custom workload files, the equivalent command."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from app.paths import PROGRAM
from app.units import sentence
from app.viewmodels.format.naming import value_text, workload_argument
from workloads import catalog
from workloads.catalog import Machine, Parameter, Refusal, UsageError, Workload
from workloads.protocol import RunSpec, Value


class CustomFiles:
    """Messages about custom workload files: of the last one loaded, else of the one with the chosen workload."""

    def __init__(self) -> None:
        self._messages: dict[Path, tuple[str, bool]] = {}
        self._last: Path | None = None

    def set_message(self, path: Path, message: str, *, invalid: bool) -> None:
        """Set the message of a file.

        It is `invalid` where its workloads cannot run.
        """
        self._messages[path] = message, invalid
        self._last = path

    def clear_message(self, path: Path) -> None:
        """Remove the message of a file."""
        self._messages.pop(path, None)

    def clear_last(self) -> None:
        """Show only what concerns the workload that the user turned to."""
        self._last = None

    def refusal(self, workload: Workload) -> str:
        """Return why the workload cannot run now because of its file; "" where it can."""
        path = Path(workload.custom_file.path) if workload.custom_file else None
        if path is None or path not in self._messages:
            return ""
        _, invalid = self._messages[path]
        return f"Fix {path.name} first." if invalid else f"{path.name} must be read first."

    def message(self, workload: Workload) -> tuple[str, bool]:
        """Return the message below the chosen workload, and whether something is wrong."""
        path = Path(workload.custom_file.path) if workload.custom_file else None
        found = (self._messages[path] for path in (self._last, path) if path in self._messages)
        return next(found, ("", False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One value of a choice; `reason` says why it cannot be chosen here."""

    value: Value
    label: str
    help: str = ""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One parameter as the form shows it. `note` is the line under it; `problem`: the value itself fails.

    `unset` is what the least number, or no text, stands for where it is no value like the others. `suggestions` are
    values of a text that may be another.
    """

    name: str
    label: str
    kind: str
    value: Value
    help: str
    unit: str = ""
    unset: str = ""
    minimum: float = 0
    maximum: float = 0
    decimals: int = 2
    options: tuple[Option, ...] = ()
    suggestions: tuple[str, ...] = ()
    enabled: bool = True
    advanced: bool = False
    note: str = ""
    problem: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """A change of one parameter after which the form's variant can run here; `label` is that of its button."""

    name: str
    value: Value
    label: str


MOST_CURES = 3
"""Cures that are offered: buttons in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormState:
    """The whole form as values; `refusals` says why the variant cannot run here, empty when it can.

    `cures` are the changes that would let it run, at most `MOST_CURES`.
    `custom_file_text` is how it stands with a file of the user's, which is no good where it is `invalid`;
    `custom_file_refusal` says why the chosen workload's own file keeps it from running, "" where it does not.
    `machine_text` is what is waited for until the machine is known, and then why it has no GPU, "" where it has one.
    """

    workload: str
    workloads: tuple[tuple[str, str], ...]
    help: str
    fields: tuple[Field, ...]
    refusals: tuple[str, ...]
    cures: tuple[Cure, ...]
    command: str
    is_machine_known: bool
    custom_file_text: str = ""
    custom_file_invalid: bool = False
    custom_file_refusal: str = ""
    machine_text: str = "Looking for GPUs …"


_DEFAULT_LIMITS: Mapping[str, float] = {"integer": 2_000_000_000, "number": 1e9}
"""Limits of a parameter that has none: those of a user's own workload."""
_NUMBER_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class FormChoices:
    """The workload that was chosen, and what was edited of each."""

    workload: str = ""
    edited: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)


class VariantForm:
    """The choices a user made, workload by workload; all else follows the catalog's defaults for this machine."""

    def __init__(self, workload: str = "cnn10", *, hidden: bool = False) -> None:
        self._workload = workload
        self._edited: dict[str, dict[str, Value]] = {}
        self._machine: Machine | None = None
        self._no_gpu_reason: str | None = None
        self._workloads = {w.name: w for w in catalog.WORKLOADS if hidden or not w.hidden}
        self._files = CustomFiles()
        self._host = ""
        self._awaited = ""

    @property
    def choices(self) -> FormChoices:
        """What the user chose so far."""
        return FormChoices(self._workload, self._edited)

    def restore(self, choices: FormChoices) -> None:
        """Take over what was chosen in an earlier window, so far as it is known here.

        A workload of the user's own is chosen when its file has been read, unless something else was chosen by then.
        """
        self._edited = {name: dict(edits) for name, edits in choices.edited.items()}
        for known in self._workloads.values():
            self._drop_unfitting_edits(known)
        if choices.workload in self._workloads:
            self._workload = choices.workload
        else:
            self._awaited = choices.workload

    @property
    def host(self) -> str:
        """The host that runs are made on; "" is this machine."""
        return self._host

    def set_host(self, host: str) -> None:
        """Make runs on another host from now on; its machine is not known yet."""
        self._host, self._machine, self._no_gpu_reason = host, None, None

    @property
    def machine(self) -> Machine:
        """The machine variants are checked against; an empty one until the inventory came."""
        return self._machine or Machine()

    def set_machine(self, machine: Machine, no_gpu_reason: str | None = None) -> None:
        """Check against this machine from now on."""
        self._machine = machine
        self._no_gpu_reason = no_gpu_reason

    @property
    def workload(self) -> Workload:
        """The workload chosen, of the program or of the user's own."""
        return self._find_workload(self._workload)

    def choose(self, workload: str) -> None:
        """Turn to another workload; edits of the others are stored. Raises `UsageError`."""
        self._workload = self._find_workload(workload).name
        self._awaited = ""
        self._files.clear_last()

    @property
    def custom_files(self) -> tuple[Path, ...]:
        """The files that workloads of the user's own are offered of."""
        paths = dict.fromkeys(known.custom_file.path for known in self._workloads.values() if known.custom_file)
        return tuple(map(Path, paths))

    def mark_file_loading(self, path: Path, message: str) -> None:
        """Mark a custom workload file as being read; its workloads cannot run meanwhile."""
        self._files.set_message(path, message, invalid=False)

    def mark_file_failed(self, path: Path, message: str) -> None:
        """Mark a file as unreadable or invalid; its workloads cannot run until it is mended."""
        self._files.set_message(path, message, invalid=True)

    def offer_custom_workloads(self, path: Path, workloads: Sequence[Workload]) -> None:
        """Offer the workloads of a file in place of those it had; what was edited of them is kept where it still fits.

        Where the one chosen is gone from it, the first of the file is chosen.
        """
        self._files.clear_message(path)
        gone = {
            name for name, known in self._workloads.items() if known.custom_file and known.custom_file.path == str(path)
        }
        self._workloads = {name: known for name, known in self._workloads.items() if name not in gone}
        self._workloads |= {workload.name: workload for workload in workloads}
        for workload in workloads:
            self._drop_unfitting_edits(workload)
        if self._workload in gone and self._workload not in self._workloads:
            self._workload = workloads[0].name
        if self._awaited in self._workloads:
            self._workload, self._awaited = self._awaited, ""

    def edit(self, name: str, value: Value) -> None:
        """Set one parameter; raises `UsageError` for one that does not exist or a value out of range."""
        edits = {**self._edits, name: value}
        catalog.fill_defaults(self.workload, edits, self.machine)
        self._edited[self._workload] = edits
        self._awaited = ""

    def fill(self, spec: RunSpec) -> None:
        """Take over a whole variant; raises `UsageError` for a workload or a value that this version does not have."""
        known = self._find_workload(spec.workload)
        names = {parameter.name for parameter in known.parameters}
        edits = {name: value for name, value in spec.variant.items() if name in names}
        catalog.fill_defaults(known, edits, self.machine)
        self._workload, self._awaited = known.name, ""
        self._edited[known.name] = edits

    def reset(self) -> None:
        """Forget every edit of this workload."""
        self._edited.pop(self._workload, None)

    def spec(self) -> RunSpec:
        """Return the complete variant."""
        return catalog.fill_defaults(self.workload, self._edits, self.machine)

    def state(self) -> FormState:
        """Return everything the form shows."""
        chosen, spec = self.workload, self.spec()
        refusals = catalog.check(spec, self.machine) if self._machine is not None else ()
        message, invalid = self._files.message(chosen)
        file_refusal = self._files.refusal(chosen)
        return FormState(
            workload=self._workload,
            workloads=tuple((known.name, known.title) for known in self._workloads.values()),
            help=chosen.help,
            fields=tuple(self._field(parameter, spec) for parameter in chosen.parameters),
            refusals=(*filter(None, [file_refusal]), *(refusal.reason for refusal in refusals)),
            cures=tuple(islice(self._cures(refusals), MOST_CURES)),
            command=self.command(),
            is_machine_known=self._machine is not None,
            custom_file_text=message,
            custom_file_invalid=invalid,
            custom_file_refusal=file_refusal,
            machine_text=self._machine_text(),
        )

    def command(self) -> str:
        """Return the same run as a shell command, naming only what is not the default on this machine."""
        spec = self.spec()
        gpus = spec.variant["gpus"]
        defaults = catalog.fill_defaults(self.workload, {"gpus": gpus}, self.machine).variant
        words = [f"{name}={value_text(value)}" for name, value in spec.variant.items() if value != defaults[name]]
        if gpus != catalog.fill_defaults(self.workload, {}, self.machine).variant["gpus"]:
            words.insert(0, f"gpus={gpus}")
        settings = [part for word in words for part in ("-s", word)]
        on_host = ["--on", self._host] if self._host else []
        return shlex.join([*PROGRAM.split(), "run", self.cli_name, *settings, *on_host])

    @property
    def cli_name(self) -> str:
        """The workload as the command line takes it."""
        custom = self.workload.custom_file
        return workload_argument(custom.path if custom else "", self._workload)

    def _find_workload(self, name: str) -> Workload:
        """Return the workload of that name among those offered, or the program's; raise `UsageError`."""
        if name not in self._workloads and catalog.is_custom(name):
            raise UsageError(
                f"{name} is in a file of yours that is not open here; choose it with Custom workload … above."
            )
        return self._workloads.get(name) or catalog.workload(name)

    def _drop_unfitting_edits(self, workload: Workload) -> None:
        """Forget what was edited of a workload where it does not take that any more."""
        try:
            catalog.fill_defaults(workload, self._edited.get(workload.name, {}), self.machine)
        except UsageError:
            del self._edited[workload.name]

    @property
    def _edits(self) -> dict[str, Value]:
        return self._edited.get(self._workload, {})

    def _field(self, parameter: Parameter, spec: RunSpec) -> Field:
        value = spec.variant[parameter.name]
        options, limit = self._options(parameter, spec), _DEFAULT_LIMITS.get(parameter.kind, 0)
        refusal = self._refusal(parameter.name, value, spec)
        field = Field(
            name=parameter.name,
            label=parameter.label,
            kind="choice" if options else parameter.kind,
            value=value,
            help=parameter.help,
            unit=parameter.unit,
            unset=parameter.unset,
            minimum=-limit if parameter.minimum is None else parameter.minimum,
            maximum=limit if parameter.maximum is None else parameter.maximum,
            decimals=_NUMBER_DECIMALS if parameter.maximum is None else 2,
            options=options,
            suggestions=self._suggestions(parameter),
            advanced=parameter.advanced,
            note=refusal or "",
            problem=refusal is not None,
        )
        if refusal:
            return field
        enabled, note = self._limits(parameter, value, spec)
        return replace(field, enabled=enabled, note=note)

    def _limits(self, parameter: Parameter, value: Value, spec: RunSpec) -> tuple[bool, str]:
        """Return whether a valid field can be changed, and why not; options have reasons of their own."""
        if parameter.kind == "switch":
            reason = self._refusal(parameter.name, not value, spec)
            return reason is None, reason or ""
        if parameter.name == "devices" and not self.machine.gpus:
            return False, ""
        is_here = parameter.name == "interpreter" and self.machine.local
        if is_here and value and (version := catalog.installed_framework(str(value))):
            return True, f"{catalog.FRAMEWORK.name} {version}."
        return True, ""

    def _machine_text(self) -> str:
        if self._machine is None:
            return f"{self._host} is not connected yet." if self._host else "Looking for GPUs …"
        if not self._no_gpu_reason or self._machine.gpus:
            return sentence(self._no_gpu_reason or "")
        return sentence(f"Runs use the CPU: {self._no_gpu_reason}")

    def _suggestions(self, parameter: Parameter) -> tuple[str, ...]:
        """Return the environments that the program has made there, so far as that is known."""
        if parameter.kind != "path":
            return ()
        if not self.machine.local:
            return self.machine.environments
        return tuple(sorted(folder.name for folder in catalog.complete_environments()))

    def _options(self, parameter: Parameter, spec: RunSpec) -> tuple[Option, ...]:
        if parameter.name == "gpus":
            count = max(1, len(self.machine.gpus), int(self._edits.get("gpus", 0)))
            options = [Option(value=n, label=str(n) if n else "None, on the CPU") for n in range(count + 1)]
        else:
            options = [Option(value=c.value, label=c.label, help=c.help) for c in parameter.choices]
        return tuple(replace(option, reason=self._refusal(parameter.name, option.value, spec)) for option in options)

    def _cures(self, refusals: Sequence[Refusal]) -> Iterator[Cure]:
        """Yield the changes of one parameter that a refusal names after which nothing is refused."""
        for name in dict.fromkeys(name for refusal in refusals for name in refusal.parameters):
            parameter = self.workload.parameter(name)
            current = self.spec().variant[name]
            for value, label in _alternatives(parameter):
                variant = catalog.fill_defaults(self.workload, {**self._edits, name: value}, self.machine)
                if value != current and not catalog.check(variant, self.machine):
                    yield Cure(name=name, value=value, label=label)

    def _refusal(self, name: str, value: Value, spec: RunSpec) -> str | None:
        if self._machine is None:
            return None
        if name == "gpus":  # others have defaults by it
            spec = catalog.fill_defaults(self.workload, {**self._edits, name: value}, self._machine)
        return catalog.refusal_reason(spec, name, value, self._machine)


def _alternatives(parameter: Parameter) -> list[tuple[Value, str]]:
    """Return the values that a button can set a parameter to, each with the button's label."""
    if parameter.name == "gpus":
        return [(0, "Use the CPU")]
    if parameter.kind == "switch":
        return [(True, f"Turn {parameter.label} on"), (False, f"Turn {parameter.label} off")]
    return [(choice.value, f"Use {choice.label}") for choice in parameter.choices]
