"""Search among many runs, notes, tags, experiments, and a trash that loses nothing."""

import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import UserError
from app.paths import weights_path
from app.queries import NO_QUESTION, RUN_ORDERS, SEARCH_FIELDS, Question, RunQuery, Totals
from app.storage.library import MAX_NOTE_LENGTH, MAX_TAG_LENGTH
from app.storage.listing import MAX_SEARCH_TERMS
from app.storage.owner import this_process
from app.storage.store import Store
from app.values.environment_keys import HOST_ID_KEY, HOST_KEY
from app.values.events import Outcome, Summary
from app.values.plan import Plan, encode_plan
from app.values.records import RunRow
from tests.fakes.runs import EVIDENCE, GPU, HOST_DEVICE, OUTCOME, SPEC, SUMMARY, UTC_NS, S, begin, keep
from tests.fakes.saved_experiments import save_experiment
from workloads.framework import framework_of
from workloads.protocol import RunSpec

PLAN = '{"variants": [{"workload": "dummy"}], "repeats": 3}'
HOSTILE = ("it's", '"', "100 %", "a_b", "*", "NEAR(x y)", "note:x OR 1=1 --", "'; DROP TABLE runs; --", "\\", "Ä", "表")
NOTES = ("", "", "fan was LOUD", "ÄPFEL und Birnen", "äpfel", *HOSTILE)
TAGS = ("paper", "night shift", *HOSTILE)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Store forty runs that differ in everything that queries can filter or sort by."""
    with Store.open(tmp_path_factory.mktemp("many") / "profiles.db") as store:
        for number in range(40):
            _keep_one(store, number)
        library = store.library
        for run in range(1, 41):
            library.set_note(run, NOTES[run % len(NOTES)])
        for position, tag in enumerate(TAGS):
            library.add_tag(range(1 + position, 41, 5 + position), tag)
        save_experiment(library, [3, 9, 20], name="layouts of June", preset=None, plan=PLAN)
        save_experiment(library, [20, 4], name="layouts of June", preset="layouts", plan='{"variants": []}')
        library.delete([2, 9, 33])
        yield store


def _keep_one(store: Store, number: int) -> None:
    variant = {
        **SPEC.variant,
        "gpus": number % 3,
        "layout": ("NCHW", "NHWC")[number % 2],
        "batch_size": 2 ** (number % 7),
        "xla": number % 5 == 0,
        # As in older databases, every fourth run names no framework.
        **({"framework": ("tensorflow", "pytorch", "jax")[number // 3 % 4]} if number // 3 % 4 < 3 else {}),
    }
    spec = RunSpec(workload=("lstm", "cnn10", "dummy")[number % 3], variant=variant)
    gpus = tuple(msgspec.structs.replace(GPU, device=f"GPU-{n}", index=n) for n in range(number % 3))
    run = store.begin(
        spec,
        uid=f"uid-{number}",
        owner=this_process(),
        t_ns=S,
        utc_ns=UTC_NS + (number // 2) * 3600 * S,
        devices=(*gpus, HOST_DEVICE),
        environment={HOST_KEY: f"gpu{number % 4}", HOST_ID_KEY: f"id-{number % 4}"} if number % 3 else {},
        purpose="a try" if number % 11 == 0 else None,
    )
    if number % 4:
        store.write(run, (msgspec.structs.replace(EVIDENCE, match=(True, False, None)[number % 3]),))
    if number % 6 == 0:
        return
    outcome = (OUTCOME, Outcome(name="completed"), Outcome(name="out_of_memory", reason="Too little memory."))[
        number % 3
    ]
    figures = Summary() if number % 5 == 1 else replace(SUMMARY, throughput=float(number % 8), step_ms_p50=1.5 * number)
    store.finish(
        run, outcome=outcome, summary=figures, t_ns=9 * S, utc_ns=UTC_NS + (number // 2) * 3600 * S + number * S
    )


def fields_of(row: RunRow) -> dict[str, str]:
    """Return all text that a search looks through, field by field, the best field first."""
    variant = {
        name: str(value).lower() if isinstance(value, bool) else value for name, value in row.spec.variant.items()
    }
    gpus = row.gpu_names or (("CPU",) if row.spec.variant["gpus"] == 0 else ())
    mismatch = (row.evidence_reason or "") if row.evidence_state == "mismatch" else ""
    fields = {
        "variant": "\n".join((*(f"{name}={value}" for name, value in variant.items()), row.purpose or "")),
        "workload": row.spec.workload,
        "tag": "\n".join(row.tags),
        "note": row.note,
        "card": "\n".join(gpus),
        "host": row.host or "",
        "outcome": row.outcome.name.replace("_", " ") if row.outcome else "running",
        "evidence": row.evidence_state or "",
        "started": datetime.fromtimestamp(row.started_utc_ns / S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "experiment": "layouts of June" if row.experiments else "",
        "reason": f"{(row.outcome.reason if row.outcome else None) or ''}\n{mismatch}",
    }
    return {name: text.lower() for name, text in fields.items()}


def ranks_of(rows: list[RunRow], text: str) -> dict[int, int]:
    """Return how well each run that holds the words matches them, 0 being best."""
    words = list(dict.fromkeys(text.split()))
    held = {row.run: [positions_of(row, word) for word in words] for row in rows}
    held = {run: positions for run, positions in held.items() if all(positions)}
    ranks = {}
    for run, positions in held.items():
        counting = [
            [position for position in found if not is_outdone(position, [of[n] for of in held.values()], words[n])]
            for n, found in enumerate(positions)
        ]
        if all(counting):
            ranks[run] = sum(max(0, min(found)) for found in counting)
    return ranks


def positions_of(row: RunRow, word: str) -> list[int]:
    """Return the positions of the fields that hold a word, -1 for the run's number."""
    fields = fields_of(row)
    name, colon, rest = word.partition(":")
    if colon and name in fields:
        return [list(fields).index(name)] if fields[name] and rest.lower() in fields[name] else []
    return [-1] * (word == str(row.run)) + [n for n, text in enumerate(fields.values()) if word.lower() in text]


