"""What a verdict says in words is what its records say in JSON, and both answer the question that was asked."""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.analysis.verdict import default_baseline, join_repeats
from app.storage.store import Store
from app.values.environment_keys import (
    COMMIT_KEY,
    HOST_KEY,
    IDLE_WAIT_BLOCKERS_KEY,
    IDLE_WAIT_KEY,
    OTHERS_ON_GPU_KEY,
    STOOD_STILL_KEY,
)
from app.values.records import RunRow, StoredRun
from app.viewmodels.compare.statements import Statement
from app.viewmodels.compare.verdict import compute_verdict
from app.viewmodels.compare.warnings import comparison_warnings
from app.viewmodels.format.naming import SEPARATOR
from tests.fakes.evidence import AS_REQUESTED, MISLABELLED
from tests.unit.viewmodels.stored import S, run_row, stored_run
from workloads.protocol import Value

SETTINGS: Mapping[str, Sequence[Any]] = {
    "layout": ("NHWC", "NCHW"),
    "batch_size": (128, 256, 512, 1024),
    "gpus": (1, 2),
    "precision": ("float32", "tf32", "bfloat16"),
    "xla": (False, True),
}


MACHINES: Mapping[str, Sequence[str]] = {
    "driver": ("570", "580", "580"),
    "cpu": ("EPYC", "EPYC", "Xeon"),
    HOST_KEY: ("", "", "gpu1"),
    OTHERS_ON_GPU_KEY: ("", "", "python3"),
    STOOD_STILL_KEY: ("", "", "", "12", "61"),
    IDLE_WAIT_KEY: ("", "timed out"),
    IDLE_WAIT_BLOCKERS_KEY: ("34 °C", "load 7 %"),
    COMMIT_KEY: ("aaaa", "aaaa", "bbbb", ""),
}


def random_rows(seed: int) -> list[RunRow]:
    """Runs of a random matrix, whose settings have effects and now and then an interaction; some are single or fail."""
    choice = random.Random(seed)
    names = choice.sample(sorted(SETTINGS), choice.randint(1, 3))
    values = {name: choice.sample(SETTINGS[name], choice.randint(2, len(SETTINGS[name]))) for name in names}
    gains = {(name, value): choice.choice((1.0, 1.02, 1.1, 1.5, 4.0)) for name in names for value in values[name]}
    noise = choice.choice((0.0002, 0.005, 0.05, 0.4))
    repeats = choice.choice((1, 2, 3, 3, 3, 4))
    numbers, rows = iter(range(1, 1000)), []
    for combination in product(*values.values()):
        settings = dict(zip(names, combination, strict=True))
        rate = 1000.0 * choice.choice((1.0, 1.0, 1.0, 1.2))
        for setting in settings.items():
            rate *= gains[setting]
        for _ in range(choice.choice((repeats, repeats, repeats, 1))):
            measured = choice.random() > 0.02
            rows.append(
                run_row(
                    next(numbers),
                    workload="cnn10",
                    throughput=rate * choice.lognormvariate(0, noise) if measured else None,
                    energy_mj=2e4 / rate * choice.lognormvariate(0, noise) if measured else None,
                    outcome="completed" if measured else "failed",
                    **settings,
                )
            )
    return [replace(row, planned=str(repeats)) for row in rows]


def random_runs(seed: int) -> list[StoredRun]:
    """Some runs of a random matrix, on machines that differ, with other programs, lost devices and wrong kernels."""
    choice = random.Random(seed)
    rows = random_rows(seed)
    runs = []
    for row in sorted(choice.sample(rows, min(len(rows), 9)), key=lambda row: row.run):
        environment = {key: choice.choice(values) for key, values in MACHINES.items()}
        evidence = choice.choice((None, AS_REQUESTED, AS_REQUESTED, MISLABELLED))
        known = {key: value for key, value in environment.items() if value}
        run = stored_run(row, environment=known, evidence=evidence)
        if evidence:
            judged = replace(row, evidence_state=evidence.state, evidence_reason=evidence.reason)
            run = replace(run, row=judged)
        columns = run.samples[-1]
        if choice.random() < 0.1:
            columns = replace(columns, lost_t_ns=run.anchor_t_ns + 5 * S)
            columns = replace(columns, device=msgspec.structs.replace(columns.device, lost="It fell off the bus."))
        if choice.random() < 0.1:
            implausible = {field: choice.randint(1, 2000) for field in ("power_mw", "memory_bytes", "load_pct")}
            columns = replace(columns, device=msgspec.structs.replace(columns.device, implausible=implausible))
        runs.append(replace(run, samples=(*run.samples[:-1], columns)))
    return runs


