"""What the import of a framework may and may not do; with libraries that import at once, or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.standby import empty_libraries

LOOKS_FOR_JAX = """
__version__ = "99.0"
try:
    from jax import jit
except ImportError:
    jit = None
"""
SCRIPT = """
from workloads.tensorflow.backend import TensorflowBackend
TensorflowBackend().preimport()
import tensorflow
print(tensorflow.jit)
import jax
print(jax.jit)
"""


@pytest.mark.parametrize(
    ("jax", "printed"), [("jit = 'a jit'", "None\na jit\n"), ("raise RuntimeError('no jaxlib')", "None\n")]
)
def test_tensorflow_does_without_jax_which_a_file_may_still_import(tmp_path: Path, jax: str, printed: str) -> None:
    libraries = empty_libraries(tmp_path)
    (libraries / "tensorflow.py").write_text(LOOKS_FOR_JAX)
    (libraries / "jax.py").write_text(jax)
    done = run_script(SCRIPT, libraries)
    assert done.stdout == printed, done.stderr
    assert ("no jaxlib" in done.stderr) == ("no jaxlib" in jax)


ERRORS = ("ImportError", "OSError", "RuntimeError", "AttributeError", "TypeError", "ValueError")
BROKEN = "import builtins, os; raise getattr(builtins, os.environ['ERROR'])('parts that do not fit')"
REFUSALS = f"""
import os
from workloads.errors import RefusedError
from workloads.jax.backend import JaxBackend
from workloads.pytorch.backend import PytorchBackend
from workloads.tensorflow.backend import TensorflowBackend
for error in {ERRORS}:
    os.environ["ERROR"] = error
    for backend in (JaxBackend(), PytorchBackend(), TensorflowBackend()):
        try:
            backend.import_framework(())
        except RefusedError as refused:
            print(str(refused).partition(": ")[0])
"""


def test_a_framework_whose_parts_do_not_fit_is_refused_by_its_name(tmp_path: Path) -> None:
    for module in ("jax", "torch", "keras", "tensorflow"):
        (tmp_path / f"{module}.py").write_text(BROKEN)
    done = run_script(REFUSALS, tmp_path)
    names = ["JAX", "PyTorch", "TensorFlow"] * len(ERRORS)
    assert done.stdout.splitlines() == [f"{name} cannot be imported (parts that do not fit)" for name in names], (
        done.stderr
    )


def run_script(script: str, libraries: Path) -> subprocess.CompletedProcess[str]:
    """Run a script that imports from these libraries first."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(libraries), *sys.path))}
    return subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, check=False)
