"""Tables of published articles with what was measured next to them, as JSON documents and as sections of a report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.analysis.intervals import Estimate, ratio
from app.analysis.training import AccuracyComparison, Trainings, compare_accuracy, trainings
from app.analysis.verdict import decide, family_level
from app.analysis.why import step_difference
from app.report.article.grid import Cell, LoadRun, TableContent, TextColumn, measure_columns, ratio_content, text_table
from app.report.documents import combined_state, estimate_document, verification_document
from app.report.model import ArticleSection
from app.runs.experiment.article import (
    LAYOUTS,
    Advice,
    Article,
    ArticleTable,
    Grid,
    LayoutTable,
    PortabilityTable,
    RatioTable,
    TableRow,
    TrainingPlace,
    TrainingTable,
)
from app.runs.experiment.presets import ArticleRuns
from app.runs.experiment.schedule import RunsByVariant
from app.runs.weight_transfer import latest_trial, run_to_transfer
from app.storage.reference import is_reference
from app.values import units
from app.values.plan import Plan, WeightTransfer
from app.values.records import RunHeader, RunRow
from app.viewmodels.compare.why_text import Figures, Pair, describe_difference
from app.viewmodels.format.cells import OUTCOMES, TextTable
from app.viewmodels.format.derived import accuracy_text, comparison_text
from app.viewmodels.format.environment import environment_label
from app.viewmodels.format.naming import choice_label, gpus_label, short_name, variant_names
from app.viewmodels.format.ratios import CI, describe_ratio
from workloads import catalog
from workloads.catalog import FRAMEWORKS
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True)
class _LayoutRow:
    """A row: what else than the batch size tells its variants from those of other rows, and a cell per column."""

    variant: str
    batch: TableRow
    cells: tuple[Cell, ...]

    @property
    def is_measured(self) -> bool:
        """Return whether it contains any run."""
        return any(cell.runs for cell in self.cells)


def layout_content(
    table: LayoutTable, variants: Sequence[RunSpec], runs: Sequence[RunRow], load: LoadRun | None
) -> TableContent | None:
    """Return what the runs measured for a table; None if the experiment has no variant of it.

    Once there are runs, variants that none of them is of are left out, at all batch sizes.

    `load` returns a run with its evidence, to say why layouts differ.
    """
    grid = table.grid(variants)
    if grid is None:
        return None
    columns = zip(*measure_columns(grid, runs), strict=True)
    rows = [_LayoutRow(*row) for row in zip(_row_variants(grid), grid.rows, columns, strict=True)]
    measured = {row.variant for row in rows if row.is_measured}
    measured_rows = [row for row in rows if not measured or row.variant in measured]
    explained = [row for row in measured_rows if row.batch.settings["batch_size"] == table.why_at] if load else []
    reasons = [(row, sentence) for row in explained if load and (sentence := _explain(row, load))]
    return TableContent(
        fields={
            **_layout_fields(table, grid, measured_rows),
            "why": [{"variant": row.variant, "text": text} for row, text in reasons],
        },
        tables=_layout_tables(table, grid, measured_rows),
        is_measured=bool(measured),
        reasons=tuple(f"{row.variant or table.workload}, batch {row.batch.label}: {text}" for row, text in reasons),
    )


def _explain(row: _LayoutRow, load: LoadRun) -> str | None:
    """Return what of a step on the fewest GPUs makes NCHW differ from NHWC; None where that is not known."""
    base, compared = ([load(run.run) for run in cell.runs] for cell in row.cells[:2])
    if not base or not compared:
        return None
    pair = Pair.of(compared, base)
    difference = step_difference(pair.other, pair.base)
    if isinstance(difference, str):
        return None
    return describe_difference(difference, pair, Figures.of(difference, pair.example))


def _layout_fields(table: LayoutTable, grid: Grid, rows: Sequence[_LayoutRow]) -> dict[str, Any]:
    """Return rows by batch size: `cells` by GPUs and layout, `gains` of NCHW, `scaling` over the fewest GPUs."""
    gpus = list(dict.fromkeys(column.settings["gpus"] for column in grid.columns))

    def cell_document(where: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
        epoch_s = table.epoch_examples / cell.figure.value if cell.figure else None
        return {**where, **cell.document(), "throughput": estimate_document(cell.figure), "epoch_s": epoch_s}

    documents = []
    for row in rows:
        placed = [(column.settings, cell) for column, cell in zip(grid.columns, row.cells, strict=True)]
        gains = [(where, cell.ratios["gain"]) for where, cell in placed if "gain" in cell.ratios]
        scaling = [(where, cell.ratios["scaling"]) for where, cell in placed if "scaling" in cell.ratios]
        documents.append(
            {
                "batch_size": row.batch.settings["batch_size"],
                "variant": row.variant,
                "cells": [cell_document(where, cell) for where, cell in placed],
                "gains": [{"gpus": where["gpus"], **estimate_document(estimate)} for where, estimate in gains],
                "scaling": [{"over": gpus[0], **where, **estimate_document(estimate)} for where, estimate in scaling],
                "advice": [
                    {"gpus": where["gpus"], "by": advice.by, "layout": advice.layout, "verdict": verdict}
                    for (where, nhwc), (_, nchw) in zip(placed[::2], placed[1::2], strict=True)
                    for advice in table.advice
                    if (verdict := _advice_verdict(advice, nhwc, nchw))
                ],
            }
        )
    return {
        "workload": table.workload,
        "example": catalog.workload(table.workload).example,
        "epoch_examples": table.epoch_examples,
        "gpus": gpus,
        "rows": documents,
    }


def _layout_tables(table: LayoutTable, grid: Grid, rows: Sequence[_LayoutRow]) -> tuple[TextTable, ...]:
    """Return a table of throughput, gains and scaling, and one of seconds per epoch."""
    example = catalog.workload(table.workload).example
    unit, fewest = units.rate_unit(example), grid.columns[0].settings["gpus"]
    labels: list[TextColumn] = []
    if any(row.variant for row in rows):
        labels.append(("Variant", [row.variant for row in rows]))
    labels.append(("Batch size", [row.batch.label for row in rows]))
    rates: list[TextColumn] = []
    epochs: list[TextColumn] = []
    scaling: list[TextColumn] = []
    for index, column in enumerate(grid.columns):
        cells = [row.cells[index] for row in rows]
        gpus, layout = gpus_label(column.settings["gpus"]), column.settings["layout"]
        rates.append((f"{gpus} {layout}: {unit}", [cell.text() for cell in cells]))
        epochs.append((f"{gpus} {layout}: s per epoch", [cell.text(3, table.epoch_examples) for cell in cells]))
        if layout == LAYOUTS[-1]:
            rates.append((f"{gpus}: NCHW gain", [describe_ratio(cell.ratios["gain"]) for cell in cells]))
            for advice in table.advice if column.settings["gpus"] else ():
                verdicts = [_advice_verdict(advice, *row.cells[index - 1 : index + 1]) or units.ABSENT for row in rows]
                rates.append((f"{gpus}: {advice.by} says {advice.layout}", verdicts))
        if column.settings["gpus"] != fewest:
            head = f"{layout}: {gpus} over {fewest or 'the CPU'}"
            scaling.append((head, [describe_ratio(cell.ratios["scaling"]) for cell in cells]))
    rate_caption = f"Measured {unit}; gains and ratios are comparisons of their own, each with a {CI}"
    epoch_caption = f"Seconds per epoch of {table.epoch_examples:,} {units.plural(example)} at the measured rate"
    return (
        text_table(rate_caption, labels, [*rates, *scaling], first_number=len(labels) - 1),
        text_table(epoch_caption, labels, epochs, first_number=len(labels) - 1),
    )


def _row_variants(grid: Grid) -> list[str]:
    """Return for each row what else than its batch size tells its variants from those of other rows; "" if nothing."""
    variants = [next(cell.variant for cell in cells if cell.variant) for cells in zip(*grid.cells, strict=True)]
    settings = {"batch_size": 0, "gpus": 0, **grid.columns[0].settings}
    steps = [
        {name: value for name, value in spec.variant.items() if name not in catalog.OUTSIDE_STEP} for spec in variants
    ]
    alike = [RunSpec(workload=variants[0].workload, variant={**step, **settings}) for step in steps]
    distinct = [spec for number, spec in enumerate(alike) if spec not in alike[:number]]
    names = variant_names(distinct) if len(distinct) > 1 else [""]
    return [names[distinct.index(spec)] for spec in alike]


def _advice_verdict(advice: Advice, nhwc: Cell, nchw: Cell) -> str | None:
    """Return whether a gain confirms an advice; None where it says nothing, or a run was not what was requested."""
    gain, runs = nchw.ratios["gain"], (*nhwc.runs, *nchw.runs)
    if gain is None or not advice.is_about(runs[0].spec.variant) or combined_state(runs) == "mismatch":
        return None
    decision = decide(gain)
    if decision not in ("faster", "slower"):
        return decision
    return "confirmed" if (decision == "faster") == (advice.layout == "NCHW") else "refuted"


def training_content(
    table: TrainingTable, variants: Sequence[RunSpec], runs: Sequence[RunHeader]
) -> TableContent | None:
    """Return what the runs measured for a table; None if the experiment has no variant of it.

    Raises:
        UserError: A cell has variants that differ in more than their seed.
    """
    by_cell = table.cells(variants)
    if not by_cell:
        return None
    rows, headers = RunsByVariant([run.row for run in runs]), {run.row.run: run for run in runs}
    measured = {
        cell: _Cell(tuple(headers[row.run] for spec in specs for row in rows.runs_of(spec)))
        for cell, specs in by_cell.items()
    }
    grid = _Grid(measured, table.margin_points)
    return TableContent(
        fields={
            "workload": table.workload,
            "settings": table.settings,
            "margin_points": table.margin_points,
            "rows": [_row_document(grid, batch) for batch in grid.batches],
        },
        tables=(_time_table(grid), _accuracy_table(grid), _goal_table(grid)),
        is_measured=any(cell.runs for cell in measured.values()),
    )


class _Cell:
    """The runs of one training, those that are not completed too."""

    def __init__(self, runs: tuple[RunHeader, ...]) -> None:
        self.runs = runs
        self.trainings: Trainings = trainings(runs)

    def text(self, words: str) -> str:
        """Return the words, or how the runs ended where none completed."""
        if self.trainings.runs:
            return words
        outcome = self.runs[-1].row.outcome if self.runs else None
        return OUTCOMES[outcome.name].word if outcome else units.ABSENT


@dataclass(frozen=True, slots=True)
class _Grid:
    """The cells of a table by place."""

    cells: Mapping[TrainingPlace, _Cell]
    margin_points: float

    @property
    def batches(self) -> list[int]:
        return sorted({batch for batch, _, _ in self.cells})

    @property
    def gpus(self) -> list[int]:
        return sorted({gpus for _, gpus, _ in self.cells})

    @property
    def columns(self) -> list[tuple[int, str]]:
        return [(gpus, layout) for gpus in self.gpus for layout in LAYOUTS]

    def cell(self, batch: int, gpus: int, layout: str) -> _Cell:
        return self.cells.get((batch, gpus, layout)) or _Cell(())

    def gain(self, batch: int, gpus: int) -> Estimate | None:
        """Return how many times faster NCHW is through: NHWC's seconds over NCHW's."""
        nhwc, nchw = (self.cell(batch, gpus, layout) for layout in LAYOUTS)
        return ratio(nhwc.trainings.seconds, nchw.trainings.seconds, self._level(nhwc, nchw))

    def accuracy(self, batch: int, gpus: int) -> AccuracyComparison | None:
        """Return how NCHW's accuracy lies to NHWC's."""
        nhwc, nchw = (self.cell(batch, gpus, layout) for layout in LAYOUTS)
        return compare_accuracy(nchw.trainings, nhwc.trainings, self.margin_points, self._level(nhwc, nchw))

    @staticmethod
    def _level(nhwc: _Cell, nchw: _Cell) -> float:
        return family_level([run.row for run in nchw.runs], [run.row for run in nhwc.runs])


def _columns(grid: _Grid) -> list[tuple[int, str, str]]:
    return [(gpus, layout, f"{gpus_label(gpus)} {layout}") for gpus, layout in grid.columns]


def _labels(grid: _Grid) -> TextColumn:
    return "Batch size", [f"{batch:,}" for batch in grid.batches]


def _time_table(grid: _Grid) -> TextTable:
    columns: list[TextColumn] = []
    for gpus, layout, name in _columns(grid):
        cells = [grid.cell(batch, gpus, layout) for batch in grid.batches]
        seconds = [units.number(mean.value if (mean := cell.trainings.mean_seconds) else None) for cell in cells]
        columns.append((f"{name}: s", [cell.text(words) for cell, words in zip(cells, seconds, strict=True)]))
        if layout == LAYOUTS[-1]:
            gains = [describe_ratio(grid.gain(batch, gpus)) for batch in grid.batches]
            columns.append((f"{gpus_label(gpus)}: NCHW gain", gains))
    caption = (
        f"Seconds of training to the end, the mean over seeds; gains are comparisons of their own, each with a {CI}"
    )
    return text_table(caption, [_labels(grid)], columns)


def _accuracy_table(grid: _Grid) -> TextTable:
    columns: list[TextColumn] = []
    for gpus, layout, name in _columns(grid):
        cells = [grid.cell(batch, gpus, layout) for batch in grid.batches]
        columns.append((f"{name}: %", [cell.text(accuracy_text(cell.trainings)) for cell in cells]))
        if layout == LAYOUTS[-1]:
            compared = [comparison_text(grid.accuracy(batch, gpus)) for batch in grid.batches]
            columns.append((f"{gpus_label(gpus)}: NCHW less NHWC", compared))
    caption = (
        f"Accuracy after the last epoch, mean and standard deviation (seeds); differences in points with a {CI} "
        f"each, equal where two one-sided tests show it to be within {grid.margin_points:g} points"
    )
    return text_table(caption, [_labels(grid)], columns)


def _goal_table(grid: _Grid) -> TextTable:
    goals = list(next(iter(grid.cells.values())).trainings.seconds_to)
    rows = [(batch, goal) for batch in grid.batches for goal in goals]
    labels = [("Batch size", [f"{batch:,} to {units.percent(goal)}" for batch, goal in rows])]
    columns: list[TextColumn] = []
    for gpus, layout, name in _columns(grid):
        texts = [_goal_text(grid.cell(batch, gpus, layout).trainings, goal) for batch, goal in rows]
        columns.append((f"{name}: s", texts))
    caption = "Seconds of training to the end of the first epoch that reaches an accuracy, the mean over seeds"
    return text_table(caption, labels, columns)


def _goal_text(trainings: Trainings, goal: int) -> str:
    """Return the mean seconds, and of how many seeds where not all reached it."""
    times = trainings.seconds_to[goal]
    if not trainings.runs:
        return units.ABSENT
    if not times:
        return "not reached"
    some = "" if len(times) == len(trainings.runs) else f" ({len(times)} of {len(trainings.runs)})"
    return units.number(sum(times) / len(times)) + some


def _row_document(grid: _Grid, batch: int) -> dict[str, Any]:
    """Return a row: `cells` by GPUs and layout, and of NCHW against NHWC `gain` in time and `accuracy` in points."""
    return {
        "batch_size": batch,
        "cells": [
            {"gpus": gpus, "layout": layout, **_cell_document(grid.cell(batch, gpus, layout))}
            for gpus, layout in grid.columns
        ],
        "nchw": [
            {
                "gpus": gpus,
                "gain": estimate_document(grid.gain(batch, gpus)),
                "accuracy": comparison_document(grid.accuracy(batch, gpus)),
            }
            for gpus in grid.gpus
        ],
    }


def _cell_document(cell: _Cell) -> dict[str, Any]:
    rows, trainings = [run.row for run in cell.runs], cell.trainings
    count = len(trainings.runs)
    return {
        "runs": [row.run for row in rows],
        "outcomes": [row.outcome.name if row.outcome else "running" for row in rows],
        **verification_document(rows),
        "seconds": estimate_document(trainings.mean_seconds),
        "accuracy_pct": {"mean": trainings.accuracy_pct, "deviation": trainings.deviation_points, "n": count},
        "seconds_to": {str(goal): list(times) for goal, times in trainings.seconds_to.items()},
    }


def comparison_document(comparison: AccuracyComparison | None) -> dict[str, Any] | None:
    """Return a difference of accuracies in points, its interval, that of the tests, and what they say."""
    if comparison is None:
        return None
    return {
        **estimate_document(comparison.points, "points"),
        "tests_interval": list(comparison.tests) if comparison.tests else None,
        "margin_points": comparison.margin_points,
        "decision": comparison.decision,
    }


_VERSIONS = ("driver", *(framework.version_key for framework in FRAMEWORKS.values()), "program_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """One table of an article with what was measured: its fields in JSON, and its section of a report.

    `is_measured` is whether the table contains any run.
    """

    document: Mapping[str, Any]
    section: ArticleSection
    is_measured: bool


def measured_tables(
    article: Article | None, plan: Plan, runs: Sequence[RunHeader], load: LoadRun | None = None
) -> tuple[MeasuredTable, ...]:
    """Return the article's tables of which the experiment has variants.

    Without `load`, which returns a run, tables do not say why figures differ, and have no memory traffic.
    """
    if article is None:
        return ()
    tables = (_measured_table(article, table, plan, runs, load) for table in article.tables)
    return tuple(table for table in tables if table is not None)


def repeated_sections(repeated: Sequence[ArticleRuns]) -> tuple[ArticleSection, ...]:
    """Return the sections of all these articles; their sources say where the runs were measured, too."""
    return tuple(
        replace(section, source=f"{section.source} {describe_origin(article_runs.runs)}.")
        for article_runs in repeated
        for section in sections_with_runs(article_runs)
    )


def sections_with_runs(repeated: ArticleRuns) -> tuple[ArticleSection, ...]:
    """Return the sections of the tables that contain any of the runs."""
    tables = measured_tables(repeated.article, repeated.plan, repeated.runs, repeated.stored.__getitem__)
    return tuple(table.section for table in tables if table.is_measured)


def describe_origin(runs: Sequence[RunHeader]) -> str:
    """Describe where and when runs of one environment were made, and whether they came with the program."""
    gpus = sorted({name for run in runs for name in run.row.gpu_names})
    cpus = dict.fromkeys(run.environment["cpu"] for run in runs if "cpu" in run.environment)
    days = sorted({units.utc_time(run.row.started_utc_ns)[:10] for run in runs})
    parts = [
        f"{'Reference, measured' if is_reference(runs[0].row) else 'Measured'} on {', '.join(gpus or cpus)}",
        *_known_versions(runs),
        " to ".join(dict.fromkeys((days[0], days[-1]))),
        f"{len(runs)} {units.plural('run', len(runs))}",
    ]
    return " · ".join(filter(None, parts))


def _known_versions(runs: Sequence[RunHeader]) -> Iterator[str]:
    for key in _VERSIONS:
        versions = {run.environment[key] for run in runs if run.environment.get(key)}
        if versions:
            yield f"{environment_label(key)} {' and '.join(sorted(versions))}"


def _measured_table(
    article: Article, table: ArticleTable, plan: Plan, runs: Sequence[RunHeader], load: LoadRun | None
) -> MeasuredTable | None:
    rows = [run.row for run in runs]
    match table:
        case PortabilityTable():
            content = _portability_content(plan.weight_transfers, runs)
        case LayoutTable():
            content = layout_content(table, plan.variants, rows, load)
        case RatioTable():
            content = ratio_content(table, plan.variants, rows, load)
        case TrainingTable():
            content = training_content(table, plan.variants, runs)
    if content is None:
        return None
    head = {
        "kind": str(table.__struct_config__.tag),
        "title": table.title,
        "article": article.title,
        "article_machine": article.machine,
        "article_says": [{"about": claim.about, "says": claim.says} for claim in table.claims],
    }
    machine = f" It measured on {article.machine}." if article.machine else ""
    tables = tuple(table for table in content.tables if table.rows)
    section = ArticleSection(
        title=table.title,
        tables=tables,
        reasons=content.reasons,
        claims=tuple(f"The article, {claim.about}: {claim.says}." for claim in table.claims),
        source=f"The article: {article.title}.{machine}",
    )
    if not tables:
        section = ArticleSection(title=f"{table.title}: nothing measured", tables=())
    return MeasuredTable(document={**head, **content.fields}, section=section, is_measured=content.is_measured)


def _portability_content(transfers: Sequence[WeightTransfer], runs: Sequence[RunHeader]) -> TableContent | None:
    """Return a row per trial, pending ones too; None if the experiment transfers no weights.

    `max_difference` is the largest absolute difference of an output from the trained model's own, None before the
    trial.
    """
    rows = [row for transfer in transfers for row in _trial_rows(transfer, run_to_transfer(transfer, runs))]
    if not rows:
        return None
    table = text_table(
        "How much answers to the same sequences differ from those of the trained model itself",
        [("Trained", [row["trained"] for row in rows]), ("Weights tried in", [row["label"] for row in rows])],
        [
            ("On", [row["device_name"] or units.ABSENT for row in rows]),
            (
                "Largest difference of an answer",
                [units.ABSENT if (value := row["max_difference"]) is None else f"{value:.1e}" for row in rows],
            ),
            ("Largest answer", [units.number(row["max_output"]) for row in rows]),
        ],
        first_number=3,
    )
    is_measured = any(row["run"] is not None for row in rows)
    return TableContent(fields={"rows": rows}, tables=(table,), is_measured=is_measured)


def _trial_rows(transfer: WeightTransfer, run: RunHeader | None) -> list[dict[str, Any]]:
    trials = {name: latest_trial(run, name, transfer.gpus) if run else None for name in transfer.into}
    return [
        {
            "trained": short_name(transfer.spec),
            "run": run.row.run if run else None,
            "implementation": name,
            "label": choice_label(transfer.spec, "implementation", name),
            "device_name": trial.device_name if trial else None,
            "max_difference": trial.max_difference if trial else None,
            "max_output": trial.max_output if trial else None,
        }
        for name, trial in trials.items()
    ]
