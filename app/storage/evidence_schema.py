"""Tables of what was found about a run: its evidence, kernels and checks; and the calibrations of devices."""

from collections.abc import Iterator

EVIDENCE = """
CREATE TABLE evidence (
    run INTEGER PRIMARY KEY REFERENCES runs (run) ON DELETE CASCADE,
    asked TEXT NOT NULL CHECK (json_valid(asked)),
    ran TEXT NOT NULL CHECK (json_valid(ran)),
    match INTEGER CHECK (match IN (0, 1)),
    reason TEXT,
    sources TEXT NOT NULL CHECK (json_valid(sources)),
    notes TEXT NOT NULL CHECK (json_valid(notes)),
    steps INTEGER NOT NULL,
    span_ns INTEGER NOT NULL,
    busy_ns INTEGER NOT NULL
) STRICT
"""

KERNELS = """
CREATE TABLE kernels (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    rank INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    count INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    tensor_cores INTEGER CHECK (tensor_cores IN (0, 1)),
    PRIMARY KEY (run, rank)
) STRICT, WITHOUT ROWID
"""

PORTABILITY = """
CREATE TABLE portability (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    utc_ns INTEGER NOT NULL,
    implementation TEXT NOT NULL,
    device TEXT NOT NULL,
    device_name TEXT NOT NULL,
    precision TEXT NOT NULL,
    max_difference REAL NOT NULL,
    max_output REAL NOT NULL,
    PRIMARY KEY (run, utc_ns)
) STRICT, WITHOUT ROWID
"""

CALIBRATIONS = """
CREATE TABLE calibrations (
    device TEXT NOT NULL,
    precision TEXT NOT NULL,
    size INTEGER NOT NULL,
    flops_per_s REAL NOT NULL,
    utc_ns INTEGER NOT NULL,
    PRIMARY KEY (device, precision)
) STRICT, WITHOUT ROWID
"""

DEVICE_TIMES = """
CREATE TABLE device_times (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    device TEXT NOT NULL,
    span_ns INTEGER NOT NULL,
    busy_ns INTEGER NOT NULL,
    compute_ns INTEGER NOT NULL,
    communication_ns INTEGER NOT NULL,
    kernels INTEGER NOT NULL,
    PRIMARY KEY (run, device)
) STRICT, WITHOUT ROWID
"""

EQUALITY = """
CREATE TABLE equality (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    utc_ns INTEGER NOT NULL,
    baseline TEXT NOT NULL CHECK (json_valid(baseline)),
    loss_difference REAL,
    difference REAL,
    tensor TEXT,
    reason TEXT,
    PRIMARY KEY (run, utc_ns)
) STRICT, WITHOUT ROWID
"""

_STEP_TRACES = """
CREATE TABLE step_traces (
    run INTEGER PRIMARY KEY REFERENCES runs (run) ON DELETE CASCADE,
    start_ns INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    left_out INTEGER NOT NULL
) STRICT
"""

_STEP_STREAMS = """
CREATE TABLE step_streams (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    stream INTEGER NOT NULL,
    device TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (run, stream)
) STRICT, WITHOUT ROWID
"""

_STEP_KERNELS = """
CREATE TABLE step_kernels (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    offset_ns INTEGER NOT NULL,
    duration_ns INTEGER NOT NULL,
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID
"""

_OLDER_GPU_STEPS = """
UPDATE runs SET gpu_step_ms = (
    SELECT coalesce(
        (SELECT avg(busy_ns) FROM device_times WHERE device_times.run = evidence.run),
        CASE runs.gpus WHEN 1 THEN evidence.busy_ns END
    ) / 1e6 / evidence.steps
    FROM evidence WHERE evidence.run = runs.run AND evidence.steps > 0 AND evidence.busy_ns > 0
) WHERE gpus > 0
"""
"""As `app.analysis.steps.traced_step`, for runs whose evidence was stored without it."""


def step_statements() -> Iterator[str]:
    """Yield the statements that add the kernels of one step, GPU time per step, and occupancy."""
    yield from (_STEP_TRACES, _STEP_STREAMS, _STEP_KERNELS)
    yield "ALTER TABLE kernels ADD COLUMN occupancy_pct REAL"
    yield "ALTER TABLE runs ADD COLUMN gpu_step_ms REAL"
    yield "ALTER TABLE runs ADD COLUMN occupancy_pct REAL"
    yield _OLDER_GPU_STEPS