def is_outdone(position: int, found: list[list[int]], word: str) -> bool:
    """Return whether a position is free text, and a better position of some run holds the word."""
    named = word.partition(":")[0] in SEARCH_FIELDS
    free = position >= 0 and SEARCH_FIELDS[position] in ("note", "experiment", "reason")
    return free and not named and any(0 <= other < position for positions in found for other in positions)


def key_of(row: RunRow, order: str) -> Any:
    """Return the values that a run is sorted by; None is absent."""
    variant, summary = row.spec.variant, row.summary
    of_variant = (variant["layout"], variant["gpus"], variant["batch_size"], variant["precision"], variant["xla"])
    length_ns = None if row.ended_utc_ns is None else row.ended_utc_ns - row.started_utc_ns
    keys: dict[str, Any] = {
        "run": row.run,
        "started": row.started_utc_ns,
        "workload": row.spec.workload,
        "framework": variant.get("framework", "tensorflow"),
        "variant": of_variant,
        "tags": ", ".join(row.tags) or None,
        "match": row.started_utc_ns,
        "host": row.host,
        "devices": (" ".join(row.gpu_names) or "CPU", variant["gpus"]),
        "outcome": row.outcome.name if row.outcome else "running",
        "evidence": row.evidence_state,
        "throughput": summary.throughput,
        "step_ms_p50": summary.step_ms_p50,
        "mean_power": summary.mean_power_mw,
        "energy": summary.energy_mj_per_example,
        "duration": length_ns,
    }
    return keys[order]


def facets_of(row: RunRow) -> dict[str, tuple[str, ...]]:
    variant = row.spec.variant
    started = datetime.fromtimestamp(row.started_utc_ns / S, UTC).astimezone()
    cards = row.gpu_names or (("CPU",) if variant["gpus"] == 0 else ("GPU",))
    return {
        "workload": (row.spec.workload,),
        "framework": (str(variant.get("framework", "tensorflow")),),
        "layout": (str(variant["layout"]),),
        "batch_size": (str(variant["batch_size"]),),
        "xla": (str(int(variant["xla"])),),
        "card": cards[:1],
        "host": (row.host or "",),
        "outcome": (row.outcome.name if row.outcome else "running",),
        "day": (f"{started:%Y-%m-%d}", f"{started:%Y-%m}"),
        "tag": row.tags,
        "experiment": tuple(map(str, row.experiments)),
    }


