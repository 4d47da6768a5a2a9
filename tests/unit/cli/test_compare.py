"""`compare` on stored runs: the verdict, the table, the warnings, and runs that are searched for."""

import json
import math
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from app.cli.main import main
from app.storage.store import Store
from app.values.plan import Plan, encode_plan
from tests.fakes.command_line import Run
from tests.fakes.saved_experiments import save_experiment
from tests.fakes.traces import CONV, POOL, SLOW_GEMM, traced_run
from tests.unit.viewmodels.stored import keep, keep_all, run_row, stored_run
from workloads.protocol import RunSpec

OLD = (1000.0, 1003.0, 997.0)
NEW = (950.0, 952.0, 948.0)
OTHER = (1064.0, 1066.0, 1062.0)


@pytest.fixture
def compare(run: Run, database_path: Path) -> Run:
    """Compares NHWC in runs 1 to 3 long ago and 4 to 6 now, NCHW in 7 to 9; 9 with another driver; 4 to 9 tagged."""
    layouts = ["NHWC"] * 6 + ["NCHW"] * 3
    with Store.open(database_path) as store:
        for number, (rate, layout) in enumerate(zip((*OLD, *NEW, *OTHER), layouts, strict=True), 1):
            row = run_row(number, workload="cnn10", throughput=rate, energy_mj=20.0 + number % 3)
            row = replace(row, spec=RunSpec(workload="cnn10", variant={**row.spec.variant, "layout": layout}))
            keep(store, stored_run(row, environment={"driver": "590" if number == 9 else "580"}))
        store.library.add_tag(range(4, 10), "now")
    return partial(run, "compare")


