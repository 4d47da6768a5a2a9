"""`flood`: the program's memory while a worker says more than anybody can use, and the time to end such a run.

Each worker is a process of a few lines that misbehaves in one way, and does so until it is stopped; the program that
runs it is a fresh process, too, of the command line.
"""

import json
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.cli.run import run_services
from app.runs.launcher import Launcher
from app.runs.session import RunSession
from benchmarks.harness import Result, module_output
from workloads import catalog

_FLOOD_S = 10.0
_LIMIT_MB = 150.0
_END_S = 10.0

_BEGIN = """
import os, sys, time
from workloads.protocol import *
def say(message): os.write(1, encode(message))
def begin(phase): say(PhaseStarted(phase=phase, t_ns=time.monotonic_ns()))
say(Hello(protocol=PROTOCOL_VERSION, pid=os.getpid(), t_ns=time.monotonic_ns(), utc_ns=time.time_ns()))
begin('import')
"""


@dataclass(frozen=True, slots=True)
class _Flood:
    """How a worker misbehaves, and the outcome that its run has then."""

    code: str
    outcome: str = "stopped"


_MB = "b'x' * 1_000_000"
FLOODS: Mapping[str, _Flood] = {
    "log without a newline": _Flood(f"while True: os.write(2, {_MB})"),
    "log of a progress bar": _Flood("while True: os.write(2, b'\\r 17/1000 [==>.....] loss: 0.5' * 2_000)"),
    "log of short lines": _Flood("while True: os.write(2, b'line\\n' * 10_000)"),
    "log of long lines": _Flood("while True: os.write(2, ('\\U0001f600' * 10_000 + '\\n').encode())"),
    "message without a newline": _Flood(f"while True: os.write(1, {_MB})", "failed"),
    "blocks": _Flood(
        "begin('compile'); step = 0\n"
        "while True:\n"
        "    now_ns = time.monotonic_ns()\n"
        "    say(Block(phase='compile', first_step=step, steps=1, examples=1, start_ns=now_ns, end_ns=now_ns + 1))\n"
        "    step += 1"
    ),
    "facts": _Flood(
        "while True: say(EnvironmentInfo(environment={str(n): 'x' * 4_000 for n in range(200)}))", "failed"
    ),
    "evidence": _Flood(
        "begin('compile')\n"
        "name = '\\U0001f600' * 100\n"
        "many = tuple(Kernel(name=f'{n}{name}', kind='other', count=1, time_ns=1) for n in range(5_000))\n"
        "while True: say(Evidence(requested={}, actual={}, match=None, kernels=many))",
        "failed",
    ),
    "phases": _Flood("while True: begin('build')", "failed"),
    "a reason of 5 MB": _Flood(
        "say(Finished(outcome='failed', t_ns=time.monotonic_ns(), reason='x' * 5_000_000))", "failed"
    ),
}


def measure() -> Sequence[Result]:
    """Measure the peak of the program's memory in each flood, and the longest time from a stop to the run's end."""
    found = {name: json.loads(module_output("tests.reliability.flood", name)) for name in FLOODS}
    wrong = [name for name, each in found.items() if each["outcome"] != FLOODS[name].outcome]
    if wrong:
        raise RuntimeError(f"a run with {wrong[0]} ended as {found[wrong[0]]['outcome']}")
    return [
        *(
            Result(name=f"memory, {name}", value=each["peak_mb"], unit="MB", limit=_LIMIT_MB)
            for name, each in found.items()
        ),
        Result(name="stop to end, the longest", value=max(e["end_s"] for e in found.values()), unit="s", limit=_END_S),
    ]


def _run(code: str) -> dict[str, object]:
    """Run a worker of this code, stop it after a while, and return what that took."""
    with tempfile.TemporaryDirectory() as folder, run_services(Path(folder) / "bench.db") as services:
        launcher = Launcher((sys.executable, "-c", _BEGIN + code))
        session = RunSession(
            catalog.complete("dummy", {"gpus": 0}, services.host.machine),
            replace(services, host=replace(services.host, launcher=launcher)),
        )
        stop = threading.Timer(_FLOOD_S, session.stop)
        stop.start()
        began_s = time.monotonic()
        outcome = session.run()
        took_s = time.monotonic() - began_s
        stop.cancel()
    return {
        "outcome": outcome.name,
        "reason": outcome.reason,
        "peak_mb": _peak_mb(),
        "end_s": max(0.0, took_s - _FLOOD_S),
    }


def _peak_mb() -> float:
    """Return the most memory that this process has had, in MB (Linux: VmHWM of proc(5), which an exec begins anew)."""
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    print(json.dumps(_run(FLOODS[sys.argv[1]].code)))
