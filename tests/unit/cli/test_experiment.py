"""Messages of `experiment` before, during and after: refusals, time, and the precision of speed-ups."""

import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from app.cli.experiment import CONFIRM_ABOVE_S, _confirm_hours
from app.cli.experiment_progress import describe_ending, describe_plan, describe_refusals
from app.cli.main import main
from app.errors import UserError
from app.queries import ExperimentProgress, TimeLeft, plan_question
from app.report.comparison import experiment_document, experiment_result, runs_in_order
from app.runs.experiment.estimates import Experiment, expected_resolution, time_left
from app.runs.experiment.presets import list_user_preset_file, preset_names
from app.storage.store import Store
from app.values.plan import Plan
from app.values.records import RunRow, StoredRun
from app.viewmodels.compare.verdict import compute_verdict
from app.viewmodels.experiment.preview import sequential_reason
from tests.fakes.command_line import Run
from tests.fakes.experiments import header, header_of, result
from tests.fakes.reference import copy_reference
from tests.unit.viewmodels.events import GPU_INVENTORY
from workloads.catalog import Machine, complete
from workloads.protocol import RunSpec

CPU = Machine(cpu_count=4)
SMALL, LARGE, ON_GPUS = (
    complete("cnn10", {"gpus": gpus, "batch_size": size, "channels": 16, "seconds": 10}, CPU)
    for gpus, size in ((0, 8), (0, 16), (3, 16))
)
PLAN = Plan(name="two", variants=(SMALL, LARGE), repeats=3)
MIXED = structs.replace(PLAN, variants=(SMALL, ON_GPUS))
STEADY = [
    result(number + first, spec, value)
    for first, spec in ((0, SMALL), (10, LARGE))
    for number, value in enumerate((1000.0, 1001.0, 999.0, 1000.5), 1)
]
HEADERS = [header_of(run) for run in STEADY]


def load(run: int) -> StoredRun:
    return next(each for each in STEADY if each.row.run == run)


def plan_lines(stored: Experiment, alike: Sequence[RunRow] = ()) -> list[str]:
    """What is said of it before its first run, with estimates from these runs."""
    rows = [run.row for run in stored.runs]
    left, timing_runs = time_left(stored.plan, rows, alike, CPU)
    resolution = expected_resolution(stored.plan, rows, alike, CPU)
    ahead = ExperimentProgress(
        planned=stored.planned, done=stored.done, left=left, timing_runs=timing_runs, resolution=resolution
    )
    return describe_plan(stored, ahead)


def replace_layout(spec: RunSpec) -> RunSpec:
    return RunSpec(workload=spec.workload, variant={**spec.variant, "layout": "NHWC"})


def test_what_cannot_run_is_said_with_every_reason_before_anything_runs() -> None:
    assert describe_refusals(PLAN, CPU) == []
    two = structs.replace(MIXED, variants=(*MIXED.variants, replace_layout(ON_GPUS)))
    missing, uneven = describe_refusals(two, CPU)
    assert missing == (
        "Cannot run here: NCHW · 3 GPUs · Batch size 16, NHWC · 3 GPUs · Batch size 16. "
        "This machine shows no NVIDIA GPU; use gpus=0 for the CPU."
    )
    assert uneven.endswith("A global batch of 16 does not divide evenly among 3 GPUs.")


def test_the_count_and_the_time_are_said_before_anything_runs() -> None:
    unknown = "How small a difference {} can show is not known yet: too few stored runs."
    nothing = Experiment.from_runs(PLAN, "stopped", (), CPU)
    assert plan_lines(nothing) == [
        "6 runs planned, 0 done, 6 left (1 to 2 min).",
        unknown.format("3 repeats"),
    ]
    begun = Experiment.from_runs(PLAN, "stopped", [header(1, SMALL, seconds=21.0)], CPU)
    known = [run.row for run in begun.runs]
    within_a_minute = replace(begun, plan=structs.replace(PLAN, budget_s=60.0))
    said, _ = plan_lines(within_a_minute, known)
    assert said == "6 runs planned, 1 done, 5 left (1 to 2 min), within 1:00."
    mixed = Experiment.from_runs(MIXED, "stopped", (), CPU)
    assert plan_lines(mixed) == ["4 runs planned, 0 done, 4 left (45 to 60 s)."], "a refusal is quick"
    refused = Experiment.from_runs(structs.replace(MIXED, variants=(ON_GPUS,)), "stopped", (), CPU)
    assert plan_lines(refused) == ["1 run planned, 0 done, 1 left (a moment)."]
    until = Experiment.from_runs(structs.replace(PLAN, until_pct=0.5), "stopped", (), CPU)
    assert plan_lines(until) == [
        "6 runs planned at most, 0 done, 6 left (1 to 2 min).",
        unknown.format("at most 3 repeats"),
    ]


