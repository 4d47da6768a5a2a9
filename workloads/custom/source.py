"""Loads a user's file as a module, and describes its workloads by the signatures and docstrings of its functions.

User code that the file imports or executes is part of the variant: the process that describes the file lists it, and a
worker checks that it has the same code.
"""

import contextlib
import functools
import importlib
import inspect
import io
import linecache
import math
import os
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Literal, get_args, get_origin

import msgspec

from workloads.custom.definitions import BATCH_SIZE, NO_WORKLOAD, PASSED_PARAMETERS, reserved_names
from workloads.errors import CustomWorkloadError, error_location, file_name, function_location
from workloads.framework import framework_of_file
from workloads.job_protocol import CustomParameter, CustomParameterKind, CustomWorkload, FileDescription
from workloads.protocol import MOST_MODULES, MOST_TEXTS, Source, UserModule, Value, plain, sentence

_MODULE = "own_workload"
_ENVIRONMENT_FOLDERS = {"site-packages", "dist-packages", "archive-v0"}
"""Folders of installed packages; in the last one, its cache, uv may link an environment's packages."""
_INSTALLED = tuple(
    f"{os.path.realpath(folder)}{os.sep}"
    for folder in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), Path(__file__).parents[1])
)
_GENERATED = ("__autograph_generated_file", "torchinductor_")
"""Prefixes of files and folders that TensorFlow and Inductor generate and import, each time under another name."""
_CACHES = {"TRITON_CACHE_DIR": "~/.triton", "TORCHINDUCTOR_CACHE_DIR": "", "XDG_CACHE_HOME": "~/.cache"}
"""Where compilers keep generated files: the environment variable of the folder, and the default."""
_loaded_before: set[str] = set()
"""Modules that this process loaded before the user's file."""
_paths_before: set[str] = set()
"""Folders in which Python searched for modules before the user's file."""


def load_module(source: Source) -> ModuleType:
    """Run the file's text as a module; raises whatever it raises, and `CustomWorkloadError` if it ends the program."""
    # `import tensorflow, triton` ends in a segmentation fault (TensorFlow 2.21, Triton 3.7); the other order works.
    if framework_of_file(source.text) != "pytorch" or "tensorflow" in sys.modules:
        sys.modules.setdefault("triton", None)  # type: ignore[arg-type] # Python's way to say that there is none
    else:
        with contextlib.suppress(ImportError):  # PyTorch's optimizers import it as well
            importlib.import_module("triton")
    module = ModuleType(_MODULE)
    module.__file__ = source.path
    _loaded_before.clear()
    _loaded_before.update(sys.modules)
    _paths_before.clear()
    _paths_before.update(sys.path)
    sys.modules[_MODULE] = module
    # So tracebacks show the lines that ran, even if the file has changed since.
    linecache.cache[source.path] = (len(source.text), None, source.text.splitlines(keepends=True), source.path)
    # The worker's stdin is its control channel: a file that reads it would consume the stop request.
    sys.stdin = io.StringIO()
    try:
        exec(compile(source.text, source.path, "exec"), module.__dict__)  # noqa: S102 - the user chose this file
    except SystemExit as error:
        raise CustomWorkloadError(
            f"{error_location(error, source)}: the file ends the program when it is read."
        ) from error
    finally:
        check_keras(source)
    return module


def check_keras(source: Source) -> None:
    """Raise `CustomWorkloadError` if the file uses Keras with another framework than TensorFlow."""
    backend = os.environ.get("KERAS_BACKEND")
    if framework_of_file(source.text) == "tensorflow" and backend not in (None, "tensorflow"):
        lines = source.text.replace("'", '"').splitlines()
        numbers = [f":{number}" for number, line in enumerate(lines, 1) if f'"{backend}"' in line]
        raise CustomWorkloadError(
            f"{file_name(source.path)}{''.join(numbers[:1])}: KERAS_BACKEND is set to {backend!r}, and "
            "Keras runs on TensorFlow here; set it to 'tensorflow', or leave the line out."
        )


@functools.cache
def _executed_files() -> set[str]:
    """Return a set to which this process adds the code files that it opens or executes from now on.

    Workers do not call it, because the hook cannot be removed and would slow their measured steps.
    """
    files: set[str] = set()

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "exec":
            files.add(arguments[0].co_filename)
        elif event == "import" and arguments[1]:
            files.add(arguments[1])
        elif event == "open" and str(arguments[0]).endswith(".py") and arguments[1] in ("r", "rb"):
            files.add(str(arguments[0]))

    sys.addaudithook(note)
    return files


