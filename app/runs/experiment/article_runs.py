"""Finds the articles that a set of stored runs replicates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.errors import UserError
from app.plan import Plan
from app.records import RunHeader, StoredRun
from app.runs.experiment.article import Article
from app.runs.experiment.presets import FindWorkload, NamedPreset, load_preset, preset_names
from app.runs.experiment.reuse import run_fingerprint
from app.runs.experiment.schedule import RunsByVariant
from app.storage.reference import is_reference
from workloads.catalog import UsageError, workload

_MIN_VARIANTS = 2
"""So many variants make a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArticleRuns:
    """Runs of one environment that replicate an article; `plan` is the experiment that they are of.

    `stored` has the same runs with their measurements, by number.
    """

    article: Article
    plan: Plan
    runs: tuple[RunHeader, ...]
    stored: Mapping[int, StoredRun]

    @property
    def run_numbers(self) -> frozenset[int]:
        """Return the numbers of the runs."""
        return frozenset(run.row.run for run in self.runs)

    @property
    def is_half_measured(self) -> bool:
        """Return whether at least half of the plan's variants have a run."""
        by_variant = RunsByVariant([run.row for run in self.runs])
        return 2 * sum(bool(by_variant.runs_of(spec)) for spec in self.plan.variants) >= len(self.plan.variants)


def replicated_articles(
    runs: Sequence[StoredRun], files: Iterable[str] = (), find: FindWorkload = workload
) -> tuple[ArticleRuns, ...]:
    """Return the articles of which these runs replicate two variants or more.

    Runs of different environments are separate, and so are reference runs. Presets share variants: an article is left
    out if another has all of its runs and more. The user's preset files are read after the program's presets.
    """
    presets = _readable_presets([*preset_names(), *files], find)
    stored = {run.row.run: run for run in runs}
    headers = [run.header for run in runs]
    articles = [article for named in presets for article in _replicated(named, headers, stored)]
    numbers = [article.run_numbers for article in articles]
    return tuple(article for article in articles if not any(article.run_numbers < more for more in numbers))


def _readable_presets(keys: Iterable[str], find: FindWorkload) -> Iterator[NamedPreset]:
    for key in keys:
        try:
            yield load_preset(key, find)
        except (UserError, UsageError):  # the list of presets says what is wrong with it
            continue


def _replicated(
    named: NamedPreset, runs: Sequence[RunHeader], stored: Mapping[int, StoredRun]
) -> Iterator[ArticleRuns]:
    article = named.preset.article
    if article is None:
        return
    plans = named.all_plans()
    for plan in (plan for index, plan in enumerate(plans) if plan not in plans[:index]):
        for group in _group_by_environment(_runs_of_plan(plan, runs), plan):
            runs_by_variant = RunsByVariant([run.row for run in group])
            if sum(bool(runs_by_variant.runs_of(spec)) for spec in plan.variants) >= _MIN_VARIANTS:
                yield ArticleRuns(article=article, plan=plan, runs=tuple(group), stored=stored)


def _runs_of_plan(plan: Plan, runs: Sequence[RunHeader]) -> list[RunHeader]:
    runs_by_variant = RunsByVariant([run.row for run in runs])
    numbers = {row.run for spec in plan.specs for row in runs_by_variant.runs_of(spec)}
    return [run for run in runs if run.row.run in numbers]


def _group_by_environment(runs: Sequence[RunHeader], plan: Plan) -> list[list[RunHeader]]:
    """Group runs by environment, reference runs last."""
    on_gpu = any(int(spec.variant["gpus"]) for spec in plan.variants)
    groups: list[list[RunHeader]] = []
    for run in sorted(runs, key=lambda run: is_reference(run.row)):
        matching = (group for group in groups if _same_environment(group[0], run, on_gpu=on_gpu))
        group = next(matching, None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return groups


def _same_environment(one: RunHeader, other: RunHeader, *, on_gpu: bool) -> bool:
    differences = run_fingerprint(one).differences(run_fingerprint(other), on_gpu=on_gpu)
    return not differences and is_reference(one.row) == is_reference(other.row)
