"""The experiment form: several values of any parameter, and the combinations that they make."""

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app.analysis.intervals import DEFAULT_REPEATS, MIN_REPEATS
from app.paths import PROGRAM
from app.plan import Plan, with_random_order
from app.units import plural
from app.viewmodels.experiment.matrix_state import (
    Extent,
    MatrixRow,
    MatrixState,
    describe_invalid,
    format_cli_values,
    format_values,
    list_placeholder,
    parse_values,
)
from app.viewmodels.experiment.preview import group_refused
from app.viewmodels.format.naming import experiment_name, variant_names
from app.viewmodels.run.form import Field, Option, VariantForm
from workloads import catalog
from workloads.catalog import MAX_VARIANTS, Machine, Refusal, UsageError
from workloads.protocol import RunSpec, Value

_SHARED = frozenset.intersection(*(frozenset(p.name for p in known.parameters) for known in catalog.WORKLOADS))
_SWITCH = (Option(value=False, label="Off"), Option(value=True, label="On"))


@dataclass(slots=True)
class _Selection:
    """What the user has chosen for one workload."""

    lists: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    errors: dict[str, tuple[str, str]] = field(default_factory=dict)
    baseline: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MatrixChoices:
    """The values chosen for each workload, and the limits; a window remembers them."""

    lists: Mapping[str, Mapping[str, tuple[Value, ...]]] = field(default_factory=dict)
    extent: Extent = field(default_factory=Extent)


@dataclass(frozen=True, slots=True)
class _Combinations:
    """Combinations that can run here, the baseline first, those that cannot, and their number in all."""

    runnable: tuple[RunSpec, ...]
    refused: tuple[tuple[RunSpec, Refusal], ...]
    count: int