def _user_modules(source: Source, files: Iterable[str] = ()) -> tuple[UserModule, ...]:
    """Return the user's modules among these files and the modules loaded since the user's file, as they are now."""
    packages = {name.partition(".")[0] for name in _loaded_before}
    new = sorted((name, path) for name, path in _loaded_files().items() if name not in _loaded_before)
    names = {os.path.realpath(path): name for name, path in new}
    # A package that was there before, such as a framework, imports modules for itself. What it generates and loads by a
    # path, as Inductor does, is not named like its file.
    loaded = {
        path
        for path, name in names.items()
        if name.partition(".")[0] not in packages
        and name.rpartition(".")[2] in (Path(path).name.partition(".")[0], Path(path).parent.name)
    }
    paths = sorted(loaded.union(map(os.path.realpath, files)) - {os.path.realpath(source.path)})
    modules = (UserModule.read(names.get(path, Path(path).name), path) for path in paths if _is_user_file(path))
    return tuple(module for module in modules if module.sha256)


def _loaded_files() -> dict[str, str]:
    """Return the file of each loaded module, without triggering lazy ones."""
    files = {name: getattr(module, "__dict__", {}).get("__file__") for name, module in list(sys.modules.items())}
    return {name: path for name, path in files.items() if isinstance(path, str)}


def _is_user_file(path: str) -> bool:
    folders = (part in _ENVIRONMENT_FOLDERS or part.startswith(_GENERATED) for part in Path(path).parts)
    top = max((folder for folder in sys.path if path.startswith(f"{folder}{os.sep}")), key=len, default="")
    # Package managers create such files in their folders.
    if path.startswith(_INSTALLED) or any(folders) or (top and any(Path(top).glob("*.dist-info"))):
        return False
    caches = filter(None, (*_CACHES.values(), *map(os.environ.get, _CACHES)))
    return not any(path.startswith(f"{os.path.realpath(os.path.expanduser(cache))}{os.sep}") for cache in caches)  # noqa: PTH111


def check_modules(source: Source) -> None:
    """Raise `CustomWorkloadError` unless this process has the user's modules that the variant names."""
    loaded = _loaded_files()
    paths = {module: os.path.realpath(loaded.get(module.name, module.path)) for module in source.modules}
    for module, path in paths.items():
        if UserModule.read(module.name, path).sha256 != module.sha256:
            raise CustomWorkloadError(
                f"{file_name(source.path)}: {path} is not what it was when the file was read, so this is another "
                f"variant; start it again from the file."
            )
    # What a library imports late, for example from a folder of PYTHONPATH, is not part of a variant.
    near = {str(Path(path).parent) for path in (source.path, *paths.values())} | (set(sys.path) - _paths_before)
    roots = tuple(f"{os.path.realpath(folder)}{os.sep}" for folder in near)
    late = (module for module in _user_modules(source) if module.path not in paths.values())
    unnamed = next((module for module in late if module.path.startswith(roots)), None)
    if unnamed is not None:
        raise CustomWorkloadError(
            f"{file_name(source.path)}: {unnamed.path} was not imported when the file was read, so no variant names "
            f"it; write `import {unnamed.name}` at the top of the file, or save it changed, and it is read again."
        )


def _public_functions(module: ModuleType) -> dict[str, FunctionType]:
    """Return the public functions that the file itself defines, each by the first name that the file gives it."""
    names: dict[FunctionType, str] = {}
    for name, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == _MODULE and not name.startswith("_"):
            names.setdefault(value, name)
    return {name: function for function, name in names.items()}


def find_function(name: str, module: ModuleType, source: Source) -> FunctionType:
    """Return a function of the file.

    Raises:
        CustomWorkloadError: No function has that name; the message lists those of the file.
    """
    functions = _public_functions(module)
    if name not in functions:
        available = f"It has {', '.join(functions)}." if functions else "It defines none."
        raise CustomWorkloadError(f"{file_name(source.path)}: There is no function {name} in it. {available}")
    return functions[name]


_KIND_BY_TYPE: dict[type, CustomParameterKind] = {bool: "switch", int: "integer", float: "number", str: "text"}
_MOST_HELP_CHARS = 1_000
_MOST_TEXT_CHARS = 4_000
_MOST_BATCH_SIZE = 10**12
_VARIABLE_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def describe_file(source: Source, name: str = "") -> FileDescription:
    """Describe the workload of that name, or every workload of the file.

    Raises `CustomWorkloadError`, and whatever the file raises.
    """
    files = _executed_files()
    files.clear()
    module = load_module(source)
    modules = _user_modules(source, tuple(files))
    if len(modules) > MOST_MODULES:
        raise CustomWorkloadError(
            f"{file_name(source.path)}: It imports {len(modules):,} modules that are not installed, and "
            f"{MOST_MODULES:,} at most can be part of a variant; install their package without `-e`."
        )
    workloads: list[CustomWorkload] = []
    left_out: list[CustomWorkloadError] = []
    names = [key for key, function in _public_functions(module).items() if _is_workload(function)]
    for key in [name] if name else names:
        try:
            workloads.append(_describe_function(key, find_function(key, module, source)))
        except CustomWorkloadError as error:
            left_out.append(error)
    if not workloads:
        raise (*left_out, CustomWorkloadError(NO_WORKLOAD.format(file=file_name(source.path))))[0]
    framework = framework_of_file(source.text)
    return FileDescription(
        workloads=tuple(msgspec.structs.replace(workload, framework=framework) for workload in workloads),
        source=msgspec.structs.replace(source, modules=modules),
        left_out=tuple(sentence(str(error)) for error in left_out[:MOST_TEXTS]),
    )


