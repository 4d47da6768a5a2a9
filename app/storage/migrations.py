"""The database's schema: forward-only migrations, each applied in one transaction with its record."""

from collections.abc import Iterable

from sqlite_utils import Database, Migrations

from app.storage.library_schema import (
    EVIDENCE_STATE,
    FRAMEWORKS,
    HOSTS,
    LIBRARY,
    QUEUE,
    SCRIPT_FRAMEWORKS,
    search_field_statements,
)

_DOUBTFUL_EVIDENCE = """
UPDATE evidence SET match = NULL, reason = 'Its notes say what was not verified.'
WHERE match = 1 AND (
    notes LIKE '%The executed graph looks the same for %' OR notes LIKE '%XLA compiled the loop over time%'
    OR notes LIKE '% products are in %'
)
"""
"""Notes of older evidence that show that an aspect was not really observed."""
_OLDER_EVIDENCE = """
UPDATE evidence SET
    unverified = (
        SELECT json_group_object(key, coalesce(iif(match = 0, NULL, reason), 'It could not be seen.'))
        FROM json_each(asked) WHERE key NOT IN (SELECT key FROM json_each(ran))
    ),
    state = CASE match WHEN 1 THEN 'verified' WHEN 0 THEN 'mismatch'
        ELSE iif(ran = '{}', 'not verifiable', 'verified in part') END
"""
"""What was verified, of evidence that was stored without saying so."""

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
"""Computed as in `app.analysis.steps.traced_step`, for runs whose evidence was stored without it."""

_STEPS_WITHOUT_WAITS = """
UPDATE runs SET gpu_step_ms = (
    SELECT avg(max(compute_ns, least_ns)) / 1e6 / evidence.steps
    FROM evidence JOIN device_times USING (run)
    JOIN (SELECT run, min(busy_ns) AS least_ns FROM device_times GROUP BY run) USING (run)
    WHERE evidence.run = runs.run
) WHERE gpus > 1 AND gpu_step_ms IS NOT NULL
AND run IN (SELECT run FROM kernels WHERE kind = 'communication' AND name NOT LIKE 'memcpy%')
"""
"""Computed as in `app.analysis.steps.without_waits`, for runs that were stored with waits."""


STEPS = (
    *(_STEP_TRACES, _STEP_STREAMS, _STEP_KERNELS),
    "ALTER TABLE kernels ADD COLUMN occupancy_pct REAL",
    "ALTER TABLE runs ADD COLUMN gpu_step_ms REAL",
    "ALTER TABLE runs ADD COLUMN occupancy_pct REAL",
    _OLDER_GPU_STEPS,
)
"""The statements that add the kernels of one step, GPU time per step, and occupancy."""


APPLICATION_ID = 0x56536370
"""Marks the file as ours in SQLite's header (PRAGMA application_id): "VScp"."""

