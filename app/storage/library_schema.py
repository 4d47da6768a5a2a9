"""Schema of the run library and the queue: search text, tags, filters, experiments, trash, and queue entries."""

from collections.abc import Iterator, Mapping

from app.values.environment_keys import HOST_KEY

_TAGS = """
CREATE TABLE tags (
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    tag TEXT NOT NULL COLLATE NOCASE,
    PRIMARY KEY (run, tag)
) STRICT, WITHOUT ROWID
"""

_FILTERS = """
CREATE TABLE filters (
    name TEXT PRIMARY KEY,
    query TEXT NOT NULL CHECK (json_valid(query))
) STRICT, WITHOUT ROWID
"""

_EXPERIMENTS = """
CREATE TABLE experiments (
    experiment INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    preset TEXT,
    created_utc_ns INTEGER NOT NULL,
    plan TEXT NOT NULL CHECK (json_valid(plan))
) STRICT
"""

_EXPERIMENT_RUNS = """
CREATE TABLE experiment_runs (
    experiment INTEGER NOT NULL REFERENCES experiments (experiment) ON DELETE CASCADE,
    run INTEGER NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    PRIMARY KEY (experiment, run)
) STRICT, WITHOUT ROWID
"""

_SEARCH_TEXT_TRIGGERS = {
    "runs_changed": "UPDATE OF workload, variant, outcome, reason, purpose, started_utc_ns, note ON runs",
    "devices_added": "INSERT ON devices",
    "evidence_added": "INSERT ON evidence",
    "tags_added": "INSERT ON tags",
    "tags_removed": "DELETE ON tags",
    "experiment_runs_added": "INSERT ON experiment_runs",
    "experiment_runs_removed": "DELETE ON experiment_runs",
}
"""The changes that alter a run's search text. Triggers update it, so code that writes runs need not."""

_RUNS_LISTED = """CREATE INDEX runs_listed ON runs (
        deleted_utc_ns, workload, outcome, started_utc_ns, ended_utc_ns, throughput, step_ms_p50, mean_power_mw,
        energy_mj_per_example, implementation, layout, gpus, batch_size, precision, xla{more}
    )"""
"""Covers what lists of runs filter and sort by: the wide rows are read only for the few displayed runs."""

_INDICES = (
    _RUNS_LISTED.format(more=""),
    "CREATE INDEX devices_listed ON devices (run, kind, device_index, name)",
    "CREATE INDEX evidence_listed ON evidence (run, match)",
    "CREATE INDEX tags_by_tag ON tags (tag, run)",
    "CREATE INDEX experiments_of_run ON experiment_runs (run, experiment)",
)


LIBRARY = (
    "ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN deleted_utc_ns INTEGER",
    *(_TAGS, _FILTERS, _EXPERIMENTS, _EXPERIMENT_RUNS, *_INDICES),
)
"""The statements that add notes, tags, filters, experiments and the trash."""

EVIDENCE_STATE = ("DROP INDEX evidence_listed", "CREATE INDEX evidence_listed ON evidence (run, state)")
"""The statements that make the state of a run's evidence a sort key."""

HOSTS = (
    f"ALTER TABLE runs ADD COLUMN host TEXT AS (json_extract(environment, '$.{HOST_KEY}')) VIRTUAL",
    "DROP INDEX runs_listed",
    _RUNS_LISTED.format(more=", host"),
    "UPDATE settings SET value = value || ' host' WHERE name = 'shown_columns'",
)
"""The statements that make a run's host a column, and a sort key."""

FRAMEWORKS = (
    "ALTER TABLE runs ADD framework TEXT AS (ifnull(json_extract(variant, '$.framework'), 'tensorflow')) VIRTUAL",
    "DROP INDEX runs_listed",
    _RUNS_LISTED.format(more=", host, framework"),
    "UPDATE settings SET value = value || ' framework' WHERE name = 'shown_columns'",
)
"""The statements that make a run's framework a column, and a sort key."""
_FRAMEWORK = """
    CASE WHEN workload LIKE 'script:%' THEN CASE
        WHEN json_extract(environment, '$.jax') > '' THEN 'jax'
        WHEN json_extract(environment, '$.pytorch') > '' THEN 'pytorch'
        WHEN json_extract(environment, '$.tensorflow') > '' THEN 'tensorflow' ELSE '' END
    ELSE ifnull(json_extract(variant, '$.framework'), 'tensorflow') END"""
