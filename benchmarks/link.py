"""Benchmark `link`: what a host costs, against the same on this machine.

The host has to be this machine: `sh:`, without a network, or its own sshd. Runs on it and here take
turns; samples of both are read in the same seconds.
"""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from app.analysis.intervals import LEVEL, mean
from app.cli.run import one_variant, run_services, workload_finder
from app.grants import typed
from app.hosts.remote import HZ, open_host
from app.runs.session import RunServices, RunSession
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.values.fields import Sample
from benchmarks.harness import Result
from workloads.protocol import RunSpec

_TIMES = 3
PAIRS = 6
_SETTINGS = ("seconds=4", "evidence=off")
_SAMPLES_S = 30.0
_FIRST_S, _SENT_S = 2.0, 10.0
_MOST_ADDED_MS = 5.0
_LEAST_RATIO = 0.995
_WAIT_S = 60.0


def measure(on: str = "sh:", workload: str = "", settings: Sequence[str] = (), pairs: int = PAIRS) -> Sequence[Result]:
    """Measure the first sample, the delay of samples, and the throughput of runs.

    Args:
        on: The host: this machine, as `--on` names it.
        workload: What runs, "" for a CNN on GPUs and an LSTM where there is none.
        settings: Its parameters, as words `name=value`.
        pairs: Runs there, and as many here.
    """
    with tempfile.TemporaryDirectory() as folder:
        first = [*_first_samples(on, Path(folder)), *_delays(on)]
        with run_services(Path(folder) / "bench.db") as here, closing(open_host(on, consent=typed)) as connection:
            machine = here.host.machine
            chosen = workload_finder(here.database, typed)(workload or ("cnn10" if machine.gpus else "lstm"))
            spec = one_variant(chosen, settings or _SETTINGS, machine)
            return [*first, *_throughput(spec, here, replace(here, host=connection.host), pairs)]


def _first_samples(on: str, folder: Path) -> Sequence[Result]:
    """Measure seconds from a click to the first sample: the first time, and once the program is there."""
    # Only this machine's own environment reaches it: on another host it may be there already.
    with _environment_variable("XDG_CACHE_HOME", str(folder / "cache")) if on == "sh:" else nullcontext():
        first_s = _first_sample_s(on)
        known_s = statistics.median(_first_sample_s(on) for _ in range(_TIMES))
    return [
        Result(name="first sample, the program sent", value=first_s, unit="s", limit=_SENT_S),
        Result(name="first sample, the program known", value=known_s, unit="s", limit=_FIRST_S),
    ]


@contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


def _first_sample_s(on: str) -> float:
    began_s, came = time.monotonic(), threading.Event()

    def receive(message: SamplerMessage) -> None:
        if isinstance(message, Sample):
            came.set()

    with closing(open_host(on, consent=typed)) as connection:
        connection.host.telemetry.subscribe(receive)
        if not came.wait(_WAIT_S):
            raise RuntimeError("no sample came")
        return time.monotonic() - began_s


def _delays(on: str) -> Sequence[Result]:
    """Measure how long samples are under way from there and here, in the same seconds.

    A sampler of GPUs writes what it read at two ticks together: half of its samples are 50 ms late on either way.
    """
    with closing(TelemetryFeed(HZ)) as feed, closing(open_host(on, consent=typed)) as connection:
        feed.start()
        local, remote = _Delays(feed), _Delays(connection.host.telemetry)
        time.sleep(_SAMPLES_S)
    delays = [(percent, remote.percentile(percent), local.percentile(percent)) for percent in (50, 95)]
    return [
        *(
            Result(name=f"delay of a sample from there, {percent} %", value=there_ms, unit="ms", baseline=here_ms)
            for percent, there_ms, here_ms in delays
        ),
        *(
            Result(name=f"added at {percent} %", value=there_ms - here_ms, unit="ms", limit=_MOST_ADDED_MS)
            for percent, there_ms, here_ms in delays
        ),
    ]


class _Delays:
    """Delays of a feed's samples, from the reading to a listener.

    Thread: the feed's adds; one other reads.
    """

    def __init__(self, feed: TelemetryFeed) -> None:
        self._delays_ms: list[float] = []
        feed.subscribe(self._receive)

    def _receive(self, message: SamplerMessage) -> None:
        if isinstance(message, Sample):
            # Both are of one machine, and so of one clock.
            self._delays_ms.append((time.monotonic_ns() - message.t_ns) / 1e6)

    def percentile(self, percent: int) -> float:
        """Return a percentile of the delays in milliseconds."""
        return statistics.quantiles(self._delays_ms, n=100)[percent - 1]


def _throughput(spec: RunSpec, here: RunServices, there: RunServices, pairs: int) -> Sequence[Result]:
    local: list[float] = []
    remote: list[float] = []
    for pair in range(pairs):
        # A B B A: drift affects both alike.
        turns = ((here, local), (there, remote))
        for services, figures in turns if pair % 2 == 0 else reversed(turns):
            figures.append(_run(spec, services))
    found = mean([there_per_s / here_per_s for there_per_s, here_per_s in zip(remote, local, strict=True)], LEVEL)
    assert found is not None, "there are pairs"
    ratios = (("", found.value), (", lower end of the interval", found.low), (", upper end", found.high))
    return [
        Result(
            name=f"{spec.workload} on the host",
            value=statistics.mean(remote),
            unit="examples/s",
            baseline=statistics.mean(local),
            limit=_LEAST_RATIO,
            at_least=True,
        ),
        *(
            Result(name=f"mean ratio of {pairs} pairs{end}", value=value, unit="")
            for end, value in ratios
            if value is not None
        ),
    ]


def _run(spec: RunSpec, services: RunServices) -> float:
    session = RunSession(spec, services)
    outcome = session.run()
    throughput = session.stored.row.summary.throughput if session.stored is not None else None
    if throughput is None:
        raise RuntimeError(f"the benchmark's run measured nothing: {outcome.reason}")
    return throughput
