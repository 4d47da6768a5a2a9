"""Two processes that do the same to one database at the same time."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.present import present

ROOT = Path(__file__).parents[3]
_READY = "ready\n"
_BEFORE = f"""
import sys
from pathlib import Path
from app.storage.store import Store
path = Path(sys.argv[1])
sys.stdout.write({_READY!r})
sys.stdout.flush()
sys.stdin.readline()
"""


def twice_at_once(code: str, database: Path, limit_s: float = 240.0) -> list[tuple[str, str]]:
    """Return each one's stdout and stderr; `code` can use `Store` and `path`, and begins once both have imported."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _BEFORE + code, str(database)]
    with ExitStack() as stack:
        both = [
            stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=ROOT, text=True))
            for _ in range(2)
        ]
        for process in both:
            assert present(process.stdout).readline() == _READY
        for process in both:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [process.communicate(timeout=limit_s) for process in both]
