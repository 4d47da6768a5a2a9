"""The table of telemetry fields against all that follows from it: readers, columns and documents."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.storage.store import Store
from app.telemetry.nvml_calls import FAST_CALLS, PCIE_COUNTER_CALL, SLOW_CALLS
from app.telemetry.nvml_calls import FIELDS as GPM_FIELDS
from app.telemetry.nvml_calls import INTERVAL_S as GPM_INTERVAL_S
from app.telemetry.sampler import HostSource
from app.values.fields import (
    FAST_FIELDS,
    FIELDS,
    SLOW_FIELDS,
    TOPICS,
    Field,
    Sample,
    SlowSample,
    fields_of,
    plotted_fields,
)

DOCS = Path(__file__).parents[2] / "docs"
INTERVALS_S = {
    **{name: each.interval_s for each in (*SLOW_CALLS, PCIE_COUNTER_CALL) for name in each.alternatives[0].fields},
    **dict.fromkeys(GPM_FIELDS, GPM_INTERVAL_S),
    "sampler_cpu_s": 0.5,
}


def test_samples_have_exactly_the_fields() -> None:
    assert Sample.__struct_fields__ == ("t_ns", "device", *FAST_FIELDS, "implausible")
    assert SlowSample.__struct_fields__ == ("t_ns", "device", *SLOW_FIELDS, "implausible")
    assert (*FAST_FIELDS, *SLOW_FIELDS) == tuple(FIELDS)


def test_every_fast_field_of_a_gpu_has_a_reader() -> None:
    read = {name for alternatives in FAST_CALLS for call in alternatives for name in call.fields}
    assert read == {field.name for field in fields_of("gpu") if field.speed == "fast"}


def test_every_slow_field_of_a_gpu_has_a_reader() -> None:
    assert set(INTERVALS_S) - {"sampler_cpu_s"} == {field.name for field in fields_of("gpu") if field.speed == "slow"}


def test_every_field_of_the_host_has_a_reader() -> None:
    source = HostSource()
    source.start()
    (sample,), slow = source.read(), source.read_slow()
    reported = {name for name in FAST_FIELDS if getattr(sample, name) is not None}
    reported |= {name for name in SLOW_FIELDS if getattr(slow, name) is not None}
    (host,) = source.devices
    unread = {field.name for field in fields_of("host")} - reported - set(host.absent)
    assert reported <= {field.name for field in fields_of("host")}
    assert unread <= {"power_mw", "worker_load_pct", "worker_memory_bytes"}, "after one reading, without a run"


@pytest.mark.parametrize(("table", "names"), [("samples", FAST_FIELDS), ("slow_samples", SLOW_FIELDS)])
def test_every_field_has_a_column_of_its_type(database_path: Path, table: str, names: tuple[str, ...]) -> None:
    with Store.open(database_path) as store:
        columns = {row[1]: row[2] for row in store._db.execute(f"PRAGMA table_info({table})")}
    assert {name: columns.get(name) for name in names} == {
        name: "INTEGER" if FIELDS[name].is_integer else "REAL" for name in names
    }
    assert set(columns) == {"device_id", "t_ns", *names}


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_a_row_is_complete(field: Field) -> None:
    assert field.label
    assert field.meaning
    assert field.source
    assert field.absent
    assert field.topic in TOPICS
    assert field.unit != "bits" or field.name == "throttle_reasons", "the name says the unit"
    assert FIELDS[field.panel].panel == field.panel
    assert field.kind != "share" or field.unit == "%"


def test_a_label_is_one_field_s() -> None:
    for kind in ("gpu", "host"):
        labels = [field.label_on(kind) for field in fields_of(kind)]
        assert len(labels) == len(set(labels))


def test_what_is_plotted_can_be_reported() -> None:
    for field in FIELDS.values():
        assert not field.gpu_plots or "gpu" in field.devices
        assert not field.host_plots or "host" in field.devices
    assert all(field.speed == "fast" for field in plotted_fields("compare", "gpu"))


def devices(field: Field) -> str:
    return " and ".join("GPU" if kind == "gpu" else "host" for kind in field.devices)


def table(title: str, names: tuple[str, ...], third: Mapping[str, str]) -> str:
    """The table of docs/telemetry.md; `third` is the column that fast and slow fields have different."""
    rows = [
        f"| `{field.name}` | {field.unit} | {third[field.name]} | {field.meaning} | {field.source} | {field.absent} |"
        for field in map(FIELDS.__getitem__, names)
    ]
    return "\n".join([f"| field | unit | {title} | meaning | source | absent |", "| --- " * 6 + "|", *rows])


FAST_TABLE = table("device", FAST_FIELDS, {name: devices(field) for name, field in FIELDS.items()})
SLOW_TABLE = table("every", SLOW_FIELDS, {name: f"{interval_s:g} s" for name, interval_s in INTERVALS_S.items()})


def number(value: float) -> str:
    if value < 1e9:
        return f"{value:,.0f}"
    return f"2^{math.log2(value):.0f}" if math.log2(value).is_integer() else f"{value:.2g}"


def limits_table() -> str:
    """The table of limits in docs/telemetry.md, fields of the same limits together."""
    rows = ["| fields | plausible | because |", "| --- " * 3 + "|"]
    for limits in dict.fromkeys(field.limits for field in FIELDS.values()):
        fields = [field for field in FIELDS.values() if field.limits == limits]
        names = " ".join(f"`{field.name}`" for field in fields)
        highest = f"to {number(limits.high)}" if math.isfinite(limits.high) else "or more"
        rows.append(f"| {names} | {number(limits.low)} {highest} {fields[0].unit} | {limits.reason} |")
    return "\n".join(rows)


@pytest.mark.parametrize("expected", [FAST_TABLE, SLOW_TABLE, limits_table()], ids=["fast", "slow", "limits"])
def test_the_page_on_telemetry_has_the_table(expected: str) -> None:
    assert expected in (DOCS / "telemetry.md").read_text("utf-8"), f"docs/telemetry.md needs this table:\n{expected}"


@pytest.mark.parametrize(("section", "names"), [("samples", FAST_FIELDS), ("slow_samples", SLOW_FIELDS)])
def test_the_page_on_exports_names_every_field(section: str, names: tuple[str, ...]) -> None:
    text = (DOCS / "export.md").read_text("utf-8")
    found = re.search(rf"^### `{section}`\n(.*?)(?=^##|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found
    assert set(names) <= set(re.findall(r"`(\w+)`", found[1]))
