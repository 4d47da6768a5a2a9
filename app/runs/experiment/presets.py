"""Presets: prepared experiments in TOML files, adapted to the machine they run on."""

import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from app.errors import UserError, read_error
from app.paths import RESOURCES, expand_home, read_file
from app.runs.custom import parse_workload_path
from app.runs.experiment.schedule import parse_precision_pct
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import PRESET_FILES
from app.values.plan import MAX_REPEATS, Article, Plan, Publication, Repeats, WeightTransfer, step_key
from workloads.catalog import (
    MAX_VARIANTS,
    Machine,
    UsageError,
    Workload,
    check,
    combinations,
    complete,
    distinct,
    find_workload,
    workload,
)
from workloads.protocol import RunSpec, Value

PRESET_FOLDER = RESOURCES / "presets"
QUICK = "quick"
"""The preset offered to new users: any machine completes it within minutes."""

FindWorkload = Callable[[str], Workload]
"""Finds a workload by name, or by `path/to/file.py:name`; raises `UsageError` or `UserError`."""

ValueList = Annotated[list[Value], msgspec.Meta(min_length=1)]
"""Several values of one setting."""


class PresetMatrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One workload and its settings: every combination of the values listed, the last varying fastest.

    A custom workload is named by the path of its file, relative to the preset's.
    """

    workload: str
    settings: dict[str, Value | ValueList]

    @property
    def value_lists(self) -> dict[str, list[Value]]:
        return {name: value if isinstance(value, list) else [value] for name, value in self.settings.items()}


class PresetTransfer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Saves a run's weights and tries them in other implementations, on the CPU or on that many `gpus`."""

    workload: str
    settings: dict[str, Value]
    into: tuple[str, ...]
    gpus: int = 0


class PresetExperiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The experiment on one kind of machine.

    Attributes:
        question: What it answers.
        repeats: Runs per variant.
        asked: The setting that the question is about; "" for the one with the largest effect.
        until: Target precision that ends it early, such as `0.5%`; "" for none.
        portability: Its weight transfers.
        instead: Replacement values for parameters whose value cannot run on a machine.
        note: How it falls short of its question.
    """

    question: str
    repeats: Repeats
    matrix: Annotated[tuple[PresetMatrix, ...], msgspec.Meta(min_length=1)]
    asked: str = ""
    until: str = ""
    portability: tuple[PresetTransfer, ...] = ()
    instead: dict[str, Value] = {}
    note: str = ""

    def __post_init__(self) -> None:
        """Raise `ValueError`, which becomes a `msgspec.ValidationError`, for mistakes that types do not catch."""
        if self.asked and all(self.asked not in matrix.settings for matrix in self.matrix):
            raise ValueError(f"{self.asked} is asked about, and no matrix sets it")
        if self.until:
            parse_precision_pct(self.until)
        if (count := sum(math.prod(map(len, matrix.value_lists.values())) for matrix in self.matrix)) > MAX_VARIANTS:
            raise ValueError(f"{count:,} combinations are too many: {MAX_VARIANTS} at most")


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A prepared experiment for machines with and without a GPU, and the article it repeats, if any.

    Without `cpu`, only GPUs can answer it: elsewhere its runs are refused with a reason.
    """

    gpu: PresetExperiment
    cpu: PresetExperiment | None = None
    title: str = ""
    article: Article | None = None


@dataclass(frozen=True, slots=True)
class NamedPreset:
    """A preset with its name; its experiments are named by its title.

    Attributes:
        key: Its identity: the name of a bundled preset, else the absolute path of its file.
        name: Its name, which a user's file may share with a bundled preset.
        custom_workloads: The custom workloads by the names that it uses; empty if they were not looked up.
    """

    key: str
    name: str
    preset: Preset
    custom_workloads: Mapping[str, Workload] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Return its title, else its article's, else its name."""
        article = self.preset.article
        return self.preset.title or (article.title if article else self.name)

    def experiment_for(self, machine: Machine) -> PresetExperiment:
        return (None if machine.gpus else self.preset.cpu) or self.preset.gpu

    def plan(self, machine: Machine, repeats: int | None = None, until_pct: float | None = None) -> Plan:
        """Return the plan adapted to a machine, with these repeats and this precision, else the file's.

        Raises:
            UsageError: The file names something unknown.
        """
        experiment = self.experiment_for(machine)
        requested = self._variants(experiment)
        specs = [_with_replacements(spec, experiment.instead, machine) for spec in requested]
        possible = [spec for spec in specs if int(spec.variant["gpus"]) <= len(machine.gpus)]
        # If nothing can run, the runs themselves say why they are refused.
        retained = possible or specs
        changes = (
            (spec.workload, name, mended.variant[name], value)
            for spec, mended in zip(requested, specs, strict=True)
            for name, value in spec.variant.items()
            if mended.variant[name] != value
        )
        notes = (
            experiment.note,
            ""
            if machine.gpus or self.preset.cpu
            else f"It needs an NVIDIA GPU, and {machine.hidden_by or 'this machine'} has none.",
            _describe_excluded(machine, len(specs) - len(retained)),
            *dict.fromkeys(_describe_replacement(*change) for change in dict.fromkeys(changes)),
        )
        plan = self._plan(experiment, retained, repeats, until_pct)
        return msgspec.structs.replace(plan, notes=tuple(filter(None, notes)))

    def all_plans(self, repeats: int | None = None, until_pct: float | None = None) -> list[Plan]:
        """Return the plan's form for any machine, to find stored runs."""
        forms = [form for form in (self.preset.gpu, self.preset.cpu) if form]
        return [
            self._plan(form, _with_values(self._variants(form), dict(replaced)), repeats, until_pct)
            for form in forms
            for count in range(len(form.instead) + 1)
            for replaced in itertools.combinations(form.instead.items(), count)
        ]

    def _variants(self, experiment: PresetExperiment) -> list[RunSpec]:
        # A preset names its GPUs, so no machine's defaults matter.
        return [
            spec
            for matrix in experiment.matrix
            for spec in combinations(
                self.custom_workloads.get(matrix.workload) or workload(matrix.workload), matrix.value_lists, Machine()
            )
        ]

    def _plan(
        self, experiment: PresetExperiment, specs: Sequence[RunSpec], repeats: int | None, until_pct: float | None
    ) -> Plan:
        file_pct = parse_precision_pct(experiment.until) if experiment.until else None
        return Plan(
            name=self.title,
            asked=experiment.asked,
            preset=self.key,
            variants=tuple(distinct(specs)),
            repeats=repeats or (experiment.repeats if until_pct is None else max(experiment.repeats, MAX_REPEATS)),
            until_pct=file_pct if until_pct is None else until_pct,
            weight_transfers=tuple(map(_weight_transfer, experiment.portability)),
        )


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESET_FOLDER.glob("*.toml"))


