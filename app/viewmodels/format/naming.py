"""Readable names: variants by their differences, parameters, settings, GPUs and interpreters."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePath

from app.paths import PROGRAM
from app.values.environment_keys import CUSTOM_PATH_KEY, CUSTOM_SOURCE_KEY
from app.values.plain import plain_line
from app.values.plan import step_key
from app.values.records import StoredRun
from app.values.units import ABSENT
from workloads import catalog
from workloads.protocol import RunSpec, Value


def short_gpu_name(name: str) -> str:
    """Return a GPU's name without the vendor: `H200` for `NVIDIA H200`."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def format_gpu_counts(names: Iterable[str], *, separator: str = ", ", single_prefix: str = "1× ") -> str:
    """Return the number of GPUs of each name: `2× H200, 1× L4`."""
    counts = Counter(map(short_gpu_name, names))
    return separator.join(f"{single_prefix if count == 1 else f'{count}× '}{name}" for name, count in counts.items())


SEPARATOR = " · "
"""Separates the parts of a name."""

ELLIPSIS = "…"


Name = tuple[str, ...]
"""A name in parts, which are joined when it is painted or written."""


def leave_out(name: Name, shared: Collection[str], fits: Callable[[Name], bool]) -> Name:
    """Return a name without enough of its shared parts to fit, dropping the last ones first; "…" replaces them.

    Parts that are not shared always stay, because they distinguish the name.

    `shared` are the parts that all neighbouring names have too.
    """
    parts, left = list(name), name
    for index in reversed(range(len(parts))):
        if fits(left):
            break
        if parts[index] in shared:
            parts[index] = ELLIPSIS
            left = tuple(part for n, part in enumerate(parts) if part != ELLIPSIS or n == 0 or parts[n - 1] != ELLIPSIS)
    return left


_NAMED_FIRST = catalog.parameter_names(lambda parameter: parameter.named == "first")
_NOT_NAMED_IF_CHANGED = (
    *catalog.parameter_names(lambda parameter: parameter.named != "changed" or not parameter.affects_step),
    catalog.SOURCE,
)


def short_name(spec: RunSpec) -> str:
    """Return the variant in a few words: `cnn10 TensorFlow Native NCHW · 2 GPUs · batch 1024`."""
    return SEPARATOR.join(_short_name_in_parts(spec))


def _short_name_in_parts(spec: RunSpec) -> Name:
    first, *others = variant_parts(spec)
    head = f"{plain_line(spec.workload)} {framework_name(spec)} {first}".rstrip()
    return head, gpus_label(spec.variant.get("gpus", 0)), *others


def framework_name(spec: RunSpec) -> str:
    """Return the framework of a variant; "" for a script, which may import any."""
    return "" if catalog.is_script(spec.workload) else catalog.framework_of(spec.variant).name


def variant_parts(spec: RunSpec) -> list[str]:
    """Return the parts of a short name without workload, framework and devices; the first may be ""."""
    variant = spec.variant
    labels = [" ".join(choice_label(spec, name, variant[name]) for name in _NAMED_FIRST if name in variant)]
    if "batch_size" in variant:
        labels.append(f"batch {variant['batch_size']}")
    if variant.get("precision", "float32") != "float32":
        labels.append(choice_label(spec, "precision", variant["precision"]))
    if variant.get("xla") is True:
        labels.append("XLA")
    return labels + _non_default(spec)


def parameter_label(spec: RunSpec, name: str) -> str:
    """Return the label of a parameter: the workload's, else another's, as a script has none, else from its name."""
    others = (parameter for listed in catalog.WORKLOADS for parameter in listed.parameters if parameter.name == name)
    parameter = parameters_by_name(spec).get(name) or next(others, None)
    return parameter.label if parameter else catalog.label_from_name(name)


def setting_label(specs: Iterable[RunSpec], name: str) -> str:
    return "Workload" if name == "workload" else parameter_label(next(s for s in specs if name in s.variant), name)


def workload_title(name: str) -> str:
    """Return the title of a workload, or its name if the catalog does not know it."""
    workload = catalog.find_workload(name)
    return workload.title if workload else name


def gpus_label(count: Value) -> str:
    """Return a number of GPUs as text: `CPU` for none, `1 GPU`, `2 GPUs`."""
    return "CPU" if count == 0 else f"{count} GPU" if count == 1 else f"{count} GPUs"


def value_text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def setting_text(spec: RunSpec, name: str) -> str:
    value, parameter = spec.variant[name], parameters_by_name(spec).get(name)
    if isinstance(value, bool):
        return "on" if value else "off"
    label = choice_label(spec, name, value)
    return f"{label} {parameter.unit}" if label and parameter and parameter.unit else label


