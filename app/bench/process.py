"""A benchmark's part in a process of its own, off the screen where there is none."""

import os
import subprocess
import sys

from app.runs.launcher import checkout_environment


def printed_by(module: str, *words: str) -> str:
    """What a module prints that is run with these words in a fresh process."""
    environment = checkout_environment()
    # Whoever starts the program twice has it compiled.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")):
        environment["QT_QPA_PLATFORM"] = "offscreen"
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
