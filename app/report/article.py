"""The table of an article on layouts and GPUs, from stored runs: as numbers, and as rows of words."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.analysis.intervals import Estimate, mean, ratio
from app.analysis.verdict import throughputs
from app.records import RunRow
from app.report.evidence import match_of
from app.runs.presets import Article
from app.runs.schedule import of_variant
from app.viewmodels import units
from app.viewmodels.progress import outcome_title
from workloads import catalog
from workloads.protocol import OutcomeName, RunSpec

LAYOUTS = ("NHWC", "NCHW")


def article_document(article: Article, variants: Sequence[RunSpec], runs: Sequence[RunRow]) -> list[dict[str, Any]]:
    """One table a workload, its rows by batch size, with what the article says beside it.

    Of a row, `cells` are by number of GPUs and layout; `gains` are NCHW over NHWC by number of GPUs, `scaling` several
    GPUs over one by layout, both as ratios of throughput; absent figures are None.
    """
    workloads = dict.fromkeys(spec.workload for spec in variants)
    return [_table(article, name, [spec for spec in variants if spec.workload == name], runs) for name in workloads]


def _table(article: Article, workload: str, variants: Sequence[RunSpec], runs: Sequence[RunRow]) -> dict[str, Any]:
    batches = sorted({int(spec.variant["batch_size"]) for spec in variants})
    gpus = sorted({int(spec.variant["gpus"]) for spec in variants})
    claims = [claim for claim in article.claims if claim.workload in (None, workload)]
    grouped = {_place(spec): of_variant(spec, runs) for spec in variants}
    return {
        "workload": workload,
        "article": article.title,
        "article_machine": article.machine,
        "article_says": [{"about": claim.about, "says": claim.says} for claim in claims],
        "example": catalog.workload(workload).example,
        "epoch_examples": article.epoch_examples,
        "gpus": gpus,
        "rows": [_row(batch, gpus, grouped, article.epoch_examples) for batch in batches],
    }


Place = tuple[int, int, str]
Grouped = Mapping[Place, list[RunRow]]


def _place(spec: RunSpec) -> Place:
    variant = spec.variant
    return int(variant["batch_size"]), int(variant["gpus"]), str(variant["layout"])


def _row(batch: int, gpus: Sequence[int], grouped: Grouped, epoch_examples: int) -> dict[str, Any]:
    def runs(count: int, layout: str) -> list[RunRow]:
        return grouped.get((batch, count, layout), [])

    def over(many: list[RunRow], few: list[RunRow]) -> dict[str, Any]:
        return _estimate(ratio(throughputs(many), throughputs(few)))

    more = [count for count in gpus if count > min(gpus)]
    return {
        "batch_size": batch,
        "cells": [
            {"gpus": count, "layout": layout, **_cell(runs(count, layout), epoch_examples)}
            for count in gpus
            for layout in LAYOUTS
        ],
        "gains": [{"gpus": count, **over(runs(count, "NCHW"), runs(count, "NHWC"))} for count in gpus],
        "scaling": [
            {"gpus": count, "over": min(gpus), "layout": layout, **over(runs(count, layout), runs(min(gpus), layout))}
            for count in more
            for layout in LAYOUTS
        ],
    }


def _cell(runs: Sequence[RunRow], epoch_examples: int) -> dict[str, Any]:
    found = mean(throughputs(runs))
    return {
        "runs": [row.run for row in runs],
        "throughput": _estimate(found),
        "epoch_s": epoch_examples / found.value if found else None,
        "outcome": _outcome(runs),
        "match": match_of(runs),
    }


def _outcome(runs: Sequence[RunRow]) -> OutcomeName | None:
    """How the runs of a cell ended: `completed` where one did, else the last one's; None before the first."""
    names = [row.outcome.name for row in runs if row.outcome is not None]
    return "completed" if "completed" in names else names[-1] if names else None


def _estimate(found: Estimate | None) -> dict[str, Any]:
    return {
        "value": found.value if found else None,
        "interval": list(found.interval) if found and found.interval else None,
    }


