"""The diff of two runs: values, kernels, samples, and lines of text."""

from dataclasses import replace
from datetime import UTC

import pytest

from app.report.documents import diff_document
from app.values.records import StoredRun
from app.values.samples import LogLine
from app.viewmodels.history.run_diff import (
    DiffRow,
    LineChange,
    RunDiff,
    format_change,
    line_changes,
    log_changes,
    run_diff,
)
from tests.fakes.evidence import AS_REQUESTED, MISLABELLED
from tests.unit.viewmodels.stored import run_row, stored_run


@pytest.fixture
def runs() -> tuple[StoredRun, StoredRun]:
    first = stored_run(
        run_row(1, gpus=1, batch_size=64, found=AS_REQUESTED, energy_mj=20.0),
        environment={"cudnn_loaded": "9.1.0", "os": "Ubuntu", "idle_wait_s": "0"},
        evidence=AS_REQUESTED,
    )
    second = stored_run(
        run_row(2, gpus=1, batch_size=64, xla=True, throughput=1100.0, found=MISLABELLED, energy_mj=50.0),
        environment={"cudnn_loaded": "9.2.0", "os": "Ubuntu", "idle_wait_s": "2"},
        evidence=MISLABELLED,
    )
    return first, replace(second, log=(*second.log, LogLine(second.anchor_t_ns, "a line of its own")))


def rows(found: RunDiff, key: str) -> dict[str, DiffRow]:
    (section,) = (section for section in found.sections if section.key == key)
    return {row.name: row for row in section.rows}


def test_each_section_lists_what_differs_and_counts_what_is_alike(runs: tuple[StoredRun, StoredRun]) -> None:
    diff = run_diff(*runs, UTC)
    assert rows(diff, "parameters") == {"XLA": DiffRow("XLA", "off", "on", help="xla")}
    assert {name: row[1:3] for name, row in rows(diff, "environment").items()} == {"cuDNN loaded": ("9.1.0", "9.2.0")}
    assert {name: row[1:3] for name, row in rows(diff, "conditions").items()} == {"Idle wait, s": ("0", "2")}
    figures = rows(diff, "figures")
    assert figures["Throughput"].change.replace("\N{NO-BREAK SPACE}", " ") == "+10.0 %"
    assert figures["Energy"].change == "2.50×"
    (environment,) = (section for section in diff.sections if section.key == "environment")
    assert environment.counts == "1 differs, 2 alike"
    assert rows(diff, "evidence")["Precision"][1:3] == ("TF32", "float32")


def test_kernels_are_compared_by_class_and_name_and_one_that_a_run_lacks_has_no_time(
    runs: tuple[StoredRun, StoredRun],
) -> None:
    kernels = rows(run_diff(*runs, UTC), "kernels")
    assert not kernels["RNN"].kernel
    assert kernels["RNN"].second == "–"
    assert kernels["elemWiseRNNcell"].kernel
    assert kernels["elemWiseRNNcell"].second == "–"
    assert kernels["elemWiseRNNcell"].help.startswith("void elemWiseRNNcell<")
    assert kernels["Sigmoid_GPU_DT_FLOAT_DT_FLOAT_kernel"].first == "–"


def test_samples_are_means_of_the_measured_part_device_by_device(runs: tuple[StoredRun, StoredRun]) -> None:
    first, second = runs
    warmer = [
        replace(columns, fields={**columns.fields, "temperature_c": columns.fields["temperature_c"] + 4})
        for columns in second.samples
    ]
    # Before `measure` it was hotter: that is no part of the mean.
    for columns in warmer:
        columns.fields["temperature_c"][: len(columns.t_ns) // 4] = 90
    found = rows(run_diff(first, replace(second, samples=tuple(warmer)), UTC), "samples")
    assert [row[1:4] for row in found.values()] == [("61\N{NO-BREAK SPACE}°C", "65\N{NO-BREAK SPACE}°C", "")]
    assert list(found) == ["GPU 0: Temperature"]


def test_runs_of_one_variant_and_runs_without_measurements_have_a_diff_too(runs: tuple[StoredRun, StoredRun]) -> None:
    first, _ = runs
    repeat = replace(first, row=replace(first.row, run=3))
    diff = run_diff(first, repeat, UTC)
    assert not any(section.rows for section in diff.sections if section.key not in ("kernels", "run"))
    assert diff.texts[-1].counts == "no line differs"
    failed = stored_run(run_row(4, outcome="failed", throughput=None), measured=False)
    without = run_diff(first, failed, UTC)
    assert rows(without, "figures")["Throughput"].second == "–"
    assert not rows(without, "kernels")


def test_the_document_has_pairs_of_raw_values(runs: tuple[StoredRun, StoredRun]) -> None:
    document = diff_document(*runs)
    assert document["parameters"] == {"xla": [False, True]}
    assert document["environment"]["cudnn_loaded"] == ["9.1.0", "9.2.0"]
    assert document["metrics"]["throughput"]["value"] == [1000.0, 1100.0]
    assert document["samples"][0]["mean"]["temperature_c"] == [61.0, 61.0]
    assert document["log"] == {"first": [], "second": ["a line of its own"]}
    assert {part["kind"] for part in document["kernels"]["parts"]} >= {"rnn", "gemm"}


def test_times_threads_and_addresses_make_no_line_differ() -> None:
    first = ["2026-11-22 00:11:50.123: I cuda.cc:1] at 0x7f00", "I0000 00:00:179530.336  3403 port.cc:153] on", "one"]
    second = ["2026-11-23 10:00:00.9: I cuda.cc:1] at 0x7fff", "I0000 00:00:179999.1  41 port.cc:153] on", "two"]
    assert log_changes(first, second) == (LineChange("first", "one"), LineChange("second", "two"))


@pytest.mark.parametrize("lines", [199, 200, 300, 20_000])
def test_a_line_more_among_many_alike_is_one_change(lines: int) -> None:
    # As in a log with a line per step, or a progress bar: few different lines, each many times.
    first = [f"step {number % 3} ok" for number in range(lines)]
    middle = len(first) // 2
    assert log_changes(first, [*first[:middle], "new", *first[middle:]]) == (LineChange("second", "new"),)
    assert [change.side for change in log_changes(first, first[1:])] == ["first"]


def test_of_a_long_source_the_lines_that_changed_are_all() -> None:
    first = [f"    step({number})" if number % 3 else "" for number in range(600)]
    second = [*first[:300], "@new", "", *first[300:500], *first[501:]]
    changes = (LineChange("second", "@new"), LineChange("second", ""), LineChange("first", first[500]))
    assert line_changes(first, second) == changes


def test_a_line_of_a_log_that_comes_later_is_no_change_and_one_of_a_source_is() -> None:
    assert log_changes(["a", "b", "b"], ["b", "a", "b"]) == ()
    assert {change.side for change in line_changes(["a", "b"], ["b", "a"])} == {"first", "second"}


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (100.0, 106.4, "+6.4 %"),
        (100.0, 93.6, "−6.4 %"),
        (1.0, 2.5, "2.50×"),
        (100.0, 100.01, "+0.01 %"),
        (1.0, None, ""),
        (0.0, 3.0, ""),
        (5.0, 5.0, ""),
    ],
)  # fmt: skip
def test_a_change_is_a_percentage_and_from_twice_on_a_factor(first: float, second: float | None, said: str) -> None:
    assert format_change(first, second).replace("\N{NO-BREAK SPACE}", " ") == said
