"""Users' commands as workloads: names, placeholders and parameters, and the words of a variant.

A variant has a value of `{name}` for each placeholder, of `$NAME` for each environment variable, and of `revision` for
the code; so none of them collides with the program's own parameters.
"""

import contextlib
import itertools
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from workloads.interpreter import find_python
from workloads.parameters import common_parameters
from workloads.protocol import Command, Variant
from workloads.schema import Parameter, UsageError, Workload

_PREFIX = "script:"
REVISION = "revision"
"""The key for the commit of the user's repository in a variant: its name, `@`, and its hash."""
VARIABLE = "$"
"""The prefix of keys for environment variables; the variable's name follows."""

_PLACEHOLDER = re.compile(r"\{(?:(?P<brace>\{)|(?P<name>[A-Za-z_]\w*)(?:(?P<is_switch>\?)(?P<text>[^{}]*))?\}|)")
_ARITHMETIC = re.compile(r"(?!.*\*\s*\*)[\d\s.+*/()-]+")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*")
_RANKS = re.compile(r"--(?:nproc[-_]per[-_]node|num[-_]processes)[= ](\d+)")
_OWN = ("gpus", "devices", "seconds", "warmup_steps", "evidence", "interpreter", "packages")
_FIRST_STEP_LIMIT = Parameter(
    "first_step_limit",
    "Wait for a step",
    "Longest wait for a step.",
    300,
    limits=(1, 86_400),
    unit="s",
    affects_step=False,
)


def is_script(workload: str) -> bool:
    return workload.startswith(_PREFIX)


def script_name(words: tuple[str, ...]) -> str:
    """Return the stored name of a command: `script:train.py`, or `script:train` for `-m pkg.train`."""
    modules = [word.rpartition(".")[2] for flag, word in itertools.pairwise(words) if flag == "-m"]
    word = next(iter([*(word for word in words if word.endswith((".py", ".sh"))), *modules, words[0]]))
    return f"{_PREFIX}{PurePath(word).name}"


def script_workload(name: str) -> Workload:
    """Return the workload of that name, with the parameters that the program can set for any command."""
    return Workload(
        name=name,
        title=f"{name.removeprefix(_PREFIX)} (a command)",
        help="Your own training script, unmodified; its steps are measured.",
        example="example",
        parameters=(
            *(
                replace(parameter, default=10, cpu_default=None) if parameter.name == "warmup_steps" else parameter
                for parameter in common_parameters(1, 1, "example", ())
                if parameter.name in _OWN
            ),
            _FIRST_STEP_LIMIT,
        ),
    )


def command_names(command: Command) -> dict[str, bool]:
    """Return the placeholders of a command, each with whether all its uses are switches.

    Raises:
        UsageError: A brace is neither doubled nor part of a placeholder.
    """
    names: dict[str, bool] = {}
    for word in (*command.words, command.examples):
        for match in _PLACEHOLDER.finditer(word):
            if name := match["name"]:
                names[name] = names.get(name, True) and bool(match["is_switch"])
            elif not match["brace"]:
                raise UsageError(f"{word!r} has a brace that begins no {{name}} or {{name?TEXT}}; write {{{{ for one.")
    return names


def placeholder_key(name: str) -> str:
    """Return the key of a placeholder's value in a variant, which differs from the program's own parameters."""
    return name if name in _OWN else f"{{{name}}}"


def fill_command(command: Command, variant: Variant) -> list[str]:
    """Return the words that a variant executes.

    Values are never split. A switch's text is split if it is the whole word; if the switch is off, that word is left
    out.
    """
    words: list[str] = []
    for word in command.words:
        filled, match = _fill(word, variant), _PLACEHOLDER.fullmatch(word)
        words += shlex.split(filled) if match and match["is_switch"] else [filled]
    return words


def _fill(word: str, variant: Variant) -> str:
    def value_of(match: re.Match[str]) -> str:
        if match["brace"]:
            return "{"
        value = variant.get(placeholder_key(match["name"]))
        if value is None:
            raise UsageError(f"{{{match['name']}}} has no value in this variant.")
        return ((match["text"] or "") if value else "") if match["is_switch"] else str(value)

    return _PLACEHOLDER.sub(value_of, word)


def variables(variant: Variant) -> dict[str, str]:
    """Return the environment variables that a variant sets; "" means not set."""
    return {key.removeprefix(VARIABLE): str(value) for key, value in variant.items() if key.startswith(VARIABLE)}


def examples_per_step(command: Command, variant: Variant) -> int:
    """Return the value of the expression for the examples of a step; 0 without one. Raises `UsageError`."""
    text = _fill(command.examples, variant)
    if not text:
        return 0
    value = 0.0
    with contextlib.suppress(SyntaxError, ZeroDivisionError):
        # Neither names nor powers, so it cannot take long.
        value = eval(text) if _ARITHMETIC.fullmatch(text) else 0.0  # noqa: S307
    if value < 1 or value != int(value):
        raise UsageError(f"The examples of a step are a formula with + - * / ( ) and a whole result, not {text!r}.")
    return int(value)


def rank_count(words: Sequence[str]) -> int:
    """Return how many ranks the command asks torchrun or accelerate to start; 0 if not stated."""
    match = _RANKS.search(" ".join(words))
    return int(match[1]) if match else 0


def names_python(word: str) -> bool:
    """Return whether the first word of a command is a Python, which another may replace."""
    return _PYTHON.fullmatch(word) is not None


def command_line(command: Command, variant: Variant) -> str:
    """Return a variant's command line for a shell, preceded by its environment variables."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in variables(variant).items() if value]
    words, python = fill_command(command, variant), str(variant.get("interpreter", ""))
    if packages := str(variant.get("packages", "")).split():
        with_packages = (f"--with={package}" for package in packages)
        words[:1] = ["uv", "run", *(("--python", python) if python else ()), *with_packages, "python"]
    elif python:
        words[0] = str(find_python(python) or python)
    return " ".join((*settings, shlex.join(words)))


def describe_command(command: Command) -> str:
    """Return a command and its options as text to store and display."""
    options = [
        *(("--loop", command.loop) if command.loop else ()),
        *(("--examples", command.examples) if command.examples else ()),
        *(word for name in command.links for word in ("--link", name)),
    ]
    return shlex.join((*options, "--", *command.words))


def script_options(described: str, variant: Variant) -> tuple[list[str], list[str]]:
    """Return the options that run a variant of a described command again, and the command's words."""
    described_command = shlex.split(described.partition("\n")[0])
    begin = described_command.index("--") if "--" in described_command else 0
    options, words = described_command[:begin], described_command[begin + 1 :]
    for key, value in variant.items():
        text = ("on" if value else "off") if isinstance(value, bool) else str(value)
        if key == REVISION:
            options += ["--rev", text.rpartition("@")[2]]
        elif key.startswith(VARIABLE):
            options += ["-e", f"{key.removeprefix(VARIABLE)}={text}"]
        elif key != "source" and text:
            options += ["-s", f"{key.strip('{}')}={text}"]
    return options, words
