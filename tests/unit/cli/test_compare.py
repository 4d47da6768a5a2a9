"""`compare` on stored runs: the verdict, the table, the warnings, and runs that are searched for."""

import json
import math
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.cli.main import main
from app.storage.store import Store
from app.values.plan import Plan, encode_plan
from tests.fakes.traces import CONV, POOL, SLOW_GEMM, traced_run
from tests.unit.viewmodels.stored import keep, run_row, stored_run
from workloads.protocol import RunSpec

OLD = (1000.0, 1003.0, 997.0)
NEW = (950.0, 952.0, 948.0)
OTHER = (1064.0, 1066.0, 1062.0)


@pytest.fixture
def database(database_path: Path) -> Path:
    """NHWC in runs 1 to 3 long ago and 4 to 6 now, NCHW in 7 to 9; run 9 with another driver; 4 to 9 tagged."""
    layouts = ["NHWC"] * 6 + ["NCHW"] * 3
    with Store.open(database_path) as store:
        for number, (rate, layout) in enumerate(zip((*OLD, *NEW, *OTHER), layouts, strict=True), 1):
            row = run_row(number, workload="cnn10", throughput=rate, energy_mj=20.0 + number % 3)
            row = replace(row, spec=RunSpec(workload="cnn10", variant={**row.spec.variant, "layout": layout}))
            keep(store, stored_run(row, environment={"driver": "590" if number == 9 else "580"}))
        store.library.add_tag(range(4, 10), "now")
    return database_path


def printed(database: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["compare", *words, "--db", str(database)]) == 0
    return capsys.readouterr().out


