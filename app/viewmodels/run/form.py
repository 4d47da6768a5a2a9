"""The form: one or several values for each parameter of a workload, and the extent of their experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.analysis.largest_batch import LargestBatch
from app.paths import PROGRAM
from app.values import units
from app.values.plain import plain_line
from app.values.units import sentence
from app.viewmodels.run.fields import BASELINE, EXPERIMENT, Fields, FormState, find_parameter
from app.viewmodels.run.selection import Selection, Values, describe_invalid, parse_values
from workloads import catalog
from workloads.catalog import Machine, UsageError, Workload
from workloads.protocol import RunSpec, Value


class CustomFiles:
    """Messages about custom workload files: the last one loaded, else the chosen workload's."""

    def __init__(self) -> None:
        self._messages: dict[Path, tuple[str, bool]] = {}
        self._last: Path | None = None

    def set_message(self, path: Path, message: str, *, invalid: bool) -> None:
        """Set the message of a file that is being read, or is `invalid`; until then its workloads cannot run."""
        self._messages[path] = message, invalid
        self._last = path

    def clear_message(self, path: Path) -> None:
        self._messages.pop(path, None)

    def clear_last(self) -> None:
        """Show only messages on the chosen workload, or on a file that is being read."""
        if self._last is not None and self._messages.get(self._last, ("", True))[1]:
            self._last = None

    def refusal(self, workload: Workload) -> str:
        """Return why the workload cannot run now because of its file; "" if it can."""
        path = Path(workload.custom_file.path) if workload.custom_file else None
        if path is None or path not in self._messages:
            return ""
        _, invalid = self._messages[path]
        return f"Fix {path.name} first." if invalid else f"{path.name} must be read first."

    def message(self, workload: Workload) -> tuple[str, bool]:
        """Return the message below the chosen workload, and whether something is wrong."""
        path = Path(workload.custom_file.path) if workload.custom_file else None
        messages = (self._messages[path] for path in (self._last, path) if path in self._messages)
        return next(messages, ("", False))


@dataclass(frozen=True, slots=True)
class FormChoices:
    """The user's choices: the workload, single and multiple values, and the extent of an experiment."""

    workload: str = ""
    edited: Mapping[str, Mapping[str, Value | Values]] = field(default_factory=dict)
    extent: Mapping[str, Value] = field(default_factory=dict)
    baseline: Mapping[str, Value] = field(default_factory=dict)