class MatrixForm:
    """Several values for some parameters; all others are as in the form.

    The form's variant is the baseline until another is chosen. `max_repeats` is the default with a target precision.
    """

    def __init__(self, form: VariantForm, max_repeats: int) -> None:
        self._form = form
        self._max_repeats = max_repeats
        self._by_workload: dict[str, _Selection] = {}
        self._extent = Extent()

    @property
    def choices(self) -> MatrixChoices:
        """What the user chose so far, but not which stored runs count: that is meant once."""
        lists = {key: chosen.lists for key, chosen in self._by_workload.items() if chosen.lists}
        return MatrixChoices(lists, replace(self._extent, again=False, reuse=False))

    def restore(self, choices: MatrixChoices) -> None:
        """Take over what was chosen in an earlier window, so far as this version's workloads take it."""
        self._extent = choices.extent
        for key, lists in choices.lists.items():
            if _fits(key, lists, self._form.machine):
                self._by_workload[key] = _Selection(dict(lists))

    def tick(self, name: str, value: Value, *, on: bool) -> None:
        """Add a value or remove it; the last one stays."""
        now = self._values(name)
        wanted = {*now, value} if on else {*now} - {value}
        if wanted:
            self._selection.lists[name] = self._offered_order(name, wanted)

    def enter_list(self, name: str, text: str) -> None:
        """Take the values typed, or the form's if there are none; text that is no list stays, with what is wrong."""
        parameter = self._parameter(name)
        self._selection.errors.pop(name, None)
        self._selection.lists.pop(name, None)
        if not text.strip():
            return
        if problem := describe_invalid(parameter, text):
            self._selection.errors[name] = text, problem
        else:
            self._selection.lists[name] = parse_values(parameter, text)

    def typed_values(self, name: str) -> tuple[Value, ...]:
        """Return the valid values of the list that was typed for a parameter; none where none was."""
        return self._selection.lists.get(name, ())

    def problem_while_typing(self, name: str, text: str) -> str:
        """Return what is wrong with the values typed so far, but for the last one; "" for nothing."""
        return describe_invalid(self._parameter(name), text, typing=True)

    def choose_baseline(self, index: int) -> None:
        """Compare with this one of the state's variants."""
        spec = self._ordered_variants(self._combinations())[index]
        self._selection.baseline = {name: spec.variant[name] for name in self._varied()}

    def update_extent(self, **changes: object) -> None:
        """Change fields of `Extent`."""
        self._extent = replace(self._extent, **changes)  # type: ignore[arg-type]

    def reset(self) -> None:
        """Forget everything chosen for this workload."""
        self._by_workload.pop(self._key, None)

    def plan(self) -> Plan:
        """Return the experiment as chosen now; its notes say which combinations cannot run here."""
        found, extent = self._combinations(), self._extent
        groups = group_refused(found.refused, self._varied())
        plan = Plan(
            name=experiment_name(found.runnable) if found.runnable else self._workload.name,
            variants=found.runnable,
            repeats=self._repeats,
            until_pct=extent.until_pct,
            notes=tuple(f"{group.count} left out. {group.text}" for group in groups),
            budget_s=extent.budget_s,
            parallel=len(self._form.machine.gpus) if self._side_by_side else 1,
            again=extent.again,
            reuse=extent.reuse,
            host=self._form.host,
        )
        return with_random_order(plan)

    def state(self) -> MatrixState:
        """Return everything the matrix shows."""
        form, found, extent = self._form.state(), self._combinations(), self._extent
        listed = self._ordered_variants(found)
        problem = form.custom_file_refusal or self._problem(found) if form.is_machine_known else form.machine_text
        runs = len(found.runnable) * self._repeats
        most = "" if extent.until_pct is None else "at most "
        return MatrixState(
            workload=form.workload,
            rows=tuple(map(self._row, form.fields)),
            variants=tuple(variant_names(listed)),
            baseline=listed.index(found.runnable[0]) if found.runnable else -1,
            combinations=found.count,
            refused=group_refused(found.refused, self._varied()),
            repeats=self._repeats,
            min_repeats=1 if extent.until_pct is None else MIN_REPEATS,
            until_pct=extent.until_pct,
            budget_s=extent.budget_s,
            side_by_side=extent.side_by_side if len(self._form.machine.gpus) > 1 else None,
            again=extent.again,
            reuse=extent.reuse,
            headline=f"{runs:,} {plural('run', runs)}" if len(found.runnable) > 1 else "",
            detail=f"{len(found.runnable):,} variants, each {most}{self._repeats} {plural('time', self._repeats)}",
            problem=problem,
            command=self.command(),
        )

    def command(self) -> str:
        """Return the same experiment as a shell command, which refuses what cannot run here run by run."""
        words = [*PROGRAM.split(), "experiment", self._form.cli_name]
        words += [part for setting in self._settings() for part in ("-s", setting)]
        extent = self._extent
        if extent.repeats is not None:
            words += ["--repeats", str(self._repeats)]
        if extent.until_pct is not None:
            words += ["--until", f"{extent.until_pct:g}%"]
        if extent.budget_s is not None:
            words += ["--budget", f"{extent.budget_s:.0f}s"]
        if self._side_by_side:
            words += ["--parallel", str(len(self._form.machine.gpus))]
        if extent.again:
            words.append("--again")
        elif extent.reuse:
            words.append("--reuse")
        if self._form.host:
            words += ["--on", self._form.host]
        return shlex.join(words)

    @property
    def _side_by_side(self) -> bool:
        return self._extent.side_by_side and len(self._form.machine.gpus) > 1

    @property
    def _workload(self) -> catalog.Workload:
        return self._form.workload

    @property
    def _key(self) -> str:
        """Return a key of the workload; a custom workload gets another one when its file changes."""
        return " ".join([self._workload.name, *([file.sha256] if (file := self._workload.custom_file) else [])])

    @property
    def _selection(self) -> _Selection:
        return self._by_workload.setdefault(self._key, _Selection())

    @property
    def _repeats(self) -> int:
        if self._extent.until_pct is None:
            return self._extent.repeats or DEFAULT_REPEATS
        return max(self._extent.repeats or self._max_repeats, MIN_REPEATS)

    def _parameter(self, name: str) -> catalog.Parameter:
        return self._workload.parameter(name)

    def _values(self, name: str) -> tuple[Value, ...]:
        """Return the chosen values of a parameter; the form's if none were chosen."""
        return self._selection.lists.get(name) or (self._form.spec().variant[name],)

    def _varied(self) -> list[str]:
        """Return the parameters with several values, in the catalog's order."""
        names = (parameter.name for parameter in self._workload.parameters)
        return [name for name in names if len(self._selection.lists.get(name, ())) > 1]

    def _offered_order(self, name: str, wanted: set[Value]) -> tuple[Value, ...]:
        """Return the ticked values in the order they are offered."""
        offered = next(_options(field) for field in self._form.state().fields if field.name == name)
        return tuple(option.value for option in offered if option.value in wanted)

    def _fixed_values(self) -> dict[str, Value]:
        """Return the parameters with one value: the form's, or the only one left here."""
        single = {name: values[0] for name, values in self._selection.lists.items() if len(values) == 1}
        variant = self._form.spec().variant
        return {**{parameter.name: variant[parameter.name] for parameter in self._workload.parameters}, **single}

    def _lists(self) -> dict[str, tuple[Value, ...]]:
        """Return the values of each varied parameter, the baseline's first."""
        base = self._selection.baseline or self._form.spec().variant
        lists = ((name, self._selection.lists[name]) for name in self._varied())
        return {name: tuple(sorted(values, key=lambda value: value != base.get(name))) for name, values in lists}

    def _combinations(self) -> _Combinations:
        lists = self._lists()
        count = math.prod(map(len, lists.values()))
        if count > MAX_VARIANTS:
            return _Combinations((), (), count)
        single = {name: (value,) for name, value in self._fixed_values().items()}
        specs = catalog.combinations(self._workload, {**single, **lists}, self._form.machine)
        checked = [(spec, catalog.check(spec, self._form.machine)) for spec in specs]
        return _Combinations(
            runnable=tuple(spec for spec, refusals in checked if not refusals),
            refused=tuple((spec, refusals[0]) for spec, refusals in checked if refusals),
            count=count,
        )

    def _ordered_variants(self, found: _Combinations) -> list[RunSpec]:
        """Return the runnable variants in an order that does not depend on the baseline."""
        lists = self._selection.lists
        varied = self._varied()
        return sorted(found.runnable, key=lambda spec: [lists[name].index(spec.variant[name]) for name in varied])

    def _problem(self, found: _Combinations) -> str:
        if wrong := next(iter(self._selection.errors), None):
            return f"Correct the values of {self._parameter(wrong).label} above."
        if found.count > MAX_VARIANTS:
            return f"{found.count:,} combinations are too many: choose fewer values, {MAX_VARIANTS} at most."
        if found.count < 2:
            return "Choose two or more values of any parameter."
        if len(found.runnable) < 2:
            return "Fewer than two of these combinations can run here, so there is nothing to compare."
        return ""

    def _row(self, field: Field) -> MatrixRow:
        options = _options(field)
        values = self._values(field.name)
        parameter = self._parameter(field.name)
        text, problem = self._selection.errors.get(field.name, (format_values(parameter, values), ""))
        is_custom = self._workload.custom_file is not None and field.name not in _SHARED
        folded = not (is_custom or parameter.common or len(values) > 1 or problem)
        return MatrixRow(
            name=field.name,
            label=field.label,
            help=field.help,
            options=options,
            chosen=values,
            text="" if options else text,
            unit=field.unit,
            placeholder=list_placeholder(parameter),
            folded=folded,
            problem=problem,
        )

    def _settings(self) -> list[str]:
        """Return `name=a,b` for each parameter that is varied or not at its default on this machine."""
        fixed, lists, machine = self._fixed_values(), self._lists(), self._form.machine
        gpus = lists.get("gpus") or (fixed["gpus"],)
        defaults = [catalog.fill_defaults(self._workload, {"gpus": count}, machine).variant for count in gpus]
        default_gpus = catalog.fill_defaults(self._workload, {}, machine).variant["gpus"]
        settings = []
        for parameter in self._workload.parameters:
            name = parameter.name
            values = lists.get(name) or (fixed[name],)
            default = [default_gpus] if name == "gpus" else [variant[name] for variant in defaults]
            if len(values) > 1 or any(values[0] != value for value in default):
                settings.append(f"{name}={format_cli_values(parameter, values)}")
        return settings


def _fits(key: str, lists: Mapping[str, tuple[Value, ...]], machine: Machine) -> bool:
    """Return whether a workload takes these values; those of a custom one are of just that state of its file.

    `key` has the name of the workload and the hash of its file.
    """
    workload = next((known for known in catalog.WORKLOADS if known.name == key), None)
    if workload is None:
        return " " in key
    try:
        for name, values in lists.items():
            for value in values:
                catalog.fill_defaults(workload, {name: value}, machine)
    except UsageError:
        return False
    return True


def _options(field: Field) -> tuple[Option, ...]:
    """Return the values to tick; none where they are typed."""
    if field.kind == "switch":
        return _SWITCH
    if field.name == "gpus":
        return tuple(replace(option, label="CPU") if option.value == 0 else option for option in field.options)
    return field.options
