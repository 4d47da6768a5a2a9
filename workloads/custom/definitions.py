"""Creates catalog entries of custom workloads: the function's parameters and those of every workload.

A file whose text shows that it cannot contain a workload is refused before any of it is run.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath

from workloads.framework import FRAMEWORKS, imported_frameworks
from workloads.job_protocol import CustomParameter, CustomWorkload
from workloads.parameters import FRAMEWORK_CHOICE, FRAMEWORK_COMPUTATION, common_parameters
from workloads.schema import Choice, CustomFile, Parameter, Workload, label_from_name

SOURCE = "source"
"""The key for the state of the user's code in a variant: `Source.sha256`."""

LAYOUT_PARAMETERS = ("layout", "data_format")
"""Names of a custom parameter that requests a layout, if its value is one."""

_DEFAULT_BATCH_SIZE = 32
BATCH_SIZE = "batch_size"
"""The parameter that makes a function a workload."""
PASSED_PARAMETERS = (BATCH_SIZE, "seed")
"""Parameters that the program passes to a function that has them."""


def is_custom(workload: str) -> bool:
    return ".py:" in workload


def custom_workload(described: CustomWorkload, file: CustomFile) -> Workload:
    return Workload(
        name=f"{PurePath(file.path).name}:{described.name}",
        title=f"{described.name} · {PurePath(file.path).name}",
        help=described.help,
        example="example",
        parameters=(
            *map(_custom_parameter, described.parameters),
            *_program_parameters(described.batch_size, described.framework),
        ),
        custom_file=file,
    )


def custom_workload_by_name(workload: str) -> Workload:
    """Return a custom workload as far as its name reveals it: with the parameters common to all."""
    return Workload(
        name=workload, title=workload, help="", example="example", parameters=_program_parameters(_DEFAULT_BATCH_SIZE)
    )


def reserved_names() -> frozenset[str]:
    """Return the names that a custom parameter cannot have, because every workload has parameters of these names."""
    return frozenset((SOURCE, *(parameter.name for parameter in _program_parameters(_DEFAULT_BATCH_SIZE)))) - frozenset(
        PASSED_PARAMETERS
    )


def _program_parameters(batch_size: int, framework: str = "") -> tuple[Parameter, ...]:
    """Return the common parameters; a known framework is no longer a choice."""
    choice = FRAMEWORK_CHOICE
    if framework:
        choices = tuple(option for option in choice.choices if option.value == framework)
        choice = replace(choice, default=framework, choices=choices)
    return choice, *FRAMEWORK_COMPUTATION, *common_parameters(batch_size, batch_size, "example", ())


def _custom_parameter(parameter: CustomParameter) -> Parameter:
    return Parameter(
        parameter.name,
        label_from_name(parameter.name),
        parameter.help,
        parameter.default,
        choices=tuple(Choice(word, word) for word in parameter.choices),
        silent=parameter.kind == "switch",
        same_result=True,
    )


NO_WORKLOAD = (
    "{file}: none of its functions is a workload. Write one such as `def mlp(batch_size=32)`, each parameter with a "
    "default, that returns (model, loss, batch), as in docs/custom-workloads.md. A training script is measured as it "
    "is by its command: run -- python {file} (docs/your-script.md)."
)
_COMPUTES = (
    "{file}:{line}: `{call}` runs whenever the file is read, so the file was not run. Put it below "
    "`if __name__ == '__main__':`; what is measured is a function that returns (model, loss, batch), as in "
    "docs/custom-workloads.md."
)
_TRAINING_CALLS = frozenset(
    (
        *("fit", "fit_generator", "train_on_batch", "evaluate", "predict", "backward", "step", "minimize"),
        *("apply_gradients", "init_process_group", "parse_args", "parse_known_args", "parse_args_into_dataclasses"),
        *("fire.Fire", "app.run", "typer.run", "tyro.cli", "mp.spawn", "multiprocessing.spawn", "wandb.init"),
    )
)
"""What training scripts call at top level and files of workloads do not: the method, or module and function."""
_MAIN_GUARD = re.compile(r"__name__ == '__main__'|'__main__' == __name__")
_Functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def refusal_of_text(path: str, text: str) -> str | None:
    """Return in one sentence why a file cannot contain a workload; None if it may.

    Nothing is run. A text that this Python cannot parse passes, because another Python may read it.
    """
    file = PurePath(path).name
    try:
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
    except (SyntaxError, ValueError, RecursionError):
        return None
    imported = imported_frameworks(text)
    if len(imported) > 1:
        (earlier, _), (later, line), *_ = ((FRAMEWORKS[key].name, line) for key, line in imported.items())
        return (
            f"{file}:{line}: the file imports {later} as well as {earlier}; keep the workloads of each in a separate "
            f"file."
        )
    if "jax" in imported:
        line = imported["jax"]
        return f"{file}:{line}: custom workloads cannot use JAX yet; write the file in Keras or PyTorch."
    functions = [node for node in nodes if isinstance(node, _Functions)]
    if not any(map(_may_be_workload, functions)):
        return NO_WORKLOAD.format(file=file)
    if (call := _training_call(tree, nodes)) is not None:
        return _COMPUTES.format(file=file, line=call.lineno, call=ast.unparse(call)[:60])
    return None


def _may_be_workload(function: _Functions) -> bool:
    """Return whether a function has a `batch_size`, a default for every parameter, and neither async nor yield."""
    arguments = function.args
    names = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    defaults = list(filter(None, (*arguments.defaults, *arguments.kw_defaults)))
    if BATCH_SIZE not in names or len(defaults) < len(names) or arguments.vararg or arguments.kwarg:
        return False
    pending: list[ast.AST] = [*function.body] if isinstance(function.body, list) else [function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return False
        pending += () if isinstance(node, _Functions) else ast.iter_child_nodes(node)
    return not isinstance(function, ast.AsyncFunctionDef)


def _training_call(tree: ast.Module, nodes: Iterable[ast.AST]) -> ast.expr | None:
    """Return the first training call that reading a file would execute, including calls in its functions."""
    bodies: dict[str, list[ast.stmt]] = {}
    imported: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                owner = node.name if isinstance(node, ast.ClassDef) else None
                name = child.name if owner is None else owner if child.name == "__init__" else f".{child.name}"
                bodies.setdefault(name, []).extend(child.body)
    pending: list[ast.AST] = [*tree.body]
    computing: list[ast.expr] = []
    while pending:
        node = pending.pop()
        if isinstance(node, _Functions):
            pending += getattr(node, "decorator_list", ())
            continue
        if isinstance(node, ast.If) and _MAIN_GUARD.search(ast.unparse(node.test)):
            pending += node.orelse
            continue
        if isinstance(node, ast.Call):
            words = ast.unparse(node.func)
            owner, _, method = words.rpartition(".")
            trains = (words in ("main", "train") and words in bodies) or (
                method == "train" and "trainer" in owner.lower()
            )
            pending += bodies.pop(words, ())
            pending += bodies.pop(f".{method}", ()) if words.partition(".")[0] not in imported else ()
            spellings = (method, ".".join(words.split(".")[-2:]))
            if trains or (owner and not _TRAINING_CALLS.isdisjoint(spellings)):
                computing.append(node)
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.argv":
            computing.append(node)
        pending += ast.iter_child_nodes(node)
    return min(computing, key=lambda node: node.lineno, default=None)