def joined_texts(document: object) -> list[str]:
    """Return the texts of a record that a sentence could have been joined of: a fact is a number, a key or a name."""
    if isinstance(document, str):
        return [document] if re.search("\N{NO-BREAK SPACE}| and |[.:;] |, else |\\(runs? ", document) else []
    parts = document.values() if isinstance(document, dict) else document if isinstance(document, list) else ()
    return [text for part in parts for text in joined_texts(part)]


def numbers_of(document: object) -> Iterator[float]:
    """Yield every number of a record, and of a ratio the change in per cent too."""
    if isinstance(document, dict):
        for value in document.values():
            yield from numbers_of(value)
    elif isinstance(document, list):
        for value in document:
            yield from numbers_of(value)
        yield float(len(document))
    elif isinstance(document, int | float) and not isinstance(document, bool):
        yield abs(float(document))
        yield 100 * abs(document - 1)


def without_names(sentence: str, document: object) -> str:
    """Return a sentence without the names in its record: their numbers are no figures."""
    if isinstance(document, dict):
        return _replace_all(sentence, list(document.values()))
    if isinstance(document, list):
        if document and all(isinstance(part, str) for part in document):
            name = SEPARATOR.join(document)
            return re.sub(rf"(?i){re.escape(name)}(?!\d)", "it", sentence)
        return _replace_all(sentence, document)
    return sentence.replace(document, "it") if isinstance(document, str) and document else sentence


def _replace_all(sentence: str, documents: Sequence[object]) -> str:
    for document in sorted(documents, key=lambda one: -len(str(one))):
        sentence = without_names(sentence, document)
    return sentence


def unfounded(statement: Statement) -> list[str]:
    """Return the numbers in a sentence that its record does not have, rounded as they are."""
    document = msgspec.json.decode(msgspec.json.encode(statement.facts))
    figures = re.findall(r"\d[\d,]*(?:\.\d+)?(?![\d.]*e)", without_names(statement.sentence, document))
    known = list(numbers_of(document))

    def is_known(figure: str) -> bool:
        half_digit = 0.5 * 10.0 ** -len(figure.partition(".")[2])
        number = float(figure.replace(",", ""))
        return any(abs(number - one) <= half_digit * 1.001 + abs(one) * 1e-9 for one in known)

    return [figure for figure in figures if not is_known(figure)]


ANSWERS = {"effect", "not sure", "no difference", "not known", "by region", "varies", "fastest", "leads"}


def test_of_500_random_databases_every_sentence_says_what_its_record_says() -> None:
    keys, answers, energies = set(), set(), set()
    for seed in range(500):
        rows = random_rows(seed)
        asked = random.Random(seed).choice(("", *SETTINGS))
        verdict = compute_verdict(rows, default_baseline(rows), random.Random(seed).choice((None, 2.0)), asked)
        for statement in verdict.statements:
            keys.add(statement.key)
            if statement.key == "energy":
                energies.add((min(statement.facts["count"], 3), statement.facts["rivals"] > 0))
            assert unfounded(statement) == [], (seed, statement)
            assert joined_texts(msgspec.json.decode(msgspec.json.encode(statement.facts))) == [], (seed, statement)
            assert not re.search(r"(?<![\d.])0\.\d+× (as|the)", statement.sentence), (seed, statement.sentence)
            assert not re.search(r"%.*\d×|\d×.*%", statement.sentence), (seed, statement.sentence)
        answer = verdict.statements[0]
        answers.add(answer.key)
        assert re.search(r"\d", without_names(answer.sentence, answer.facts)) or answer.key == "no result", seed
    assert answers >= ANSWERS, "the generator reaches every kind of answer"
    assert energies >= {(2, False), (2, True), (3, False), (3, True)}, "of two and of more, decided and not"
    assert {"energy", "not ranked", "margin", "sure", "repeats for a width"} <= keys


