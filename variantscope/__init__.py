"""VariantScope. In an install, `app`, `workloads` and `resources` lie in this folder; in a checkout, beside it."""

import sys
from pathlib import Path


def step() -> None:
    """Mark the end of a training step in a script that VariantScope measures; in any other nothing happens."""


def main() -> int:
    """Start the program that this package was installed with, and return its exit status.

    Its folder comes first on the path, before those of PYTHONPATH (where an empty entry is the current folder): another
    `app` or `workloads` there is not meant.
    """
    package = Path(__file__).resolve().parent
    sys.path.insert(0, str(package if (package / "app").is_dir() else package.parent))
    from app.__main__ import main as program

    return program()
