"""`--notify`: tells of an end by a desktop notification where there can be one, else by the terminal's bell."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable

from app.cli.terminal import say
from app.viewmodels import units

_SENDER = "notify-send"
_PATIENCE_S = 10.0


def with_notice(title: str, make: Callable[[], int]) -> int:
    """Makes runs, tells of the end under this title whatever comes of it, and returns the exit status."""
    began_s, words = time.monotonic(), "It ended early"
    try:
        status = make()
        words = "Every planned run has a result" if status == 0 else "Not every planned run has a result"
        return status
    finally:
        say(tell(title, f"{words}, after {units.duration(time.monotonic() - began_s)}."))


def tell(title: str, words: str) -> str:
    """Tells the user, and returns by which means, as a sentence."""
    if _sent(title, words):
        return f"Notified through {_SENDER}."
    why = f"{_SENDER} is not installed" if shutil.which(_SENDER) is None else f"{_SENDER} reached no desktop"
    if not sys.stderr.isatty():
        return f"Nobody was notified: {why}, and there is no terminal to ring."
    sys.stderr.write("\a")
    return f"Rang the terminal's bell: {why}."


def _sent(title: str, words: str) -> bool:
    program = shutil.which(_SENDER)
    if program is None:
        return False
    try:
        done = subprocess.run(
            [program, "--app-name=VariantScope", title, words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