CHOICES = st.dictionaries(
    st.sampled_from(("workload", "framework", "layout", "xla", "card", "host", "outcome", "day", "tag", "experiment")),
    st.lists(
        st.sampled_from(
            ("cnn10", "lstm", "jax", "NCHW", "1", "0", "CPU", "", "gpu2", "completed", "running", "2025-10", "night")
        ),
        min_size=1,
        max_size=4,
    ).map(tuple),
    max_size=2,
)


@given(chosen=CHOICES, text=st.sampled_from(("", "nchw", "loud")))
def test_facets_narrow_and_each_counts_what_the_others_leave(
    many: Store, chosen: dict[str, tuple[str, ...]], text: str
) -> None:
    rows = many.library.run_rows(many.library.find(RunQuery(text=text)))
    facets = {row.run: facets_of(row) for row in rows}

    def left(without: str = "") -> list[int]:
        names = [name for name in chosen if name != without]
        return [run for run, of in facets.items() if all(set(of[name]) & set(chosen[name]) for name in names)]

    query = RunQuery(text=text, chosen=chosen)
    if not text:
        assert sorted(many.library.find(query)) == sorted(left())
    counts = many.library.count_facets(query)
    for name in ("workload", "layout", "batch_size", "xla", "card", "host", "outcome", "tag", "experiment"):
        expected = Counter(value for run in left(name) for value in facets[run][name])
        assert counts[name] == expected, name
    assert sum(counts["day"].values()) == len(left("day"))


def naively(rows: list[RunRow], query: RunQuery) -> list[int]:
    """Return what `find` should find, from all rows in memory."""
    found = [
        row
        for row in sorted(rows, key=lambda row: row.run, reverse=True)
        if (row.deleted_utc_ns is not None) == query.deleted
        and query.workload in ("", row.spec.workload)
        and query.outcome in ("", row.outcome.name if row.outcome else "running")
        and (not query.tag or query.tag.lower() in [tag.lower() for tag in row.tags])
        and (query.experiment is None or query.experiment in row.experiments)
    ]
    ranks = ranks_of(found, query.text)
    found = [row for row in found if row.run in ranks]
    if query.order == "match":
        found.sort(key=lambda row: (-ranks[row.run], row.started_utc_ns), reverse=query.descending)
        return [row.run for row in found]
    present = [row for row in found if key_of(row, query.order) is not None]
    present.sort(key=lambda row: key_of(row, query.order), reverse=query.descending)
    return [row.run for row in (*present, *(row for row in found if key_of(row, query.order) is None))]


WORDS = (
    "host:gpu2",
    "note:",
    "note:loud",
    "variant:xla=true",
    "reason:memory",
    "memory",
    "gpu2",
    "nch",
    "NCHW",
    "64",
    "17",
    "xla=true",
    "loud",
    "äpfel",
    "ÄPFEL",
    "out of",
    "a try",
    "june",
    "h200",
    "2025-10",
    "cpu",
    "%",
    "_",
)
QUERIES = st.builds(
    RunQuery,
    text=st.lists(st.sampled_from((*WORDS, *HOSTILE)), max_size=2).map(" ".join),
    workload=st.sampled_from(("", "", "lstm", "nothing")),
    outcome=st.sampled_from(("", "", "running", "completed", "out_of_memory", HOSTILE[0])),
    tag=st.sampled_from(("", "", "PAPER", *HOSTILE)),
    experiment=st.sampled_from((None, None, 1, 2, 99)),
    deleted=st.booleans(),
    order=st.sampled_from(RUN_ORDERS),
    descending=st.booleans(),
)


@given(query=QUERIES)
def test_find_finds_what_a_plain_filter_finds(many: Store, query: RunQuery) -> None:
    rows = many.library.run_rows(range(1, 41))
    assert many.library.find(query) == naively(rows, query)