_RUNS = """
CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    workload TEXT NOT NULL,
    variant TEXT NOT NULL CHECK (json_valid(variant)),
    implementation TEXT AS (json_extract(variant, '$.implementation')) VIRTUAL,
    layout TEXT AS (json_extract(variant, '$.layout')) VIRTUAL,
    gpus INTEGER AS (json_extract(variant, '$.gpus')) VIRTUAL,
    batch_size INTEGER AS (json_extract(variant, '$.batch_size')) VIRTUAL,
    precision TEXT AS (json_extract(variant, '$.precision')) VIRTUAL,
    xla INTEGER AS (json_extract(variant, '$.xla')) VIRTUAL,
    outcome TEXT CHECK (outcome IN ('completed', 'stopped', 'out_of_memory', 'failed', 'crashed', 'refused')),
    reason TEXT,
    throughput REAL,
    blocks INTEGER NOT NULL DEFAULT 0,
    measured_steps INTEGER NOT NULL DEFAULT 0,
    measured_examples INTEGER NOT NULL DEFAULT 0,
    measured_s REAL,
    step_ms_p50 REAL,
    step_ms_p95 REAL,
    step_ms_p99 REAL,
    loss_first REAL,
    loss_last REAL,
    compile_s REAL,
    mean_power_mw REAL,
    energy_mj_per_example REAL,
    energy_source TEXT,
    device_peak_bytes INTEGER,
    allocator_peak_bytes INTEGER,
    started_utc TEXT AS (strftime('%Y-%m-%dT%H:%M:%SZ', started_utc_ns / 1000000000, 'unixepoch')) VIRTUAL,
    started_utc_ns INTEGER NOT NULL,
    started_t_ns INTEGER NOT NULL,
    ended_utc_ns INTEGER,
    detail TEXT,
    exit_code INTEGER,
    ended_by TEXT,
    environment TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(environment)),
    tensorflow TEXT AS (json_extract(environment, '$.tensorflow')) VIRTUAL,
    keras TEXT AS (json_extract(environment, '$.keras')) VIRTUAL,
    cuda TEXT AS (json_extract(environment, '$.cuda_loaded')) VIRTUAL,
    cudnn TEXT AS (json_extract(environment, '$.cudnn_loaded')) VIRTUAL,
    driver TEXT AS (json_extract(environment, '$.driver')) VIRTUAL,
    cpu TEXT AS (json_extract(environment, '$.cpu')) VIRTUAL,
    os TEXT AS (json_extract(environment, '$.os')) VIRTUAL,
    program_version TEXT AS (json_extract(environment, '$.program_version')) VIRTUAL,
    git_commit TEXT AS (json_extract(environment, '$.git_commit')) VIRTUAL,
    owner_pid INTEGER NOT NULL,
    owner_started_s REAL NOT NULL,
    owner_boot_id TEXT NOT NULL
) STRICT
"""

_DEVICES = """
CREATE TABLE devices (
    device_id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    device TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('gpu', 'host')),
    device_index INTEGER NOT NULL,
    name TEXT NOT NULL,
    memory_total_bytes INTEGER,
    absent TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(absent)),
    lost_t_ns INTEGER,
    lost_reason TEXT,
    UNIQUE (run, device)
) STRICT
"""

_PHASES = """
CREATE TABLE phases (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    phase TEXT NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER,
    seconds REAL AS ((end_ns - start_ns) / 1e9) VIRTUAL,
    PRIMARY KEY (run, start_ns)
) STRICT, WITHOUT ROWID
"""

_BLOCKS = """
CREATE TABLE blocks (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    first_step INTEGER NOT NULL,
    phase TEXT NOT NULL,
    steps INTEGER NOT NULL,
    examples INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    examples_per_s REAL AS (examples * 1e9 / (end_ns - start_ns)) VIRTUAL,
    loss REAL,
    allocator_bytes INTEGER,
    PRIMARY KEY (run, first_step)
) STRICT, WITHOUT ROWID
"""

_SAMPLES = """
CREATE TABLE samples (
    device_id INTEGER NOT NULL REFERENCES devices (device_id) ON DELETE CASCADE,
    t_ns INTEGER NOT NULL,
    power_mw INTEGER,
    load_pct REAL,
    memory_bytes INTEGER,
    temperature_c INTEGER,
    sm_clock_mhz INTEGER,
    power_limit_mw INTEGER,
    worker_load_pct REAL,
    worker_memory_bytes INTEGER,
    PRIMARY KEY (device_id, t_ns)
) STRICT, WITHOUT ROWID
"""

_LOG_LINES = """
CREATE TABLE log_lines (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    line INTEGER NOT NULL,
    t_ns INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (run, line)
) STRICT, WITHOUT ROWID
"""

_INDICES = (
    "CREATE INDEX runs_by_start ON runs (started_utc_ns)",
    "CREATE INDEX runs_by_workload ON runs (workload, started_utc_ns)",
    "CREATE INDEX runs_unfinished ON runs (run) WHERE outcome IS NULL",
)


