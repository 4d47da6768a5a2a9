"""Every scenario through everything that shows telemetry: `gpus`, `watch`, a run and Monitor.

The real sampler has said it once (`recorded.py`); commands and Monitor then hear it at once, in this process.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from app.cli import machine
from app.cli.main import main
from app.report.documents import run_document
from app.telemetry.feed import TelemetryFeed
from app.telemetry.messages import SamplerMessage
from app.values.fields import FIELDS, Sample, SlowSample, fields_of
from app.values.samples import HOST, Device
from app.viewmodels.monitor.details import DeviceDetails, chosen_details
from app.viewmodels.monitor.model import MonitorModel, RowKey
from tests.fakes.scenarios import NAMES
from tests.scenarios.recorded import Recording, record_all

HIGHEST = {
    "mW": 2e6,
    "%": 100,
    "°C": 130,
    "MHz": 10_000,
    "bytes": 1e13,
    "bytes/s": 1e13,
    "ns": 2**62,
    "mJ": 2**53,
    "bits": 2**62,
    "s": 1e9,
}
"""The most that a field of a unit can be: twice what the largest GPU of today has, or what is stored exactly."""
_COMMANDING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that command a terminal or turn the direction of text around."""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Recording]:
    return record_all(tmp_path_factory.mktemp("scenarios"))


@pytest.fixture(params=NAMES)
def recording(request: pytest.FixtureRequest, recordings: Mapping[str, Recording]) -> Recording:
    return recordings[request.param]


class Played(TelemetryFeed):
    """Telemetry that says all of a recording to whoever subscribes, and then, as Ctrl-C does to `watch`, the end."""

    def __init__(self, messages: list[SamplerMessage]) -> None:
        super().__init__()
        self._messages = messages

    def start(self) -> None:
        with self._changed:
            self._take_in(self._messages[0])

    def subscribe(self, listener: Callable[[Any], None]) -> Callable[[], None]:
        for message in self._messages:
            with self._changed:
                self._take_in(message)
            listener(message)
        listener(None)
        return lambda: None


@dataclass(frozen=True)
class Said:
    out: str
    err: str


