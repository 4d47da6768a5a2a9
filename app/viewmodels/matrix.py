"""An experiment as it is built: several values of any parameter, and what all their combinations amount to."""

import math
import shlex
from dataclasses import dataclass, field, replace

from app.analysis.repeats import FIRST_LOOK, REPEATS
from app.viewmodels.form import Field, Option, VariantForm
from app.viewmodels.matrix_refused import refused_groups
from app.viewmodels.matrix_state import AskedMatrix, Extent, MatrixRow, MatrixState
from app.viewmodels.matrix_values import parse_values, values_text, where_empty, written
from app.viewmodels.units import plural, sentence
from app.viewmodels.variants import variant_names
from workloads import catalog
from workloads.catalog import MOST_VARIANTS, Refusal, UsageError
from workloads.protocol import RunSpec, Value

_COMMON = ("implementation", "layout", "layers", "units", "gpus", "batch_size", "precision", "xla")
_SHARED = frozenset.intersection(*(frozenset(p.name for p in known.parameters) for known in catalog.WORKLOADS))
_SWITCH = (Option(value=False, label="Off"), Option(value=True, label="On"))


@dataclass(slots=True)
class _Chosen:
    """What was chosen of one workload."""

    lists: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    wrong: dict[str, tuple[str, str]] = field(default_factory=dict)
    baseline: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Found:
    """The combinations that can run here, the baseline first, those that cannot, and how many there are in all."""

    kept: tuple[RunSpec, ...]
    refused: tuple[tuple[RunSpec, Refusal], ...]
    count: int


