"""Which articles some runs repeat, from made-up runs of the presets in the box."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from app.runs.experiment.presets import ArticleRuns, load_preset, replicated_articles
from app.values.plan import Plan
from app.values.records import StoredRun
from tests.fakes.experiments import ENVIRONMENT, result
from tests.unit.viewmodels.stored import run_row, stored_run
from workloads.protocol import RunSpec

ARTICLES = ("article-a", "article-b", "article-c", "layout-advice")


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    """As a machine with GPUs of today made them."""
    return {name: load_preset(name).all_plans()[0] for name in ARTICLES}


def made(specs: Iterable[RunSpec], first: int = 1, **facts: str) -> list[StoredRun]:
    return [result(number, spec, environment={**ENVIRONMENT, **facts}) for number, spec in enumerate(specs, first)]


def as_reference(runs: Iterable[StoredRun]) -> list[StoredRun]:
    return [replace(run, row=replace(run.row, tags=("reference",))) for run in runs]


def counts(found: Iterable[ArticleRuns]) -> list[tuple[str | None, int]]:
    return [(each.plan.preset, len(each.runs)) for each in found]


@pytest.mark.parametrize("name", ARTICLES)
def test_the_runs_of_an_experiment_repeat_its_article_alone(plans: dict[str, Plan], name: str) -> None:
    runs = made(plans[name].specs)
    assert counts(replicated_articles(runs)) == [(name, len(runs))]


def test_runs_of_several_experiments_repeat_each_of_their_articles(plans: dict[str, Plan]) -> None:
    runs = made([*plans["article-a"].specs, *plans["article-c"].specs])
    assert counts(replicated_articles(runs)) == [("article-a", 30), ("article-c", 78)]


def test_variants_that_two_articles_have_in_common_repeat_both(plans: dict[str, Plan]) -> None:
    shared = [spec for spec in plans["article-a"].variants if spec in plans["article-b"].variants]
    assert counts(replicated_articles(made(shared))) == [("article-a", 4), ("article-b", 4)]


def test_one_variant_or_other_runs_repeat_nothing(plans: dict[str, Plan]) -> None:
    spec = plans["article-c"].variants[0]
    assert replicated_articles(made([spec, spec])) == ()
    assert replicated_articles([stored_run(run_row(1)), stored_run(run_row(2, units=128))]) == ()


def test_own_runs_reference_runs_and_those_of_another_driver_are_told_apart(plans: dict[str, Plan]) -> None:
    specs = plans["article-a"].variants
    runs = [*as_reference(made(specs)), *made(specs, 101), *made(specs[:5], 201, driver="590.1")]
    first, second, reference = replicated_articles(runs)
    assert [min(each.run_numbers) for each in (first, second, reference)] == [101, 201, 1]
    assert [len(each.runs) for each in (first, second, reference)] == [30, 5, 30]


def test_a_preset_of_the_users_counts_too_and_a_broken_one_is_passed_by(tmp_path: Path) -> None:
    own, broken = tmp_path / "mine.toml", tmp_path / "broken.toml"
    form = 'question = "?"\nrepeats = 1\nmatrix = [{workload = "dummy", settings = {gpus = 0, step_ms = [1, 2]}}]'
    own.write_text(f'[gpu]\n{form}\n[cpu]\n{form}\n[article]\ntitle = "Mine"\ntables = []\n', encoding="utf-8")
    broken.write_text("[gpu]\n", encoding="utf-8")
    runs = made(load_preset(str(own)).all_plans()[-1].variants)
    assert replicated_articles(runs) == ()
    articles = replicated_articles(runs, [str(broken), str(own)])
    assert [each.article.title for each in articles] == ["Mine"]
