"""Prepared experiments: plain data files, fitted to the machine they run on."""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import msgspec

from app.errors import UserError, unreadable
from app.places import RESOURCES
from app.queries import Repeats
from app.runs.article import Article
from app.runs.early import MOST_REPEATS, width_pct
from app.runs.own import named_file
from app.runs.schedule import Carried, Plan
from app.storage.known_settings import PRESET_FILES
from app.storage.settings import keep_in, kept_in
from workloads.catalog import (
    MOST_VARIANTS,
    Machine,
    UsageError,
    Workload,
    check,
    combinations,
    complete,
    distinct,
    workload,
)
from workloads.protocol import RunSpec, Value

FOLDER = RESOURCES / "presets"
QUICK = "quick"
"""The one that a newcomer is offered: any machine makes it within minutes."""

Find = Callable[[str], Workload]
"""Finds a workload by its name, or by `path/to/file.py:name`; raises `UsageError` or `UserError`."""

Values = Annotated[list[Value], msgspec.Meta(min_length=1)]
"""Several values of one setting."""


class Matrix(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One workload and its settings: every combination of those that list several values, the last varying fastest.

    The workload is one of the program's, or one of the user's own by the path of its file, as seen from the preset's.
    """

    workload: str
    settings: dict[str, Value | Values]

    @property
    def lists(self) -> dict[str, list[Value]]:
        """The values of each setting."""
        return {name: value if isinstance(value, list) else [value] for name, value in self.settings.items()}


class Portability(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run whose weights are saved and tried in other implementations, on the CPU or on so many `gpus`."""

    workload: str
    settings: dict[str, Value]
    into: tuple[str, ...]
    gpus: int = 0


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The experiment on one kind of machine.

    `until`, as `0.5%`, ends it earlier; `instead` are values for parameters whose own value cannot run on a machine;
    `note` says how this form is smaller than the question it stands for.
    """

    question: str
    repeats: Repeats
    matrix: Annotated[tuple[Matrix, ...], msgspec.Meta(min_length=1)]
    until: str = ""
    portability: tuple[Portability, ...] = ()
    instead: dict[str, Value] = {}
    note: str = ""

    def __post_init__(self) -> None:
        """Raises `ValueError`, which becomes a `msgspec.ValidationError`."""
        if self.until:
            width_pct(self.until)
        if (count := sum(math.prod(map(len, matrix.lists.values())) for matrix in self.matrix)) > MOST_VARIANTS:
            raise ValueError(f"{count:,} combinations are too many: {MOST_VARIANTS} at most")


class Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A prepared experiment for machines with a GPU and without, and the article it repeats if it repeats one."""

    gpu: Form
    cpu: Form
    title: str = ""
    article: Article | None = None


@dataclass(frozen=True, slots=True)
class NamedPreset:
    """A preset with its name, and with the `key` that finds it again: the name in the box, else its file's whole path.

    A file of the user's may have the name of one in the box. `own` are the user's workloads that it names, by its words
    for them; they are known where they were looked for.
    """

    key: str
    name: str
    preset: Preset
    own: Mapping[str, Workload] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What a reader knows it by: its own title, else its article's, else its name."""
        article = self.preset.article
        return self.preset.title or (article.title if article else self.name)

    def form(self, machine: Machine) -> Form:
        """The one for this machine."""
        return self.preset.gpu if machine.gpus else self.preset.cpu

    def plan(self, machine: Machine, repeats: int | None = None, until_pct: float | None = None) -> Plan:
        """The experiment as this machine can make it; raises `UsageError` where the file asks for what there is not.

        `repeats` and `until_pct` are the user's, in place of the file's.
        """
        form = self.form(machine)
        asked = self._variants(form)
        specs = [_mended(spec, form.instead, machine) for spec in asked]
        fitting = [spec for spec in specs if int(spec.variant["gpus"]) <= len(machine.gpus)]
        # Where nothing fits, the runs themselves say why they are refused.
        kept = fitting or specs
        notes = (form.note, _fewer_gpus(machine, len(specs) - len(kept)), *_replaced(asked, specs))
        plan = self._plan(form, kept, repeats, until_pct)
        if self.preset.article is not None:
            self.preset.article.check(plan.variants)
        return replace(plan, notes=tuple(filter(None, notes)))

    def every_plan(self, repeats: int | None = None, until_pct: float | None = None) -> list[Plan]:
        """The experiment as any machine may have made it, for what is stored."""
        gpu, cpu = self.preset.gpu, self.preset.cpu
        newer = self._variants(gpu)
        older = [RunSpec(workload=s.workload, variant={**s.variant, **gpu.instead}) for s in newer]
        forms = [(gpu, newer), (gpu, older), (cpu, self._variants(cpu))]
        return [self._plan(form, specs, repeats, until_pct) for form, specs in forms]

    def _variants(self, form: Form) -> list[RunSpec]:
        # A preset names its GPUs: no machine's defaults decide.
        return [
            spec
            for matrix in form.matrix
            for spec in combinations(
                self.own.get(matrix.workload) or workload(matrix.workload), matrix.lists, Machine()
            )
        ]

    def _plan(self, form: Form, specs: Sequence[RunSpec], repeats: int | None, until_pct: float | None) -> Plan:
        own_pct = width_pct(form.until) if form.until else None
        return Plan(
            name=self.name,
            variants=tuple(distinct(specs)),
            repeats=repeats or (form.repeats if until_pct is None else max(form.repeats, MOST_REPEATS)),
            until_pct=own_pct if until_pct is None else until_pct,
            carried=tuple(map(_carried, form.portability)),
        )


def preset_names() -> list[str]:
    """Names of the presets in the box."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def own_files(database: Path) -> list[str]:
    """The paths of the presets that the user has added to a database."""
    kept = kept_in(database, PRESET_FILES)
    return list(kept or ())


def keep_own_file(database: Path, file: str) -> None:
    """Add one to them."""
    keep_in(database, PRESET_FILES, list(dict.fromkeys([*own_files(database), file])))


def preset(name: str, find: Find | None = None) -> NamedPreset:
    """The preset of that name, or in the file of that path; raises `UsageError` or `UserError`.

    Workloads of the user's own that it names are looked for by `find`: without, it has no plan.
    """
    known = preset_names()
    if name not in known and not name.endswith(".toml"):
        raise UsageError(f"There is no preset called {name!r}. There are: {', '.join(known)}, or a file's path.")
    path = FOLDER / f"{name}.toml" if name in known else Path(name)
    key = name if name in known else str(path.absolute())
    found = _read(path)
    return NamedPreset(key, path.stem, found, {} if find is None else _own(found, path, find))


def _read(path: Path) -> Preset:
    try:
        return msgspec.toml.decode(path.read_bytes(), type=Preset)
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no preset: it is not written in UTF-8.") from error
    except msgspec.DecodeError as error:
        raise UserError(f"{path} is no preset: {error}.") from error


def _own(preset: Preset, path: Path, find: Find) -> dict[str, Workload]:
    """The user's own workloads that the preset in this file names, by its words for them."""
    words = dict.fromkeys(matrix.workload for form in (preset.gpu, preset.cpu) for matrix in form.matrix)
    try:
        return {word: find(_seen_from(path.parent, *named)) for word in words if (named := named_file(word))}
    except UsageError as error:
        raise UsageError(f"{path.name} names a workload that cannot be had. {error}") from error


def _seen_from(folder: Path, file: Path, name: str) -> str:
    path = os.path.normpath(folder.absolute() / file.expanduser())
    return f"{path}:{name}" if name else path


def _carried(portability: Portability) -> Carried:
    settings = {**portability.settings, "save_weights": True}
    spec = complete(portability.workload, settings, Machine())
    return Carried(spec=spec, into=portability.into, gpus=portability.gpus)


def _mended(spec: RunSpec, instead: Mapping[str, Value], machine: Machine) -> RunSpec:
    """The variant with other values for those that cannot run here."""
    refused = {name for refusal in check(spec, machine) for name in refusal.parameters}
    changed = {name: value for name, value in instead.items() if name in refused}
    return RunSpec(workload=spec.workload, variant={**spec.variant, **changed})


def _fewer_gpus(machine: Machine, left_out: int) -> str:
    if not left_out:
        return ""
    have = "1 GPU" if len(machine.gpus) == 1 else f"{len(machine.gpus)} GPUs"
    return f"This machine has {have}: {left_out} variants with more are left out."


def _replaced(asked: Sequence[RunSpec], given: Sequence[RunSpec]) -> list[str]:
    """One sentence for every value that another took the place of."""
    changes = (
        f"{name}={mended.variant[name]} in place of {spec.variant[name]}, which cannot run here."
        for spec, mended in zip(asked, given, strict=True)
        for name in spec.variant
        if mended.variant[name] != spec.variant[name]
    )
    return list(dict.fromkeys(changes))