"""SQL of a run's framework: of a script the one that it computed with, which others may accompany, or ''."""
SCRIPT_FRAMEWORKS = (
    "DROP INDEX runs_listed",
    "ALTER TABLE runs DROP COLUMN framework",
    f"ALTER TABLE runs ADD framework TEXT AS ({_FRAMEWORK}) VIRTUAL",
    _RUNS_LISTED.format(more=", host, framework"),
)
"""The statements that tell a script's framework by its environment: it was TensorFlow for all."""

_MISMATCH_REASON = "SELECT reason FROM evidence WHERE evidence.run = runs.run AND match = 0"
_SEARCH_FIELDS: Mapping[str, str] = {
    "variant": """
        coalesce((
            SELECT group_concat(key || '=' || CASE type WHEN 'true' THEN type WHEN 'false' THEN type ELSE value END,
                char(10)) FROM json_each(json_insert(variant, '$.framework', {framework}))), '')
            || coalesce(char(10) || purpose, '')""",
    "workload": "workload",
    "tag": "coalesce((SELECT group_concat(tag, char(10)) FROM tags WHERE tags.run = runs.run), '')",
    "note": "note",
    "experiment": """
        coalesce((
            SELECT group_concat(name, char(10)) FROM experiment_runs JOIN experiments USING (experiment)
            WHERE experiment_runs.run = runs.run), '')""",
    "card": """
        coalesce((
            SELECT group_concat(name, char(10)) FROM devices WHERE devices.run = runs.run AND kind = 'gpu'),
            CASE gpus WHEN 0 THEN 'CPU' ELSE '' END)""",
    "host": "coalesce(host, '')",
    "outcome": "replace(coalesce(outcome, 'running'), '_', ' ')",
    "evidence": "coalesce((SELECT state FROM evidence WHERE evidence.run = runs.run), '')",
    "started": "coalesce(started_utc, '')",
    "reason": f"coalesce(reason, '') || char(10) || coalesce(({_MISMATCH_REASON}), '')",
}
"""SQL of the fields that a search covers, one column each in `run_words`; SQLite lower-cases only ASCII letters."""


def search_field_statements(framework: str = "'tensorflow'") -> Iterator[str]:
    """Yield the statements that maintain the searched text by field; `words` has all of it.

    An older table without fields is dropped. `framework` is SQL of the framework of a run whose settings name none.
    """
    columns = ", ".join(("words", *_SEARCH_FIELDS))
    joined = " || char(10) || ".join(_SEARCH_FIELDS)
    for name in ("runs_added", *_SEARCH_TEXT_TRIGGERS):
        yield f"DROP TRIGGER IF EXISTS {name}"
    yield "DROP VIEW IF EXISTS run_words_now"
    yield "DROP TABLE IF EXISTS run_words"
    texts = ", ".join(f"{name} TEXT NOT NULL" for name in ("words", *_SEARCH_FIELDS))
    yield f"CREATE TABLE run_words (run INTEGER PRIMARY KEY REFERENCES runs (run) ON DELETE CASCADE, {texts}) STRICT"
    fields = ", ".join(
        f"lower({sql.replace('{framework}', framework)}) AS {name}" for name, sql in _SEARCH_FIELDS.items()
    )
    yield (
        f"CREATE VIEW run_words_now AS SELECT run, {joined} AS words, {', '.join(_SEARCH_FIELDS)}"
        f" FROM (SELECT run, {fields} FROM runs)"
    )
    insert = f"INSERT INTO run_words (run, {columns}) SELECT run, {columns} FROM run_words_now"
    yield insert
    yield f"CREATE TRIGGER runs_added AFTER INSERT ON runs BEGIN {insert} WHERE run = NEW.run; END"
    for name, change in _SEARCH_TEXT_TRIGGERS.items():
        row = "OLD" if change.startswith("DELETE") else "NEW"
        yield (
            f"CREATE TRIGGER {name} AFTER {change} BEGIN UPDATE run_words"
            f" SET ({columns}) = (SELECT {columns} FROM run_words_now WHERE run = {row}.run)"
            f" WHERE run = {row}.run AND run IN (SELECT run FROM runs); END"
        )


QUEUE = """
CREATE TABLE queue (
    entry INTEGER PRIMARY KEY AUTOINCREMENT,
    uid TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    preset TEXT,
    plan TEXT NOT NULL CHECK (json_valid(plan)),
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'paused')),
    place INTEGER NOT NULL,
    added_utc_ns INTEGER NOT NULL,
    experiment INTEGER REFERENCES experiments (experiment) ON DELETE SET NULL,
    owner_pid INTEGER,
    owner_started_s REAL,
    owner_boot_id TEXT
) STRICT
"""
"""AUTOINCREMENT never reuses a number: another program may still refer to a removed entry."""