def user_preset_files(database: Path) -> list[str]:
    stored = load_setting(database, PRESET_FILES)
    return list(stored or ())


def list_user_preset_file(database: Path, file: str, *, listed: bool = True) -> None:
    others = [path for path in user_preset_files(database) if path != file]
    save_setting(database, PRESET_FILES, [*others, file] if listed else others)


def load_preset(name: str, find: FindWorkload | None = None) -> NamedPreset:
    """Load a preset by its name, or by the path of its file.

    `find` looks up its custom workloads; without it the preset has no plan.

    Raises:
        UsageError: No preset has that name, or it names an unknown workload.
        UserError: The file cannot be read.
    """
    names = preset_names()
    if name not in names and not name.endswith(".toml"):
        raise UsageError(
            f"There is no preset called {name!r}. Presets: {', '.join(names)}; or give the path of a file."
        )
    path = PRESET_FOLDER / f"{name}.toml" if name in names else Path(name)
    key = name if name in names else str(path.absolute())
    decoded = _read(path)
    return NamedPreset(key, path.stem, decoded, {} if find is None else _find_custom_workloads(decoded, path, find))


def _read(path: Path) -> Preset:
    try:
        return msgspec.toml.decode(read_file(path), type=Preset)
    except OSError as error:
        raise read_error(path, error) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a preset: it is not written in UTF-8.") from error
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is not a preset: {error}.") from error
    except RecursionError as error:
        raise UserError(f"{path} is not a preset: it has too many nested brackets.") from error


def _find_custom_workloads(preset: Preset, path: Path, find: FindWorkload) -> dict[str, Workload]:
    names = dict.fromkeys(matrix.workload for form in (preset.gpu, preset.cpu) if form for matrix in form.matrix)
    try:
        return {word: find(_resolve(path.parent, *named)) for word in names if (named := parse_workload_path(word))}
    except UsageError as error:
        raise UsageError(f"{path.name} names a workload that cannot be loaded. {error}") from error


def _resolve(folder: Path, file: Path, name: str) -> str:
    path = os.path.normpath(folder.absolute() / expand_home(file))
    return f"{path}:{name}" if name else path


def _weight_transfer(portability: PresetTransfer) -> WeightTransfer:
    settings = {**portability.settings, "save_weights": True}
    spec = complete(portability.workload, settings, Machine())
    return WeightTransfer(spec=spec, into=portability.into, gpus=portability.gpus)


def _with_values(specs: Sequence[RunSpec], values: Mapping[str, Value]) -> list[RunSpec]:
    return [RunSpec(workload=spec.workload, variant={**spec.variant, **values}) for spec in specs]


def _with_replacements(spec: RunSpec, instead: Mapping[str, Value], machine: Machine) -> RunSpec:
    refused = {name for refusal in check(spec, machine) for name in refusal.parameters}
    replacements = {name: value for name, value in instead.items() if name in refused}
    return RunSpec(workload=spec.workload, variant={**spec.variant, **replacements})


def _describe_excluded(machine: Machine, excluded: int) -> str:
    if not excluded:
        return ""
    have = "1 GPU" if len(machine.gpus) == 1 else f"{len(machine.gpus)} GPUs"
    return f"This machine has {have}: {excluded} variants with more are left out."


def _describe_replacement(workload_name: str, name: str, value: Value, missing: Value) -> str:
    workload = find_workload(workload_name)
    parameter = workload.parameter(name) if workload else None
    labels = {choice.value: choice.label for choice in parameter.choices} if parameter else {}
    label, missing_label = (labels.get(str(setting), str(setting)) for setting in (value, missing))
    return f"{parameter.label if parameter else name} {label} in place of {missing_label}, which cannot run here."


def publications(
    specs: Iterable[RunSpec], names: Iterable[str], find: FindWorkload = workload
) -> tuple[Publication, ...]:
    steps, published = set(map(step_key, specs)), []
    for name in names:
        try:
            named = load_preset(name, find)
            keys = frozenset(step_key(spec) for plan in named.all_plans() for spec in plan.variants)
        except (UserError, UsageError):  # the list of presets reports the error
            continue
        if named.preset.article is not None and len(keys & steps) > 1:
            published.append(Publication(named.preset.article, keys))
    return tuple(published)