def test_runs_are_named_with_commas_and_the_newest_one_as_last(
    compare: Run, run: Run, database_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = compare("4", "5", "9")
    assert compare("4,5", "last") == compare("4,5,last") == expected
    assert compare("1-3") == compare("1", "2", "3")
    assert main(["--db", str(database_path), "show", "last", "--json"]) == 0
    assert capsys.readouterr().out == (shown := run("show", "last", "--json"))
    assert json.loads(shown)["run"] == 9
    Store.open(empty := database_path.with_name("empty.db")).close()
    none = run("show", "last", database=empty, status=2)
    assert none.startswith("Invalid value for 'RUN': there is no stored run yet")


def test_the_verdict_comes_first_and_the_warnings_last(compare: Run, database_path: Path) -> None:
    lines = compare("4", "5", "6", "7", "8", "9").splitlines()
    assert lines[0].startswith("NCHW trains 12.0 % faster than NHWC (+11.")
    assert " No difference seen in energy per image (" in lines[0]
    assert lines[2].startswith("cnn10 · Native · 1 GPU · Batch size 1024 · float32 · all completed")
    table = lines[3:6]
    assert table[0].split()[:4] == ["variant", "runs", "images/s", "95"]
    assert [line.split()[:2] for line in table[1:]] == [["NHWC", "3"], ["NCHW", "3"]]
    assert ["+12.0 %" in line for line in table] == [False, False, True]
    drifted = "its speed has changed by −5.0 % from older runs of the same variant in the same environment."
    drift = (
        "before or after those of the baseline. "
        "A change in the machine in between would look like a difference between variants. "
        "That may change speed by up to 1.3 %."
    )
    driver = "A difference in speed may come from that."
    how = f"interleaved: `python -m app experiment --variants-of 4,7 --db {database_path}`"
    assert lines[7:] == [
        f"Warning: NVIDIA driver differs: 590 (1 of 3 runs of NCHW), else 580. {driver}",
        f"Warning: The baseline has drifted: {drifted} Do not compare with those.",
        f"Warning: All or most runs of NCHW were made {drift} Measure them {how}",
    ]


def test_why_runs_failed_is_said_below_the_table_once_a_reason(compare: Run, database_path: Path) -> None:
    with Store.open(database_path) as store:
        causes = [("bfloat16", "no such layer")] * 2 + [("tf32", "no such layer"), ("tf32", "No.")]
        for number, (precision, reason) in enumerate(causes, 20):
            failed = run_row(number, workload="cnn10", outcome="failed", reason=reason, throughput=None)
            variant = {**failed.spec.variant, "precision": precision}
            keep(store, stored_run(replace(failed, spec=RunSpec(workload="cnn10", variant=variant)), measured=False))
    lines = compare("1", "10", "11", "12", "13").splitlines()
    assert [line.endswith(". No such layer.") for line in lines if line.startswith("Warning: ")][:2] == [True, False]


def test_the_document_has_the_same_numbers_and_all_warnings(compare: Run) -> None:
    document = json.loads(compare("7", "8", "9", "1", "2", "3", "--baseline", "1", "--json"))
    assert (document["baseline"], document["verdict"]["decision"], document["level"]) == (1, "faster", 0.95)
    nchw, nhwc = document["rows"]
    assert (nchw["runs"], nhwc["decision"]) == ([7, 8, 9], "baseline")
    low, high = nchw["speedup"]["interval"]
    assert low < nchw["speedup"]["ratio"] < high
    low, high = nchw["energy_ratio_interval"]
    assert low < nchw["energy_ratio"] < high
    assert nchw["step_ms"]["p50"] == 32.0
    assert [(warning["key"], warning["severity"]) for warning in document["warnings"]] == [
        ("differs", "warning"),
        ("order", "warning"),
    ]
    assert document["warnings"][0]["runs"]["9"] == "590"


def test_runs_of_an_experiment_have_the_baseline_that_was_chosen_for_it(compare: Run, database_path: Path) -> None:
    words = ("1", "2", "3", "7", "8", "9", "--json")
    assert json.loads(compare(*words))["baseline"] == 1
    with Store.open(database_path) as store:
        base, other = (row.spec for row in store.library.run_rows([7, 1]))
        plan = encode_plan(Plan(name="layouts", variants=(base, other), repeats=3, has_baseline=True))
        save_experiment(store.library, [1, 2, 3, 7, 8, 9], name="layouts", preset=None, plan=plan)
    assert json.loads(compare(*words))["baseline"] == 7
    assert json.loads(compare(*words, "--baseline", "2"))["baseline"] == 2


def test_runs_are_found_as_list_finds_them_the_oldest_first(compare: Run) -> None:
    assert compare("--tag", "now") == compare("4", "5", "6", "7", "8", "9")
    words = compare("--search", "NHWC", "--workload", "cnn10")
    assert words.startswith("All chosen runs are of one variant")


def test_too_few_found_are_told(compare: Run, database_path: Path) -> None:
    assert compare("--tag", "never", status=2).startswith("compare takes two runs or more; the search found no run")
    with Store.open(database_path) as store:
        store.library.add_tag([2], "once")
    assert compare("--tag", "once", status=2).startswith("compare takes two runs or more; the search found one run")


def test_why_is_printed_below_and_is_in_the_document(run: Run, database_path: Path) -> None:
    other = traced_run(2, 18.0, {POOL: 1.0, SLOW_GEMM: 2.0, CONV: 15.0}, layout="NCHW")
    keep_all(database_path, (traced_run(1, 20.0, {POOL: 4.0, CONV: 15.0}, layout="NHWC"), other))
    lines = run("compare", "1", "2", "--why").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("NCHW takes 2.00 ms less per step than NHWC"))
    assert [re.sub(" +", " ", line.strip(" ")) for line in lines[start + 3 : start + 6]] == [
        "NHWC NCHW Change Of the step",
        "pooling 4.00 ms 1.00 ms −3.00 ms −15.0 %",
        "pooling_bw_kernel_avg 4.00 ms 1.00 ms −3.00 ms −15.0 %",
    ]
    assert "  NHWC with the pooling of NCHW: 17.6 % faster, 17.00 ms per step" in lines
    assert "Why" not in run("compare", "1", "2")
    (why,) = json.loads(run("compare", "1", "2", "--json"))["why"]
    assert (why["label"], why["runs"], why["examples"], why["step"]["difference_ms"]) == ("NCHW", [2], None, -2.0)
    assert [(part["kind"], round(part["difference_ms"], 6)) for part in why["parts"]] == [
        ("pooling", -3.0),
        ("gemm", 2.0),
        ("idle", -1.0),
        ("convolution", 0.0),
    ]
    assert why["parts"][1]["kernels"][0]["name"] == SLOW_GEMM
    assert why["parts"][1]["kernels"][0]["tensor_cores"] is False
    assert " ".join(statement["text"] for statement in why["statements"]) == why["text"]
    step, *parts = why["statements"]
    assert (step["key"], step["facts"]["change"]["value"], step["facts"]["first"]) == ("step", -2.0, ["NCHW"])
    pooling, gemm = ({"kind": kind, "change_ms": ms, "is_certain": True} for kind, ms in (("pooling", -3), ("gemm", 2)))
    assert [(part["key"], part["facts"].get("parts")) for part in parts[:2]] == [
        ("saves", [pooling]),
        ("loses", [gemm]),
    ]
    facts = why["what_if"][0]["facts"]
    assert (facts["of_baseline"], facts["taker"], facts["kinds"]) == (True, ["NHWC"], ["pooling"])
    assert (why["cause"], why["parts"][2]["causes"]) == (None, [])


def test_the_document_has_what_the_sentence_names_as_the_cause(run: Run, database_path: Path) -> None:
    many = {f"k{number}": 0.01 for number in range(100)}
    other = traced_run(2, 30.0, {CONV: 17.0, **many}, waits=(0.75, 0.25), layout="NCHW")
    keep_all(database_path, (traced_run(1, 20.0, {CONV: 17.0}, waits=(0.5, 0.25), layout="NHWC"), other))
    (why,) = json.loads(run("compare", "1", "2", "--json"))["why"]
    assert why["cause"] == {"kind": "launches", "ms": pytest.approx(9.0), "baseline": 1.0, "other": 101.0}
    idle = why["parts"][0]
    assert idle["kind"] == "idle"
    assert [(each["kind"], each["baseline_ms"], each["ms"]) for each in idle["causes"]] == [
        ("host", pytest.approx(1.5), pytest.approx(9.0)),
        ("kernel", pytest.approx(0.75), pytest.approx(3.0)),
        ("other", pytest.approx(0.75), 0.0),
    ]
    lines = [re.sub(" +", " ", line) for line in run("compare", "1", "2", "--why").splitlines()]
    assert any(line.startswith(" waiting for the host to launch 1.50 ms 9.00 ms +7.50 ms") for line in lines)


