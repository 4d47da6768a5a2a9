"""The catalog's types: workload, parameter, choice, machine, rule and refusal."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from workloads.machine import Machine
from workloads.protocol import Value, Variant

ParameterKind = Literal["choice", "integer", "number", "switch", "text", "path"]
_KINDS: dict[type, ParameterKind] = {bool: "switch", int: "integer", float: "number", str: "text"}


class UsageError(Exception):
    """A workload, parameter or value that does not exist or is out of range; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a parameter with a list of choices."""

    value: str
    label: str
    help: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a workload: its kind, its limits, and its role in forms, names and comparisons.

    Attributes:
        name: Its name on the command line and in a variant.
        label: Its name on the screen.
        help: One sentence on what it does.
        default: Its default, whose type gives the kind of a parameter without choices.
        cpu_default: The default where `gpus` is 0, if that differs.
        choices: The values of a `choice`.
        limits: The least and the largest number, inclusive.
        unset: The meaning of the least number, or of no text, if it is special.
        common: Always visible in the form; a search finds the others.
        frameworks: The frameworks that read it, all if empty. In others it keeps its default, and no form, name,
            difference or document shows it.
        named: How the short name of a variant shows it: `first` by its value alone, `special` in its own form,
            `changed` by label and value if it is not the default.
        identifies: Named even at its default in a description of what variants share.
        affects_step: Whether its value changes a step; false for parameters of where and how long to measure and what
            to store.
        repeats: Runs that differ only in it are repeats of one variant: the seed, and the length of the measured part.
        scales: May differ between runs that are compared by their number of GPUs.
        silent: Not named at its default if other parameters distinguish the variants.
        same_result: Its values give the same loss and gradients, except for rounding: the equality check compares such
            variants.
    """

    name: str
    label: str
    help: str
    default: Value
    _: KW_ONLY
    cpu_default: Value | None = None
    choices: tuple[Choice, ...] = ()
    limits: tuple[float, float] | None = None
    is_path: bool = False
    unit: str = ""
    unset: str = ""
    common: bool = False
    frameworks: tuple[str, ...] = ()
    named: Literal["first", "special", "changed"] = "changed"
    identifies: bool = False
    affects_step: bool = True
    repeats: bool = False
    scales: bool = False
    silent: bool = False
    same_result: bool = False

    @property
    def kind(self) -> ParameterKind:
        return "choice" if self.choices else "path" if self.is_path else _KINDS[type(self.default)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomFile:
    """The user's file that contains a workload, with `Source.sha256` and the paths of the user's modules in use."""

    path: str
    sha256: str
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A workload: `example` is the word for one item of its training data (`image`, `sequence`).

    `custom_file` is the file of a custom workload.
    """

    name: str
    title: str
    help: str
    example: str
    parameters: tuple[Parameter, ...]
    hidden: bool = False
    custom_file: CustomFile | None = None

    def parameter(self, name: str) -> Parameter:
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise UsageError(unknown_name_message(f"parameter of {self.name}", name, (p.name for p in self.parameters)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the validity table: `broken` returns whether a variant breaks it on a machine, `reason` says why.

    `parameters` are those that a form marks: changing one of them can satisfy the rule. `reason` may use `{name}` of
    any parameter, `{gpu_count}` and `{cpu_count}`. `workloads` is empty if the rule holds for all.
    """

    parameters: tuple[str, ...]
    broken: Callable[[Variant, Machine], bool]
    reason: str
    workloads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a variant cannot run here, in one sentence, and the parameters it depends on."""

    parameters: tuple[str, ...]
    reason: str


def label_from_name(name: str) -> str:
    """Return a label derived from a name: `Hidden units` for `hidden_units`; a script's arguments keep their names."""
    if name.startswith(("{", "$")):
        return name.strip("{$}")
    text = name.replace("_", " ").strip()
    return text[:1].upper() + text[1:] or name


def unknown_name_message(what: str, word: str, names: Iterable[str]) -> str:
    """Return the sentence for an unknown word, with the most similar name.

    `what` is the kind of name expected, such as `workload`.
    """
    choices = list(names)
    near = difflib.get_close_matches(word, choices, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(choices)}."
    return f"There is no {what} called {word!r}. {hint}"
