"""An article's table of portability: what saved weights answer in other implementations and on other devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.records import StoredRun
from app.report.article_cells import claim_lines, source_line
from app.report.contents import Section, Table
from app.runs.carried import run_of, trial_of
from app.runs.schedule import Carried
from app.viewmodels import units
from app.viewmodels.naming import choice_label, short_name


def portability_rows(carried: Sequence[Carried], runs: Sequence[StoredRun]) -> dict[str, Any] | None:
    """One row a trial, those to come too; None where the experiment tries no weights.

    `max_difference` is the largest absolute difference of an answer to the trained model's own, None before it was
    tried.
    """
    rows = [row for each in carried for row in _rows(each, run_of(each, runs))]
    return {"rows": rows} if rows else None


def _rows(carried: Carried, run: StoredRun | None) -> list[dict[str, Any]]:
    tried = {name: trial_of(run, name, carried.gpus) if run else None for name in carried.into}
    return [
        {
            "trained": short_name(carried.spec),
            "run": run.row.run if run else None,
            "implementation": name,
            "label": choice_label(carried.spec, "implementation", name),
            "device_name": trial.device_name if trial else None,
            "max_difference": trial.max_difference if trial else None,
            "max_output": trial.max_output if trial else None,
        }
        for name, trial in tried.items()
    ]


def portability_section(table: Mapping[str, Any]) -> Section:
    """The same in words."""
    head = ("Trained", "Weights tried in", "On", "Largest difference of an answer", "Largest answer")
    rows = tuple(
        (
            row["trained"],
            row["label"],
            row["device_name"] or units.ABSENT,
            units.ABSENT if row["max_difference"] is None else f"{row['max_difference']:.1e}",
            units.number(row["max_output"]),
        )
        for row in table["rows"]
    )
    shown = Table(head=head, rows=rows, numeric=frozenset({3, 4}))
    caption = "How much answers to the same sequences differ from those of the trained model itself"
    return Section(
        title=table["title"], tables=((caption, shown),), claims=claim_lines(table), source=source_line(table)
    )
