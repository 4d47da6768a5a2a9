"""Benchmark `agent`: the processor time of an idle agent beside that of its sampler, in the same seconds.

The agent is pinged as the program does, and passes on what the sampler reads: next to GPUs 20 times a second each,
without them the host alone.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import psutil

from app.agent_protocol import HEARTBEAT_S, AgentHello, Order, Ping, StartTelemetry
from app.paths import python_environment
from benchmarks.harness import Result, cpu_s

_HZ = 20.0
_WARM_S = 5.0
_SECONDS = 60.0
_SAMPLER = "app.telemetry.sampler"


def measure() -> Sequence[Result]:
    """Measure the agent's two processes and its sampler for a minute."""
    with _agent() as (own, sampler):
        time.sleep(_WARM_S)
        started_s, before_s, sampler_before_s = time.monotonic(), sum(map(cpu_s, own)), cpu_s(sampler)
        time.sleep(_SECONDS)
        core = 100 / (time.monotonic() - started_s)
        own_pct = core * (sum(map(cpu_s, own)) - before_s)
        sampler_pct = core * (cpu_s(sampler) - sampler_before_s)
        memory_mb = sum(psutil.Process(pid).memory_info().rss for pid in own) / 1e6
    unit = "% of a core"
    return [
        Result(name="agent with a ping a second", value=own_pct, unit=unit, limit=1.0),
        Result(name="agent against its sampler", value=own_pct, unit=unit, baseline=sampler_pct),
        Result(name="memory of the agent and its guard", value=memory_mb, unit="MB"),
    ]


@contextmanager
def _agent() -> Iterator[tuple[Sequence[int], int]]:
    """Run an agent that samples and is pinged for the body; yield the ids of its processes, and its sampler's."""
    command = [sys.executable, "-m", "app.agent"]
    over = threading.Event()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=python_environment(), start_new_session=True
    ) as process:
        assert process.stdin is not None, "started with a pipe"
        assert process.stdout is not None, "started with a pipe"
        hello = msgspec.json.decode(process.stdout.readline(), type=AgentHello)
        _send(process, StartTelemetry(_HZ))
        process.stdout.readline()
        threads = [threading.Thread(target=each, args=(process, over)) for each in (_read, _ping)]
        for thread in threads:
            thread.start()
        (sampler,) = [child.pid for child in psutil.Process(hello.pid).children() if _SAMPLER in child.cmdline()]
        try:
            yield (process.pid, hello.pid), sampler
        finally:
            over.set()
            threads[1].join()
            process.stdin.close()
            threads[0].join()


def _send(process: "subprocess.Popen[bytes]", order: Order) -> None:
    assert process.stdin is not None, "started with a pipe"
    process.stdin.write(msgspec.json.encode(order) + b"\n")
    process.stdin.flush()


def _read(process: "subprocess.Popen[bytes]", _over: threading.Event) -> None:
    assert process.stdout is not None, "started with a pipe"
    for _ in process.stdout:
        pass


def _ping(process: "subprocess.Popen[bytes]", over: threading.Event) -> None:
    number = 0
    while not over.wait(HEARTBEAT_S):
        number += 1
        _send(process, Ping(number))
