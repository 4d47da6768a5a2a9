"""Every scenario through the real commands, each a process of its own, as a table for a terminal or a document.

    python -m tests.scenarios [NAME …]

A scenario takes about 25 seconds; a cell says ok, or what is wrong.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.fakes.command_line import CommandLine, dummy_arguments
from tests.fakes.nvml import environment
from tests.fakes.scenarios import NAMES, Scenario, load

LIMIT_S = 60.0
WATCHED_S = "8"


def _commands(scenario: Scenario) -> dict[str, list[str]]:
    """The commands of the table by its columns; the run takes all GPUs, or the CPU."""
    gpus = 0 if scenario.init_error or scenario.silent else len({card.uuid for card in scenario.cards})
    watch = ["watch", "--every", "0.2", "--seconds", WATCHED_S]
    return {
        "gpus": ["gpus"],
        "gpus --json": ["gpus", "--json"],
        "watch": watch,
        "watch --json": [*watch, "--json"],
        "watch --csv": [*watch, "--csv"],
        "run": ["run", *dummy_arguments(gpus=0 if scenario.away else gpus, steps=0, seconds=4.0), "--json"],
    }


def _verdict(line: CommandLine, words: Sequence[str]) -> str:
    process = line.start(*words)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"no end in {LIMIT_S:.0f} s"
    if "Traceback" in err:
        return "traceback"
    if process.returncode:
        return f"status {process.returncode}: {err.strip().splitlines()[-1] if err.strip() else 'nothing said'}"
    if "--json" in words:
        for text in out.splitlines() if words[0] == "watch" else [out]:
            json.loads(text)
    elif any(ord(character) < 32 and character not in "\n\t" for character in out):
        return "control characters"
    return "ok"


def main(names: Sequence[str]) -> int:
    """Print the table; return 1 if a cell is not ok."""
    wrong = 0
    print("| scenario |", " | ".join(_commands(load("two_h200"))), "|")
    for name in names:
        scenario = load(name)
        with tempfile.TemporaryDirectory() as folder:
            line = CommandLine(Path(folder), environment(scenario))
            cells = [_verdict(line, words) for words in _commands(scenario).values()]
        wrong += sum(cell != "ok" for cell in cells)
        print(f"| {name} |", " | ".join(cells), "|", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or NAMES))