def test_the_answer_is_about_the_setting_that_is_asked_about(run: Run, reference_database: Path) -> None:
    with Store.open(reference_database) as store:
        rows = [row for row in store.list_runs() if row.experiments == (1,) and row.spec.workload == "cnn10"]
    cnn = (*(str(row.run) for row in rows), "--json")
    for asked in ("layout", "gpus", "batch_size"):
        verdict = json.loads(run("compare", *cnn, "--asked", asked, database=reference_database))["verdict"]
        assert (verdict["asked"], verdict["statements"][0]["facts"]["parameter"]) == (asked, asked)
        ratio = verdict["statements"][0]["facts"].get("ratio") or verdict["statements"][0]["facts"]["gaps"][0]["ratio"]
        assert 1 < ratio["low"] < ratio["value"] < ratio["high"]
    said = run("compare", *cnn, "--asked", "xla", database=reference_database, status=2)
    others = "Ask about layout, gpus, batch_size, precision."
    assert f"No two of these variants differ in xla alone. {others}" in said


def test_the_reference_lstm_has_intervals_and_effects_that_numpy_finds_too(run: Run, reference_database: Path) -> None:
    lstm = ("--tag", "reference", "--search", "experiment:lstm", "--workload", "lstm")
    document = json.loads(run("compare", *lstm, "--json", database=reference_database))
    baseline, *_ = (row for row in document["rows"] if row["decision"] == "baseline")
    assert (baseline["label"], baseline["n"]) == ("Standard · TF32", 6)
    assert sum(row["speedup"]["interval"] is not None for row in document["rows"]) > 30
    (xla,) = (effect for effect in document["effects"] if effect["parameter"] == "xla")
    with closing(sqlite3.connect(reference_database)) as connection:
        found = dict(connection.execute("SELECT run, ln(throughput) FROM runs"))
    means = [[np.mean([found[run] for run in pair[side]]) for side in ("after", "before")] for pair in xla["pairs"]]
    logs = [after - before for after, before in means]
    assert xla["ratio"] == pytest.approx(math.exp(np.mean(logs)))
    assert (len(logs), xla["ratio"]) == (8, pytest.approx(10.20, abs=0.01))
    out = run("compare", *lstm, database=reference_database)
    assert out.startswith(
        "XLA on is 10.2× as fast as XLA off (9.01–11.6×), in 8 pairs. cuDNN · TF32 measured fastest of 7 variants: 1.7"
    )
    (line,) = (line for line in out.splitlines() if line.startswith("Layers 1 → 4"))
    assert line.split()[4:5] == ["0.259×"]
    assert line.endswith("includes other work")


def test_a_pivot_is_printed_where_it_is_asked_for_and_its_options_go_with_it(compare: Run) -> None:
    runs = list(map(str, range(4, 10)))
    assert "Layout NHWC → NCHW" not in compare(*runs)
    assert "Layout NHWC → NCHW" in compare(*runs, "--pivot", "layout")
    (pivot,) = json.loads(compare(*runs, "--json"))["pivot"]
    assert (pivot["asked"], [cell["after"]["runs"] for cell in pivot["cells"]]) == ("layout", [[7, 8, 9]])
    assert "--rows and --columns go with --pivot." in compare(*runs, "--rows", "gpus", status=2)
    assert "leave out --asked." in compare(*runs, "--pivot", "layout", "--asked", "layout", status=2)


def test_a_pivot_is_of_the_setting_that_the_answer_is_about(run: Run, reference_database: Path) -> None:
    cnn = ["--workload", "cnn10", "--search", "TF32"]
    for asked in ("layout", "gpus"):
        document = json.loads(run("compare", *cnn, "--pivot", asked, "--json", database=reference_database))
        assert (document["verdict"]["asked"], [pivot["asked"] for pivot in document["pivot"]]) == (asked, [asked])


def test_a_table_for_a_paper_has_the_numbers_of_the_printed_one(compare: Run) -> None:
    latex = compare("1", "2", "--format", "latex").splitlines()
    markdown = compare("1", "2", "--format", "markdown").splitlines()
    assert latex[0].startswith(r"\begin{tabular}{lr")
    assert latex[-1] == r"\end{tabular}"
    rows = [line.removesuffix(r" \\").split(" & ") for line in latex if line.endswith(r"\\")]
    assert {len(row) for row in rows} == {len(latex[0].split("{")[-1]) - 1}
    assert [line.count("|") - 1 for line in markdown] == [len(rows[0])] * (len(rows) + 1)
    shown = compare("1", "2")
    assert all(row[2] in shown for row in rows), "examples per second"
    compare("1", "2", "--format", "latex", "--json", status=2)
