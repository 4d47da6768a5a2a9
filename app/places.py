"""Where the program lies, and the files that come with it."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The folder that holds `app` and `workloads`: of a checkout its root, else where packages are installed."""

RESOURCES = ROOT / "resources"
"""What lies beside the packages: icons, presets, reference runs, traces."""
