"""Make a database of many runs for benchmarks, written by the program's own store, with samples of a recorded trace.

Metrics and notes are made up; their number, length and kind are as in real use.
"""

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from app.storage.database import open_database, transaction
from app.storage.owner import this_process
from app.storage.queue import save_experiment
from app.storage.store import Store
from app.values.events import Outcome, Summary
from app.values.samples import HOST, Device, FieldInfo
from workloads.catalog import Machine, complete
from workloads.protocol import Block, Evidence, PhaseStarted, RunSpec, Value

_TRACE = Path(__file__).with_name("h200_samples.npz")
_S = 1_000_000_000
_PERIOD_NS = 50_000_000
_FIRST_UTC_NS = 1_760_000_000 * _S
_SET_UP_S = 20
_BLOCKS = 40
_RUNS_AN_EXPERIMENT = 12
_RUNS_A_CHUNK = 500
"""Runs whose samples are written in one transaction, so that the write-ahead log stays small."""

_FIELDS = ("power_mw", "load_pct", "memory_bytes", "temperature_c", "sm_clock_mhz", "worker_load_pct")
"""Fields that the trace has of a GPU or of a host."""
_RECORDED = """
CREATE TEMP TABLE recorded (
    kind, n, power_mw, load_pct, memory_bytes, temperature_c, sm_clock_mhz, worker_load_pct, PRIMARY KEY (kind, n)
) WITHOUT ROWID
"""
_PLAY = """
INSERT INTO samples (
    device_id, t_ns,
    power_mw, load_pct, memory_bytes, temperature_c, sm_clock_mhz, worker_load_pct, power_limit_mw, throttle_reasons
)
SELECT device_id, started_t_ns + :set_up_ns + n * :period_ns,
    power_mw, load_pct, memory_bytes, temperature_c, sm_clock_mhz, worker_load_pct,
    iif(kind = 'gpu', 700000, NULL), iif(kind = 'gpu', 0, NULL)
FROM devices JOIN runs USING (run) JOIN recorded USING (kind)
WHERE run BETWEEN :first AND :last AND n < iif(run > :last_short, :long_samples, :short_samples)
"""
"""Inserts the recorded samples for the devices of some runs, 20 per second from the start of measuring."""

