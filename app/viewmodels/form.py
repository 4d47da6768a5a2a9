"""What the variant form shows: every parameter with its limits, what cannot run here and why, the same as a command."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.viewmodels.naming import value_text
from app.viewmodels.own_files import OwnFiles
from app.viewmodels.units import sentence
from app.viewmodels.variants import own_word
from workloads import catalog
from workloads.catalog import Machine, Parameter, UsageError, Workload
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
    """One parameter as the form shows it. `note` is the line under it; `problem`: the value itself fails.

    `unset` is what the least number, or no text, stands for where it is no value like the others.
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
    enabled: bool = True
    advanced: bool = False
    note: str = ""
    problem: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FormState:
    """The whole form as values; `refusals` says why the variant cannot run here, empty when it can.

    `own_words` is how it stands with a file of the user's that is read, or was to be; `own_wrong`: it is no good.
    `unread` says why the chosen workload's own file keeps it from running, "" where it does not.
    """

    workload: str
    workloads: tuple[tuple[str, str], ...]
    help: str
    fields: tuple[Field, ...]
    refusals: tuple[str, ...]
    command: str
    known_machine: bool
    own_words: str = ""
    own_wrong: bool = False
    unread: str = ""


_WIDEST: Mapping[str, float] = {"integer": 2_000_000_000, "number": 1e9}
"""Limits of a parameter that has none: those of a user's own workload."""
_NUMBER_DECIMALS = 6


class VariantForm:
    """The choices a user made, workload by workload; all else follows the catalog's defaults for this machine."""

    def __init__(self, workload: str = "cnn10", *, hidden: bool = False) -> None:
        self._workload = workload
        self._edited: dict[str, dict[str, Value]] = {}
        self._machine: Machine | None = None
        self._no_gpu_reason: str | None = None
        self._known = {w.name: w for w in catalog.WORKLOADS if hidden or not w.hidden}
        self._files = OwnFiles()

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
        return self._called(self._workload)

    def choose(self, workload: str) -> None:
        """Turn to another workload; what was edited of the others is kept. Raises `UsageError`."""
        self._workload = self._called(workload).name
        self._files.turn_away()

    @property
    def own_files(self) -> tuple[Path, ...]:
        """The files that workloads of the user's own are offered of."""
        found = dict.fromkeys(known.own.path for known in self._known.values() if known.own)
        return tuple(map(Path, found))

    def read_begins(self, path: Path, words: str) -> None:
        """A file of the user's is being read; what is offered of it cannot run meanwhile."""
        self._files.tell(path, words, wrong=False)

    def read_failed(self, path: Path, words: str) -> None:
        """It could not be read, or is no good; what is offered of it cannot run until it is."""
        self._files.tell(path, words, wrong=True)

    def offer_own(self, path: Path, workloads: Sequence[Workload]) -> None:
        """Offer the workloads of a file in place of those it had; what was edited of them is kept where it still fits.

        Where the one chosen is gone from it, the first of the file is chosen.
        """
        self._files.forget(path)
        gone = {name for name, known in self._known.items() if known.own and known.own.path == str(path)}
        self._known = {name: known for name, known in self._known.items() if name not in gone}
        self._known |= {workload.name: workload for workload in workloads}
        for workload in workloads:
            self._keep_fitting(workload)
        if self._workload in gone and self._workload not in self._known:
            self._workload = workloads[0].name

    def edit(self, name: str, value: Value) -> None:
        """Set one parameter; raises `UsageError` for one that does not exist or a value out of range."""
        given = {**self._given, name: value}
        catalog.complete_of(self.workload, given, self.machine)
        self._edited[self._workload] = given

    def fill(self, spec: RunSpec) -> None:
        """Take over a whole variant; raises `UsageError` for a workload or a value that this version does not have."""
        known = self._called(spec.workload)
        names = {parameter.name for parameter in known.parameters}
        given = {name: value for name, value in spec.variant.items() if name in names}
        catalog.complete_of(known, given, self.machine)
        self._workload = known.name
        self._edited[known.name] = given

    def reset(self) -> None:
        """Forget every edit of this workload."""
        self._edited.pop(self._workload, None)

    def spec(self) -> RunSpec:
        """The full variant chosen."""
        return catalog.complete_of(self.workload, self._given, self.machine)

    def state(self) -> FormState:
        """Everything the form shows."""
        chosen, spec = self.workload, self.spec()
        refusals = catalog.check(spec, self.machine) if self._machine is not None else ()
        words, wrong = self._files.words(chosen)
        unread = self._files.refusal(chosen)
        return FormState(
            workload=self._workload,
            workloads=tuple((known.name, known.title) for known in self._known.values()),
            help=chosen.help,
            fields=tuple(self._field(parameter, spec) for parameter in chosen.parameters),
            refusals=(*filter(None, [unread]), *(refusal.reason for refusal in refusals)),
            command=self.command(),
            known_machine=self._machine is not None,
            own_words=words,
            own_wrong=wrong,
            unread=unread,
        )

    def command(self) -> str:
        """The same run as a shell command, naming only what is not the default on this machine."""
        spec = self.spec()
        gpus = spec.variant["gpus"]
        plain = catalog.complete_of(self.workload, {"gpus": gpus}, self.machine).variant
        words = [f"{name}={value_text(value)}" for name, value in spec.variant.items() if value != plain[name]]
        if gpus != catalog.complete_of(self.workload, {}, self.machine).variant["gpus"]:
            words.insert(0, f"gpus={gpus}")
        settings = [part for word in words for part in ("-s", word)]
        return shlex.join(["python", "-m", "app", "run", self.word, *settings])

    @property
    def word(self) -> str:
        """The workload as the command line takes it."""
        own = self.workload.own
        return own_word(own.path if own else "", self._workload)

    def _called(self, name: str) -> Workload:
        """The workload of that name among those offered, or the program's; raises `UsageError`."""
        if name not in self._known and catalog.is_own(name):
            raise UsageError(
                f"{name} is in a file of yours that is not open here; choose it with Own workload … above."
            )
        return self._known.get(name) or catalog.workload(name)

    def _keep_fitting(self, workload: Workload) -> None:
        """Forget what was edited of a workload where it does not take that any more."""
        try:
            catalog.complete_of(workload, self._edited.get(workload.name, {}), self.machine)
        except UsageError:
            del self._edited[workload.name]

    @property
    def _given(self) -> dict[str, Value]:
        return self._edited.get(self._workload, {})

    def _field(self, parameter: Parameter, spec: RunSpec) -> Field:
        value = spec.variant[parameter.name]
        options, widest = self._options(parameter), _WIDEST.get(parameter.kind, 0)
        own = self._why_not(parameter.name, value)
        shown = Field(
            name=parameter.name,
            label=parameter.label,
            kind="choice" if options else parameter.kind,
            value=value,
            help=parameter.help,
            unit=parameter.unit,
            unset=parameter.unset,
            minimum=-widest if parameter.minimum is None else parameter.minimum,
            maximum=widest if parameter.maximum is None else parameter.maximum,
            decimals=_NUMBER_DECIMALS if parameter.maximum is None else 2,
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
        spec = catalog.complete_of(self.workload, {**self._given, name: value}, self._machine)
        return catalog.why_not(spec, name, value, self._machine)
