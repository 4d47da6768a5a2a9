"""The table of experiments that are not finished: one is added, goes on, and leaves when all its runs are made."""

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
"""Numbers are never given twice: what one program removed, another may still name."""