@pytest.mark.parametrize("order", RUN_ORDERS)
def test_every_order_goes_both_ways_with_absent_values_last(many: Store, order: str) -> None:
    rows = many.library.run_rows(range(1, 41))
    for descending in (False, True):
        query = RunQuery(order=order, descending=descending)
        assert many.library.find(query) == naively(rows, query)


def _begin_lstm(store: Store, implementation: str) -> int:
    spec = RunSpec(workload="lstm", variant={"implementation": implementation})
    return begin(store, uid=implementation, spec=spec)


def test_a_search_finds_what_the_screen_calls_it(store: Store) -> None:
    fused, cudnn = (_begin_lstm(store, name) for name in ("block_fused", "cudnn"))
    for text in ("Block-fused", "block-fu", "variant:block-fused"):
        assert store.library.find(RunQuery(text=text)) == [fused]
    assert store.library.find(RunQuery(text="cuDNN")) == [cudnn]
    assert store.library.find(RunQuery(text=f"#{fused}")) == [fused], "as the command palette takes it"


def test_a_search_knows_the_short_names_of_precisions(store: Store) -> None:
    names = ("bfloat16", "float16", "float32")
    specs = {name: RunSpec(workload="lstm", variant={"precision": name}) for name in names}
    bfloat, half, single = (begin(store, uid=name, spec=spec) for name, spec in specs.items())
    assert store.library.find(RunQuery(text="bf16")) == store.library.find(RunQuery(text="variant:BF16")) == [bfloat]
    assert store.library.find(RunQuery(text="fp16")) == [half], "not bfloat16, which holds float16"
    assert store.library.find(RunQuery(text="FP32")) == [single]


def test_the_best_matches_come_first_and_last_the_other_way_round(store: Store) -> None:
    by_variant, by_tag = (_begin_lstm(store, name) for name in ("cudnn", "standard"))
    store.library.add_tag([by_tag], "cudnn")
    best_first = RunQuery(text="cudnn", order="match")
    assert store.library.find(best_first) == [by_variant, by_tag]
    assert store.library.find(replace(best_first, descending=False)) == [by_tag, by_variant]
    by_word, by_number = (_begin_lstm(store, f"copy {number}") for number in (4, 3))
    assert store.library.find(replace(best_first, text="4")) == [by_number, by_word], "as good as the best field"


def test_a_wider_search_looks_into_the_best_free_text_that_holds_the_word(store: Store) -> None:
    by_variant, by_note = (_begin_lstm(store, name) for name in ("cudnn", "standard"))
    store.library.set_note(by_note, "no cudnn here")
    store.finish(by_note, outcome=Outcome(name="failed", reason="No cuDNN."), summary=Summary(), t_ns=2 * S, utc_ns=S)
    matches = store.library.search(RunQuery(text="cudnn"))
    assert (list(matches.runs), matches.left_out, matches.wider) == ([by_variant], 1, "note:cudnn")
    assert store.library.find(RunQuery(text=matches.wider)) == [by_note]


@given(text=st.text(max_size=20))
def test_no_text_breaks_a_search(many: Store, text: str) -> None:
    query = RunQuery(text=text, workload=text, outcome=text, tag=text)
    assert set(many.library.find(query)) <= set(range(1, 41))


@pytest.mark.parametrize("text", ["\0", "\ud800", "9" * 30, "\n\t ", "NCHW\0"])
def test_text_that_nothing_holds_finds_nothing_or_is_no_text(many: Store, text: str) -> None:
    assert many.library.find(RunQuery(text=text)) == (many.library.find(RunQuery()) if not text.strip() else [])


def test_a_page_pasted_into_the_search_is_told_plainly(many: Store) -> None:
    as_many = " ".join(f"w{n}" for n in range(MAX_SEARCH_TERMS))
    assert many.library.find(RunQuery(text=as_many)) == []
    assert many.library.find(RunQuery(text="nchw " * 100_000)) == many.library.find(RunQuery(text="nchw"))
    assert many.library.find(RunQuery(text="x" * 1_000_000)) == []
    with pytest.raises(UserError, match="A search takes up to 50 words; this one has 51"):
        many.library.find(RunQuery(text=f"{as_many} more"))