def test_time_is_what_runs_usually_take_not_what_the_slowest_did() -> None:
    made = [header(number, SMALL, seconds=seconds).row for number, seconds in enumerate((12.0, 14.0, 300.0), 1)]
    twice = structs.replace(PLAN, variants=(SMALL,), repeats=2)
    (said,) = plan_lines(Experiment.from_runs(twice, "stopped", (), CPU), made)
    assert said == "2 runs planned, 0 done, 2 left (25 to 35 s)."


def test_how_small_a_difference_can_be_shown_is_said_by_the_spread_of_stored_runs() -> None:
    begun = Experiment.from_runs(structs.replace(PLAN, repeats=5), "stopped", HEADERS, CPU)
    _, said = plan_lines(begun)
    # The eight runs spread by 0.085 %; t(8) = 2.306 makes that ± 0.124 % with five repeats each.
    assert said == (
        "5 repeats can show a difference of about 0.2\xa0% (interval ±\xa00.1\xa0%, from the spread of 8 stored runs "
        "of these variants)."
    )
    other = [replace(run.row, spec=replace_layout(run.row.spec)) for run in STEADY]
    _, said = plan_lines(Experiment.from_runs(PLAN, "stopped", (), CPU), other)
    assert said.endswith("from the spread of 8 stored runs of other variants).")
    ending = describe_ending(begun, show=True)
    assert ending.startswith("8 of 10 runs done.")
    assert "5 repeats can show a difference of about 0.2\xa0%" in ending
    _, said = plan_lines(Experiment.from_runs(structs.replace(PLAN, repeats=1), "stopped", (), CPU), other)
    assert said == "Fewer than 3 repeats have no interval, so they show no difference."


def test_the_end_says_after_how_many_repeats_and_how_narrowly() -> None:
    experiment = Experiment.from_runs(structs.replace(PLAN, repeats=9, until_pct=0.5), "stopped", HEADERS, CPU)
    pattern = (
        r"Target precision reached after 4 repeats: 8 runs done\."
        r" Speed-ups are known to ±\xa00\.\d+\xa0%; ±\xa00\.5\xa0% was asked for\."
    )
    assert re.fullmatch(pattern, describe_ending(experiment))
    (ahead,) = plan_lines(experiment)
    assert re.fullmatch(f"{pattern} Nothing is left to run; --again repeats every run\\.", ahead)
    wide = Experiment.from_runs(structs.replace(PLAN, repeats=4, until_pct=0.01), "stopped", HEADERS, CPU)
    assert re.fullmatch(
        r"Complete: 8 of 8 runs done\. Speed-ups are known to ±\xa00\.\d+\xa0%; ±\xa00\.01\xa0% was asked for\.",
        describe_ending(wide),
    )
    noisy = [header(number, spec, 1000.0 * 4**number) for number, spec in enumerate([SMALL, LARGE] * 4, 1)]
    unknown = Experiment.from_runs(structs.replace(PLAN, repeats=4, until_pct=0.01), "stopped", noisy, CPU)
    assert describe_ending(unknown) == (
        "Complete: 8 of 8 runs done. Not every speed-up is known yet; ±\xa00.01\xa0% was asked for."
    )
    begun = Experiment.from_runs(structs.replace(PLAN, until_pct=0.01), "stopped", HEADERS[:1], CPU)
    assert describe_ending(begun) == "Stopped: 1 of 6 runs done. The same command continues from here."


def test_out_of_budget_it_is_said_how_it_goes_on_where_it_can() -> None:
    begun = Experiment.from_runs(PLAN, "out of budget", [header(1, SMALL, seconds=21.0)], CPU)
    far = "Out of budget: 1 of 6 runs done, and the next one takes about 0:22."
    half_a_minute, no_time = (replace(begun, plan=structs.replace(PLAN, budget_s=budget_s)) for budget_s in (30.0, 0.0))
    assert describe_ending(half_a_minute) == f"{far} The same command continues from here."
    unknown = replace(no_time, next_s=0.0)
    assert describe_ending(unknown) == "Out of budget: 1 of 6 runs done. No run fits into 0:00: give --budget more."
    assert describe_ending(no_time) == f"{far} No run fits into 0:00: give --budget more."


