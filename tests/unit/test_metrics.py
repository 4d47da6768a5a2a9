"""The table of metrics: what it holds, that docs list it, and that one more row is in every place."""

import json
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.metrics import METRICS, Metric, run_metrics
from app.storage.store import Store
from app.values.events import Summary
from tests.unit.viewmodels.stored import keep, run_row, stored_run

ROOT = Path(__file__).parents[2]
NBSP = "\N{NO-BREAK SPACE}"


def test_keys_paths_and_orders_are_each_of_one_metric() -> None:
    for names in (
        [metric.key for metric in METRICS],
        [metric.json for metric in METRICS],
        [metric.list_column.order for metric in METRICS if metric.list_column],
    ):
        assert len(set(names)) == len(names)


def test_every_metric_has_one_source() -> None:
    for metric in METRICS:
        sources = (metric.of_summary, metric.of_row, metric.of_run)
        assert sum(source is not None for source in sources) == 1, metric.key
        assert not (metric.list_column and metric.of_run), f"{metric.key}: a list has no samples"


def test_every_figure_of_a_summary_is_a_metric() -> None:
    figures = {field.name for field in fields(Summary)} - {"energy_source"}
    unused = set(figures)
    for name in figures:
        summary = msgspec.convert({name: 17}, Summary)
        if any(metric.of_summary and metric.of_summary(summary) == 17 for metric in METRICS):
            unused.discard(name)
    assert unused == set()


def test_a_run_that_measured_nothing_has_no_metric_but_its_length() -> None:
    run = stored_run(run_row(1, throughput=None), measured=False)
    shown = {metric.label: metric.text(metric.value(run), "sequence") for metric in METRICS}
    assert {label: text for label, text in shown.items() if text != "–"} == {"Duration": "0:12"}
    assert set(run_metrics(run)) == {metric.key for metric in METRICS}


def folded(metric: Metric) -> str:
    return metric.fold if metric.compared else ""


def documented() -> str:
    """The table of docs/comparing.md."""
    rows = (
        (
            metric.label,
            "" if metric.column_title == metric.label else metric.column_title,
            metric.unit.replace("{examples}", "examples").replace("{example}", "example"),
            metric.help,
            folded(metric),
            metric.better,
            f"`{metric.json}`",
            f"`{metric.list_column.order}`" if metric.list_column else "",
        )
        for metric in METRICS
    )
    head = ("metric", "column", "unit", "meaning", "of several runs", "better", "JSON", "`--sort`")
    lines = (head, ("---",) * len(head), *rows)
    return "\n".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|" for cells in lines).replace(
        "\xa0", " "
    )


def test_docs_list_every_metric() -> None:
    page = (ROOT / "docs" / "comparing.md").read_text("utf-8")
    assert documented() in page, f"docs/comparing.md needs this table:\n{documented()}"


@pytest.fixture(scope="module")
def screens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a program with one more metric shows of two runs."""
    folder = tmp_path_factory.mktemp("added")
    with Store.open(folder / "profiles.db") as store:
        for number, last in ((1, 0.5), (2, 1.0)):
            row = run_row(number, layers=number)
            row = replace(row, summary=replace(row.summary, loss_first=2.5, loss_last=last))
            keep(store, stored_run(row))
    words = [str(folder / name) for name in ("profiles.db", "report.html")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.added_metric", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_one_more_row_is_in_the_window(screens: dict[str, Any]) -> None:
    assert screens["history"]["Loss drop, nat"] == "2.00"
    assert screens["page"]["Loss drop"] == f"2.00{NBSP}nat/sequence"
    assert screens["compare"]["Loss drop"] == "2.00"
    assert "Loss drop" in screens["headlines"]
    assert f"loss drop 2.00{NBSP}nat/sequence" in screens["line"]


def test_one_more_row_is_in_the_documents(screens: dict[str, Any]) -> None:
    assert [row["run"] for row in screens["ordered"]] == [1, 2], "the highest comes first"
    assert screens["list --json"]["loss"] == {"drop": 1.5}, "the newest comes first"
    assert screens["show --json"]["loss"] == {"first": 2.5, "last": 0.5, "drop": 2.0}
    assert screens["compare --json"]["loss"] == {"drop": 2.0}


def test_one_more_row_is_in_the_terminal_and_in_reports(screens: dict[str, Any]) -> None:
    assert "loss drop" in screens["list"].splitlines()[0]
    assert "2.00 nat/sequence" in screens["show"]
    assert "loss drop" in screens["terminal"]
    assert "Loss drop" in screens["report"]
