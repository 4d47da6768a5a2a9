"""The comparison as a document and as words."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.report.comparison import compare_document
from app.values.records import RunRow, StoredRun
from app.viewmodels.compare.comparison import compare, prepare_comparison
from tests.fakes.evidence import AS_REQUESTED, IN_PART, MISLABELLED, UNKNOWN
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.protocol import Evidence, Value


def runs(first: int, *values: float, **variant: Value) -> list[StoredRun]:
    """Completed cnn10 runs of one variant with these throughputs."""
    found = [run_row(first + place, workload="cnn10", throughput=value) for place, value in enumerate(values)]
    return [stored_run(with_variant(row, **variant)) for row in found]


def with_variant(row: RunRow, **variant: Value) -> RunRow:
    spec = row.spec
    return replace(row, spec=type(spec)(workload=spec.workload, variant={**spec.variant, **variant}))


def document_of(runs: Sequence[StoredRun], baseline: int) -> dict[str, Any]:
    return compare_document(compare(prepare_comparison(runs), baseline))


BASE = runs(1, 100.0, 101.0, 99.0, layout="NHWC")


def test_how_long_was_measured_and_warmed_up_makes_no_variant_and_is_a_note() -> None:
    short = [run for n in (1, 2, 3) for run in runs(n, 100.0 + n, layout="NHWC", seconds=2.5, warmup_steps=10 * n)]
    long = [run for n in (4, 5, 6) for run in runs(n, 100.0 + n, layout="NHWC", seconds=10.0, steps=n)]
    others = [run for n in (7, 8, 9) for run in runs(n, 110.0 + n, layout="NCHW", seconds=3.0)]
    comparison = compare(prepare_comparison([*short, *long, *others]), 1)
    document = compare_document(comparison)
    assert [(row["label"], row["n"]) for row in document["rows"]] == [("NHWC", 6), ("NCHW", 3)]
    assert {"seconds", "steps", "warmup_steps"}.isdisjoint(document["rows"][0]["variant"]), "no run's alone"
    assert [note.sentence for note in comparison.notes if note.key == "repeats"] == [
        "Runs that differ in the seconds that they measured alone (2.5, 3 and 10) are repeats of one variant.",
        "Runs that differ in the steps that they measured alone (0, 4, 5 and 6) are repeats of one variant.",
        "Runs that differ in their warm-up steps alone (10, 20 and 30) are repeats of one variant.",
    ]
    alike = compare(prepare_comparison([*short[:1], *others]), 1)
    assert [row["variant"]["seconds"] for row in compare_document(alike)["rows"]] == [2.5, 3.0]
    assert "repeats" not in {note.key for note in alike.notes}


def test_seeds_are_repeats_of_one_variant_where_the_question_is_speed() -> None:
    seeds = [run for number in (1, 2, 3) for run in runs(number, 100.0 + number, layout="NHWC", seed=number)]
    others = [run for number in (4, 5, 6) for run in runs(number, 110.0 + number, layout="NCHW", seed=number - 2)]
    comparison = compare(prepare_comparison([*seeds, *others]), 1)
    document = compare_document(comparison)
    assert [row["runs"] for row in document["rows"]] == [[1, 2, 3], [4, 5, 6]]
    assert [row["label"] for row in document["rows"]] == ["NHWC", "NCHW"]
    assert document["rows"][1]["speedup"]["interval"], "seeds give an interval"
    (note,) = (note for note in comparison.notes if note.key == "repeats")
    assert note.sentence == "Runs that differ in their seed alone (1, 2, 3 and 4) are repeats of one variant."
    assert {"parameter": "seed", "settings": [1, 2, 3, 4]} in [note["facts"] for note in document["notes"]]


def test_a_refused_variant_keeps_its_row_and_is_named() -> None:
    refused = with_variant(
        run_row(4, workload="cnn10", outcome="refused", reason="Not here.", throughput=None), precision="tf32"
    )
    document = document_of([*runs(1, 100.0, precision="float32"), stored_run(refused, measured=False)], 1)
    row = document["rows"][1]
    assert (row["runs"], row["n"], row["outcomes"], row["reasons"]) == ([4], 0, ["refused"], ["Not here."])
    assert document["rows"][0]["reasons"] == [None]
    assert row["throughput"] == {"value": None, "interval": None, "unit": "images/s"}
    assert row["speedup"] == {"ratio": None, "interval": None}
    assert document["verdict"]["text"].endswith("No run of TF32 measured to its end (refused).")
    assert document["verdict"]["decision"] == "nothing to compare"


def test_the_fastest_has_the_sentence_and_all_have_a_row() -> None:
    nchw, xla = runs(4, 110.0, 111.0, 110.5, layout="NCHW"), runs(7, 200.0, 201.0, 202.0, layout="NHWC", xla=True)
    document = document_of([*BASE, *nchw, *xla], 1)
    assert document["verdict"]["decision"] == "several variants"
    assert document["verdict"]["asked"] == "layout"
    ranking = next(said for said in document["verdict"]["statements"] if said["key"] == "fastest")
    assert (ranking["facts"]["winner"], ranking["facts"]["count"]) == (["NHWC", "XLA on"], 3)
    assert [gap["name"] for gap in ranking["facts"]["gaps"]] == [["NCHW"], ["NHWC"]]
    assert [row["decision"] for row in document["rows"]] == ["baseline", "faster", "faster"]
    assert [row["n"] for row in document["rows"]] == [3, 3, 3]
    assert [row["comparisons"] for row in document["rows"]] == [2, 2, 2]


@pytest.mark.parametrize("baseline", [1, 2, 3])
def test_any_run_of_the_baseline_s_variant_names_it(baseline: int) -> None:
    document = document_of([*BASE, *runs(4, 110.0, layout="NCHW")], baseline)
    assert [row["decision"] for row in document["rows"]] == ["baseline", "one run each"]
    assert document["baseline"] == baseline


def test_effects_of_single_settings_name_their_pairs() -> None:
    nchw, xla = runs(4, 110.0, 111.0, 110.5, layout="NCHW"), runs(7, 200.0, 201.0, 202.0, layout="NHWC", xla=True)
    both = runs(10, 220.0, 222.0, 221.0, layout="NCHW", xla=True)
    layout, compiled = document_of([*BASE, *nchw, *xla, *both], 1)["effects"]
    assert (layout["parameter"], layout["before"], layout["after"]) == ("layout", "NHWC", "NCHW")
    assert [(pair["before"], pair["after"]) for pair in layout["pairs"]] == [
        ([1, 2, 3], [4, 5, 6]),
        ([7, 8, 9], [10, 11, 12]),
    ]
    assert layout["interval"][0] < layout["ratio"] < layout["interval"][1]
    assert layout["ratio"] == pytest.approx((layout["pairs"][0]["ratio"] * layout["pairs"][1]["ratio"]) ** 0.5)
    said = {key: compiled[key] for key in ("differs", "depends_on", "changes_work", "single_run_pairs")}
    assert said == {"differs": False, "depends_on": None, "changes_work": False, "single_run_pairs": 0}
    assert document_of([*BASE, *nchw], 1)["effects"] == []


def test_the_document_is_plain_json() -> None:
    document = document_of([*BASE, *runs(4, 110.0, 112.0, 111.0, layout="NCHW")], 1)
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["method"].startswith("Welch")


def test_differences_of_the_machine_are_warned_of_and_unknown_ones_are_not() -> None:
    row = run_row(1, workload="cnn10")
    first = stored_run(row, environment={"driver": "570", "cpu": "Same"})
    second = stored_run(replace(row, run=2), environment={"driver": "580", "cpu": "Same", "keras": "3.15"})
    assert document_of([first, second], 1)["warnings"] == [
        {
            "key": "differs",
            "text": "NVIDIA driver differs: 570 (run 1), 580 (run 2). A difference in speed may come from that.",
            "severity": "warning",
            "runs": {"1": "570", "2": "580"},
            "facts": {
                "name": "driver",
                "values": [
                    {"value": "570", "where": {"runs": [1], "variants": [], "total": 0, "is_all": False}},
                    {"value": "580", "where": {"runs": [2], "variants": [], "total": 0, "is_all": False}},
                ],
                "where": {"runs": [1, 2], "variants": [], "total": 0, "is_all": True},
            },
        }
    ]
    assert document_of([first, first], 1)["warnings"] == []


def labelled(run: int, found: Evidence | None, layout: str) -> StoredRun:
    row = run_row(run, workload="cnn10", throughput=100.0 + run, found=found)
    return stored_run(with_variant(row, layout=layout), evidence=found)


@pytest.mark.parametrize(
    ("found", "state", "match"),
    [
        ((AS_REQUESTED, AS_REQUESTED), "verified", True),
        ((AS_REQUESTED, None), None, None),
        ((AS_REQUESTED, IN_PART), "verified in part", None),
        ((IN_PART, UNKNOWN), "not verifiable", None),
        ((UNKNOWN, MISLABELLED, None), "mismatch", False),
    ],
)
def test_a_variant_is_as_verified_as_the_least_of_its_runs(
    found: tuple[Evidence | None, ...], state: str | None, match: bool | None
) -> None:
    runs = [labelled(place + 1, each, "NCHW") for place, each in enumerate(found)]
    row = document_of(runs, 1)["rows"][0]
    assert (row["state"], row["match"]) == (state, match)


def test_what_is_not_known_is_no_warning() -> None:
    document = document_of([labelled(1, AS_REQUESTED, "NCHW"), labelled(2, UNKNOWN, "NHWC")], 1)
    assert document["warnings"] == []
    assert document["verdict"]["text"].startswith("NHWC trains ")