def test_of_one_run_is_not_spoken_as_of_many() -> None:
    one = structs.replace(PLAN, variants=(SMALL,), repeats=1)
    assert plan_lines(Experiment.from_runs(one, "stopped", (), CPU)) == ["1 run planned, 0 done, 1 left (15 to 20 s)."]
    made = Experiment.from_runs(one, "stopped", [header(1, SMALL)], CPU)
    assert plan_lines(made) == ["The only run is stored: nothing is left to run. --again repeats it."]
    assert describe_ending(made) == "Complete: 1 of 1 run done."


def test_more_stored_runs_than_are_planned_are_told_of_as_the_table_counts_them() -> None:
    experiment = Experiment.from_runs(PLAN, "stopped", HEADERS, CPU)
    assert len(runs_in_order(experiment, load)) == 8
    assert plan_lines(experiment) == [
        "All 6 runs are stored (2 more stored runs count too): nothing is left to run. --again repeats them."
    ]
    assert describe_ending(experiment) == "Complete: 6 of 6 runs done (2 more stored runs count too)."
    begun = Experiment.from_runs(PLAN, "stopped", HEADERS[:4], CPU)
    assert plan_lines(begun)[0].startswith("6 runs planned, 3 done (1 more stored run counts too), ")
    assert describe_ending(begun).startswith("Stopped: 3 of 6 runs done (1 more stored run counts too). ")


def test_a_chosen_baseline_stays_where_another_variant_is_steadier() -> None:
    noisy = [result(number, SMALL, value) for number, value in enumerate((500.0, 1000.0, 2000.0), 1)]
    rows = [run.row for run in (*noisy, *STEADY[4:])]
    runs = {run.row.run: run for run in (*noisy, *STEADY[4:])}
    for has_baseline, baseline in ((False, 11), (True, 1)):
        plan = structs.replace(PLAN, has_baseline=has_baseline)
        experiment = Experiment.from_runs(plan, "stopped", [header_of(run) for run in runs.values()], CPU)
        compared = experiment_result(experiment, runs_in_order(experiment, runs.__getitem__)).comparison
        assert compared.baseline == baseline
        assert compute_verdict(rows, plan_question(plan, rows).baseline).results[0].is_baseline is (baseline == 1)


def test_where_one_variant_alone_has_runs_the_others_are_not_forgotten() -> None:
    begun = Experiment.from_runs(PLAN, "stopped", HEADERS[:2], CPU)
    assert experiment_document(experiment_result(begun, runs_in_order(begun, load)))["verdict"] == {
        "decision": "nothing to compare",
        "text": (text := "Only Batch size 8 has runs yet: there is nothing to compare it with so far."),
        "asked": None,
        "statements": [
            {"text": text, "key": "only one", "facts": {"variant": ["Batch size 8"]}, "runs": [], "severity": "note"}
        ],
    }
    both = Experiment.from_runs(PLAN, "stopped", HEADERS, CPU)
    assert experiment_document(experiment_result(both, runs_in_order(both, load)))["verdict"]["text"].startswith(
        "No difference seen between batch size 8 and"
    )


def test_presets_are_listed_with_their_runs_time_and_question(run: Run) -> None:
    listed = {each["preset"]: each for each in json.loads(run("list", "presets", "--json"))["presets"]}
    assert list(listed) == preset_names()
    assert all(each["done"] == 0 and each["question"] for each in listed.values())
    assert listed["quick"]["left_s"] > 0
    assert listed["quick"]["runs"] == 6
    head, *rows = run("list", "presets").splitlines()
    assert head.split() == ["preset", "runs", "done", "the", "rest", "takes", "question"]
    assert len(rows) == len(preset_names())
    assert " to " in rows[0]


