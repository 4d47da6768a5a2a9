"""A program with one more row in its table of metrics, which prints as JSON what every place makes of it.

Run as `python -m tests.unit.added_metric DATABASE REPORT`: the row must be there before anything else reads the table.
"""

import io
import json
import sys
from contextlib import redirect_stdout
from datetime import UTC
from pathlib import Path
from typing import Any

from app import metrics

ADDED = metrics.Metric(
    key="loss_drop",
    label="Loss drop",
    help="First loss less the last one",
    unit="nat/{example}",
    of_summary=lambda summary: (summary.loss_first or 0) - (summary.loss_last or 0),
    better="higher",
    json="loss.drop",
    list_column=metrics.ListColumn(order="loss_drop", sql="loss_first - loss_last", widest="100", in_terminal=True),
    headline=True,
    brief=True,
    compared=True,
    in_terminal=True,
)


def output(database: Path, *words: str) -> str:
    from app.cli.main import main

    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main([*words, "--db", str(database)]) == 0
    return printed.getvalue()


def shown_metrics(database: Path, report: Path) -> dict[str, Any]:
    """What each place shows of the two runs of a database."""
    from app.storage.store import Store
    from app.viewmodels.compare.comparison import compare, prepare_comparison
    from app.viewmodels.format.derived import summary_line
    from app.viewmodels.history.run_detail import run_detail
    from app.viewmodels.history.table import COLUMNS, RowView, history_cells

    with Store.open(database) as store:
        runs = [store.load(run) for run in (1, 2)]
    table = compare(prepare_comparison(runs), 1).table
    detail = run_detail(runs[0], UTC)
    row = history_cells(runs[0].row, RowView(zone=UTC))
    return {
        "history": {column.title: cell.text for column, cell in zip(COLUMNS, row, strict=True)},
        "page": {item.name: item.value for group in detail.groups for item in group.items},
        "headlines": [label for label, _ in detail.figures],
        "line": summary_line(runs[0].row.summary, "sequence"),
        "compare": {c.title: cell.text for c, cell in zip(table.columns, table.variants[0].summary.cells, strict=True)},
        "ordered": json.loads(output(database, "list", "--sort", "loss_drop", "--json"))["runs"],
        "list": output(database, "list"),
        "list --json": json.loads(output(database, "list", "--json"))["runs"][0],
        "show": output(database, "show", "1"),
        "show --json": json.loads(output(database, "show", "1", "--json")),
        "terminal": output(database, "compare", "1", "2", "--report", str(report)),
        "compare --json": json.loads(output(database, "compare", "1", "2", "--json"))["rows"][0],
        "report": report.read_text("utf-8"),
    }


if __name__ == "__main__":
    metrics.METRICS = (*metrics.METRICS, ADDED)
    json.dump(shown_metrics(*map(Path, sys.argv[1:])), sys.stdout)
