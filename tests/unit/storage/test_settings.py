"""Settings are found under the names that existing databases have."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.storage import known_settings
from app.storage.database import load_setting, save_setting
from app.storage.known_settings import Setting, custom_source
from app.storage.store import Store

STORED: list[tuple[Setting[Any], str, str, Any]] = [
    (known_settings.NOTICE, "notice", "sound", "sound"),
    (known_settings.STANDBY, "standby", "off", "off"),
    (known_settings.KEEP_SAMPLES_DAYS, "keep_samples_days", "30", 30),
    (known_settings.PRICE_PER_KWH, "price_per_kwh", "0.36", 0.36),
    (known_settings.CARBON_G_PER_KWH, "carbon_g_per_kwh", "400.0", 400.0),
    (known_settings.SHOWN_COLUMNS, "shown_columns", "run started", ["run", "started"]),
    (known_settings.HIDDEN_FIGURES, "hidden_figures", "energy memory", frozenset({"energy", "memory"})),
    (known_settings.FIRST_START, "first_start", "answered", "answered"),
    (known_settings.PRESET_FILES, "preset_files", '["a b.toml", "c.toml"]', ["a b.toml", "c.toml"]),
    (known_settings.CUSTOM_WORKLOADS, "own workloads", '["my net.py"]', ["my net.py"]),
    (custom_source("ab12"), "own source ab12", "{}", "{}"),
]


@pytest.mark.parametrize(("known", "name", "text", "value"), STORED, ids=[name for _, name, _, _ in STORED])
def test_a_setting_of_an_older_version_is_read_and_written_as_it_was(
    database_path: Path, known: Setting[Any], name: str, text: str, value: object
) -> None:
    Store.open(database_path).close()
    with closing(sqlite3.connect(database_path)) as connection, connection:
        connection.execute("INSERT INTO settings (name, value) VALUES (?, ?)", (name, text))
    assert load_setting(database_path, known) == value
    save_setting(database_path, known, None)
    assert load_setting(database_path, known) is None
    save_setting(database_path, known, value)
    with closing(sqlite3.connect(database_path)) as connection:
        assert connection.execute("SELECT name, value FROM settings").fetchall() == [(name, text)]


def test_every_setting_is_looked_at_here() -> None:
    named = [value.name for value in vars(known_settings).values() if isinstance(value, Setting)]
    assert sorted(named) == sorted(name for _, name, _, _ in STORED if name != "own source ab12")
