"""Stored runs side by side as values: the verdict, what makes it doubtful, the table, and what its pictures show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.analysis.verdict import group_by_variant, throughputs
from app.records import RunRow, StoredRun
from app.viewmodels import units
from app.viewmodels.compare_curves import Alignment, CompareCurves, compare_curves
from app.viewmodels.compare_figures import RunFigures, run_figures
from app.viewmodels.compare_table import CompareTable, compare_table
from app.viewmodels.doubts import Doubt, doubts
from app.viewmodels.endings import by_ending
from app.viewmodels.looks import MOST_COMPARED, MOST_DRAWN, drawn_first, looks
from app.viewmodels.pictures.gallery import Gallery, gallery
from app.viewmodels.run_numbers import runs_words
from app.viewmodels.scaling import ScalingView, scaling_views
from app.viewmodels.stored_curves import GPU_QUANTITIES, GPU_STATE, HOST_QUANTITIES
from app.viewmodels.variants import shared_settings
from app.viewmodels.verdict import method_words, verdict_of

SAMPLED = tuple(
    dict.fromkeys(
        (
            *(quantity.field for quantity in (*GPU_QUANTITIES, *GPU_STATE, *HOST_QUANTITIES)),
            *("power_limit_mw", "throttle_reasons", "load_pct", "worker_load_pct"),
            *("throttled_power_ns", "throttled_thermal_ns", "throttled_brake_ns"),
            *("dram_active_pct", "nvlink_tx_bytes_per_s", "pcie_tx_bytes_per_s"),
        )
    )
)
"""What a comparison needs of the samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Runs read for a comparison, with all that does not depend on the baseline.

    `drawn` are those whose curves are; `too_many` have some too, but no eye could tell them apart; `left_out` runs were
    too many to read.
    """

    runs: tuple[StoredRun, ...] = ()
    figures: Mapping[int, RunFigures] = field(default_factory=dict)
    looks: Mapping[int, int] = field(default_factory=dict)
    drawn: tuple[int, ...] = ()
    too_many: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Runs against a baseline. `shared` are the settings they have in common, `notes` sentences on the table.

    `sentences` are the verdict alone; `verdict` says first which runs are not what they say they are, if any. `looks`
    are of the runs whose curves are drawn, by number.
    """

    baseline: int = 0
    runs: tuple[int, ...] = ()
    verdict: str = ""
    sentences: tuple[str, ...] = ()
    method: str = ""
    doubts: tuple[Doubt, ...] = ()
    shared: str = ""
    notes: tuple[str, ...] = ()
    table: CompareTable = field(default_factory=CompareTable)
    looks: Mapping[int, int] = field(default_factory=dict)
    gallery: Gallery = field(default_factory=Gallery)
    scaling: tuple[ScalingView, ...] = ()


def compared(runs: Sequence[StoredRun], left_out: int = 0) -> Compared:
    """The runs in their order; slow enough to belong off the GUI thread."""
    groups = group_by_variant([run.row for run in runs])
    drawable = {run.row.run for run in runs if len(run.blocks.steps) or any(len(one.t_ns) for one in run.samples)}
    drawn = [row.run for row in drawn_first(groups) if row.run in drawable][:MOST_DRAWN]
    return Compared(
        runs=tuple(runs),
        figures={run.row.run: run_figures(run) for run in runs},
        looks=looks(groups),
        drawn=tuple(run.row.run for run in runs if run.row.run in drawn),
        too_many=len(drawable) - len(drawn),
        left_out=left_out,
    )


def usual_baseline(rows: Sequence[RunRow]) -> int:
    """The run that others are compared with unless one is named: the first that measured, else the first."""
    return next((row.run for row in rows if throughputs([row])), rows[0].run)


def compare(found: Compared, baseline: int, older: Sequence[StoredRun] = ()) -> Comparison:
    """All that the screen shows but curves, against the variant of run `baseline`; off the GUI thread too.

    `older` are earlier runs of that variant, to see whether it has drifted.
    """
    rows = [run.row for run in found.runs]
    verdict = verdict_of(rows, baseline)
    looks_drawn = {run: found.looks[run] for run in found.drawn}
    return Comparison(
        baseline=baseline,
        runs=tuple(row.run for row in rows),
        verdict=verdict.text,
        sentences=verdict.sentences,
        method=method_words(verdict.results),
        doubts=doubts(found.runs, older),
        shared=shared_settings([row.spec for row in rows]),
        notes=(*_not_drawn(found), *_not_measured(found)),
        table=compare_table(verdict, found.figures, looks_drawn, baseline),
        looks=looks_drawn,
        gallery=gallery(found.runs, baseline, found.looks),
        scaling=tuple(scaling_views(found.runs)),
    )


def curves_of(found: Compared, align: Alignment) -> CompareCurves:
    """The curves of the runs that are drawn."""
    return compare_curves([run for run in found.runs if run.row.run in found.drawn], found.looks, align)


def _not_drawn(found: Compared) -> list[str]:
    """What of the choice is left out, and where."""
    sentences = []
    if found.too_many:
        drawn = len(found.drawn)
        sentences.append(
            f"Curves of {drawn} of {drawn + found.too_many} runs are drawn, every variant's first ones; "
            "the table and the verdict take all."
        )
    if found.left_out:
        sentences.append(
            f"{found.left_out:,} more {units.plural('run', found.left_out)} of the choice are left out: "
            f"at most {MOST_COMPARED} are compared at once."
        )
    return sentences


def _not_measured(found: Compared) -> list[str]:
    """Which runs never measured, or not to an end, and why; where the curves of one of them begin."""
    without = [run.row for run in found.runs if run.measure_start_ns is None]
    cut_off = [run.row for run in found.runs if run.measure_start_ns is not None and _has_no_result(run.row)]
    sentences = [*_ended(without, "never reached"), *_ended(cut_off, "did not get through")]
    if any(row.run in found.drawn for row in without):
        sentences.append("Without a measured part, time zero is the start of the run.")
    return sentences


def _has_no_result(row: RunRow) -> bool:
    return row.outcome is not None and row.outcome.name not in ("completed", "stopped")


def _ended(rows: Sequence[RunRow], how_far: str) -> list[str]:
    """A sentence for those that ended alike."""
    return [
        f"{runs_words([row.run for row in alike]).capitalize()} ({word}) {how_far}"
        f" {'its' if len(alike) == 1 else 'their'} measured part. {reason}".rstrip()
        for (word, reason), alike in by_ending(rows).items()
    ]
