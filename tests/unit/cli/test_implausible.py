"""What `watch` and `gpus` say of readings that cannot be true, and of clocks that are held down."""

import json

import pytest

from app.cli.machine import _Readings
from app.cli.telemetry import Origin, OutputFormat, make_printer
from app.report.documents import gpus_document
from app.values.fields import Sample, SlowSample
from tests.unit.viewmodels.events import DEVICES, GPU_INVENTORY, ns

GPU = DEVICES[0].device
WRONG = Sample(t_ns=ns(1), device=GPU, sm_clock_mhz=1_980, implausible=("power_mw", "load_pct"))


def printed(output: OutputFormat, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    """The lines of stdout, and stderr, for an inventory and the sample twice."""
    show = make_printer(output, Origin(0, 0))
    for message in (GPU_INVENTORY, WRONG, WRONG):
        show(message)
    said = capsys.readouterr()
    return said.out.splitlines(), said.err


@pytest.mark.parametrize("output", ["text", "csv"])
def test_watch_names_each_field_once_beside_its_lines(output: OutputFormat, capsys: pytest.CaptureFixture[str]) -> None:
    lines, err = printed(output, capsys)
    assert err == "GPU 0 gives implausible readings, which are left out: power_mw, load_pct.\n"
    assert len([line for line in lines if "GPU 0" in line]) == 2


def test_each_line_of_json_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    lines, err = printed("json", capsys)
    sample = json.loads(lines[-1])
    assert (sample["implausible"], sample["power_mw"], err) == (["power_mw", "load_pct"], None, "")


def test_gpus_calls_a_field_implausible_whose_newest_reading_is() -> None:
    seen = _Readings()
    for message in (
        Sample(t_ns=ns(0), device=GPU, power_mw=600_000, implausible=("load_pct",)),
        WRONG,
        Sample(t_ns=ns(2), device=GPU, load_pct=7.0, implausible=("power_mw",)),
        SlowSample(t_ns=ns(2), device=GPU, fan_pct=40, implausible=("energy_mj",)),
    ):
        seen.take(message)
    document = gpus_document(seen.with_reasons(GPU_INVENTORY), {**seen.values, "host": {}})
    fields = document["gpus"][0]["fields"]
    reasons = {name: (field["value"], field["reason"]) for name, field in fields.items()}
    assert reasons["power_mw"] == reasons["energy_mj"] == (None, "implausible")
    assert (reasons["load_pct"], reasons["fan_pct"]) == ((7.0, None), (40, None))


def test_a_line_of_watch_says_why_the_clocks_are_held_down(capsys: pytest.CaptureFixture[str]) -> None:
    show = make_printer("text", Origin(0, 0))
    show(GPU_INVENTORY)
    for reasons in (0x44, 0x1):
        show(Sample(t_ns=ns(1), device=GPU, load_pct=97.0, throttle_reasons=reasons))
    _head, throttled, idle = capsys.readouterr().out.splitlines()
    assert throttled.endswith("throttled: power cap, hardware thermal limit")
    assert "throttled" not in idle, "idle clocks are no throttling"