def test_runs_are_named_with_commas_and_the_newest_one_as_last(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = printed(database, capsys, "4", "5", "9")
    assert printed(database, capsys, "4,5", "last") == printed(database, capsys, "4,5,last") == expected
    assert printed(database, capsys, "1-3") == printed(database, capsys, "1", "2", "3")
    for words in (["show", "last", "--json"], ["--db", str(database), "show", "last", "--json"]):
        assert main([*words, *(["--db", str(database)] if words[0] == "show" else [])]) == 0
        assert json.loads(capsys.readouterr().out)["run"] == 9
    empty = database.with_name("empty.db")
    with Store.open(empty):
        pass
    assert main(["show", "last", "--db", str(empty)]) == 2
    assert capsys.readouterr().err.startswith("Invalid value for 'RUN': there is no stored run yet")


def test_the_verdict_comes_first_and_the_warnings_last(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(database, capsys, "4", "5", "6", "7", "8", "9").splitlines()
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
    how = f"interleaved: `python -m app experiment --variants-of 4,7 --db {database}`"
    assert lines[7:] == [
        f"Warning: NVIDIA driver differs: 590 (1 of 3 runs of NCHW), else 580. {driver}",
        f"Warning: The baseline has drifted: {drifted} Do not compare with those.",
        f"Warning: All or most runs of NCHW were made {drift} Measure them {how}",
    ]


def test_why_runs_failed_is_said_below_the_table_once_a_reason(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(database) as store:
        causes = [("bfloat16", "no such layer")] * 2 + [("tf32", "no such layer"), ("tf32", "No.")]
        for number, (precision, reason) in enumerate(causes, 20):
            failed = run_row(number, workload="cnn10", outcome="failed", reason=reason, throughput=None)
            variant = {**failed.spec.variant, "precision": precision}
            keep(store, stored_run(replace(failed, spec=RunSpec(workload="cnn10", variant=variant)), measured=False))
    lines = printed(database, capsys, "1", "10", "11", "12", "13").splitlines()
    assert [line.endswith(". No such layer.") for line in lines if line.startswith("Warning: ")][:2] == [True, False]


def test_the_document_has_the_same_numbers_and_all_warnings(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(database, capsys, "7", "8", "9", "1", "2", "3", "--baseline", "1", "--json"))
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


def test_runs_of_an_experiment_have_the_baseline_that_was_chosen_for_it(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("1", "2", "3", "7", "8", "9", "--json")
    assert json.loads(printed(database, capsys, *words))["baseline"] == 1
    with Store.open(database) as store:
        base, other = (row.spec for row in store.library.run_rows([7, 1]))
        plan = encode_plan(Plan(name="layouts", variants=(base, other), repeats=3, has_baseline=True))
        store.library.save_experiment([1, 2, 3, 7, 8, 9], name="layouts", preset=None, plan=plan)
    assert json.loads(printed(database, capsys, *words))["baseline"] == 7
    assert json.loads(printed(database, capsys, *words, "--baseline", "2"))["baseline"] == 2


def test_runs_are_found_as_list_finds_them_the_oldest_first(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(database, capsys, "--tag", "now") == printed(database, capsys, "4", "5", "6", "7", "8", "9")
    words = printed(database, capsys, "--search", "NHWC", "--workload", "cnn10")
    assert words.startswith("All chosen runs are of one variant")


def test_too_few_found_are_told(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--tag", "never", "--db", str(database)]) == 2
    assert capsys.readouterr().err.startswith("compare takes two runs or more; the search found no run")
    with Store.open(database) as store:
        store.library.add_tag([2], "once")
    assert main(["compare", "--tag", "once", "--db", str(database)]) == 2
    assert capsys.readouterr().err.startswith("compare takes two runs or more; the search found one run")


def test_why_is_printed_below_and_is_in_the_document(database_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(database_path) as store:
        keep(store, traced_run(1, 20.0, {POOL: 4.0, CONV: 15.0}, layout="NHWC"))
        keep(store, traced_run(2, 18.0, {POOL: 1.0, SLOW_GEMM: 2.0, CONV: 15.0}, layout="NCHW"))
    lines = printed(database_path, capsys, "1", "2", "--why").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("NCHW takes 2.00 ms less per step than NHWC"))
    assert [re.sub(" +", " ", line.strip(" ")) for line in lines[start + 3 : start + 6]] == [
        "NHWC NCHW Change Of the step",
        "pooling 4.00 ms 1.00 ms −3.00 ms −15.0 %",
        "pooling_bw_kernel_avg 4.00 ms 1.00 ms −3.00 ms −15.0 %",
    ]
    assert "  NHWC with the pooling of NCHW: 17.6 % faster, 17.00 ms per step" in lines
    assert "Why" not in printed(database_path, capsys, "1", "2")
    (why,) = json.loads(printed(database_path, capsys, "1", "2", "--json"))["why"]
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


def test_the_document_has_what_the_sentence_names_as_the_cause(
    database_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = {f"k{number}": 0.01 for number in range(100)}
    with Store.open(database_path) as store:
        keep(store, traced_run(1, 20.0, {CONV: 17.0}, waits=(0.5, 0.25), layout="NHWC"))
        keep(store, traced_run(2, 30.0, {CONV: 17.0, **many}, waits=(0.75, 0.25), layout="NCHW"))
    (why,) = json.loads(printed(database_path, capsys, "1", "2", "--json"))["why"]
    assert why["cause"] == {"kind": "launches", "ms": pytest.approx(9.0), "baseline": 1.0, "other": 101.0}
    idle = why["parts"][0]
    assert idle["kind"] == "idle"
    assert [(each["kind"], each["baseline_ms"], each["ms"]) for each in idle["causes"]] == [
        ("host", pytest.approx(1.5), pytest.approx(9.0)),
        ("kernel", pytest.approx(0.75), pytest.approx(3.0)),
        ("other", pytest.approx(0.75), 0.0),
    ]
    lines = [re.sub(" +", " ", line) for line in printed(database_path, capsys, "1", "2", "--why").splitlines()]
    assert any(line.startswith(" waiting for the host to launch 1.50 ms 9.00 ms +7.50 ms") for line in lines)


def test_the_answer_is_about_the_setting_that_is_asked_about(
    reference_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(reference_database) as store:
        rows = [row for row in store.list_runs() if row.experiments == (1,) and row.spec.workload == "cnn10"]
    cnn = (*(str(row.run) for row in rows), "--json")
    for asked in ("layout", "gpus", "batch_size"):
        verdict = json.loads(printed(reference_database, capsys, *cnn, "--asked", asked))["verdict"]
        assert (verdict["asked"], verdict["statements"][0]["facts"]["parameter"]) == (asked, asked)
        ratio = verdict["statements"][0]["facts"].get("ratio") or verdict["statements"][0]["facts"]["gaps"][0]["ratio"]
        assert 1 < ratio["low"] < ratio["value"] < ratio["high"]
    assert main(["compare", *cnn, "--asked", "xla", "--db", str(reference_database)]) == 2
    others = "Ask about layout, gpus, batch_size, precision."
    assert f"No two of these variants differ in xla alone. {others}" in capsys.readouterr().err


def test_the_reference_lstm_has_intervals_and_effects_that_numpy_finds_too(
    reference_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lstm = ("--tag", "reference", "--search", "experiment:lstm", "--workload", "lstm")
    document = json.loads(printed(reference_database, capsys, *lstm, "--json"))
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
    out = printed(reference_database, capsys, *lstm)
    assert out.startswith(
        "XLA on is 10.2× as fast as XLA off (9.01–11.6×), in 8 pairs. cuDNN · TF32 measured fastest of 7 variants: 1.7"
    )
    (line,) = (line for line in out.splitlines() if line.startswith("Layers 1 → 4"))
    assert line.split()[4:5] == ["0.259×"]
    assert line.endswith("includes other work")


def test_a_pivot_is_printed_where_it_is_asked_for_and_its_options_go_with_it(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = list(map(str, range(4, 10)))
    assert "Layout NHWC → NCHW" not in printed(database, capsys, *runs)
    assert "Layout NHWC → NCHW" in printed(database, capsys, *runs, "--pivot", "layout")
    (pivot,) = json.loads(printed(database, capsys, *runs, "--json"))["pivot"]
    assert (pivot["asked"], [cell["after"]["runs"] for cell in pivot["cells"]]) == ("layout", [[7, 8, 9]])
    assert main(["compare", *runs, "--rows", "gpus", "--db", str(database)]) == 2
    assert "--rows and --columns go with --pivot." in capsys.readouterr().err
    assert main(["compare", *runs, "--pivot", "layout", "--asked", "layout", "--db", str(database)]) == 2
    assert "leave out --asked." in capsys.readouterr().err


def test_a_pivot_is_of_the_setting_that_the_answer_is_about(
    reference_database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cnn = ["--workload", "cnn10", "--search", "TF32"]
    for asked in ("layout", "gpus"):
        document = json.loads(printed(reference_database, capsys, *cnn, "--pivot", asked, "--json"))
        assert (document["verdict"]["asked"], [pivot["asked"] for pivot in document["pivot"]]) == (asked, [asked])


def test_a_table_for_a_paper_has_the_numbers_of_the_printed_one(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    latex = printed(database, capsys, "1", "2", "--format", "latex").splitlines()
    markdown = printed(database, capsys, "1", "2", "--format", "markdown").splitlines()
    assert latex[0].startswith(r"\begin{tabular}{lr")
    assert latex[-1] == r"\end{tabular}"
    rows = [line.removesuffix(r" \\").split(" & ") for line in latex if line.endswith(r"\\")]
    assert {len(row) for row in rows} == {len(latex[0].split("{")[-1]) - 1}
    assert [line.count("|") - 1 for line in markdown] == [len(rows[0])] * (len(rows) + 1)
    shown = printed(database, capsys, "1", "2")
    assert all(row[2] in shown for row in rows), "examples per second"
    assert main(["compare", "1", "2", "--format", "latex", "--json", "--db", str(database)]) == 2