def test_presets_that_the_window_was_given_are_listed_by_their_files(
    database_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, gone = tmp_path / "mine.toml", tmp_path / "gone.toml"
    form = 'question = "?"\nrepeats = 2\nmatrix = [{workload = "dummy", settings = {gpus = 0, step_ms = [1, 2]}}]'
    own.write_text(f"[gpu]\n{form}\n[cpu]\n{form}\n")
    for file in (gone, own):
        list_user_preset_file(database_path, str(file))
    assert main(["list", "presets", "--json", "--db", str(database_path)]) == 0
    out, err = capsys.readouterr()
    *_, last = json.loads(out)["presets"]
    assert (last["preset"], last["runs"]) == (str(own), 4)
    assert err == f"{gone} cannot be read (No such file or directory); put it back, or name another file.\n"


def test_a_preset_that_cannot_run_here_has_no_time_but_what_it_needs(
    run: Run, database_path: Path, tmp_path: Path
) -> None:
    form = (
        'question = "?"\nrepeats = 2\nmatrix = [{workload = "cnn10", settings = {gpus = [16], batch_size = [16, 32]}}]'
    )
    for name, text in (("gpu.toml", f"[gpu]\n{form}\n"), ("both.toml", f"[gpu]\n{form}\n[cpu]\n{form}\n")):
        (tmp_path / name).write_text(text)
        list_user_preset_file(database_path, str(tmp_path / name))
    listed = {Path(each["preset"]).name: each for each in json.loads(run("list", "presets", "--json"))["presets"]}
    lines = run("list", "presets").splitlines()
    has_gpus = bool(json.loads(run("gpus", "--json"))["gpus"])
    for name, words in (
        ("gpu.toml", "cannot run here" if has_gpus else "needs a GPU"),
        ("both.toml", "cannot run here"),
    ):
        assert listed[name]["left_s"] is listed[name]["left_range_s"] is None
        assert "2 variants cannot run here" in listed[name]["notes"][-1]
        assert any(name in line and words in line for line in lines)


def test_where_runs_never_go_on_at_the_same_time_the_reason_is_said() -> None:
    two = GPU_INVENTORY.machine
    one = Machine(gpus=two.gpus[:1], cpu_count=two.cpu_count)
    on_one, on_both = (
        structs.replace(PLAN, variants=(complete("cnn10", {"gpus": count, "batch_size": 16}, two),)) for count in (1, 2)
    )
    assert sequential_reason(on_one.specs, two) == ""
    assert (
        sequential_reason(on_one.specs, one)
        == "One run after another: no two of them fit on the 1 GPU of this machine."
    )
    assert sequential_reason(on_both.specs, two) == (
        "One run after another: no two of them fit on the 2 GPUs of this machine."
    )
    assert sequential_reason(PLAN.specs, two) == ("One run after another: only one at a time can measure on the CPU.")


@pytest.mark.parametrize(
    ("likely_s", "budget_s", "asks"),
    [
        (CONFIRM_ABOVE_S, None, False),
        (CONFIRM_ABOVE_S + 1.0, None, True),
        (2 * CONFIRM_ABOVE_S, CONFIRM_ABOVE_S, False),
        (2 * CONFIRM_ABOVE_S, CONFIRM_ABOVE_S + 1.0, True),
    ],
)
def test_more_than_an_hour_is_started_after_a_yes_alone(likely_s: float, budget_s: float | None, asks: bool) -> None:
    left = TimeLeft(0.9 * likely_s, likely_s, 1.2 * likely_s)
    with pytest.raises(UserError, match="add --yes") if asks else nullcontext():
        _confirm_hours(left, budget_s)


def test_hours_are_not_started_where_nobody_can_answer(run: Run, database_path: Path) -> None:
    words = ["experiment", "lstm", "-s", "batch_size=1..4096", "-s", "seconds=600"]
    assert "There is no terminal to ask" in run(*words, status=1)
    with Store.open(database_path) as store:
        assert not store.queue.entries()
    run(*words, "--queue")


def test_a_database_in_a_folder_that_is_not_there_is_wrong_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "typo"
    for words in (["run", "lstm"], ["list"], ["--db", str(folder / "x.db"), "list"]):
        assert main([*words, *([] if "--db" in words else ["--db", str(folder / "x.db")])]) == 2
        assert capsys.readouterr().err == f"Invalid value for '--db': {folder} is not a folder.\n"
    assert not folder.exists()


def test_what_a_preset_repeats_is_shown_from_stored_runs_without_a_gpu(
    run: Run, database_path: Path, tmp_path: Path
) -> None:
    """In terminal, documents and reports."""
    copy_reference("cnn", database_path)
    shown = ["experiment", "--preset", "article-c", "--show"]
    layouts, gpus = json.loads(run(*shown, "--json"))["pivot"]
    assert (layouts["asked"], layouts["columns_by"], gpus["asked"]) == ("layout", "gpus", "gpus")
    for file in (tmp_path / "page.html", tmp_path / "page.md"):
        for words in (run(*shown, "--report", str(file)), file.read_text(encoding="utf-8")):
            assert "just under 5 % faster" in words
            assert "measured on 2x RTX 2080 Ti" in words


def test_where_nothing_is_stored_of_a_preset_that_is_said(run: Run, database_path: Path) -> None:
    Store.open(database_path).close()
    said = run("experiment", "--preset", "quick", "--show", status=1)
    assert said == "No run of “Quick comparison” is stored; without --show it makes them.\n"