def test_a_number_is_not_found_in_a_longer_one(database_path: Path) -> None:
    with Store.open(database_path) as store:
        small, large = (
            begin(store, uid=str(size), spec=RunSpec(workload="cnn10", variant={**SPEC.variant, "batch_size": size}))
            for size in (12, 128)
        )
        store.library.set_note(large, "a[12] of 7 layers")
        expected = {"batch_size=12": [small], "batch_size=128": [large], "size=12": [small]}
        expected |= {"note:12": [large], "note:1": [], "note:7": [large], "atch_size": [large, small]}
        expected |= {"cnn1": [large, small], "note:a[1": [large], "=12": [large, small]}
        assert {text: store.library.find(RunQuery(text=text)) for text in expected} == expected


@pytest.mark.parametrize("text", ["", "lstm", "outcome:completed", "host:gpu1 layout", "framework=jax"])
def test_what_runs_agree_in_is_what_a_plain_look_at_their_rows_says(many: Store, text: str) -> None:
    query = RunQuery(text=text)
    matches = many.library.search(query)
    common, rows = many.library.common_values(query, matches), many.library.run_rows(matches.runs)
    values: dict[str, set[str | None]] = {
        "workload": {row.spec.workload for row in rows},
        "framework": {framework_of(row.spec.variant).name for row in rows},
        "outcome": {row.outcome.name if row.outcome else "running" for row in rows},
        "host": {row.host for row in rows},
        "evidence": {row.evidence_state for row in rows},
    }
    assert common.agreed & values.keys() == {order for order, keys in values.items() if len(keys) == 1 < len(rows)}
    for workload, largest in common.largest.items():
        figures = (row.summary.throughput for row in rows if row.spec.workload == workload)
        assert largest["throughput"] == max((figure for figure in figures if figure is not None), default=None)


def test_a_script_has_the_framework_that_it_computed_with(database_path: Path) -> None:
    """Whatever else it imports; it may also have a parameter of that name."""
    versions = {
        "": {},
        "jax": {"pytorch": "2.13.0", "jax": "0.10.2"},
        "pytorch": {"pytorch": "2.13.0", "tensorflow": "2.21.0"},
        "tensorflow": {"tensorflow": "2.21.0", "keras": "3.15.1"},
    }
    with Store.open(database_path) as store:
        for name, environment in versions.items():
            spec = RunSpec(
                workload="script:train.py", variant={"gpus": 0, "framework": "mine"} if name else {"gpus": 0}
            )
            run = store.begin(
                spec, uid=f"uid-{name}", owner=this_process(), t_ns=0, utc_ns=UTC_NS, devices=(), environment={}
            )
            store.add_environment(run, environment)
            store.finish(run, outcome=OUTCOME, summary=Summary(), t_ns=S, utc_ns=UTC_NS + S)
        rows = store.library.run_rows([1, 2, 3, 4])
        assert [row.framework for row in rows] == list(versions)
        assert store.library.count_facets(RunQuery())["framework"] == dict.fromkeys(versions, 1)
        chosen = {name: store.library.find(RunQuery(chosen={"framework": (name,)})) for name in versions}
        assert chosen == {name: [number] for number, name in enumerate(versions, 1)}
        assert store.library.find(RunQuery(text="framework=tensorflow")) == []


def test_a_value_that_an_experiment_names_finds_the_runs_that_have_it(database_path: Path) -> None:
    with Store.open(database_path) as store:
        names = ("tensorflow", "jax")
        specs = [RunSpec(workload=SPEC.workload, variant={**SPEC.variant, "framework": name}) for name in names]
        runs = [begin(store, uid=name, spec=spec) for name, spec in zip(names, specs, strict=True)]
        save_experiment(store.library, runs, name="lstm: Framework TensorFlow, JAX", preset=None, plan=PLAN)
        found = {text: store.library.search(RunQuery(text=text)) for text in ("jax", "experiment:jax", "lstm:")}
    assert [[*result.runs] for result in found.values()] == [[runs[1]], runs[::-1], runs[::-1]]
    assert (found["jax"].left_out, found["jax"].wider) == (1, "experiment:jax")