def choice_label(spec: RunSpec, name: str, value: Value) -> str:
    """Return a value as users know it: a choice's label, a shortened path, else as on the command line."""
    parameter = parameters_by_name(spec).get(name)
    if parameter is not None and parameter.kind == "path":
        return path_name(str(value))
    choices = parameter.choices if parameter else ()
    return next((choice.label for choice in choices if choice.value == value), plain_line(value_text(value)))


def path_name(path: str) -> str:
    """Return a virtual environment by its folder, `…/tf216`; a common folder name with its project, `…/mine/.venv`.

    A version, or an environment of an older version of the program such as `tf216`, is not a path, and stays.
    """
    folder = PurePath(path)
    if folder.name in ("python", "python3") and folder.parent.name == "bin":
        folder = folder.parents[1]
    is_generic = folder.name.lstrip(".") in ("venv", "env")
    name = plain_line(f"{folder.parent.name}/{folder.name}" if is_generic else folder.name)
    return f"…/{name}" if "/" in path else name


def parameters_by_name(spec: RunSpec) -> Mapping[str, catalog.Parameter]:
    """Return the parameters of the spec's workload by name; none if the catalog does not know it."""
    return _parameters_of_workload(spec.workload)


@lru_cache(64)
def _parameters_of_workload(name: str) -> Mapping[str, catalog.Parameter]:
    workload = catalog.find_workload(name)
    return {p.name: p for p in workload.parameters} if workload else {}


def is_non_default(spec: RunSpec, name: str, parameter: catalog.Parameter | None) -> bool:
    """Return whether a parameter differs from its default. `parameter` is None if the catalog does not know it."""
    on_cpu = spec.variant.get("gpus", 0) == 0
    return parameter is None or spec.variant[name] != catalog.default_value(parameter, on_cpu=on_cpu)


def _non_default(spec: RunSpec) -> list[str]:
    by_name = parameters_by_name(spec)
    names = (
        name
        for name in spec.variant
        if name not in _NOT_NAMED_IF_CHANGED and is_non_default(spec, name, by_name.get(name))
    )
    return [_parameter_text(spec, name, by_name.get(name)) for name in names]


def _parameter_text(spec: RunSpec, name: str, parameter: catalog.Parameter | None) -> str:
    label, value = label_in_sentence(spec, name), spec.variant[name]
    if isinstance(value, bool):
        return label if value else f"{label} off"
    text = choice_label(spec, name, value)
    if parameter is not None and parameter.kind == "choice" and not any(map(str.isupper, text[1:])):
        text = text.lower()  # except names such as CIFAR-10 or DataParallel, and users' text
    unit = f" {parameter.unit}" if parameter and parameter.unit else ""
    return f"{label} {text}{unit}"


_UUID_SHOWN = len("GPU-0f9e5287")
_HASH_SHOWN = 8
_PROPER_NAMES = ("Python",)
_IDENTIFYING = catalog.parameter_names(lambda parameter: parameter.identifies)


_SWITCH = {"False": "off", "True": "on"}


def differing_parameters(specs: Sequence[RunSpec]) -> list[str]:
    """Return the parameters that differ among the specs that have them, in order, `workload` first.

    A changed parameter that another framework lacks counts as well: it is part of the comparison.
    """
    parameters = []
    for name in dict.fromkeys(name for spec in specs for name in spec.variant):
        all_naming = [spec for spec in specs if name in spec.variant]
        having = [spec for spec in all_naming if catalog.has_parameter(spec, name)]
        if len({str(spec.variant[name]) for spec in having}) > 1 or (
            len(having) < len(all_naming)
            and any(is_non_default(spec, name, parameters_by_name(spec).get(name)) for spec in having)
        ):
            parameters.append(name)
    return ["workload", *parameters] if len({spec.workload for spec in specs}) > 1 else parameters


_MANY = 4
"""From this many differing parameters on, names omit those at their defaults."""


def variant_names(specs: Sequence[RunSpec], *, in_sentence: bool = False) -> list[str]:
    """Return the names of variants, `NCHW · Batch size 64`."""
    return list(map(SEPARATOR.join, names_in_parts(specs, in_sentence=in_sentence)))