_GPU = Device(
    device="GPU-0",
    kind="gpu",
    index=0,
    name="NVIDIA H200",
    memory_total_bytes=150_754_820_096,
    fields={name: FieldInfo(unit="") for name in (*_FIELDS[:5], "power_limit_mw", "throttle_reasons")},
)
_HOST = Device(
    device=HOST,
    kind="host",
    index=-1,
    name="A processor",
    fields={name: FieldInfo(unit="") for name in ("load_pct", "worker_load_pct")},
)
_ENVIRONMENT = {
    "driver": "580.95.05",
    "tensorflow": "2.21.0",
    "keras": "3.15.1",
    "cuda_loaded": "12.9",
    "cudnn_loaded": "9.10.2",
    "cpu": _HOST.name,
    "os": "Linux",
    "program_version": "0.1.0",
}
_NOTES = ("", "", "", "after the driver was updated", "fan was loud", "to be repeated at night", "for figure 3")
_TAGS = ("baseline", "paper", "suspicious", "night")
_ENDS = (
    *[Outcome(name="completed")] * 17,
    Outcome(name="out_of_memory", reason="The GPU has too little memory for a batch of this size."),
    Outcome(name="stopped", reason="It was stopped."),
    Outcome(name="failed", reason="The worker ended with an error: loss is not finite."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of the database: the newest `long_runs` have `long_samples` per device, the others share the rest.

    The long runs are of two variants in turn, all completed, so that they can be compared.
    """

    runs: int = 10_000
    samples: int = 20_000_000
    long_runs: int = 8
    long_samples: int = 12_000

    @property
    def short_samples(self) -> int:
        """Samples per device of every other run; a run has two devices."""
        left = self.samples - 2 * self.long_runs * self.long_samples
        return max(0, left // (2 * (self.runs - self.long_runs)))

    @property
    def compared(self) -> range:
        """Numbers of the long runs."""
        return range(self.runs - self.long_runs + 1, self.runs + 1)


def fill(path: Path, size: Size) -> None:
    """Make the database at `path`, where none exists."""
    variants = _variants()
    with Store.open(path) as store:
        for number in range(size.runs - size.long_runs):
            outcome = _ENDS[np.random.default_rng(number).integers(len(_ENDS))]
            _store_run(store, number, variants[number % len(variants)], outcome, size.short_samples)
        for number in range(size.runs - size.long_runs, size.runs):
            _store_run(store, number, variants[number % 2], _ENDS[0], size.long_samples)
        _store_annotations(store, size.runs)
    _fill_samples(path, size)


def fill_compared(path: Path, *, variants: int, repeats: int, samples: int) -> None:
    """Make a database of interleaved, completed runs of so many of 240 variants of cnn10.

    Their throughput is a product of an effect for each value of each setting, with 0.8 % noise.
    """
    specs = [spec for spec in _variants() if spec.workload == "cnn10"][:variants]
    chance = np.random.default_rng(0)
    effects: dict[tuple[str, Value], float] = {}
    size = Size(runs=variants * repeats, samples=2 * variants * repeats * samples, long_runs=0, long_samples=samples)
    with Store.open(path) as store:
        for number in range(size.runs):
            spec = specs[number % len(specs)]
            factors = [effects.setdefault(setting, chance.uniform(0.9, 1.4)) for setting in spec.variant.items()]
            throughput = 1e4 * float(np.prod(factors)) * chance.lognormal(0, 0.008)
            _store_run(store, number, spec, _ENDS[0], samples, throughput)
    _fill_samples(path, size)


def _variants() -> Sequence[RunSpec]:
    """Return every combination of a few values of two workloads."""
    nothing = Machine()
    matrices: tuple[tuple[str, Mapping[str, Sequence[Value]]], ...] = (
        ("lstm", {"implementation": ("cudnn", "standard", "fused"), "layers": (1, 2, 4), "units": (256, 512)}),
        ("cnn10", {"implementation": ("native", "keras"), "layout": ("NCHW", "NHWC"), "channels": (32, 64)}),
    )
    common: Mapping[str, Sequence[Value]] = {
        "batch_size": (64, 128, 256, 512, 1024),
        "precision": ("float32", "tf32", "bfloat16"),
        "xla": (False, True),
        "gpus": (1,),
    }
    return [
        complete(workload, dict(zip(settings, values, strict=True)), nothing)
        for workload, specific in matrices
        for settings in ({**specific, **common},)
        for values in itertools.product(*settings.values())
    ]


def _store_run(
    store: Store, number: int, spec: RunSpec, outcome: Outcome, samples: int, throughput: float | None = None
) -> None:
    """Store one run as a session does, without its samples."""
    chance = np.random.default_rng(number)
    began_ns = number * 3600 * _S
    measure_ns = began_ns + _SET_UP_S * _S
    length_ns = max(_BLOCKS, samples * _PERIOD_NS)
    utc_ns = _FIRST_UTC_NS + began_ns
    run = store.begin(
        spec,
        uid=f"{number:032x}",
        owner=this_process(),
        t_ns=began_ns,
        utc_ns=utc_ns,
        devices=(_GPU, _HOST),
        environment=_ENVIRONMENT,
    )
    phases = (PhaseStarted(phase="compile", t_ns=began_ns), PhaseStarted(phase="measure", t_ns=measure_ns))
    store.write(run, (*phases, *_blocks(measure_ns, length_ns, chance), _evidence(spec, chance)))
    store.finish(
        run,
        outcome=outcome,
        summary=_summary(chance, throughput) if outcome.name == "completed" else Summary(),
        t_ns=measure_ns + length_ns,
        utc_ns=utc_ns + _SET_UP_S * _S + length_ns,
    )


def _blocks(start_ns: int, length_ns: int, chance: np.random.Generator) -> Iterator[Block]:
    edges = np.linspace(start_ns, start_ns + length_ns, _BLOCKS + 1).astype(np.int64).tolist()
    for index, (begin, end) in enumerate(itertools.pairwise(edges)):
        yield Block(
            phase="measure",
            first_step=100 * index,
            steps=100,
            examples=6400,
            start_ns=begin,
            end_ns=end,
            loss=chance.uniform(0.5, 2.5),
        )


def _evidence(spec: RunSpec, chance: np.random.Generator) -> Evidence:
    requested = {name: str(spec.variant[name]) for name in ("implementation", "precision", "xla")}
    match = (True, True, True, False)[chance.integers(4)]
    reason = None if match else "TensorFlow's layout optimizer turned NHWC into NCHW."
    return Evidence(
        requested=requested,
        actual=requested,
        match=match,
        reason=reason,
        sources=("graph",),
        notes=(),
        steps=0,
        span_ns=0,
        busy_ns=0,
    )


def _summary(chance: np.random.Generator, throughput: float | None) -> Summary:
    throughput = throughput or chance.lognormal(9, 1)
    return Summary(
        throughput=throughput,
        blocks=_BLOCKS,
        measured_steps=100 * _BLOCKS,
        measured_examples=6400 * _BLOCKS,
        measured_s=6400 * _BLOCKS / throughput,
        step_ms_p50=64_000 / throughput,
        step_ms_p95=70_000 / throughput,
        step_ms_p99=75_000 / throughput,
        mean_power_mw=chance.uniform(2e5, 7e5),
        energy_mj_per_example=chance.uniform(5, 80),
        energy_source="counter",
        device_peak_bytes=int(chance.integers(2**30, 2**36)),
    )


def _store_annotations(store: Store, runs: int) -> None:
    """Store notes, tags and experiments of runs 1 to `runs`."""
    library = store.library
    for run in range(1, runs + 1):
        if note := _NOTES[run % len(_NOTES)]:
            library.set_note(run, note)
    for index, tag in enumerate(_TAGS):
        library.add_tag(range(1 + index, runs + 1, 7 + index), tag)
    plan, now_ns = '{"variants": [], "repeats": 3}', time.time_ns()
    with contextlib.closing(open_database(store.path)) as db, transaction(db, store.path):
        for first in range(1, runs + 1, 5 * _RUNS_AN_EXPERIMENT):
            made = range(first, min(first + _RUNS_AN_EXPERIMENT, runs + 1))
            save_experiment(db, made, uid=f"{first}", name=f"article {first}", preset=None, plan=plan, utc_ns=now_ns)


def _fill_samples(path: Path, size: Size) -> None:
    """Insert samples of every device, in the order of the table."""
    db = open_database(path)
    try:
        db.execute("PRAGMA synchronous = OFF")
        db.execute(_RECORDED)
        db.conn.executemany("INSERT INTO recorded VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _recorded(size.long_samples))
        db.conn.commit()
        for first in range(1, size.runs + 1, _RUNS_A_CHUNK):
            db.execute(
                _PLAY,
                {
                    "first": first,
                    "last": first + _RUNS_A_CHUNK - 1,
                    "last_short": size.runs - size.long_runs,
                    "long_samples": size.long_samples,
                    "short_samples": size.short_samples,
                    "set_up_ns": _SET_UP_S * _S,
                    "period_ns": _PERIOD_NS,
                },
            )
            db.conn.commit()
    finally:
        db.close()


def _recorded(count: int) -> Iterator[tuple[Any, ...]]:
    """Yield rows of the table `recorded`: the trace of a GPU and of a host, repeated."""
    with np.load(_TRACE) as trace:
        for kind, prefix in (("gpu", "gpu0_"), ("host", "host_")):
            columns = [
                np.resize(trace[prefix + name], count).tolist() if prefix + name in trace else [None] * count
                for name in _FIELDS
            ]
            yield from ((kind, n, *values) for n, values in enumerate(zip(*columns, strict=True)))
