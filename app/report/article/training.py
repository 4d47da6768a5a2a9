"""Time and accuracy of whole trainings by batch size, GPUs and layout, as an article of total times has them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app import units
from app.analysis.intervals import Estimate, ratio
from app.analysis.training import AccuracyComparison, Trainings, compare_accuracy, trainings
from app.analysis.verdict import family_level
from app.records import RunHeader
from app.report.article.grid import TableContent, TextColumn, text_table
from app.report.article.layouts import gain_text
from app.report.documents import estimate_document, verification_document
from app.report.model import TextTable
from app.runs.experiment.article import LAYOUTS, TrainingPlace, TrainingTable
from app.runs.experiment.schedule import RunsByVariant
from app.viewmodels.format.cells import OUTCOMES
from app.viewmodels.format.derived import accuracy_text, comparison_text
from app.viewmodels.format.naming import gpus_label
from app.viewmodels.format.ratios import CI
from workloads.protocol import RunSpec


def training_content(
    table: TrainingTable, variants: Sequence[RunSpec], runs: Sequence[RunHeader]
) -> TableContent | None:
    """Return what the runs measured for a table; None if the experiment has no variant of it.

    Args:
        table: As in the preset's file.
        variants: Those of the experiment.
        runs: Those of the experiment, of any variant.

    Raises:
        UserError: A cell has variants that differ in more than their seed.
    """
    by_cell = table.cells(variants)
    if not by_cell:
        return None
    rows, headers = RunsByVariant([run.row for run in runs]), {run.row.run: run for run in runs}
    measured = {
        place: _Cell(tuple(headers[row.run] for spec in specs for row in rows.runs_of(spec)))
        for place, specs in by_cell.items()
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
        self.found: Trainings = trainings(runs)

    def text(self, words: str) -> str:
        """Return the words, or how the runs ended where none completed."""
        if self.found.runs:
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
        return ratio(nhwc.found.seconds, nchw.found.seconds, self._level(nhwc, nchw))

    def accuracy(self, batch: int, gpus: int) -> AccuracyComparison | None:
        """Return how NCHW's accuracy lies to NHWC's."""
        nhwc, nchw = (self.cell(batch, gpus, layout) for layout in LAYOUTS)
        return compare_accuracy(nchw.found, nhwc.found, self.margin_points, self._level(nhwc, nchw))

    @staticmethod
    def _level(nhwc: _Cell, nchw: _Cell) -> float:
        return family_level([run.row for run in nchw.runs], [run.row for run in nhwc.runs])


def _columns(grid: _Grid) -> list[tuple[int, str, str]]:
    return [(gpus, layout, f"{gpus_label(gpus)} {layout}") for gpus, layout in grid.columns]


def _labels(grid: _Grid) -> TextColumn:
    return "Batch size", [f"{batch:,}" for batch in grid.batches]


def _time_table(grid: _Grid) -> TextTable:
    columns: list[TextColumn] = [_labels(grid)]
    for gpus, layout, name in _columns(grid):
        cells = [grid.cell(batch, gpus, layout) for batch in grid.batches]
        columns.append((f"{name}: s", [cell.text(_seconds(cell.found.mean_seconds)) for cell in cells]))
        if layout == LAYOUTS[-1]:
            gains = [gain_text(grid.gain(batch, gpus)) for batch in grid.batches]
            columns.append((f"{gpus_label(gpus)}: NCHW gain", gains))
    caption = (
        f"Seconds of training to the end, the mean over seeds; gains are comparisons of their own, each with a {CI}"
    )
    return text_table(caption, columns)


def _seconds(found: Estimate | None) -> str:
    return units.number(found.value if found else None)


def _accuracy_table(grid: _Grid) -> TextTable:
    columns: list[TextColumn] = [_labels(grid)]
    for gpus, layout, name in _columns(grid):
        cells = [grid.cell(batch, gpus, layout) for batch in grid.batches]
        columns.append((f"{name}: %", [cell.text(accuracy_text(cell.found)) for cell in cells]))
        if layout == LAYOUTS[-1]:
            compared = [comparison_text(grid.accuracy(batch, gpus)) for batch in grid.batches]
            columns.append((f"{gpus_label(gpus)}: NCHW less NHWC", compared))
    caption = (
        f"Accuracy after the last epoch, mean and standard deviation (seeds); differences in points with a {CI} "
        f"each, equal where two one-sided tests show it to be within {grid.margin_points:g} points"
    )
    return text_table(caption, columns)


def _goal_table(grid: _Grid) -> TextTable:
    goals = list(next(iter(grid.cells.values())).found.seconds_to)
    rows = [(batch, goal) for batch in grid.batches for goal in goals]
    columns: list[TextColumn] = [("Batch size", [f"{batch:,} to {units.percent(goal)}" for batch, goal in rows])]
    for gpus, layout, name in _columns(grid):
        texts = [_goal_text(grid.cell(batch, gpus, layout).found, goal) for batch, goal in rows]
        columns.append((f"{name}: s", texts))
    caption = "Seconds of training to the end of the first epoch that reaches an accuracy, the mean over seeds"
    return text_table(caption, columns)


def _goal_text(found: Trainings, goal: int) -> str:
    """Return the mean seconds, and of how many seeds where not all reached it."""
    times = found.seconds_to[goal]
    if not found.runs:
        return units.ABSENT
    if not times:
        return "not reached"
    some = "" if len(times) == len(found.runs) else f" ({len(times)} of {len(found.runs)})"
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
    rows, found = [run.row for run in cell.runs], cell.found
    return {
        "runs": [row.run for row in rows],
        "outcomes": [row.outcome.name if row.outcome else "running" for row in rows],
        **verification_document(rows),
        "seconds": estimate_document(found.mean_seconds),
        "accuracy_pct": {"mean": found.accuracy_pct, "deviation": found.deviation_points, "n": len(found.runs)},
        "seconds_to": {str(goal): list(times) for goal, times in found.seconds_to.items()},
    }


def comparison_document(found: AccuracyComparison | None) -> dict[str, Any] | None:
    """Return a difference of accuracies in points, its interval, that of the tests, and what they say."""
    if found is None:
        return None
    points = estimate_document(found.points)
    return {
        "points": points["value"],
        "interval": points["interval"],
        "tests_interval": list(found.tests) if found.tests else None,
        "margin_points": found.margin_points,
        "decision": found.decision,
    }
