"""Every sentence that Compare says of the reference runs can be read aloud."""

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from app.analysis.verdict import default_baseline, group_by_variant
from app.storage.store import Store
from app.values.records import StoredRun
from app.viewmodels.compare.comparison import COMPARED_FIELDS, Comparison, compare, prepare_comparison
from app.viewmodels.compare.statements import Statement
from app.viewmodels.compare.why import CAVEAT
from app.viewmodels.format.naming import SEPARATOR, variant_names
from tests.fakes.sentences import sentence_faults, sentences_of
from tests.unit.viewmodels.compare.test_statements import unfounded


@pytest.fixture(scope="module")
def runs(reference_database: Path) -> list[StoredRun]:
    with Store.open(reference_database) as store:
        return [store.load(row.run, COMPARED_FIELDS) for row in store.list_runs()]


def texts(comparison: Comparison) -> Iterator[str]:
    reasons = (reason for why in comparison.why for reason in why.statements)
    groups = group_by_variant(comparison.rows)
    names = variant_names([group[0].spec for group in groups], in_sentence=True)
    for statement in (*comparison.verdict.statements, *comparison.warnings, *comparison.notes, *reasons):
        yield with_short_names(statement.sentence, [*names, *names_of(statement)])
    yield from (comparison.method, CAVEAT)
    yield from (view.cause for view in comparison.scaling)
    yield from (chart.caption for chart in comparison.charts)
    for why in comparison.why:
        yield from (one.sentence for one in (*why.notes, *why.gains))
        yield from [why.chart.caption] if why.chart else []


def names_of(statement: Statement) -> list[str]:
    facts = statement.facts
    gaps = (gap.name for gap in facts.get("gaps", ()))
    names = [*facts.values(), *gaps, *facts.get("lacking", ()), *facts.get("variants", ())]
    return [SEPARATOR.join(name) for name in names if isinstance(name, tuple) and name and isinstance(name[0], str)]


def with_short_names(sentence: str, names: Sequence[str]) -> str:
    """Return a sentence with one word for the name of each variant: how long it is says nothing of the sentence."""
    for name in sorted(names, key=len, reverse=True):
        sentence = re.sub(re.escape(name), "It", sentence, flags=re.IGNORECASE)
    return sentence


@pytest.mark.parametrize("seed", range(16))
def test_whatever_is_compared(runs: list[StoredRun], seed: int) -> None:
    """Of variants drawn at random from all runs, from those of a workload, or from neighbours, with their repeats."""
    choice = random.Random(seed)
    workload, first = choice.choice(runs).row.spec.workload, choice.randrange(len(runs) - 40)
    pool = (runs, runs[first : first + 40], [run for run in runs if run.row.spec.workload == workload])[seed % 3]
    specs = [run.row.spec for run in choice.sample(pool, (2, 4, 9, 18)[seed % 4])]
    chosen = [run for run in pool if run.row.spec in specs]
    comparison = compare(prepare_comparison(chosen), default_baseline([run.row for run in chosen]), (), 2.0)
    sentences = list(texts(comparison))
    assert sum(len(sentences_of(text)) for text in sentences) > 10
    assert [fault for text in sentences for fault in sentence_faults(text)] == []
    reasons = [reason for why in comparison.why for reason in why.statements if "figures" in reason.facts]
    statements = (*reasons, *comparison.notes)
    assert [one for one in statements if unfounded(one)] == [], "a figure that the record does not have"
