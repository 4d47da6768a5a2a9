"""Connects the Compare screen with the database: runs are read, judged and laid out off the GUI thread."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, Signal

from app.errors import UserError
from app.gui.background import Background
from app.gui.controllers.compare_offers import CompareOffers
from app.gui.views.compare import CompareView
from app.records import StoredRun
from app.storage.store import Store
from app.viewmodels.compare import SAMPLED, Compared, Comparison, compare, compared, curves_of, usual_baseline
from app.viewmodels.compare_curves import Alignment, CompareCurves
from app.viewmodels.doubts import EARLIER
from app.viewmodels.history import run_count
from app.viewmodels.looks import MOST_COMPARED, MOST_DRAWN
from workloads.protocol import RunSpec

if TYPE_CHECKING:
    from app.runs.article_runs import ArticleRuns

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was read for one choice of runs."""

    found: Compared
    comparison: Comparison
    curves: CompareCurves
    hidden_columns: frozenset[str]
    articles: tuple["ArticleRuns", ...]


class CompareController(QObject):
    """Shows chosen runs side by side; only the last choice asked for is shown.

    `open_asked` tells a run whose page is wanted, `again_asked` a variant that is wanted in the form; what is told of
    `offers` too.
    """

    open_asked = Signal(int)
    again_asked = Signal(object)

    def __init__(
        self, view: CompareView, database: Path, background: Background, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._view = view
        self._database = database
        self._background = background
        self._asked = 0
        self._found = Compared()
        self._articles: tuple[ArticleRuns, ...] = ()
        self._baseline = 0
        self._align: Alignment = "time"
        self.offers = CompareOffers(view.empty, database, background, self._fail, self)
        self.offers.compare_asked.connect(lambda runs, article: self.show_runs(runs, article=article))
        view.baseline_asked.connect(self.make_baseline)
        view.open_asked.connect(self.open_asked)
        view.again_asked.connect(self._run_again)
        view.parts.curves.align_asked.connect(self.align)
        view.parts.article_wanted.connect(self._tell_articles)
        view.report_asked.connect(self.save_report)
        view.experiments_wanted.connect(self._offer_experiments)
        view.experiment_asked.connect(self.show_experiment)
        view.table.columns_changed.connect(self._keep_columns)

    def show_runs(self, runs: Sequence[int], *, article: bool = False) -> None:
        """Compare these runs, in this order. The baseline stays if it is among them.

        `article`: what is looked at first is the article that they repeat, if they repeat one.
        """
        chosen = tuple(dict.fromkeys(runs))
        baseline = self._baseline if self._baseline in chosen else None
        self._asked += 1
        align = self._align
        if len(chosen) > MOST_DRAWN:
            self._view.show_busy(f"Reading {run_count(min(len(chosen), MOST_COMPARED))} …")
        self._of_these(
            lambda: _read(self._database, chosen, baseline, align), lambda answer: self._show(answer, article=article)
        )

    def refresh(self) -> None:
        """Read the runs again where one of them was going on; where there are none look for what could be compared."""
        if not self._found.runs:
            self.offers.look()
        elif any(run.row.outcome is None for run in self._found.runs):
            self.show_runs([run.row.run for run in self._found.runs])

    def show_experiment(self, experiment: int) -> None:
        """Compare the runs of an experiment; the article that it repeats, if any, is looked at first."""
        self._background.run(
            lambda: _runs_of(self._database, experiment), lambda runs: self.show_runs(runs, article=True), self._fail
        )

    def _offer_experiments(self) -> None:
        self._background.run(lambda: _experiments(self._database), self._view.offer_experiments, self._fail)

    def make_baseline(self, run: int) -> None:
        """Judge the runs against this one's variant."""
        found, self._baseline = self._found, run
        self._of_these(lambda: _judge(self._database, found, run), self._view.show_model)

    def align(self, align: Alignment) -> None:
        """Lay the curves along time, steps or examples."""
        found, self._align = self._found, align
        self._of_these(lambda: curves_of(found, align), self._view.show_curves)

    def save_report(self, path: Path) -> None:
        """Write what is compared to a file, `.html` or `.md`."""
        found, baseline, articles = self._found, self._baseline, self._articles
        self._of_these(lambda: _write(self._database, found, baseline, articles, path), self._view.show_written)

    def _tell_articles(self) -> None:
        articles = self._articles
        self._of_these(lambda: _articles_html(articles), self._view.parts.show_article)

    def _of_these(self, work: Callable[[], Result], show: Callable[[Result], None]) -> None:
        """Show what comes of the work, unless other runs have been chosen meanwhile."""
        asked = self._asked

        def done(result: Result) -> None:
            if asked == self._asked:
                show(result)

        self._background.run(work, done, self._fail)

    def _show(self, answer: _Answer, *, article: bool) -> None:
        self._found, self._baseline = answer.found, answer.comparison.baseline
        self._articles = answer.articles
        self._view.table.hide_columns(answer.hidden_columns)
        self._view.parts.offer_article(bool(answer.articles))
        self._view.show_model(answer.comparison)
        self._view.show_curves(answer.curves)
        if article:
            self._view.parts.open_article()
        self._view.table.setFocus()

    def _run_again(self, run: int) -> None:
        spec: RunSpec | None = next((each.row.spec for each in self._found.runs if each.row.run == run), None)
        if spec is not None:
            self.again_asked.emit(spec)

    def _keep_columns(self, names: frozenset[str]) -> None:
        self._background.run(lambda: _keep_columns(self._database, names), lambda _: None, self._fail)

    def _fail(self, error: UserError) -> None:
        self._view.show_busy("")
        self._view.show_problem(str(error))


def _read(database: Path, runs: Sequence[int], baseline: int | None, align: Alignment) -> _Answer:
    from app.gui.controllers.presets import known_workloads
    from app.runs.article_runs import repeated_articles
    from app.runs.presets import own_files

    with Store.open(database) as store:
        found = compared([store.load(run, SAMPLED) for run in runs[:MOST_COMPARED]], max(0, len(runs) - MOST_COMPARED))
        hidden = store.library.hidden_figures()
    baseline = baseline or usual_baseline([run.row for run in found.runs])
    return _Answer(
        found,
        _judge(database, found, baseline),
        curves_of(found, align),
        hidden,
        repeated_articles(found.runs, own_files(database), known_workloads(database)),
    )


def _judge(database: Path, found: Compared, baseline: int) -> Comparison:
    return compare(found, baseline, _earlier(database, found, baseline))


def _write(database: Path, found: Compared, baseline: int, articles: Sequence["ArticleRuns"], path: Path) -> Path:
    from app.report.article_page import repeated_sections
    from app.report.written import write_report

    older = _earlier(database, found, baseline)
    write_report(path, found, baseline, time.time_ns(), older, repeated_sections(articles))
    return path


def _articles_html(articles: Sequence["ArticleRuns"]) -> str:
    from app.report.article_page import articles_html

    return articles_html(articles)


def _earlier(database: Path, found: Compared, baseline: int) -> list[StoredRun]:
    shown = [run.row.run for run in found.runs]
    with Store.open(database) as store:
        return store.load_earlier(baseline, shown, EARLIER)


def _runs_of(database: Path, experiment: int) -> tuple[int, ...]:
    with Store.open(database) as store:
        runs = store.library.runs_of_experiment(experiment)
    if not runs:
        raise UserError("This experiment has no runs any more; its runs may be in the trash of History.")
    return runs


def _experiments(database: Path) -> tuple[tuple[int, str], ...]:
    from app.viewmodels.compare_offers import experiment_choices

    with Store.open(database) as store:
        return experiment_choices(store.library.experiments())


def _keep_columns(database: Path, names: frozenset[str]) -> None:
    with Store.open(database) as store:
        store.library.hide_figures(names)