def throughput_rows(table: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A header, and one row a batch size: throughput of both layouts, the gain, and several GPUs over one."""
    header = ["batch"]
    for gpus in table["gpus"]:
        header += [*(f"{_place_words(gpus)} {layout}" for layout in LAYOUTS), "NCHW gain"]
    scaled = table["rows"][0]["scaling"]
    header += [f"{ratio['gpus']} over {ratio['over']} GPU {ratio['layout']}" for ratio in scaled]
    return [tuple(header), *(_throughput_row(row, table["gpus"]) for row in table["rows"])]


def _throughput_row(row: Mapping[str, Any], gpus: Sequence[int]) -> tuple[str, ...]:
    words = [f"{row['batch_size']:,}"]
    for count in gpus:
        words += [_figure(cell, cell["throughput"]["value"], 4) for cell in row["cells"] if cell["gpus"] == count]
        words += [_gain(gain) for gain in row["gains"] if gain["gpus"] == count]
    return (*words, *(_times(ratio) for ratio in row["scaling"]))


def epoch_rows(table: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A header, and one row a batch size: seconds an epoch would take at the measured rate."""
    header = ("batch", *(f"{_place_words(gpus)} {layout}" for gpus in table["gpus"] for layout in LAYOUTS))
    rows = (
        (f"{row['batch_size']:,}", *(_figure(cell, cell["epoch_s"], 3) for cell in row["cells"]))
        for row in table["rows"]
    )
    return [header, *rows]


def _place_words(gpus: int) -> str:
    return "CPU" if gpus == 0 else f"{gpus} {units.plural('GPU', gpus)}"


def _figure(cell: Mapping[str, Any], value: float | None, digits: int) -> str:
    """The number, or how the runs ended that gave none; ✘ where one did not run as asked."""
    if value is None:
        return outcome_title(cell["outcome"]).lower() if cell["outcome"] else units.ABSENT
    return units.number(value, digits) + (" ✘" if cell["match"] is False else "")


def _gain(gain: Mapping[str, Any]) -> str:
    if gain["value"] is None:
        return units.ABSENT
    ends = [f"{100 * (end - 1):+.1f}" for end in gain["interval"] or ()]
    return f"{100 * (gain['value'] - 1):+.1f} %{_between(ends)}"


def _times(ratio: Mapping[str, Any]) -> str:
    return units.ratio(ratio["value"]) + _between([f"{end:.2f}" for end in ratio["interval"] or ()])


def _between(ends: Sequence[str]) -> str:
    return f" ({' to '.join(ends)})" if ends else ""


def says_lines(table: Mapping[str, Any]) -> list[str]:
    """What the article says, one line a figure."""
    return [f"The article, {claim['about']}: {claim['says']}." for claim in table["article_says"]]


def article_page(tables: Sequence[Mapping[str, Any]]) -> str:
    """The tables as Markdown."""
    parts = [f"# {tables[0]['article']}", *(_section(table) for table in tables)]
    return "\n\n".join(parts) + "\n"


def _section(table: Mapping[str, Any]) -> str:
    says = "\n".join(f"- {line}" for line in says_lines(table))
    return "\n\n".join(
        [
            f"## {table['workload']}",
            f"{rate_title(table)}; gains and ratios with their 95 % interval:",
            _markdown(throughput_rows(table)),
            f"{epoch_title(table)}:",
            _markdown(epoch_rows(table)),
            f"{says}\n- It measured on {table['article_machine']}.",
        ]
    )


def rate_title(table: Mapping[str, Any]) -> str:
    """What the first table holds."""
    return units.rate_unit(table["example"]).capitalize()


def epoch_title(table: Mapping[str, Any]) -> str:
    """What the second table holds."""
    return f"Seconds an epoch of {table['epoch_examples']:,} {units.plural(table['example'])} takes at this rate"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    header, *body = rows
    rule = ["---:"] * len(header)
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *body))