def names_in_parts(specs: Sequence[RunSpec], *, in_sentence: bool = False) -> list[Name]:
    """Return for each variant what distinguishes it from the others; its short name if nothing does.

    GPUs by UUID and the measured length are named only if nothing else distinguishes variants. For three or more
    variants, a switch or all-reduce at its default is named only if some variant has no other name; if many parameters
    differ, the same applies to everything that short names omit at its default. Several variants of one workload are
    distinguished only by their differences. With `in_sentence` parameters are written as within a sentence.
    """
    step_counts = Counter(map(step_key, specs))
    differing = _differing_by_workload(specs)
    names_by_spec = [
        [
            name
            for name in differing[spec.workload]
            if name == "workload"
            or (
                name in spec.variant
                and catalog.has_parameter(spec, name)
                and (name not in catalog.OUTSIDE_STEP or step_counts[step_key(spec)] > 1)
            )
        ]
        for spec in specs
    ]
    short_names = [
        [name for name in names if not _is_omittable(spec, name, among=len(differing[spec.workload]))]
        for spec, names in zip(specs, names_by_spec, strict=True)
    ]
    return [
        tuple(format_setting(spec, name, in_sentence=in_sentence) for name in names) or _short_name_in_parts(spec)
        for spec, names in zip(
            specs, short_names if len(specs) > 2 and all(short_names) else names_by_spec, strict=True
        )
    ]


def _differing_by_workload(specs: Sequence[RunSpec]) -> dict[str, list[str]]:
    by_workload: dict[str, list[RunSpec]] = {}
    for spec in specs:
        by_workload.setdefault(spec.workload, []).append(spec)
    if len(by_workload) == 1:
        return {specs[0].workload: differing_parameters(specs)}
    everywhere = differing_parameters(specs)
    among = {
        workload: {"workload", *_NAMED_FIRST, *differing_parameters(group)} for workload, group in by_workload.items()
    }
    return {
        workload: [name for name in everywhere if len(group) == 1 or name in among[workload]]
        for workload, group in by_workload.items()
    }


def experiment_name(specs: Sequence[RunSpec]) -> str:
    """Return the workload, what its variants vary, and other settings: `lstm: XLA off, on · batch size 512`."""
    varied = [name for name in differing_parameters(specs) if name != "workload"]

    def describe(name: str) -> str:
        having = [spec for spec in specs if name in catalog.own_variant(spec)]
        absent = "own" if name == "interpreter" else "none"
        texts = (
            _SWITCH.get(str(spec.variant[name])) or choice_label(spec, name, spec.variant[name]) or absent
            for spec in having
        )
        return f"{parameter_label(having[0], name)} {', '.join(dict.fromkeys(texts))}"

    workloads = ", ".join(dict.fromkeys(plain_line(spec.workload) for spec in specs))
    first, parameters = specs[0], parameters_by_name(specs[0])
    others = [
        _parameter_text(first, name, parameters.get(name))
        for name in first.variant
        if name not in (*varied, *catalog.OUTSIDE_STEP, catalog.SOURCE)
        and is_non_default(first, name, parameters.get(name))
    ]
    labels = [*map(describe, varied), *others]
    return f"{workloads}: {SEPARATOR.join(labels)}" if labels else workloads


def shared_settings(specs: Sequence[RunSpec]) -> str:
    """Return the workload and the notable settings that different variants share; "" without any."""
    names = differing_parameters(specs)
    if not names or "workload" in names:
        return ""
    first = specs[0]
    parameters = parameters_by_name(first)
    shared = [
        name
        for name in first.variant
        if name not in names
        and (name in _IDENTIFYING or is_non_default(first, name, parameters.get(name)))
        and all(catalog.has_parameter(spec, name) for spec in specs)
    ]
    return " · ".join(format_setting(first, name) for name in ("workload", *shared))


def format_setting(spec: RunSpec, name: str, *, in_sentence: bool = False) -> str:
    """Return one parameter with its value in a few words: `NCHW`, `2 GPUs`, `Batch size 64`, `XLA on`."""
    if name == "workload":
        return plain_line(spec.workload)
    value = spec.variant[name]
    parameter = parameters_by_name(spec).get(name)
    label = label_in_sentence(spec, name) if in_sentence else parameter_label(spec, name)
    if name == "gpus":
        return gpus_label(value)
    if name == catalog.SOURCE:
        return f"source {str(value)[:_HASH_SHOWN]}"
    if name == "devices" and value:
        return f"on {', '.join(word.strip()[:_UUID_SHOWN] for word in str(value).split(','))}"
    if parameter is not None and parameter.kind == "path":
        return f"{label} {path_name(str(value))}" if value else f"own {label}"
    if name == "packages" and not value:
        return "no packages" if in_sentence else "No packages"
    if isinstance(value, bool):
        return f"{label} {'on' if value else 'off'}"
    chosen = next((c.label for c in parameter.choices if c.value == value), None) if parameter else None
    unit = parameter.unit if parameter else ""
    return chosen or " ".join(filter(None, (label, plain_line(value_text(value)) or ABSENT, unit)))