def test_runs_are_asked_about_as_the_newest_experiment_with_all_of_them_asks(database_path: Path) -> None:
    with Store.open(database_path) as store:
        first, second, alone = (begin(store, uid=name) for name in "abc")
        older = Plan(name="two", variants=(SPEC,), repeats=2, asked="layout")
        for runs, asked in (((first, second), "layout"), ((first, alone), "xla")):
            plan = encode_plan(msgspec.structs.replace(older, asked=asked))
            save_experiment(store.library, runs, name=str(runs), preset=None, plan=plan)
        pairs = {(first, second): "layout", (first, alone): "xla", (second, alone): "", (first, first): "xla"}
        for runs, asked in pairs.items():
            assert store.library.question_of(store.library.run_rows(runs)).asked == asked
            assert store.library.question_of([store.load_header(run).row for run in runs]).asked == asked
            assert store.library.question_of([store.load(run).row for run in runs]).asked == asked
        assert store.library.question_of([]) == NO_QUESTION
        begun = save_experiment(store.library, [alone], name="older", preset=None, plan=PLAN)
        assert store.library.runs_of_experiment(begun) == (alone,)
        assert store.library.question_of(store.library.run_rows([alone])) == NO_QUESTION, "no plan of now"


def test_runs_have_the_baseline_that_was_chosen_for_their_experiment(database_path: Path) -> None:
    devices = RunSpec(workload=SPEC.workload, variant={**SPEC.variant, "devices": "", "xla": False})
    chosen = RunSpec(workload=SPEC.workload, variant={**devices.variant, "devices": "GPU-1"})
    with Store.open(database_path) as store:
        first, second = (begin(store, uid=str(n), spec=spec) for n, spec in enumerate((SPEC, chosen)))
        plan = Plan(name="two", variants=(devices, SPEC), repeats=1, has_baseline=True)
        experiment = save_experiment(store.library, [first, second], name="two", preset=None, plan=encode_plan(plan))
        assert store.library.compared_by(experiment) == ((first, second), Question("", second)), "on any GPUs"
        newer = msgspec.structs.replace(plan, asked="xla", has_baseline=False)
        save_experiment(store.library, [first, second], name="newer", preset=None, plan=encode_plan(newer))
        assert store.library.compared_by(experiment)[1] == Question("", second), "not what a newer one asks"
        assert store.library.question_of(store.library.run_rows([first, second])) == Question("xla", 0)


def test_one_run_agrees_with_no_other(many: Store) -> None:
    query = RunQuery(text="#1")
    assert many.library.common_values(query, replace(many.library.search(query), runs=[1])).agreed == frozenset()


def test_rows_come_in_the_order_asked_for(many: Store) -> None:
    assert [row.run for row in many.library.run_rows([7, 3, 99, 5])] == [7, 3, 5]
    assert {row.run: row for row in many.list_runs()} == {
        row.run: row for row in many.library.run_rows(many.library.find(RunQuery()))
    }


def test_totals_count_all_runs_or_those_in_the_trash(many: Store) -> None:
    rows = many.list_runs()
    found = many.library.totals()
    assert (found.total, found.deleted, found.other_hosts) == (37, 3, True)
    assert found.tags == {tag: sum(tag in row.tags for row in rows) for tag in TAGS}
    trash = many.library.totals(deleted=True)
    assert (trash.total, trash.deleted) == (3, 3)


def test_an_empty_database_has_nothing_to_choose_from(store: Store) -> None:
    assert store.library.totals() == Totals(total=0, deleted=0)
    assert store.library.find(RunQuery(text="x")) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_notes_and_tags_are_kept_to_the_letter_and_found(store: Store, text: str) -> None:
    run, other = keep(store), keep(store, uid="uid-2")
    store.library.set_note(run, f"{text}\nsecond line")
    store.library.add_tag([run], text)
    (row,) = store.library.run_rows([run])
    assert (row.note, row.tags) == (f"{text}\nsecond line", (text,))
    assert store.library.find(RunQuery(tag=text)) == [run]
    assert store.library.find(RunQuery(text=f"{text} second")) == [run]
    store.library.set_note(run, "")
    store.library.remove_tag([run, other], text)
    assert store.library.find(RunQuery(text=f"{text} second")) == []
    assert store.library.run_rows([run]) == [replace(row, note="", tags=())]


