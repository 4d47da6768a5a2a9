"""What TensorFlow's import may and may not do; with libraries that import at once."""

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
    paths = os.pathsep.join((str(libraries), *sys.path))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == printed, done.stderr
    assert ("no jaxlib" in done.stderr) == ("no jaxlib" in jax)