@pytest.fixture
def say(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Return what runs a command on this scenario, which has to end well and without a traceback."""
    assert recording.messages, recording.missing
    monkeypatch.setattr("app.cli.services.TelemetryFeed", lambda _hz: Played(recording.messages))
    monkeypatch.setattr(machine, "_WATCH_S", 0.0)

    def say(*words: str) -> Said:
        assert main(words) == 0
        said = Said(*capsys.readouterr())
        assert "Traceback" not in said.err
        assert not _COMMANDING.search(said.out + said.err)
        return said

    return say


def in_range(name: str, value: float | None, memory_total_bytes: int | None = None) -> bool:
    """Whether a GPU's field may have this value."""
    highest = HIGHEST[FIELDS[name].unit]
    if name in ("memory_bytes", "memory_reserved_bytes") and memory_total_bytes is not None:
        highest = memory_total_bytes
    return value is None or 0 <= value <= highest


def json_lines(text: str) -> list[dict[str, Any]]:
    """Parse strict JSON, a document a line."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def out_of_range(recording: Recording) -> Iterator[tuple[str, float]]:
    """Every value of a GPU that none can have."""
    totals = {device.device: device.memory_total_bytes for device in recording.inventory.devices}
    for message in recording.messages:
        if isinstance(message, Sample | SlowSample) and message.device != HOST:
            for name in FIELDS.keys() & set(message.__struct_fields__):
                value = getattr(message, name)
                if not in_range(name, value, totals.get(message.device)):
                    yield name, value


def test_the_story_is_told_by_the_sampler(recording: Recording) -> None:
    assert recording.missing == ""
    assert recording.stderr == ""
    assert set(out_of_range(recording)) == set()
    for device in recording.inventory.devices:
        if device.kind == "gpu":
            unexplained = {field.name for field in fields_of("gpu")} - device.fields.keys() - device.absent.keys()
            assert not unexplained or device.lost
            assert all(device.absent.values())
            assert not device.fields.keys() & device.absent.keys()


def test_gpus_prints_each_gpu_as_text_and_as_json(recording: Recording, say: Callable[..., Said]) -> None:
    say("gpus")
    document = json.loads(say("gpus", "--json").out)
    assert {gpu["uuid"] for gpu in document["gpus"]} >= recording.scenario.alive
    for gpu in document["gpus"]:
        for name, field in gpu["fields"].items():
            assert in_range(name, field["value"], gpu["memory_total_bytes"])
            assert field["supported"] or field["reason"] or gpu["lost"]


def test_watch_prints_readings_and_losses_as_text_json_and_csv(recording: Recording, say: Callable[..., Said]) -> None:
    said = say("watch", "--every", "0.01", "--seconds", "100")
    for index in numbers(recording, recording.scenario.lost):
        assert re.search(rf"^GPU {index} is lost", said.out + said.err, re.MULTILINE)
    check_json(recording, say("watch", "--every", "0.01", "--seconds", "100", "--json").out)
    check_csv(recording, say("watch", "--every", "0.01", "--seconds", "100", "--csv"))


def check_json(recording: Recording, text: str) -> None:
    lines = json_lines(text)
    lost = {line["device"] for line in lines if line.get("kind") == "device_lost"}
    assert lost >= set(recording.scenario.lost)
    for line in lines:
        for name in FIELDS.keys() & line.keys():
            assert line["device"] == HOST or in_range(name, line[name])
    newest = {line["device"]: line for line in lines if "load_pct" in line}
    assert newest.keys() >= recording.scenario.alive | {HOST}


def check_csv(recording: Recording, said: Said) -> None:
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert len({row["uuid"] for row in rows}) > len(recording.scenario.alive), "the host, too"
    for row in rows:
        if row["uuid"] != HOST:
            assert all(in_range(name, float(row[name])) for name in FIELDS.keys() & row.keys() if row[name])
    for index in numbers(recording, recording.scenario.lost):
        assert f"GPU {index}" in said.err


def numbers(recording: Recording, uuids: tuple[str, ...]) -> list[int]:
    """The indices of GPUs."""
    return [device.index for device in recording.inventory.devices if device.device in uuids]


def test_monitor_shows_no_value_of_a_lost_card(recording: Recording) -> None:
    rows = {device.device: row for device, row in monitored(recording)}
    assert rows.keys() >= recording.scenario.alive | {HOST}
    for uuid in recording.scenario.alive:
        assert rows[uuid].state.tone != "bad"
    for uuid in set(recording.scenario.lost) - recording.scenario.alive:
        assert rows[uuid].state.tone == "bad"
        assert rows[uuid].state.text in ("Lost", "Driver away")
        assert {value for _, value in rows[uuid].metrics} <= {"–"}
        assert (rows[uuid].processes, rows[uuid].processes_note) == ((), "")
    assert not any("-" in value for row in rows.values() for _, value in row.metrics)


def monitored(recording: Recording) -> Iterator[tuple[Device, DeviceDetails]]:
    """What Monitor says of each device at the end; rows that it shows meanwhile are made, too."""
    model = MonitorModel()
    for number, message in enumerate(recording.messages):
        model.handle(message)
        if number % 10 == 0:
            model.read()
            for place in model.layout():
                model.cells(place)
            model.tick()
    model.read()
    for device in recording.inventory.devices:
        yield device, chosen_details(model, RowKey("", device.device))


def test_a_run_ends_with_what_was_measured(recording: Recording) -> None:
    outcome, run = recording.outcome, recording.stored
    assert outcome is not None, recording.missing
    assert run is not None
    assert outcome.name == "completed"
    document = json.loads(json.dumps(run_document(run), allow_nan=False))
    gpus = [device for device in document["devices"] if device["kind"] == "gpu"]
    for gpu in gpus:
        assert all(in_range(name, value, gpu["memory_total_bytes"]) for name, value in gpu["mean"].items())
    # Two seconds among 33 samplers on two cores: nonsense is a thousand times as much, or negative.
    limit_mw = 4 * sum(700_000 for _ in gpus)
    assert 0 <= (run.row.summary.mean_power_mw or 0) <= limit_mw
    assert all(0 <= (phase["mean_power_mw"] or 0) <= limit_mw for phase in document["phases"])
    text = msgspec.json.encode(run_document(run)).decode()
    for gpu in gpus:
        if gpu["device"] in recording.scenario.lost:
            assert "stopped answering" in text