def test_of_500_random_machines_every_warning_says_what_its_record_says() -> None:
    keys = set()
    for seed in range(500):
        for statement in comparison_warnings(random_runs(seed)):
            keys.add(statement.key)
            facts = msgspec.json.decode(msgspec.json.encode(statement.facts))
            reasons = {"mismatches", "reason", "reasons"} & statement.facts.keys()
            assert joined_texts({name: fact for name, fact in facts.items() if name not in reasons}) == [], statement
            assert unfounded(statement) == [], (seed, statement)
    assert keys >= {"evidence", "differs", HOST_KEY, OTHERS_ON_GPU_KEY, STOOD_STILL_KEY, IDLE_WAIT_KEY}
    assert keys >= {"lost", "implausible", "order"}


def test_a_wrong_number_is_found() -> None:
    rows = random_rows(3)
    answer = compute_verdict(rows, default_baseline(rows)).statements[0]
    assert unfounded(answer) == []
    ratio = next(value for value in answer.facts.values() if hasattr(value, "low"))
    wrong = replace(answer, facts={**answer.facts, "ratio": replace(ratio, value=ratio.value * 1.5)})
    document = msgspec.json.decode(msgspec.json.encode(answer.facts))
    figures = re.findall(r"\d+\.\d+", without_names(wrong.sentence, document))
    assert any(all(abs(float(figure) - one) > 0.05 for one in numbers_of(document)) for figure in figures)


def of(experiment: int, workload: str, **settings: Value) -> Callable[[RunRow], bool]:
    """Return what chooses the reference runs of a workload with these settings."""

    def is_chosen(row: RunRow) -> bool:
        has_settings = all(row.spec.variant.get(name) == value for name, value in settings.items())
        return row.experiments == (experiment,) and row.spec.workload == workload and has_settings

    return is_chosen


CNN, LSTM, FRAMEWORKS = 1, 2, 4
NHWC: dict[str, Value] = {"gpus": 1, "layout": "NHWC"}
Question = tuple[Callable[[RunRow], bool], str, str, str, tuple[str, ...]]
QUESTIONS: dict[str, Question] = {
    "does NCHW help?": (of(CNN, "cnn10"), "layout", "by region", "layout", ("NCHW",)),
    "does NCHW help in TF32?": (of(CNN, "cnn10", precision="tf32"), "", "by region", "layout", ("NCHW",)),
    "are two GPUs worth it?": (of(CNN, "cnn10"), "gpus", "by region", "gpus", ("2 GPUs",)),
    "at batch 128?": (of(CNN, "cnn10", batch_size=128), "gpus", "by region", "gpus", ("2 GPUs",)),
    "does a bigger batch help?": (of(CNN, "cnn10"), "batch_size", "fastest", "batch_size", ("batch size 2048",)),
    "does TF32 help?": (of(CNN, "cnn10"), "precision", "varies", "precision", ("TF32",)),
    "which framework?": (of(FRAMEWORKS, "cnn10"), "framework", "fastest", "framework", ("JAX",)),
    "which framework in bfloat16?": (
        of(FRAMEWORKS, "cnn10", precision="bfloat16", **NHWC),
        "",
        "fastest",
        "framework",
        ("TensorFlow", "XLA on"),
    ),
    "which framework in TF32?": (
        of(FRAMEWORKS, "cnn10", precision="tf32", batch_size=1024, **NHWC),
        "",
        "fastest",
        "framework",
        ("JAX",),
    ),
    "is XLA worth it?": (of(LSTM, "lstm"), "xla", "effect", "xla", ("XLA on",)),
    "which LSTM trains fastest?": (
        of(LSTM, "lstm", mode="train"),
        "implementation",
        "leads",
        "implementation",
        ("cuDNN stack",),
    ),
    "cuDNN against plain?": (
        lambda row: of(LSTM, "lstm", mode="train")(row) and row.spec.variant["implementation"] in ("standard", "cudnn"),
        "implementation",
        "effect",
        "implementation",
        ("cuDNN",),
    ),
}


@pytest.fixture(scope="module")
def rows(reference_database: Path) -> list[RunRow]:
    with Store.open(reference_database) as store:
        return store.list_runs()


@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_as_new_users_ask_them_are_answered(rows: list[RunRow], question: str) -> None:
    chosen, asked, key, parameter, winner = QUESTIONS[question]
    joined, _ = join_repeats(list(filter(chosen, rows)))
    verdict = compute_verdict(joined, default_baseline(joined), asked=asked)
    answer = verdict.statements[0]
    assert (answer.key, verdict.asked, answer.facts["winner"]) == (key, parameter, winner)
    assert unfounded(answer) == []
