"""Short readable names of variants: what tells one from another, and nothing that is only the default."""

from pathlib import PurePath

from workloads import catalog
from workloads.protocol import RunSpec, Value

_ALWAYS = ("implementation", "layout", "behaviour")
_SILENT = ("gpus", "devices", "batch_size", "precision", "xla", catalog.SOURCE, *catalog.AROUND_THE_STEP, *_ALWAYS)


def short_name(spec: RunSpec, *, devices: bool = True) -> str:
    """The variant in a few words, as `cnn10 Native NCHW · 2 GPUs · batch 1024 · bfloat16`, GPUs only with `devices`.

    What an older run does not name is taken to be its default.
    """
    spec = catalog.with_defaults(spec)
    variant = spec.variant
    head = " ".join([spec.workload, *(choice_label(spec, name, variant[name]) for name in _ALWAYS if name in variant)])
    words = [head, *([gpus_words(variant.get("gpus", 0))] if devices else [])]
    if "batch_size" in variant:
        words.append(f"batch {variant['batch_size']}")
    if variant.get("precision", "float32") != "float32":
        words.append(choice_label(spec, "precision", variant["precision"]))
    if variant.get("xla") is True:
        words.append("XLA")
    return " · ".join(words + _unusual(spec))


def parameter_label(spec: RunSpec, name: str) -> str:
    """The label of a parameter of the spec's workload; made of its name where the catalog does not know it."""
    parameter = parameters_of(spec).get(name)
    return parameter.label if parameter else catalog.label_of(name)


def workload_title(name: str) -> str:
    """The title of a workload; its name where the catalog does not know it."""
    known = catalog.find_workload(name)
    return known.title if known else name


def gpus_words(count: Value) -> str:
    """What so many GPUs are called: `CPU` for none, `1 GPU`, `2 GPUs`."""
    return "CPU" if count == 0 else f"{count} GPU" if count == 1 else f"{count} GPUs"


def value_text(value: Value) -> str:
    """A value as the command line takes it."""
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def choice_label(spec: RunSpec, name: str, value: Value) -> str:
    """A value as a reader knows it: a choice's label, a path in short, else as the command line takes it."""
    parameter = parameters_of(spec).get(name)
    if parameter is not None and parameter.kind == "path":
        return path_name(str(value))
    choices = parameter.choices if parameter else ()
    return next((choice.label for choice in choices if choice.value == value), value_text(value))


def path_name(path: str) -> str:
    """A virtual environment by its folder, `tf216`; one that projects call alike with the project, `mine/.venv`."""
    place = PurePath(path)
    if place.name in ("python", "python3") and place.parent.name == "bin":
        place = place.parents[1]
    alike = place.name.lstrip(".") in ("venv", "env")
    return f"{place.parent.name}/{place.name}" if alike else place.name


def parameters_of(spec: RunSpec) -> dict[str, catalog.Parameter]:
    """The parameters of the spec's workload by name; none where the catalog does not know it."""
    known = catalog.find_workload(spec.workload)
    return {p.name: p for p in known.parameters} if known else {}


def is_unusual(spec: RunSpec, name: str, parameter: catalog.Parameter | None) -> bool:
    """Whether the spec's value of a parameter is not its default; None is a parameter that is not known."""
    on_cpu = spec.variant.get("gpus", 0) == 0
    return parameter is None or spec.variant[name] != catalog.default_value(parameter, on_cpu=on_cpu)


def _unusual(spec: RunSpec) -> list[str]:
    known = parameters_of(spec)
    names = (name for name in spec.variant if name not in _SILENT and is_unusual(spec, name, known.get(name)))
    return [_in_words(spec, name, known.get(name)) for name in names]


def _in_words(spec: RunSpec, name: str, parameter: catalog.Parameter | None) -> str:
    said = choice_label(spec, name, spec.variant[name])
    label = parameter_label(spec, name).lower()
    return f"{label} {said if parameter and parameter.kind == 'path' else said.lower()}"
