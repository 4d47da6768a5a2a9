"""Who may import whom: by the written contracts, by reading the source, and by looking into fresh processes."""

import ast
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for folder in ("app", "workloads") for path in (ROOT / folder).rglob("*.py"))

QT = {"PySide6", "shiboken6", "pyqtgraph"}
TENSORFLOW = {"tensorflow", "keras"}
HEAVY = QT | TENSORFLOW | {"scipy.stats"}


def module_name(path: Path) -> str:
    """`app/storage/store.py` is `app.storage.store`."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = [module_name(path) for path in SOURCES]


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Every module a file imports, inside functions too."""
    return frozenset(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            module = str(node.module)
            is_package = (ROOT / module.replace(".", "/")).is_dir()
            yield from (f"{module}.{alias.name}" if is_package else module for alias in node.names)


def importers(packages: set[str]) -> set[str]:
    """The modules that import one of the top-level packages anywhere."""
    return {module_name(path) for path in SOURCES if packages & {name.partition(".")[0] for name in imported(path)}}


@functools.cache
def loaded_after(code: str, *hidden: str) -> set[str]:
    """What a fresh process has in `sys.modules` after the code; the `hidden` packages cannot be imported there."""
    script = (
        f"import sys, json\nsys.modules.update(dict.fromkeys({hidden!r}))\n{code}\n"
        "print(json.dumps([name for name, module in sys.modules.items() if module is not None]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_linter_contracts_hold() -> None:
    script = "from importlinter.cli import lint_imports_command as lint; lint()"
    command = [sys.executable, "-c", script, "--no-cache"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


def test_only_gui_imports_qt() -> None:
    allowed = {name for name in MODULES if name.startswith("app.gui.")}
    assert importers(QT) - allowed == set()


def test_scipy_is_imported_for_a_verdict_alone() -> None:
    assert importers({"scipy"}) == {"app.analysis.intervals"}
    assert not loaded_after("import app.analysis.intervals") & {"scipy"}


def test_only_the_storage_imports_sqlite_utils() -> None:
    assert {name for name in importers({"sqlite_utils"}) if not name.startswith("app.storage.")} == set()


def test_only_the_modules_called_nvml_import_pynvml() -> None:
    assert {name for name in importers({"pynvml"}) if not name.startswith("app.telemetry.nvml")} == set()


def test_the_sampler_loads_three_packages_alone_and_no_table_of_the_workloads() -> None:
    # Of what Python loads before any program, such as Debian's `sitecustomize`, nothing counts.
    loaded = loaded_after("import app.telemetry.sampler", "sqlite3") - loaded_after("")
    packages = {name.partition(".")[0] for name in loaded}
    ours = {name for name in packages - sys.stdlib_module_names if not name.startswith("_")}
    assert ours - {"typing_extensions"} == {"app", "workloads", "msgspec", "psutil", "pynvml"}
    assert {name for name in loaded if name.startswith("workloads.")} == {"workloads.machine"}


def test_jinja2_is_imported_when_a_report_is_rendered_and_not_before() -> None:
    assert importers({"jinja2", "markupsafe"}) == {"app.report.render"}
    assert not loaded_after("import app.report.render") & {"jinja2", "markupsafe"}


def test_the_help_of_the_command_line_loads_no_command() -> None:
    loaded = loaded_after("from app.cli.main import main; main(['--help'])")
    assert not loaded & {"numpy", "sqlite_utils", "rich", "app.cli.run", "app.cli.library"}


def test_a_list_loads_nothing_of_runs_and_where_stdout_is_no_terminal_no_rich(tmp_path: Path) -> None:
    call = f"main(['experiment', '--preset', 'quick', '--show', '--db', {str(tmp_path / 'none.db')!r}])"
    assert "rich" not in loaded_after(f"from app.cli.main import main; {call}")
    call = f"main(['list', '--db', {str(tmp_path / 'none.db')!r}])"
    assert not loaded_after(f"from app.cli.main import main; {call}") & {"rich", "scipy", "app.runs.session"}


def test_window_opens_before_database_plots_and_monitor_are_imported_and_without_tensorflow_and_scipy() -> None:
    later = {"sqlite_utils", "importlib.metadata", "pyqtgraph", "app.gui.plot.curves", "app.gui.monitor.screen"}
    loaded = loaded_after("import app.gui.app")
    assert not loaded & {*later, *TENSORFLOW, "scipy"}
    assert "PySide6.QtWidgets" in loaded


def test_everything_headless_imports_without_qt_and_tensorflow() -> None:
    headless = [name for name in MODULES if name.startswith("app") and not name.startswith(("app.gui", "app.__main__"))]
    loaded = loaded_after(f"import {', '.join(headless)}", *sorted(QT | TENSORFLOW))
    assert set(headless) <= loaded
    assert loaded & (QT | TENSORFLOW) == set()


def test_protocol_catalog_and_worker_import_without_the_program_and_without_tensorflow() -> None:
    loaded = loaded_after("import workloads.protocol, workloads.catalog, workloads.worker, workloads.jobs", "app")
    assert loaded & HEAVY == set()
    assert not {name for name in loaded if name.partition(".")[0] == "app"}


def test_a_worker_tells_that_it_is_there_before_numpy_is_imported() -> None:
    assert "numpy" not in loaded_after("import workloads.worker")


def test_the_program_side_of_telemetry_loads_no_pynvml() -> None:
    loaded = loaded_after("import app.telemetry.messages, app.telemetry.feed")
    assert "pynvml" not in loaded


@pytest.mark.parametrize("code", ["import app.no_such_module", "import PySide6"])
def test_the_probe_itself_notices_a_failing_or_hidden_import(code: str) -> None:
    with pytest.raises(AssertionError, match="ModuleNotFoundError"):
        loaded_after(code, "PySide6")