def test_what_is_written_later_is_found_at_once(store: Store) -> None:
    run = begin(store)
    assert store.library.find(RunQuery(text="running h200 layout=nchw")) == [run]
    store.write(run, (EVIDENCE,))
    store.finish(run, outcome=OUTCOME, summary=SUMMARY, t_ns=S, utc_ns=UTC_NS)
    assert store.library.find(RunQuery(text="failed optimizer")) == [run]
    assert store.library.find(RunQuery(text="running")) == []


def test_tags_are_the_same_in_capitals(store: Store) -> None:
    run = keep(store)
    for tag in ("Paper", "paper", " PAPER "):
        store.library.add_tag([run], tag)
    assert store.library.run_rows([run])[0].tags == ("Paper",)
    store.library.remove_tag([run], "paper")
    assert store.library.run_rows([run])[0].tags == ()


@pytest.mark.parametrize(
    ("tag", "sentence"),
    [
        ("", "A tag needs at least one letter."),
        ("  ", "A tag needs at least one letter."),
        ("x" * (MAX_TAG_LENGTH + 1), "at most 60 characters; this one has 61"),
        ("a\nb", "cannot contain control characters"),
        ("a\0b", "cannot contain control characters"),
        ("a\ud800", "cannot contain control characters"),
        ("a,b", "cannot contain a comma"),
    ],
)
def test_what_is_no_tag_is_refused(store: Store, tag: str, sentence: str) -> None:
    run = keep(store)
    with pytest.raises(UserError, match=sentence):
        store.library.add_tag([run], tag)
    assert store.library.run_rows([run])[0].tags == ()


@pytest.mark.parametrize("note", ["x" * (MAX_NOTE_LENGTH + 1), "a\0b", "a\x1b[31m", "\udfff"])
def test_what_is_no_note_is_refused(store: Store, note: str) -> None:
    run = keep(store)
    store.library.set_note(run, "before")
    with pytest.raises(UserError, match=r"^A note "):
        store.library.set_note(run, note)
    assert store.library.run_rows([run])[0].note == "before"


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**30])
def test_a_number_too_large_for_any_run_is_told_plainly(store: Store, number: int) -> None:
    for act in (
        lambda: store.load(number),
        lambda: store.library.delete([number]),
        lambda: store.library.set_note(number, "x"),
    ):
        with pytest.raises(UserError, match="A number is too large for"):
            act()


def test_runs_that_are_none_change_nothing(store: Store) -> None:
    run = keep(store)
    library = store.library
    for change in (
        lambda: library.add_tag([run, 99], "x"),
        lambda: library.remove_tag([run, 99], "x"),
        lambda: library.delete([run, 99]),
        lambda: library.restore([99]),
        lambda: library.purge([99]),
        lambda: library.set_note(99, "x"),
    ):
        with pytest.raises(UserError, match=r"There is no run 99 in .*; `python -m app list` lists all"):
            change()
    (row,) = store.list_runs()
    assert (row.tags, row.experiments, row.deleted_utc_ns) == ((), (), None)


def test_the_trash_hides_runs_and_gives_them_back_whole(store: Store) -> None:
    first, second = keep(store), keep(store, uid="uid-2")
    before = store.load(first)
    assert store.library.delete([first, first], utc_ns=5) == [first]
    assert store.library.delete([first, second], utc_ns=6) == [second], "only what an undo has to bring back"
    assert store.list_runs() == []
    assert store.library.find(RunQuery()) == []
    assert store.library.find(RunQuery(deleted=True)) == [second, first]
    assert store.load(first).row.deleted_utc_ns == 5, "by its number it is there"
    assert store.library.restore([first]) == [first]
    assert store.library.restore([first]) == []
    assert msgspec.to_builtins(store.load(first).row) == msgspec.to_builtins(before.row)
    assert [row.run for row in store.list_runs()] == [first]