_SLOW_SAMPLES = """
CREATE TABLE slow_samples (
    device_id INTEGER NOT NULL REFERENCES devices (device_id) ON DELETE CASCADE,
    t_ns INTEGER NOT NULL,
    energy_mj INTEGER,
    memory_reserved_bytes INTEGER,
    memory_temperature_c INTEGER,
    fan_pct INTEGER,
    throttled_power_ns INTEGER,
    throttled_thermal_ns INTEGER,
    throttled_brake_ns INTEGER,
    pcie_tx_bytes_per_s REAL,
    pcie_rx_bytes_per_s REAL,
    nvlink_tx_bytes_per_s REAL,
    nvlink_rx_bytes_per_s REAL,
    sm_active_pct REAL,
    sm_occupancy_pct REAL,
    tensor_active_pct REAL,
    fp32_active_pct REAL,
    fp16_active_pct REAL,
    dram_active_pct REAL,
    sampler_cpu_s REAL,
    PRIMARY KEY (device_id, t_ns)
) STRICT, WITHOUT ROWID
"""

_TELEMETRY_COLUMNS = (
    "samples ADD COLUMN power_average_mw INTEGER",
    "samples ADD COLUMN memory_load_pct REAL",
    "samples ADD COLUMN memory_clock_mhz INTEGER",
    "samples ADD COLUMN throttle_reasons INTEGER",
    "devices ADD COLUMN fields TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(fields))",
    "phases ADD COLUMN energy_mj REAL",
    "phases ADD COLUMN energy_error_mj REAL",
    "runs ADD COLUMN energy_error_pct REAL",
    "runs ADD COLUMN sample_hz REAL",
    "runs ADD COLUMN sample_jitter_ms_p50 REAL",
    "runs ADD COLUMN sample_jitter_ms_p99 REAL",
    "runs ADD COLUMN samples_missed INTEGER",
    "runs ADD COLUMN sampler_cpu_pct REAL",
)


_EPOCHS = """
CREATE TABLE epochs (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    epoch INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    examples INTEGER NOT NULL,
    start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL,
    tested_ns INTEGER NOT NULL,
    seconds REAL AS ((end_ns - start_ns) / 1e9) VIRTUAL,
    test_seconds REAL AS ((tested_ns - end_ns) / 1e9) VIRTUAL,
    loss REAL,
    accuracy REAL NOT NULL,
    PRIMARY KEY (run, epoch)
) STRICT, WITHOUT ROWID
"""

_IDLE_WAITS = """
UPDATE runs SET environment = (
    SELECT json_patch(environment, json_object(
        'gate', NULL,
        'idle_wait_outcome', CASE gate WHEN 'off' THEN 'off' WHEN wait THEN 'idle' WHEN 'skipped after ' || wait
            THEN 'skipped' ELSE 'timed out' END,
        'idle_wait_s', iif(gate = 'off', NULL, printf('%d', replace(wait, ',', ''))),
        iif(wait = gate, 'idle_wait_gpus', 'idle_wait_blockers'), nullif(substr(wait, instr(wait || 's', 's') + 3), '')
    )) FROM (
        SELECT gate, replace(replace(gate, 'gave up after ', ''), 'skipped after ', '') AS wait
        FROM (SELECT json_extract(environment, '$.gate') AS gate)
    )
) WHERE json_type(environment, '$.gate') = 'text'
"""
"""Formerly one sentence: `12 s, GPU 0 at 41 °C`, `gave up after 60 s: GPU 0 at 55 °C`, `off`."""


