"""Entry point in another Python: `PATH/bin/python workloads/entry.py workloads.worker [words]`.

It makes `workloads`, and nothing else of this folder's parent, importable there. It runs the named module in the folder
that a variable names, because uv starts it outside the user's folder. If the Python is too old or lacks a library, the
run ends as refused, with one sentence that says what to do. Every Python since 2.7 can read this file, so it uses no
newer syntax.
"""
# ruff: noqa: PTH100, PTH118, PTH120

import json
import os
import sys
import time

_OLDEST = (3, 11)
_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _refuse(reason):  # type: (str) -> None
    clock = getattr(time, "monotonic", time.time)
    message = {"type": "finished", "outcome": "refused", "t_ns": int(1e9 * clock()), "reason": reason}
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _too_old_message():  # type: () -> str
    template = (
        "{} is Python {}.{}, and workloads need {}.{} or newer; make the virtual environment with a newer Python."
    )
    return template.format(sys.executable, *(tuple(sys.version_info[:2]) + _OLDEST))


def _make_importable():  # type: () -> None
    import importlib.util

    init_file = os.path.join(_FOLDER, "__init__.py")
    spec = importlib.util.spec_from_file_location("workloads", init_file, submodule_search_locations=[_FOLDER])
    assert spec is not None, "it is the package that this file lies in"
    sys.modules["workloads"] = importlib.util.module_from_spec(spec)


def _main():  # type: () -> None
    # A script's own folder comes first on the path, so `import errors` would find a module here.
    sys.path[:] = [path for path in sys.path if path != _FOLDER]
    os.chdir(os.environ.get("VARIANTSCOPE_FOLDER", "."))
    if sys.version_info < _OLDEST:
        _refuse(_too_old_message())
        return
    _make_importable()
    import runpy

    from workloads.interpreter import missing_libraries

    reason = missing_libraries()
    if reason is not None:
        _refuse(reason)
        return
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
