"""The command `variantscope` of an installed program, also `python -m variantscope`."""

import sys
from pathlib import Path


def step() -> None:
    """Mark the end of a training step in a script that VariantScope measures; in any other nothing happens."""


def main() -> int:
    """Start the program that this file was installed with, and return its exit status.

    Its folder comes first on the path, before those of PYTHONPATH (where an empty entry is the current folder): another
    `app` or `workloads` there is not meant.
    """
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from app.__main__ import main as program

    return program()


if __name__ == "__main__":
    sys.exit(main())
