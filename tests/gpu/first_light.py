"""First light on GPUs: every kind of run of the first version, headless, into one database, and a table at the end.

    python -m tests.gpu.first_light DATABASE [--cpu]

`--cpu` rehearses the same list at sizes for a machine without a GPU. Results: docs/measurements/.
"""

import json
import subprocess
import sys
import time
from typing import Any

Case = tuple[str, tuple[str, ...], str]

GPU_CASES: tuple[Case, ...] = (
    ("lstm", ("implementation=cudnn",), "completed"),
    ("lstm", ("implementation=standard",), "completed"),
    ("lstm", ("implementation=standard", "xla=true"), "completed"),
    ("lstm", ("implementation=cudnn", "precision=tf32"), "completed"),
    ("lstm", ("implementation=cudnn", "precision=bfloat16"), "completed"),
    ("lstm", ("implementation=cudnn", "precision=float16"), "completed"),
    ("lstm", ("implementation=cudnn", "gpus=2"), "completed"),
    ("cnn10", ("layout=NCHW", "precision=tf32"), "completed"),
    ("cnn10", ("layout=NHWC", "precision=tf32"), "completed"),
    ("cnn10", ("layout=NCHW", "precision=bfloat16"), "completed"),
    ("cnn10", ("layout=NHWC", "precision=bfloat16"), "completed"),
    ("cnn10", ("layout=NCHW", "precision=float16"), "completed"),
    ("cnn10", ("layout=NCHW", "precision=bfloat16", "xla=true"), "completed"),
    ("cnn10", ("gpus=2", "precision=tf32"), "completed"),
    ("cnn10", ("gpus=2", "precision=tf32", "batch_size=2048"), "completed"),
    ("cnn10", ("gpus=2", "precision=tf32", "batch_size=128"), "completed"),
    ("cnn10", ("gpus=1", "precision=tf32", "batch_size=128"), "completed"),
    ("cnn10", ("gpus=2", "precision=bfloat16", "xla=true", "batch_size=2048"), "completed"),
    ("cnn10", ("gpus=1", "mode=inference", "precision=tf32"), "completed"),
    (
        "lstm",
        ("implementation=standard", "batch_size=32768", "units=2048", "timesteps=200", "features=64"),
        "out_of_memory",
    ),
    ("cnn10", ("gpus=9",), "refused"),
)
CPU_CASES: tuple[Case, ...] = (
    ("lstm", ("gpus=0",), "completed"),
    ("cnn10", ("gpus=0", "layout=NHWC"), "completed"),
    ("lstm", ("implementation=cudnn",), "refused"),
)

_HEADER = (
    f"{'run':>3} {'variant':62} {'outcome':14} {'examples/s':>11} {'p50 ms':>8} {'W':>6} {'mJ/ex':>8} "
    f"{'compile s':>9} {'loss':>17}"
)


def main() -> int:
    """Runs the list and prints the table; 0 when every run ended as expected."""
    database = sys.argv[1]
    cases = CPU_CASES if "--cpu" in sys.argv else GPU_CASES
    rows = [_run(database, workload, settings, expected) for workload, settings, expected in cases]
    print(_HEADER)
    for row in rows:
        print(row)
    return int(any("UNEXPECTED" in row for row in rows))


def _run(database: str, workload: str, settings: tuple[str, ...], expected: str) -> str:
    words = [word for setting in (*settings, "seconds=4") for word in ("-s", setting)]
    command = [sys.executable, "-m", "app", "run", workload, *words, "--db", database, "--json"]
    started_s = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    seconds = time.monotonic() - started_s
    document = json.loads(done.stdout)
    note = "" if document["outcome"] == expected else f"  UNEXPECTED: {document['reason']}"
    return f"{_line(document, workload, settings)}  {seconds:5.1f} s{note}"


def _line(document: dict[str, Any], workload: str, settings: tuple[str, ...]) -> str:
    compile_s = next((phase["seconds"] for phase in document["phases"] if phase["phase"] == "compile"), None)
    power_mw, loss = document["power"]["mean_mw"], document["loss"]
    return (
        f"{document['run']:>3} {workload + ' ' + ' '.join(settings):62} {document['outcome']:14} "
        f"{_number(document['throughput']['value'], 11, 0)} {_number(document['step_ms']['p50'], 8, 2)} "
        f"{_number(power_mw / 1000 if power_mw else None, 6, 0)} {_number(document['energy']['mj_per_example'], 8, 2)} "
        f"{_number(compile_s, 9, 1)} {_number(loss['first'], 7, 3)} > {_number(loss['last'], 7, 4)}"
    )


def _number(value: float | None, width: int, decimals: int) -> str:
    return f"{'–':>{width}}" if value is None else f"{value:{width},.{decimals}f}"


if __name__ == "__main__":
    sys.exit(main())
