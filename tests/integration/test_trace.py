"""A real run as a timeline: `run`, then `export --format trace`, both as a user has them."""

import json
from pathlib import Path

from app.values.fields import FIELDS
from tests.fakes.command_line import CommandLine
from tests.unit.report.test_trace import check_viewable


def test_a_run_s_phases_blocks_load_and_log_come_into_its_timeline(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    document = command.read("run", "dummy", "-s", "steps=30", "-s", "step_ms=10")
    target = tmp_path / "dummy.json"
    done = command.inside("export", str(document["run"]), "--format", "trace", "-o", str(target))
    assert (done.returncode, done.stdout.startswith(f"Wrote 1 run to {target}, ")) == (0, True), done.stderr
    events = json.loads(target.read_text(encoding="utf-8"))["traceEvents"]
    check_viewable(events)
    slices = [event for event in events if event["ph"] == "X"]
    phases = [phase["phase"] for phase in document["phases"]]
    assert [event["name"] for event in slices if event["cat"] == "phase"] == phases
    blocks = [event["args"] for event in slices if event["cat"] == "block"]
    assert sum(args["steps"] for args in blocks if args["measured"]) == 30
    labels = {f"Host · {FIELDS[name].label_on('host')}" for device in document["devices"] for name in device["mean"]}
    assert {event["name"] for event in events if event["ph"] == "C"} >= {"Throughput", *labels}
