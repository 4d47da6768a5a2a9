"""Which articles some runs repeat: told by their variants, whoever made them and however they were chosen."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from app.errors import UserError
from app.records import StoredRun
from app.runs.article import Article
from app.runs.counted import surroundings_of
from app.runs.presets import Find, NamedPreset, preset, preset_names
from app.runs.schedule import ByVariant, Plan
from app.storage.reference import is_reference
from workloads.catalog import UsageError, workload

_FEWEST = 2
"""So many variants make a comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArticleRuns:
    """Runs that repeat an article, all made in the same surroundings; `plan` is the experiment that they are of."""

    article: Article
    plan: Plan
    runs: tuple[StoredRun, ...]

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the runs."""
        return frozenset(run.row.run for run in self.runs)


def repeated_articles(
    runs: Sequence[StoredRun], files: Iterable[str] = (), find: Find = workload
) -> tuple[ArticleRuns, ...]:
    """The articles of which these runs repeat two variants or more, by presets in the box and in the user's `files`.

    Runs of different surroundings are told apart, and reference runs from others. Presets have variants in common: one
    is left out where another has all of its runs and more. `find` finds workloads of the user's own, too.
    """
    found = [each for named in _readable([*preset_names(), *files], find) for each in _repeated(named, runs)]
    return tuple(each for each in found if not any(each.numbers < other.numbers for other in found))


def _readable(keys: Iterable[str], find: Find) -> Iterator[NamedPreset]:
    for key in keys:
        try:
            yield preset(key, find)
        except (UserError, UsageError):  # the list of presets says what is wrong with it
            continue


def _repeated(named: NamedPreset, runs: Sequence[StoredRun]) -> Iterator[ArticleRuns]:
    article = named.preset.article
    if article is None:
        return
    plans = named.every_plan()
    for plan in (plan for place, plan in enumerate(plans) if plan not in plans[:place]):
        for alike in _alike(_of_plan(plan, runs), plan):
            made = ByVariant([run.row for run in alike])
            if sum(bool(made.of(spec)) for spec in plan.variants) >= _FEWEST:
                yield ArticleRuns(article=article, plan=plan, runs=tuple(alike))


def _of_plan(plan: Plan, runs: Sequence[StoredRun]) -> list[StoredRun]:
    made = ByVariant([run.row for run in runs])
    own = {row.run for spec in plan.specs for row in made.of(spec)}
    return [run for run in runs if run.row.run in own]


def _alike(runs: Sequence[StoredRun], plan: Plan) -> list[list[StoredRun]]:
    """The runs in groups made in the same surroundings, those of the reference last."""
    on_gpu = any(int(spec.variant["gpus"]) for spec in plan.variants)
    groups: list[list[StoredRun]] = []
    for run in sorted(runs, key=lambda run: is_reference(run.row)):
        fitting = (group for group in groups if _are_alike(group[0], run, on_gpu=on_gpu))
        group = next(fitting, None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return groups


def _are_alike(one: StoredRun, other: StoredRun, *, on_gpu: bool) -> bool:
    differing = surroundings_of(one).differing(surroundings_of(other), on_gpu=on_gpu)
    return not differing and is_reference(one.row) == is_reference(other.row)