def test_a_run_that_goes_on_is_not_deleted(store: Store) -> None:
    done, going_on = keep(store), begin(store, uid="uid-2")
    with pytest.raises(UserError, match=rf"Run {going_on} is in progress; stop it first"):
        store.library.delete([done, going_on])
    assert store.library.find(RunQuery(deleted=True)) == []


def test_for_good_only_what_is_in_the_trash_with_its_weights(store: Store) -> None:
    stays, gone = keep(store), keep(store, uid="uid-2")
    save_experiment(store.library, [gone], name="x", preset=None, plan=PLAN)
    store.library.add_tag([stays, gone], "paper")
    weights = [weights_path(store.path, uid) for uid in ("uid-1", "uid-2")]
    for path in weights:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    store.library.delete([gone])
    with pytest.raises(UserError, match=f"Run {stays} is not in the trash"):
        store.library.purge([gone, stays])
    store.library.purge([gone])
    assert [path.exists() for path in weights] == [True, False]
    for table in ("runs", "devices", "run_words", "tags"):
        assert store._db.execute(f"SELECT DISTINCT run FROM {table}").fetchall() == [(stays,)]
    assert store._db.execute("SELECT count(*) FROM experiments").fetchone() == (0,)


def test_an_experiment_goes_on_and_another_one_is_another(store: Store) -> None:
    runs = [keep(store, uid=f"uid-{n}") for n in range(5)]
    library = store.library
    first = save_experiment(library, runs[:2], name="x", preset="x", plan=PLAN, utc_ns=1)
    assert save_experiment(library, runs[1:3], name="x", preset="x", plan=PLAN.replace("3", "5"), utc_ns=2) == first
    assert library.runs_of_experiment(first) == tuple(runs[:3])
    other_plan = save_experiment(library, runs[:1], name="x", preset=None, plan='{"variants": []}', utc_ns=3)
    other_runs = save_experiment(library, runs[3:], name="x", preset="x", plan=PLAN, utc_ns=4)
    assert len({first, other_plan, other_runs}) == 3
    assert [found.experiment for found in library.experiments()] == [other_runs, other_plan, first]
    assert library.experiments()[-1].plan == PLAN.replace("3", "5")
    library.delete(runs[3:])
    assert [found.experiment for found in library.experiments()] == [other_plan, first], "all of it is in the trash"
    library.delete(runs[:1])
    assert library.runs_of_experiment(first) == tuple(runs[1:3])
    assert library.runs_of_experiment(99) == ()


def test_an_experiment_of_which_a_result_does_not_count_is_left_as_it_is(store: Store) -> None:
    old, *others = (keep(store, uid=f"uid-{n}") for n in range(3))
    library = store.library
    first = save_experiment(library, [old, others[0]], name="x", preset="x", plan=PLAN, utc_ns=1)
    store._db.execute("UPDATE runs SET outcome = 'completed'")
    assert save_experiment(library, [old, *others], name="x", preset="x", plan=PLAN, utc_ns=2) == first
    assert save_experiment(library, others, name="x", preset="x", plan=PLAN, utc_ns=3) != first
    library.delete([old])
    third = save_experiment(library, others, name="x", preset="x", plan=PLAN.replace("3", "5"), utc_ns=4)
    assert len(library.experiments()) == 2, third


def test_two_programs_keep_words_at_once(database_path: Path) -> None:
    with Store.open(database_path) as store:
        run = keep(store)
    faults: list[BaseException] = []

    def tag_on(name: str) -> None:
        try:
            with Store.open(database_path) as store:
                for number in range(20):
                    store.library.add_tag([run], f"{name}{number}")
        except (UserError, sqlite3.Error) as error:
            faults.append(error)

    threads = [threading.Thread(target=tag_on, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert faults == []
    with Store.open(database_path) as store:
        assert len(store.library.run_rows([run])[0].tags) == 40
        assert store.library.find(RunQuery(text="a19 b19")) == [run]