_MIGRATIONS: dict[str, tuple[str, ...]] = {
    # Runs with their devices, phases, blocks, samples and log lines.
    "m001_first_light": (
        *(_RUNS, _DEVICES, _PHASES, _BLOCKS, _SAMPLES, _LOG_LINES, *_INDICES),
        f"PRAGMA application_id = {APPLICATION_ID}",
    ),
    # Slow samples, more fields, the properties of each field, energy by phase, and telemetry's checks of itself.
    "m002_telemetry": (_SLOW_SAMPLES, *(f"ALTER TABLE {change}" for change in _TELEMETRY_COLUMNS)),
    # When a run's samples were deleted, and the settings of this database (how long it keeps samples).
    "m003_retention": (
        "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
        "ALTER TABLE runs ADD COLUMN pruned_utc_ns INTEGER",
    ),
    # What really ran and its kernels, operations per step, the devices' calibrations, and trials of weights.
    "m004_evidence": (
        *(EVIDENCE, KERNELS, PORTABILITY, CALIBRATIONS),
        "ALTER TABLE runs ADD COLUMN flops_per_step INTEGER",
        "ALTER TABLE runs ADD COLUMN peak_flops_per_s REAL",
    ),
    # Passes over stored data with the accuracy after each, and how long measured steps waited for data.
    "m005_epochs": (
        _EPOCHS,
        "ALTER TABLE runs ADD COLUMN ready_step_ms REAL",
        "ALTER TABLE runs ADD COLUMN waiting_pct REAL",
    ),
    # Where each device's time went in the traced steps, and a run's purpose unless it ran for its own sake.
    "m006_scaling": (DEVICE_TIMES, "ALTER TABLE runs ADD COLUMN purpose TEXT"),
    # Notes, tags, saved filters, experiments and the trash.
    "m007_library": LIBRARY,
    # How many of the first measured blocks a run's figures leave out; NULL before this rule existed.
    "m008_warmup": ("ALTER TABLE runs ADD COLUMN blocks_cut INTEGER",),
    # Unfinished experiments, in the order in which they will run.
    "m009_queue": (QUEUE,),
    # Which part of a request was verified, and why the rest was not; lists are ordered by it under its own name.
    "m010_evidence_state": (
        "ALTER TABLE evidence ADD COLUMN unverified TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(unverified))",
        "ALTER TABLE evidence ADD COLUMN state TEXT",
        *(_DOUBTFUL_EVIDENCE, _OLDER_EVIDENCE, *EVIDENCE_STATE),
        """UPDATE filters SET query = json_set(query, '$.order', 'evidence')
        WHERE json_extract(query, '$.order') = 'as_asked'""",
        """UPDATE settings SET value = replace(value, 'as_asked', 'evidence')
        WHERE name IN ('shown_columns', 'hidden_figures')""",
    ),
    # What an experiment's variants compute, checked against its baseline before the first run.
    "m011_equality": (EQUALITY,),
    # How many readings of each field of a device were left out as implausible.
    "m012_implausible": (
        "ALTER TABLE devices ADD COLUMN implausible TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(implausible))",
    ),
    # The host of a run, if not the program's own machine.
    "m013_hosts": HOSTS,
    # When each kernel of one traced step ran, GPU time and occupancy; older runs have the first as well.
    "m014_steps": STEPS,
    # The field of a run in which a search finds a word.
    "m015_search_fields": tuple(search_field_statements()),
    # Which experiments of the queue came from another database; unknown for older ones.
    "m016_imported_entries": ("ALTER TABLE queue ADD COLUMN imported INTEGER NOT NULL DEFAULT 0",),
    # How long each device waited for the host and between kernels in the traced steps; NULL if unknown.
    "m017_idle_causes": (
        "ALTER TABLE device_times ADD COLUMN host_wait_ns INTEGER",
        "ALTER TABLE device_times ADD COLUMN kernel_wait_ns INTEGER",
    ),
    # A table that m023 removes.
    "m018_estimates": (),
    # A run's framework, which is TensorFlow for runs older than the parameter.
    "m019_frameworks": FRAMEWORKS,
    # A search for TensorFlow also finds the runs that do not name it.
    "m020_search_frameworks": tuple(search_field_statements()),
    # Outcome, seconds and blockers of the idle wait before a run, formerly one sentence.
    "m021_idle_wait": (_IDLE_WAITS,),
    # GPU time of several GPUs without what they wait for each other.
    "m022_waits": (_STEPS_WITHOUT_WAITS,),
    # No times that experiments were expected to take: nothing read them.
    "m023_no_estimates": ("DROP TABLE IF EXISTS estimates",),
    # A script's framework, by its environment.
    "m024_script_frameworks": (*SCRIPT_FRAMEWORKS, *search_field_statements("framework")),
}
"""Each migration's statements, in their order; a new one comes last, and none ever changes."""


migrations = Migrations("variantscope")


def _register(name: str, statements: Iterable[str]) -> None:
    @migrations(name=name)
    def _(db: Database) -> None:
        for statement in statements:
            db.execute(statement)


for _name, _statements in _MIGRATIONS.items():
    _register(_name, _statements)
