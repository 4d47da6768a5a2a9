"""A database that is opened and holds what the program never writes: absent, or one sentence, never a traceback."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.errors import DatabaseError
from app.storage import database
from app.storage.database import load_setting, save_setting
from app.storage.files import DiskSpace
from app.storage.known_settings import KEEP_SAMPLES_DAYS, PRESET_FILES, Setting
from app.storage.store import Store
from app.values.events import Outcome
from tests.fakes.runs import BLOCKS, ENVIRONMENT, SPEC, keep
from tests.unit.storage.contents import changed


def stored(path: Path, *statements: str) -> None:
    """Make a database with one run, and change it."""
    with Store.open(path) as store:
        keep(store)
    changed(path, "PRAGMA ignore_check_constraints = ON", *statements)


@pytest.mark.parametrize(
    "text", ['"many"', "[1]", "null", '{"cpu": 5}', '{"cpu": null}', f'{{"cpu": {"[" * 900}{"]" * 900}}}']
)
def test_a_damaged_environment_is_absent_and_in_the_log(
    text: str, database_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored(database_path, f"UPDATE runs SET environment = '{text}'")
    with caplog.at_level(logging.WARNING, "variantscope.storage"), Store.open(database_path) as store:
        assert store.load(1).environment == {}
        assert store.load_header(1).row.spec == SPEC
    assert "counts as absent" in caplog.text


def test_a_run_of_a_damaged_outcome_did_not_complete(database_path: Path) -> None:
    stored(database_path, "UPDATE runs SET outcome = 'paused'")
    with Store.open(database_path) as store:
        (row,) = store.list_runs()
    assert row.outcome == Outcome(name="crashed", reason="Its stored outcome is damaged.")


def test_other_damaged_parts_are_absent_by_themselves(database_path: Path) -> None:
    stored(
        database_path,
        "UPDATE devices SET absent = '5', fields = '[]', implausible = '{\"power_mw\": \"x\"}'",
        "UPDATE evidence SET asked = '[]', ran = 'true', unverified = '3', sources = '{}', notes = '[1]'",
    )
    with Store.open(database_path) as store:
        run = store.load(1)
    devices = [columns.device for columns in run.samples]
    assert {(str(device.absent), str(device.fields), str(device.implausible)) for device in devices} == {("{}",) * 3}
    assert run.evidence is not None
    assert (run.evidence.requested, run.evidence.actual, run.evidence.unverified) == ({}, {}, {})
    assert (run.evidence.sources, run.evidence.notes) == ((), ())
    assert ENVIRONMENT.items() <= run.environment.items()


@pytest.mark.parametrize(
    "change", ["'[]'", "'{}'", "json_set(variant, '$.batch_size', 'many')", "json_set(variant, '$.gpus', -1)"]
)
def test_a_run_of_a_damaged_variant_is_of_no_workload_that_is_known(change: str, database_path: Path) -> None:
    stored(database_path, f"UPDATE runs SET variant = {change}")
    with Store.open(database_path) as store:
        (row,) = store.list_runs()
    assert (row.spec.workload, row.spec.variant) == (f"{SPEC.workload} (damaged)", {})
    assert row.summary.throughput is not None, "what is not damaged is there"


def test_infinite_figures_are_absent(database_path: Path) -> None:
    stored(
        database_path,
        "UPDATE runs SET sample_hz = 9e999, throughput = -9e999",
        "UPDATE epochs SET loss = 9e999",
        "UPDATE portability SET max_difference = 9e999",
        "UPDATE equality SET difference = 9e999",
        "UPDATE blocks SET loss = 9e999 WHERE start_ns = (SELECT max(start_ns) FROM blocks)",
    )
    with Store.open(database_path) as store:
        run = store.load(1)
    assert (run.row.summary.sample_hz, run.row.summary.throughput) == (None, None)
    assert (run.epochs, run.portability, run.equality) == ((), (), ())
    assert len(run.blocks.start_ns) == len(BLOCKS)
    assert not np.isinf(run.blocks.loss).any()


@pytest.mark.parametrize("value", ["many", "5", "[5]", "{", ""])
def test_a_damaged_setting_was_never_set(value: str, database_path: Path) -> None:
    settings: tuple[Setting[Any], ...] = (KEEP_SAMPLES_DAYS, PRESET_FILES)
    for setting in settings:
        if (setting, value) != (KEEP_SAMPLES_DAYS, "5"):
            stored_value = Setting(setting.name, str, str)
            save_setting(database_path, stored_value, value)
            assert load_setting(database_path, setting) is None


def test_a_text_that_is_no_utf_8_is_one_sentence(database_path: Path) -> None:
    stored(database_path, "UPDATE runs SET reason = CAST(x'fffe' AS TEXT)")
    with Store.open(database_path) as store, pytest.raises(DatabaseError, match=r"is damaged; restore a copy of it"):
        store.load(1)


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE slow_samples RENAME throttled_brake_ns TO throttled_brakf_ns",),
        ("DELETE FROM _sqlite_migrations",),
        ("DELETE FROM _sqlite_migrations WHERE name = 'm003_retention'",),
        (
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_schema SET name = CAST(x'fe' AS TEXT) WHERE name = 'runs_listed'",
        ),
    ],
)
def test_a_damaged_schema_is_one_sentence(statements: tuple[str, ...], database_path: Path) -> None:
    with Store.open(database_path) as store:
        keep(store)
    changed(database_path, *statements)
    with pytest.raises(DatabaseError, match=r"is damaged; restore a copy of it"), Store.open(database_path) as store:
        store.load(1)


def test_json_that_sqlite_cannot_parse_is_one_sentence(database_path: Path) -> None:
    with (
        Store.open(database_path) as store,
        pytest.raises(DatabaseError, match=r"is damaged; restore a copy of it"),
        database.translate_sqlite_errors(database_path),
    ):
        store._db.execute("SELECT json_extract('{', '$.host')").fetchall()


@pytest.mark.parametrize(("free_bytes", "is_read_only"), [(0, True), (1, False), (None, False)])
def test_a_database_on_a_full_disk_is_opened_for_reading(
    free_bytes: int | None, is_read_only: bool, database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite could make no log there."""
    with Store.open(database_path) as store:
        keep(store)
    monkeypatch.setattr(database, "disk_space", lambda path: DiskSpace(path, free_bytes))
    with Store.open(database_path) as store:
        assert store.is_read_only == is_read_only
        (row,) = store.list_runs()
        assert row.spec == SPEC
        if is_read_only:
            with pytest.raises(DatabaseError, match="is full; free some space, what is stored already is kept"):
                store.library.set_note(1, "seen")