def _describe_function(name: str, function: FunctionType) -> CustomWorkload:
    """Describe one function as a workload; raises `CustomWorkloadError`."""
    location, parameters = function_location(function), _parameters(function)
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(function) for is_kind in kinds):
        raise CustomWorkloadError(
            f"{location}: {name} has async or yield in it; a workload is a plain function that returns "
            "(model, loss, batch)."
        )
    if not _is_workload(function):
        raise CustomWorkloadError(
            f"{location}: {name} needs a parameter such as batch_size: int = 32, "
            "how many examples its batch function gives."
        )
    size = parameters[BATCH_SIZE].default
    if not (isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _MOST_BATCH_SIZE):
        raise CustomWorkloadError(
            f"{location}: batch_size of {name} is {size!r:.60}, and has to be a whole number from 1."
        )
    docstring = inspect.getdoc(function) or ""
    return CustomWorkload(
        name=name,
        help=plain(docstring.partition("\n")[0][:_MOST_HELP_CHARS]),
        batch_size=size,
        parameters=tuple(
            _describe_parameter(p, docstring, location) for p in parameters.values() if p.name not in PASSED_PARAMETERS
        ),
    )


def _is_workload(function: FunctionType) -> bool:
    """Return whether a function is intended as a workload, even if its `batch_size` is not a number."""
    parameter = _parameters(function).get(BATCH_SIZE)
    return parameter is not None and parameter.default is not inspect.Parameter.empty


def _parameters(function: FunctionType) -> dict[str, inspect.Parameter]:
    """Return the parameters by name; an annotation that only a type checker can evaluate stays a text."""
    parameters = dict(inspect.signature(function).parameters)
    for name, parameter in parameters.items():
        if isinstance(parameter.annotation, str):
            with contextlib.suppress(Exception):
                annotation = eval(parameter.annotation, inspect.unwrap(function).__globals__)  # noqa: S307 - their file
                parameters[name] = parameter.replace(annotation=annotation)
    return parameters


def _describe_parameter(parameter: inspect.Parameter, docstring: str, location: str) -> CustomParameter:
    name, default = parameter.name, parameter.default
    if parameter.kind in _VARIABLE_KINDS:
        raise CustomWorkloadError(
            f"{location}: {parameter!s:.60} cannot be set; name every parameter, each with its default."
        )
    if name in reserved_names():
        raise CustomWorkloadError(
            f"{location}: {name} is the name of one of the program's settings; choose another name."
        )
    if default is inspect.Parameter.empty:
        raise CustomWorkloadError(f"{location}: {name} needs a default, such as {name}: int = 64.")
    if isinstance(default, int) and not -(2**63) <= default < 2**63:
        raise CustomWorkloadError(f"{location}: the default of {name} is a number of more than 64 bits.")
    annotation = type(default) if parameter.annotation is inspect.Parameter.empty else parameter.annotation
    kind, choices = _parameter_kind(annotation)
    if kind is None or not _is_valid_default(default, kind, choices):
        raise CustomWorkloadError(
            f"{location}: {parameter!s:.60} is none that can be set; "
            "a parameter is an int, float, bool, str or a Literal of words, with a default of that type."
        )
    for text in (word for word in (default, *choices) if isinstance(word, str)):
        if len(text) > _MOST_TEXT_CHARS or plain(text) != text:
            raise CustomWorkloadError(
                f"{location}: a text of {name} has more than {_MOST_TEXT_CHARS:,} characters, or control characters."
            )
    value: Value = float(default) if kind == "number" else default
    line = re.search(rf"^\s*{name}\s*(?:\([^)]*\))?:\s*(.+)$", docstring, re.MULTILINE)  # `units: Units of each layer`
    text = plain(line[1].strip()[:_MOST_HELP_CHARS]) if line else ""
    return CustomParameter(name=name, kind=kind, default=value, help=text, choices=choices)


def _parameter_kind(annotation: Any) -> tuple[CustomParameterKind | None, tuple[str, ...]]:
    """Return the kind of parameter for an annotation, with its choices; None if it cannot be set."""
    if get_origin(annotation) is not Literal:
        return _KIND_BY_TYPE.get(annotation), ()
    values = get_args(annotation)
    return ("choice" if all(isinstance(word, str) for word in values) else None), values


def _is_valid_default(default: object, kind: CustomParameterKind, choices: tuple[str, ...]) -> bool:
    if kind == "choice":
        return default in choices
    if kind == "number":
        return isinstance(default, int | float) and not isinstance(default, bool) and math.isfinite(default)
    return _KIND_BY_TYPE.get(type(default)) == kind
