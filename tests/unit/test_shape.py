"""The shape of the source: a file is a topic, classes and functions are short, no cycles, classes documented."""

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [
    ROOT / "start.py",
    *sorted(path for folder in ("app", "workloads") for path in (ROOT / folder).rglob("*.py")),
]
TREES = {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}

MODULE_LINES = 600
LEAST_MODULE_LINES = 60
CLASS_LINES = 400
FUNCTION_LINES = 80

SMALL_MODULES = {
    "app/errors.py": "raised by every layer, and imports none",
    "app/runs/standby_setting.py": "asked before the window's first paint, which waits for no worker",
    "app/telemetry/messages.py": "message types of the sampler's process, imported on both sides",
    "workloads/build.py": "the one place that leads from a spec to a backend",
    "workloads/cifar10_copy.py": "the rules need it, and no package: what reads the copy needs numpy",
    "workloads/machine.py": "all that the sampler needs of the workloads, whose tables take a third of its imports",
}
"""Modules under the least size, each with its reason: a file is a topic, and a helper belongs to its only user."""

BUDGET_LINES, BUDGET_MODULES = 78_974, 318
"""Lines of app and workloads, blank ones and docstrings included, and modules that are not empty. Both only go down; a
change that needs more raises them in a commit of its own, which says why."""
BUDGET_SLACK_LINES, BUDGET_SLACK_MODULES = 400, 4
"""So much below them they are lowered."""

LONE_MODULE_LINES = 150
LONE_MODULES = {
    "app.gui.stored_screens": "two screens and the ways to them; the window's other parts fill a module",
    "workloads.pytorch.stored_images": "the way of one kind of data; a step takes any",
    "workloads.tensorflow.gradients": "imported by jobs that compare",
    "workloads.tensorflow.evidence.custom": "of users' models alone, as cnn/evidence.py is of images",
    "workloads.tensorflow.evidence.graph": "of TensorFlow's graphs alone",
}
"""Modules of fewer lines that one module alone imports, of its own folder: each says why it is not a part of that."""

PROTOCOLS = {
    "Backend": "the seam to a framework",
    "Batches": "generators of each kind of data",
    "CurveSource": "live, stored, and Monitor's curves",
    "EvidenceCollector": "the seam to a framework",
    "Layer": "the layers of cnn/layers.py",
    "Model": "the models of each workload",
    "Optimizer": "Adam, Momentum",
    "Paintable": "curves, bands, labels and marks",
    "Reversal": "every edit that can be undone",
    "RunJob": "a function with keywords, here and on a host",
    "Sampler": "SamplerProcess, RemoteSampler",
    "Sink": "of the store, the window, the command line, the queue",
    "Stack": "the implementations of recurrent layers",
    "Worker": "LocalWorker, and stand-ins of tests",
}
"""Each Protocol with its implementations, or why it has one."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Named = Function | ast.ClassDef


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Every node of these kinds with `path:line` before it."""
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                yield f"{name}:{getattr(node, 'lineno', 0)}", node


def lines(node: ast.AST) -> int:
    """How many lines a definition takes, without its decorators."""
    assert isinstance(node, Named)
    return (node.end_lineno or node.lineno) - node.lineno + 1


def public(body: list[ast.stmt]) -> Iterator[Named]:
    """The public classes, functions and methods of a module or class body."""
    for node in body:
        if isinstance(node, Named) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)


def imports_of(name: str, known: set[str]) -> set[str]:
    """The known modules that a module imports when it is imported itself."""
    found: set[str] = set()
    for node in TREES[name].body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & known


def module_sizes() -> dict[str, int]:
    """The lines of every module but the empty packages."""
    sizes = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    return {name: size for name, size in sizes.items() if size}


def importers() -> dict[str, set[str]]:
    """The modules that import each module, wherever in their source."""
    modules = {name.removesuffix(".py").replace("/", "."): name for name in TREES}
    found: dict[str, set[str]] = {module: set() for module in modules}
    for module, name in modules.items():
        for node in ast.walk(TREES[name]):
            if isinstance(node, ast.ImportFrom) and node.module:
                for named in {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & modules.keys():
                    found[named].add(module)
    return found


def test_the_program_grows_only_where_a_commit_says_so() -> None:
    sizes = [size for name, size in module_sizes().items() if name != "start.py"]
    assert BUDGET_LINES - BUDGET_SLACK_LINES < sum(sizes) <= BUDGET_LINES
    assert BUDGET_MODULES - BUDGET_SLACK_MODULES < len(sizes) <= BUDGET_MODULES


def test_a_small_module_with_one_importer_beside_it_says_why() -> None:
    sizes = {name.removesuffix(".py").replace("/", "."): size for name, size in module_sizes().items()}
    single = {
        module
        for module, users in importers().items()
        if sizes.get(module, LONE_MODULE_LINES) < LONE_MODULE_LINES
        and len(users) == 1
        and users.pop().rpartition(".")[0] == module.rpartition(".")[0]
    }
    assert single == set(LONE_MODULES)


def test_a_protocol_names_its_implementations() -> None:
    protocols = {
        node.name
        for _, node in nodes(ast.ClassDef)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).startswith("Protocol") for base in node.bases)
    }
    assert protocols == set(PROTOCOLS)


def test_modules_are_short() -> None:
    assert {name: size for name, size in module_sizes().items() if size > MODULE_LINES} == {}


def test_modules_are_topics_and_no_crumbs() -> None:
    small = {name for name, size in module_sizes().items() if size < LEAST_MODULE_LINES}
    assert small == set(SMALL_MODULES), "merge it into its user, or list it with the reason"


def test_classes_are_short() -> None:
    sizes = {location: lines(node) for location, node in nodes(ast.ClassDef)}
    assert {location: size for location, size in sizes.items() if size > CLASS_LINES} == {}


def test_functions_are_short() -> None:
    sizes = {location: lines(node) for location, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)}
    assert {location: size for location, size in sizes.items() if size > FUNCTION_LINES} == {}


def test_no_module_imports_itself_through_others() -> None:
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in TREES}
    graph = {module: imports_of(name, set(modules)) - {module} for module, name in modules.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


def test_no_thread_keeps_the_program_from_ending() -> None:
    calls = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "threading.Thread" and node.keywords
    ]
    assert len(calls) > 10
    assert [call for call in calls if "daemon=True" not in call] == []


def test_modules_and_classes_say_what_they_are() -> None:
    silent = [name for name, tree in TREES.items() if tree.body and not ast.get_docstring(tree)]
    for name, tree in TREES.items():
        silent += [
            f"{name}:{node.lineno} {node.name}"
            for node in public(tree.body)
            if isinstance(node, ast.ClassDef) and not ast.get_docstring(node)
        ]
    assert silent == []


def test_packages_are_empty() -> None:
    full = [path.relative_to(ROOT).as_posix() for path in SOURCES if path.name == "__init__.py" and path.stat().st_size]
    assert full == []