def run_command(run: StoredRun) -> str:
    """Return the command line that repeats the run, with every parameter, so that no machine's defaults matter."""
    spec = run.row.spec
    if catalog.is_script(spec.workload):
        options, words = catalog.script_options(run.environment.get(CUSTOM_SOURCE_KEY, ""), spec.variant)
        folder = run.environment.get(CUSTOM_PATH_KEY, "")
        return shlex.join([*PROGRAM.split(), "run", *(("-C", folder) if folder else ()), *options, "--", *words])
    parameters = {name: value for name, value in spec.variant.items() if value != "" and name != catalog.SOURCE}
    settings = (f"{name}={value_text(value)}" for name, value in parameters.items())
    workload = workload_argument(run.environment.get(CUSTOM_PATH_KEY, ""), spec.workload)
    return shlex.join([*PROGRAM.split(), "run", workload, *(word for s in settings for word in ("-s", s))])


def workload_argument(path: str, workload: str) -> str:
    """Return a workload as the command line names it: a custom one by the path of its file, if known.

    A name from another user's file is never read as an option.
    """
    is_file = catalog.is_custom(workload) and PurePath(path).is_absolute()
    word = f"{path}:{workload.rpartition(':')[2]}" if is_file else workload
    return f"./{word}" if word.startswith("-") else word


def label_in_sentence(spec: RunSpec, name: str) -> str:
    """Return the label of a parameter within a sentence: `batch size`, `XLA`; `workload` counts as one."""
    label = parameter_label(spec, name)
    is_name = label in _PROPER_NAMES or label[1:2].isupper()
    return label if is_name else label[:1].lower() + label[1:]


def _is_omittable(spec: RunSpec, name: str, *, among: int) -> bool:
    """Return whether a parameter may be left out of a name. `among` is the number of differing parameters."""
    parameter = parameters_by_name(spec).get(name)
    if parameter is None or is_non_default(spec, name, parameter):
        return False
    return parameter.silent or (among > _MANY and parameter.named == "changed")


_RETURN_TYPE = re.compile(r"^(void|std::enable_if<.*?>::type) ")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::")
_CUTLASS = re.compile(r"::Kernel2?<(cutlass_\w+)")
"""CUTLASS wraps every kernel in one template; the argument is the kernel."""
_EIGEN = "EigenMetaKernel"
_EIGEN_OPERATION = re.compile(r"scalar_(\w+?)_op\b|Tensor(?!Assign|Cwise)([A-Z]\w+?)Op<")
"""Eigen has one kernel for all expressions; its template arguments name the operations."""
_MANGLED = re.compile(r"^_ZN.*?\d([A-Z][a-z]+[A-Z][A-Za-z]{8,}?)(?=I[A-Z]|E)")
"""The class of a mangled C++ name, which begins in capitals: ImplicitGemmConvolution."""
_XMMA_SETTINGS = re.compile(
    r"_warp(group)?size\dx\dx\d|_(execute|kernel|segment|stage\d|strided|aligna\d|alignc\d)(?=_|$)|__5x_\w+$"
)
"""Settings of cuBLAS's and cuDNN's xmma kernels after the tile size."""
_MAX_OPERATIONS = 3
_MAX_ARGUMENTS = 40
"""The most characters of template arguments to show if they distinguish two kernels."""


def short_kernel_names(names: Sequence[str]) -> list[str]:
    """Return a short name for each kernel; equal short names are distinguished by arguments or a number.

    Template arguments are shown only if they distinguish two of these kernels and are few.
    """
    short = list(map(_short_name, names))
    counts = Counter(short)
    detailed = [
        short_name + _template_arguments(name) if counts[short_name] > 1 else short_name
        for short_name, name in zip(short, names, strict=True)
    ]
    repeated, numbers = Counter(detailed), Counter[str]()
    unique = []
    for kernel_name in detailed:
        numbers[kernel_name] += 1
        unique.append(f"{kernel_name} #{numbers[kernel_name]}" if repeated[kernel_name] > 1 else kernel_name)
    return unique


@lru_cache(maxsize=4096)
def _short_name(name: str) -> str:
    if wrapped := _CUTLASS.search(name):
        return wrapped[1]
    if mangled := _MANGLED.match(name):
        return mangled[1]
    if _EIGEN in name:
        operations = dict.fromkeys(scalar or tensor for scalar, tensor in _EIGEN_OPERATION.findall(name))
        return f"Eigen {', '.join(list(operations)[:_MAX_OPERATIONS])}" if operations else _EIGEN
    plain = _ANONYMOUS.sub("", _RETURN_TYPE.sub("", name))
    plain = re.split(r"[<(]", plain, maxsplit=1)[0].rpartition("::")[2]
    return (_XMMA_SETTINGS.sub("", plain) if "_xmma_" in plain else plain) or name


def _template_arguments(name: str) -> str:
    """Return the arguments of a kernel's outermost template if they are few, `<float, 128>`."""
    match = None if _EIGEN in name else re.search(r"<([^<>]*)>", name)
    return f"<{match[1]}>" if match and len(match[1]) <= _MAX_ARGUMENTS else ""