class VariantForm:
    """The user's choices for each workload; everything else has the catalog's defaults for this machine.

    The choices are one frozen record that a change replaces, so that undo restores an earlier one.
    """

    def __init__(self, workload: str = "cnn10", *, hidden: bool = False) -> None:
        self._choices = FormChoices(workload)
        self._texts: dict[tuple[str, str], str] = {}
        """Typed texts, by workload and field: a range, or an invalid value."""
        self._machine: Machine | None = None
        self._no_gpu_reason: str | None = None
        self._workloads = {w.name: w for w in catalog.WORKLOADS if hidden or not w.hidden}
        self.files = CustomFiles()
        self.host = ""
        """The host of runs; "" is this machine."""
        self._awaited = ""
        self._selection: Selection | None = None
        self._selected: FormChoices | None = None

    @property
    def choices(self) -> FormChoices:
        """Return the user's choices, except which stored runs count, which applies only once."""
        extent = {name: value for name, value in self._choices.extent.items() if name != "stored"}
        return replace(self._choices, extent=extent)

    def restore(self, choices: FormChoices) -> None:
        """Restore earlier choices, possibly from another window, as far as they are known here.

        A custom workload is chosen when its file has been read, unless another was chosen meanwhile.
        """
        is_known = choices.workload in self._workloads
        self._awaited = "" if is_known else choices.workload
        self._texts = {}
        self._choices = replace(choices, workload=choices.workload if is_known else self._choices.workload)
        for workload in self._workloads.values():
            self._drop_unfitting_values(workload)

    def set_host(self, host: str) -> None:
        """Run on another host from now on; its machine is not yet known."""
        self.host, self._machine, self._no_gpu_reason = host, None, None

    @property
    def machine(self) -> Machine:
        """Return the machine to check variants against; empty until the inventory arrives."""
        return self._machine or Machine()

    def set_machine(self, machine: Machine, no_gpu_reason: str | None = None) -> None:
        self._machine = machine
        self._no_gpu_reason = no_gpu_reason

    @property
    def workload(self) -> Workload:
        return self._find_workload(self._choices.workload)

    def choose(self, workload: str) -> None:
        """Switch to another workload; the others' values are kept. Raises `UsageError`."""
        self._choices = replace(self._choices, workload=self._find_workload(workload).name, baseline={})
        self._awaited = ""
        self.files.clear_last()

    @property
    def custom_files(self) -> tuple[Path, ...]:
        files = (workload.custom_file for workload in self._workloads.values())
        return tuple(map(Path, dict.fromkeys(file.path for file in files if file)))

    def offer_custom_workloads(self, path: Path, workloads: Sequence[Workload]) -> None:
        """Offer the workloads of a file instead of its former ones; edits are kept if they still fit.

        If the chosen one has disappeared, the file's first is chosen.
        """
        self.files.clear_message(path)
        former_names = {
            name
            for name, workload in self._workloads.items()
            if workload.custom_file and workload.custom_file.path == str(path)
        }
        self._workloads = {name: workload for name, workload in self._workloads.items() if name not in former_names}
        self._workloads |= {workload.name: workload for workload in workloads}
        for workload in workloads:
            self._drop_unfitting_values(workload)
        if self._choices.workload in former_names and self._choices.workload not in self._workloads:
            self._choices = replace(self._choices, workload=workloads[0].name)
        if self._awaited in self._workloads:
            self._choices = replace(self._choices, workload=self._awaited)
            self._awaited = ""

    def edit(self, name: str, *values: Value) -> None:
        """Set a field's value, or several for a parameter; none means its default.

        Raises:
            UsageError: It does not exist, or a value is out of range.
        """
        if name == BASELINE:
            spec = self.selection.ordered_variants[int(values[0])]
            varied = {varied_name: spec.variant[varied_name] for varied_name in self.selection.varied}
            self._choices = replace(self._choices, baseline=varied)
        elif name.startswith(EXPERIMENT):
            key = name.removeprefix(EXPERIMENT)
            others = {extent_key: value for extent_key, value in self._choices.extent.items() if extent_key != key}
            self._choices = replace(self._choices, extent={**others, key: values[0]} if values else others)
        else:
            for value in values:
                catalog.fill_defaults(self.workload, {name: value}, self.machine)
            self._set_values({**self.selection.chosen, name: tuple(dict.fromkeys(values))})
        self._texts.pop(self._text_key(name), None)
        self._awaited = ""

    def type(self, name: str, text: str) -> None:
        """Take the values typed into a field; an invalid text stays, with what is wrong about it."""
        parameter = find_parameter(self.selection, name)
        is_wrong = bool(text.strip()) and bool(describe_invalid(parameter, text))
        if not is_wrong:
            self.edit(name, *(parse_values(parameter, text) if text.strip() else ()))
        if text.strip():
            self._texts[self._text_key(name)] = text

    def fill(self, spec: RunSpec) -> None:
        """Take over a whole variant; raises `UsageError` for a workload or value that this version lacks."""
        workload = self._find_workload(spec.workload)
        names = {parameter.name for parameter in workload.parameters}
        values = {name: value for name, value in spec.variant.items() if name in names}
        catalog.fill_defaults(workload, values, self.machine)
        self._choices, self._awaited = replace(self._choices, workload=workload.name), ""
        self._texts = {}
        self._set_values({name: (value,) for name, value in values.items()})

    def reset(self) -> None:
        """Reset every value of this workload, and the extent of an experiment."""
        self._texts = {}
        self._set_values({})
        self._choices = replace(self._choices, extent={})

    @property
    def selection(self) -> Selection:
        """Return the choices for the workload; the same object until they change, as its combinations are expensive."""
        selection, host, chosen = self._selection, self.host, self._choices
        workload = self.workload
        if (
            selection is None
            or (selection.workload, selection.machine, selection.host) != (workload, self._machine, host)
            or (self._selected is not chosen)
        ):
            edited = chosen.edited.get(workload.name, {})
            self._selected = chosen
            self._selection = selection = Selection(
                workload=workload,
                machine=self._machine,
                chosen={name: _as_values(values) for name, values in edited.items()},
                extent=chosen.extent,
                baseline=chosen.baseline,
                host=host,
            )
        return selection

    def state(self, *, has_stored: bool = False) -> FormState:
        """Return everything that the form shows; `has_stored` is whether stored runs could count for the experiment."""
        selection = self.selection
        workload_names = ("", selection.workload.name)
        fields = Fields(selection, {name: text for (key, name), text in self._texts.items() if key in workload_names})
        is_experiment = selection.count > 1
        message, invalid = self.files.message(selection.workload)
        problem = self.files.refusal(selection.workload) or fields.problem()
        return FormState(
            workload=selection.workload.name,
            workloads=tuple((workload.name, plain_line(workload.title)) for workload in self._workloads.values()),
            help=selection.workload.help,
            fields=(*fields.of_workload(), *(fields.of_experiment(has_stored=has_stored) if is_experiment else ())),
            problem=problem,
            cures=fields.cures(),
            combinations=selection.count,
            variants=len(selection.runnable),
            refused=selection.refused_groups if is_experiment else (),
            runs=len(selection.runnable) * selection.repeats,
            is_machine_known=self._machine is not None,
            custom_file_text=message,
            custom_file_invalid=invalid,
            machine_text=self._machine_text(),
        )

    def _find_workload(self, name: str) -> Workload:
        """Return the workload of that name among those offered, or the program's; raises `UsageError`."""
        if catalog.is_script(name):
            raise UsageError(
                f"{name} is your own command: the terminal runs it, as `{PROGRAM} run -- python train.py`."
            )
        if name not in self._workloads and catalog.is_custom(name):
            raise UsageError(
                f"{name} is in one of your files that is not open here; choose it with Custom workload … above."
            )
        return self._workloads.get(name) or catalog.workload(name)

    def _drop_unfitting_values(self, workload: Workload) -> None:
        """Forget choices and texts that a workload no longer accepts."""
        self._texts = {key: text for key, text in self._texts.items() if key[0] != workload.name}
        try:
            for name, values in self._choices.edited.get(workload.name, {}).items():
                for value in _as_values(values):
                    catalog.fill_defaults(workload, {name: value}, self.machine)
        except UsageError:
            others = {name: edits for name, edits in self._choices.edited.items() if name != workload.name}
            self._choices = replace(self._choices, edited=others)

    def _set_values(self, values: Mapping[str, Values]) -> None:
        workload = self._choices.workload
        own = {name: chosen if len(chosen) > 1 else chosen[0] for name, chosen in values.items() if chosen}
        others = {name: edits for name, edits in self._choices.edited.items() if name != workload}
        baseline = {name: value for name, value in self._choices.baseline.items() if value in values.get(name, ())}
        self._choices = replace(self._choices, edited={**others, workload: own} if own else others, baseline=baseline)

    def _text_key(self, name: str) -> tuple[str, str]:
        return "" if name.startswith(EXPERIMENT) else self._choices.workload, name

    def _machine_text(self) -> str:
        if self._machine is None:
            return f"{self.host} is not connected yet." if self.host else "Looking for GPUs …"
        if not self._no_gpu_reason or self._machine.gpus:
            return sentence(self._no_gpu_reason or "")
        return sentence(f"Runs use the CPU: {self._no_gpu_reason}")


