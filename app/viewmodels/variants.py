"""Several variants told apart: what differs between them, and what they share."""

import shlex
from collections import Counter
from collections.abc import Sequence

from app.facts import OWN_PATH
from app.records import StoredRun
from app.viewmodels import naming
from app.viewmodels.units import ABSENT
from workloads import catalog
from workloads.protocol import RunSpec, Value

_UUID_SHOWN = len("GPU-0f9e5287")
_HASH_SHOWN = 8
_NAMES = ("Python",)
_NO_STEP = frozenset({"devices"}) | catalog.AROUND_THE_STEP
"""On which card and how long is measured: nothing that makes a step another one."""
_TELLING = ("implementation", "layout", "gpus", "batch_size", "precision")


def differing(specs: Sequence[RunSpec]) -> list[str]:
    """Parameters that differ among the specs that have them, in their order; `workload` first if it differs.

    What an older run does not name counts with its default.
    """
    specs = [catalog.with_defaults(spec) for spec in specs]
    names = dict.fromkeys(name for spec in specs for name in spec.variant)
    found = [name for name in names if len({str(s.variant[name]) for s in specs if name in s.variant}) > 1]
    return ["workload", *found] if len({spec.workload for spec in specs}) > 1 else found


def variant_names(specs: Sequence[RunSpec], *, in_sentence: bool = False) -> list[str]:
    """For each variant what tells it from the others, `NCHW · Batch size 64`; its short name where nothing does.

    Which cards and how long was measured is named only of those that nothing else tells apart. Of three or more, a
    switch or way to exchange gradients at its default is named only where some variant has no other name. With
    `in_sentence` parameters are written as within a sentence.
    """
    names = differing(specs)
    specs = [catalog.with_defaults(spec) for spec in specs]
    alike = Counter(_step(spec) for spec in specs)
    told = [
        [
            name
            for name in names
            if name == "workload" or (name in spec.variant and (name not in _NO_STEP or alike[_step(spec)] > 1))
        ]
        for spec in specs
    ]
    brief = [
        [name for name in own if not _goes_without_saying(spec, name)] for spec, own in zip(specs, told, strict=True)
    ]
    return [
        " · ".join(setting(spec, name, in_sentence=in_sentence) for name in own) or naming.short_name(spec)
        for spec, own in zip(specs, brief if len(specs) > 2 and all(brief) else told, strict=True)
    ]


def _step(spec: RunSpec) -> tuple[object, ...]:
    """What makes a step of the variant what it is, on whatever card and however long it is measured."""
    return (spec.workload, *sorted(setting for setting in spec.variant.items() if setting[0] not in _NO_STEP))


def shared_settings(specs: Sequence[RunSpec]) -> str:
    """The workload and the telling settings that differing variants share; "" where there is nothing to say."""
    names = differing(specs)
    if not names or "workload" in names:
        return ""
    first = catalog.with_defaults(specs[0])
    known = naming.parameters_of(first)
    alike = [
        name
        for name in first.variant
        if name not in names and (name in _TELLING or naming.is_unusual(first, name, known.get(name)))
    ]
    return " · ".join([first.workload, *(setting(first, name) for name in alike)])


def setting(spec: RunSpec, name: str, *, in_sentence: bool = False) -> str:
    """One parameter with its value in a few words: `NCHW`, `2 GPUs`, `Batch size 64`, `XLA on`.

    With `in_sentence` it is `batch size 64`; what is a name, as `XLA`, stays as it is.
    """
    if name == "workload":
        return spec.workload
    value = spec.variant[name]
    parameter = naming.parameters_of(spec).get(name)
    label = _label(naming.parameter_label(spec, name), in_sentence=in_sentence)
    if name == "gpus":
        return naming.gpus_words(value)
    if name == catalog.SOURCE:
        return f"source {str(value)[:_HASH_SHOWN]}"
    if name == "devices" and value:
        return f"on {', '.join(word.strip()[:_UUID_SHOWN] for word in str(value).split(','))}"
    if parameter is not None and parameter.kind == "path":
        return f"{label} {naming.path_name(str(value))}" if value else f"own {label}"
    if isinstance(value, bool):
        return f"{label} {'on' if value else 'off'}"
    chosen = next((c.label for c in parameter.choices if c.value == value), None) if parameter else None
    return chosen or " ".join([label, _with_unit(parameter, value)])


def run_command(run: StoredRun) -> str:
    """The command line that runs its variant again: every parameter, so that no machine's defaults matter."""
    spec = run.row.spec
    given = {name: value for name, value in spec.variant.items() if value != "" and name != catalog.SOURCE}
    settings = (f"{name}={naming.value_text(value)}" for name, value in given.items())
    workload = own_word(run.environment.get(OWN_PATH, ""), spec.workload)
    return shlex.join(["python", "-m", "app", "run", workload, *(word for s in settings for word in ("-s", s))])


def own_word(path: str, workload: str) -> str:
    """A workload as the command line names it: one of the user's own with the path of its file, if that is known."""
    return f"{path}:{workload.rpartition(':')[2]}" if path else workload


def _label(label: str, *, in_sentence: bool) -> str:
    is_name = label in _NAMES or label[1:2].isupper()
    return label if is_name or not in_sentence else label[:1].lower() + label[1:]


def _with_unit(parameter: catalog.Parameter | None, value: Value) -> str:
    text = naming.value_text(value) or ABSENT
    return f"{text} {parameter.unit}" if parameter and parameter.unit else text


def _goes_without_saying(spec: RunSpec, name: str) -> bool:
    parameter = naming.parameters_of(spec).get(name)
    seldom = name == "all_reduce" or (parameter is not None and parameter.kind == "switch")
    return seldom and not naming.is_unusual(spec, name, parameter)
