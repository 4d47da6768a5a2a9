"""The verdict on an experiment that has just ended: for the notice in the window and the desktop's notification."""

import textwrap
from collections.abc import Sequence

from app import units
from app.analysis.verdict import VariantResult
from app.records import RunRow
from app.viewmodels.compare.comparison import default_baseline
from app.viewmodels.compare.verdict import Verdict, compute_verdict
from app.viewmodels.experiment.queue_banner import NO_VERDICT, VerdictText
from app.viewmodels.format.naming import variant_names
from app.viewmodels.format.ratios import agree, compare_speed
from workloads.catalog import with_defaults

_MAX_NAME_CHARS = 40
"""Of a variant in a title: desktops show about 60 characters of one line."""


def experiment_verdict(rows: Sequence[RunRow]) -> VerdictText:
    """Return the verdict on the runs of an experiment; an empty one where all are of one variant."""
    specs = [with_defaults(row.spec) for row in rows]
    if all(spec == specs[0] for spec in specs):
        return NO_VERDICT
    return verdict_text(compute_verdict(rows, default_baseline(rows)))


def verdict_text(found: Verdict) -> VerdictText:
    """Return a verdict with its most important sentence apart: the first one.

    What did not run as requested is said at once after it.
    """
    sentence, *others = found.sentences
    before, *_ = found.text.split(sentence)
    return VerdictText(title=_title(found), sentence=sentence, rest=" ".join(filter(None, (before.strip(), *others))))


def _title(found: Verdict) -> str:
    """Return the verdict in a few words; "" where no two variants can be compared."""
    names = variant_names([result.runs[0].spec for result in found.results], in_sentence=True)
    named = list(zip(found.results, map(_short, names), strict=True))
    base = next(name for result, name in named if result.is_baseline)
    measured = [(result.speedup.value, result, name) for result, name in named if result.speedup is not None]
    if len(measured) < 2:
        return ""
    if len(measured) == 2:
        return next(_one_title(result, name, base) for _, result, name in measured if not result.is_baseline)
    speed, result, name = max(measured, key=lambda each: each[0])
    if result.is_baseline:
        return f"Fastest of {len(measured)}: {name}, the baseline"
    if result.decision == "no difference seen":
        return f"None of {len(measured) - 1} significantly faster than {base}"
    faster = compare_speed(speed, past_tense=False).removeprefix("is ")
    return f"Fastest of {len(measured)}: {name}, {faster} {base}"


def _one_title(result: VariantResult, name: str, base: str) -> str:
    assert result.speedup is not None, "only what was measured has a title"
    if result.decision == "no difference seen":
        answer = "No significant difference" if result.speedup.is_known else "Not known yet which is faster"
        return f"{answer}: {name} and {base}"
    return f"{agree(_capital(name), compare_speed(result.speedup.value, past_tense=False))} {base}"


def _short(name: str) -> str:
    return textwrap.fill(name, _MAX_NAME_CHARS, max_lines=1, placeholder=" …")


def _capital(name: str) -> str:
    """Return a name as the beginning of a sentence; cuDNN stays."""
    return units.sentence(name).rstrip(".")