class MatrixForm:
    """Several values of some parameters, the others as in the form; `most_repeats` is the limit where a width ends it.

    The form's variant is the baseline until another one is chosen.
    """

    def __init__(self, form: VariantForm, most_repeats: int) -> None:
        self._form = form
        self._most_repeats = most_repeats
        self._by_workload: dict[str, _Chosen] = {}
        self._extent = Extent()

    def tick(self, name: str, value: Value, *, on: bool) -> None:
        """Take a value in or leave it out; the last one stays."""
        now = self._values(name)
        wanted = {*now, value} if on else {*now} - {value}
        if wanted:
            self._chosen.lists[name] = self._in_order(name, wanted)

    def type_list(self, name: str, text: str) -> None:
        """Take the values typed, the form's where there are none; what is no list is kept with what is wrong."""
        parameter = self._parameter(name)
        self._chosen.wrong.pop(name, None)
        self._chosen.lists.pop(name, None)
        if not text.strip():
            return
        try:
            self._chosen.lists[name] = parse_values(parameter, text)
        except UsageError as error:
            self._chosen.wrong[name] = text, sentence(str(error).replace(name, parameter.label, 1))

    def choose_baseline(self, index: int) -> None:
        """Hold all against this one of the state's variants."""
        spec = self._listed(self._found())[index]
        self._chosen.baseline = {name: spec.variant[name] for name in self._varied()}

    def extend(self, **changes: object) -> None:
        """Go another way in some of what `Extent` has."""
        self._extent = replace(self._extent, **changes)  # type: ignore[arg-type]

    def reset(self) -> None:
        """Forget everything chosen for this workload."""
        self._by_workload.pop(self._key, None)

    def asked(self) -> AskedMatrix:
        """The experiment as it stands."""
        found, extent = self._found(), self._extent
        groups = refused_groups(found.refused, self._varied())
        return AskedMatrix(
            name=" ".join([self._known.name, *self._settings()]),
            variants=found.kept,
            repeats=self._repeats,
            until_pct=extent.until_pct,
            notes=tuple(f"{group.count} left out. {group.words}" for group in groups),
            budget_s=extent.budget_s,
            parallel=len(self._form.machine.gpus) if self._side_by_side else 1,
            again=extent.again,
        )

    def state(self) -> MatrixState:
        """Everything the matrix shows."""
        form, found, extent = self._form.state(), self._found(), self._extent
        listed = self._listed(found)
        problem = form.unread or self._problem(found) if form.known_machine else "Looking for GPUs …"
        runs = len(found.kept) * self._repeats
        most = "" if extent.until_pct is None else "at most "
        return MatrixState(
            workload=form.workload,
            rows=tuple(map(self._row, form.fields)),
            variants=tuple(variant_names(listed)),
            baseline=listed.index(found.kept[0]) if found.kept else -1,
            combinations=found.count,
            refused=refused_groups(found.refused, self._varied()),
            repeats=self._repeats,
            least_repeats=1 if extent.until_pct is None else FIRST_LOOK + 1,
            until_pct=extent.until_pct,
            budget_s=extent.budget_s,
            side_by_side=extent.side_by_side if len(self._form.machine.gpus) > 1 else None,
            again=extent.again,
            headline=f"{runs:,} {plural('run', runs)}" if len(found.kept) > 1 else "",
            detail=f"{len(found.kept):,} variants, each {most}{self._repeats} {plural('time', self._repeats)}",
            problem=problem,
            command=self.command(),
        )

    def command(self) -> str:
        """The same experiment as a shell command; what cannot run here is refused there, run by run."""
        words = ["python", "-m", "app", "experiment", self._form.word]
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
        return shlex.join(words)

    @property
    def _side_by_side(self) -> bool:
        return self._extent.side_by_side and len(self._form.machine.gpus) > 1

    @property
    def _known(self) -> catalog.Workload:
        return self._form.workload

    @property
    def _key(self) -> str:
        """The workload; one of the user's own is another one when its file has changed."""
        return f"{self._known.name} {self._known.own.sha256 if self._known.own else ''}"

    @property
    def _chosen(self) -> _Chosen:
        return self._by_workload.setdefault(self._key, _Chosen())

    @property
    def _repeats(self) -> int:
        if self._extent.until_pct is None:
            return self._extent.repeats or REPEATS
        return max(self._extent.repeats or self._most_repeats, FIRST_LOOK + 1)

    def _parameter(self, name: str) -> catalog.Parameter:
        return self._known.parameter(name)

    def _values(self, name: str) -> tuple[Value, ...]:
        """The values of a parameter that take part; the form's own where no others were chosen."""
        return self._chosen.lists.get(name) or (self._form.spec().variant[name],)

    def _varied(self) -> list[str]:
        """Parameters with several values, in the catalog's order."""
        names = (parameter.name for parameter in self._known.parameters)
        return [name for name in names if len(self._chosen.lists.get(name, ())) > 1]

    def _in_order(self, name: str, wanted: set[Value]) -> tuple[Value, ...]:
        """Values that are ticked, as they are offered."""
        offered = next(_options(field) for field in self._form.state().fields if field.name == name)
        return tuple(option.value for option in offered if option.value in wanted)

    def _given(self) -> dict[str, Value]:
        """What has one value: the form's, or the only one left here."""
        alone = {name: values[0] for name, values in self._chosen.lists.items() if len(values) == 1}
        variant = self._form.spec().variant
        return {**{parameter.name: variant[parameter.name] for parameter in self._known.parameters}, **alone}

    def _lists(self) -> dict[str, tuple[Value, ...]]:
        """The values of each varied parameter, the baseline's first."""
        base = self._chosen.baseline or self._form.spec().variant
        lists = ((name, self._chosen.lists[name]) for name in self._varied())
        return {name: tuple(sorted(values, key=lambda value: value != base.get(name))) for name, values in lists}

    def _found(self) -> _Found:
        lists = self._lists()
        count = math.prod(map(len, lists.values()))
        if count > MOST_VARIANTS:
            return _Found((), (), count)
        alone = {name: (value,) for name, value in self._given().items()}
        specs = catalog.combinations(self._known, {**alone, **lists}, self._form.machine)
        checked = [(spec, catalog.check(spec, self._form.machine)) for spec in specs]
        return _Found(
            kept=tuple(spec for spec, refusals in checked if not refusals),
            refused=tuple((spec, refusals[0]) for spec, refusals in checked if refusals),
            count=count,
        )

    def _listed(self, found: _Found) -> list[RunSpec]:
        """Those that can run in an order that does not depend on the baseline."""
        lists = self._chosen.lists
        varied = self._varied()
        return sorted(found.kept, key=lambda spec: [lists[name].index(spec.variant[name]) for name in varied])

    def _problem(self, found: _Found) -> str:
        if wrong := next(iter(self._chosen.wrong.values()), None):
            return wrong[1]
        if found.count > MOST_VARIANTS:
            return f"{found.count:,} combinations are too many: choose fewer values, {MOST_VARIANTS} at most."
        if found.count < 2:
            return "Choose two values or more of any parameter: each combination becomes a variant."
        if len(found.kept) < 2:
            return "Fewer than two of these combinations can run here, so there is nothing to compare."
        return ""

    def _row(self, field: Field) -> MatrixRow:
        options = _options(field)
        values = self._values(field.name)
        parameter = self._parameter(field.name)
        text, problem = self._chosen.wrong.get(field.name, (values_text(parameter, values), ""))
        own = self._known.own is not None and field.name not in _SHARED
        quiet = not (own or field.name in _COMMON or len(values) > 1 or problem)
        return MatrixRow(
            name=field.name,
            label=field.label,
            help=field.help,
            options=options,
            chosen=values,
            text="" if options else text,
            unit=field.unit,
            where_empty=where_empty(parameter),
            folded=quiet,
            problem=problem,
        )

    def _settings(self) -> list[str]:
        """`name=a,b` for each parameter that is varied or not at its default on this machine."""
        given, lists, machine = self._given(), self._lists(), self._form.machine
        gpus = lists.get("gpus") or (given["gpus"],)
        plain = [catalog.complete_of(self._known, {"gpus": count}, machine).variant for count in gpus]
        usual = catalog.complete_of(self._known, {}, machine).variant["gpus"]
        told = []
        for parameter in self._known.parameters:
            name = parameter.name
            values = lists.get(name) or (given[name],)
            default = [usual] if name == "gpus" else [variant[name] for variant in plain]
            if len(values) > 1 or any(values[0] != value for value in default):
                told.append(f"{name}={written(parameter, values)}")
        return told


def _options(field: Field) -> tuple[Option, ...]:
    """The values to tick; none where they are typed."""
    if field.kind == "switch":
        return _SWITCH
    if field.name == "gpus":
        return tuple(replace(option, label="CPU") if option.value == 0 else option for option in field.options)
    return field.options