def _as_values(values: Value | Values) -> Values:
    return values if isinstance(values, tuple) else (values,)


_CPU_DOUBLINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitQuestion:
    """Limits of a search: `text` asks for a batch size from `minimum` to `maximum`; `default` is the suggestion."""

    text: str
    minimum: int
    maximum: int
    default: int


def limit_question(state: FormState) -> LimitQuestion:
    """Return the question for the form's variant. On the CPU the suggested limit is near the chosen batch size."""
    fields = {field.name: field for field in state.fields}
    first, limit = int(fields["batch_size"].value), int(fields["batch_size"].maximum)
    on_cpu = fields["gpus"].value == 0
    warning = "\nOn the CPU a batch that does not fit makes the whole machine swap." if on_cpu else ""
    return LimitQuestion(
        text=f"Short runs double the batch from {first:,} until memory runs out,\n"
        f"then search between the last two sizes.{warning}\n\nLargest batch to try",
        minimum=first,
        maximum=limit,
        default=min(limit, first * 2**_CPU_DOUBLINGS) if on_cpu else limit,
    )


def describe_largest_batch(search: LargestBatch) -> str:
    """Return the answer, or the result so far if the search ended early."""
    count = len(search.tries)
    tries = f"{count} {'try' if count == 1 else 'tries'}"
    match search.ending:
        case "found" if search.reason:
            why = units.sentence(search.reason)
            return f"The largest batch that runs is {search.fits:,}; {search.fails:,} fails ({tries}). {why}"
        case "found":
            return f"The largest batch that fits is {search.fits:,}; {search.fails:,} does not fit ({tries})."
        case "limit":
            return f"A batch of {search.fits:,}, the limit, still fits ({tries})."
        case "none fits":
            return f"No batch fits: memory runs out at {search.fails or 0:,} too ({tries})."
        case "broken off":
            return (
                f"The search ended early: {units.sentence(search.reason or 'a try went wrong')} "
                f"{_describe_bounds(search)}"
            )
    return f"The search was stopped. {_describe_bounds(search)}"


def describe_try(spec: RunSpec) -> str:
    return f"Looking for the largest batch: trying {spec.variant['batch_size']:,} …"


def _describe_bounds(search: LargestBatch) -> str:
    bounds = [
        f"{batch:,} {words}"
        for batch, words in ((search.fits, "fits"), (search.fails, "does not fit"))
        if batch is not None
    ]
    return f"So far: {', '.join(bounds)}." if bounds else "No size has been tried yet."
