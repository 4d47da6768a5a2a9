"""A stored run as a timeline that profilers' viewers draw: one process in the Trace Event Format."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from app.facts import OWN_SOURCE
from app.records import Floats, Ints, SampleColumns, StoredRun
from app.report.documents import list_document
from app.report.trace_track import Event, Track
from app.samples import Sample
from app.telemetry.field_units import field_unit
from app.viewmodels.cells import example_word
from app.viewmodels.fields import field_words
from app.viewmodels.naming import short_name
from app.viewmodels.run_facts import phase_energies
from app.viewmodels.throttling import Throttling
from app.viewmodels.tracks import device_label
from app.viewmodels.units import rate_unit

_MASK = "throttle_reasons"
"""Drawn as slices with the reasons' words: as a number it says nothing."""
_SHOWN = {"mW": (1_000, "W"), "mJ": (1_000, "J"), "ns": (1_000_000_000, "s")}
"""By what a stored unit is divided for a reader, and the unit that this gives."""


def trace_events(run: StoredRun, place: int, threads: Iterator[int]) -> Iterator[Event]:
    """The run as the process at this place, its number the pid; other tids come from `threads`.

    On the main thread lie the run, its phases within it and their blocks within those. Every field that a device gave
    is a counter, of which what is absent is left out.
    """
    main = Track(pid=run.row.run, tid=run.row.run, zero_ns=run.anchor_t_ns)
    yield main.named(f"run {run.row.run} · {short_name(run.row.spec)}", "process_name")
    yield main.sorted_at(place)
    yield main.named("Phases and blocks")
    yield from _phases(run, main)
    yield from _blocks(run, main)
    if run.epochs:
        yield from _epochs(run, _beside(main, threads))
    for columns in run.samples:
        yield from _held_back(columns, main, threads)
        yield from _counters(columns, main)
        if columns.lost_t_ns is not None:
            lost = f"{device_label(columns.device)} stopped answering"
            yield main.instant(lost, "device", columns.lost_t_ns, of_process=True)
    if run.log:
        yield from _log(run, _beside(main, threads))


def event_count(run: StoredRun) -> int:
    """About how many events there will be: nearly all are values of counters."""
    return run.blocks.steps.size + sum(
        int(np.count_nonzero(np.isfinite(values)))
        for columns in run.samples
        for values in (*columns.fields.values(), *columns.slow.values())
    )


def _beside(main: Track, threads: Iterator[int]) -> Track:
    return Track(pid=main.pid, tid=next(threads), zero_ns=main.zero_ns)


def _phases(run: StoredRun, track: Track) -> Iterator[Event]:
    ends = [*(phase.end_ns for phase in run.phases if phase.end_ns is not None), *run.blocks.end_ns.tolist()]
    end_ns = max(ends, default=run.anchor_t_ns)
    yield track.slice(f"run {run.row.run}", "run", run.anchor_t_ns, end_ns, _metadata(run))
    for phase, energy in zip(run.phases, phase_energies(run), strict=True):
        args = {"energy_mj": energy.energy_mj, "mean_power_mw": energy.power_mw}
        yield track.slice(phase.name, "phase", phase.start_ns, phase.end_ns or end_ns, args)


def _metadata(run: StoredRun) -> dict[str, Any]:
    """What ran, on what, and how it ended; the text of a user's own file is in the database."""
    (listed,) = list_document([run.row])["runs"]
    return {
        **listed,
        "devices": {device_label(columns.device): columns.device.name for columns in run.samples},
        "environment": {name: fact for name, fact in run.environment.items() if name != OWN_SOURCE},
    }


def _blocks(run: StoredRun, track: Track) -> Iterator[Event]:
    blocks = run.blocks
    rate = rate_unit(example_word(run.row.spec))
    for i, throughput in enumerate(blocks.throughput.tolist()):
        start_ns, end_ns, loss = int(blocks.start_ns[i]), int(blocks.end_ns[i]), float(blocks.loss[i])
        counted = {name: int(getattr(blocks, name)[i]) for name in ("first_step", "steps", "examples")}
        told = {rate: throughput, "loss": loss, "measured": bool(blocks.measured[i])}
        yield track.slice("block", "block", start_ns, end_ns, {**counted, **told})
        for counter, unit, t_ns, value in (
            ("Throughput", rate, start_ns, throughput),
            ("Loss", "of the last step", end_ns, loss),
        ):
            if math.isfinite(value):
                yield track.count(counter, unit, track.us(t_ns), value)


def _epochs(run: StoredRun, track: Track) -> Iterator[Event]:
    yield track.named("Epochs")
    for epoch in run.epochs:
        args = {"steps": epoch.steps, "examples": epoch.examples, "loss": epoch.loss, "accuracy": epoch.accuracy}
        yield track.slice(f"epoch {epoch.epoch}", "epoch", epoch.start_ns, epoch.end_ns, args)
        yield track.slice("test", "epoch", epoch.end_ns, epoch.tested_ns)


def _held_back(columns: SampleColumns, main: Track, threads: Iterator[int]) -> Iterator[Event]:
    """The stretches in which a device held its clocks back, on a line of their own where there are any."""
    device, throttling = columns.device, Throttling(most=None)
    for t_ns, mask in _given(columns.t_ns, columns.fields.get(_MASK)):
        throttling.add(Sample(t_ns=t_ns, device=device.device, throttle_reasons=int(mask)))
    if stretches := throttling.between(-math.inf, math.inf):
        track = _beside(main, threads)
        yield track.named(f"{device_label(device)} clocks held back")
        for each in stretches:
            yield track.slice(each.words, "clock_event", round(each.start_s * 1e9), round(each.end_s * 1e9))


def _counters(columns: SampleColumns, track: Track) -> Iterator[Event]:
    for t_ns, fields in ((columns.t_ns, columns.fields), (columns.slow_t_ns, columns.slow)):
        for name in (name for name in fields if name != _MASK):
            divisor, unit = _SHOWN.get(field_unit(name), (1, field_unit(name)))
            counter = f"{device_label(columns.device)} · {field_words(name)}"
            for at_ns, value in _given(t_ns, fields[name]):
                yield track.count(counter, unit, track.us(at_ns), value / divisor)


def _given(t_ns: Ints, values: Floats | None) -> Iterator[tuple[int, float]]:
    """The times at which there is a value, and the values."""
    if values is None:
        return iter(())
    is_given = np.isfinite(values)
    return zip(t_ns[is_given].tolist(), values[is_given].tolist(), strict=True)


def _log(run: StoredRun, track: Track) -> Iterator[Event]:
    yield track.named("Log")
    for line in run.log:
        yield track.instant(line.text, "log", line.t_ns)
