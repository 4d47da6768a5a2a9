"""Whether the words of `experiment` go together; said before anything begins."""

from argparse import Namespace
from collections.abc import Mapping

from app.analysis.repeats import FIRST_LOOK
from app.cli.arguments import SAMPLE_MS
from app.report.files import check_place
from workloads.catalog import UsageError

_BUILT = ("workload", "settings", "baseline")
_MADE = ("repeats", "until", "budget", "again", "parallel")
_IN_VAIN: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "presets": ("--presets lists them and makes nothing", (*_BUILT, "preset", *_MADE, "queue", "report", "notify")),
    "preset": ("--preset has a workload, settings and a baseline of its own", _BUILT),
    "show": ("--show makes nothing", ("budget", "again", "parallel", "queue")),
    "queue": (
        "--queue makes nothing yet, but `queue go-on` takes these words",
        ("report", "notify", "no_standby", "sample_ms"),
    ),
}
"""Words that would change nothing beside another one, and why."""
_WRITTEN = {"workload": "WORKLOAD", "settings": "-s", "no_standby": "--no-standby", "sample_ms": "--sample-ms"}
_DEFAULTS: Mapping[str, float] = {"sample_ms": SAMPLE_MS}
"""What words stand at that were not given, where that is something."""


def check_words(chosen: Namespace) -> None:
    """Raises `UsageError` for wrong use."""
    if chosen.show and chosen.preset is None:
        raise UsageError("--show goes with --preset; `python -m app compare` shows any stored runs.")
    for word, (why, others) in _IN_VAIN.items():
        vain = [_WRITTEN.get(other, f"--{other}") for other in others if _is_given(chosen, other)]
        if _is_given(chosen, word) and vain:
            raise UsageError(f"{why}: leave out {', '.join(vain)}.")
    if chosen.budget == 0:
        raise UsageError("No run fits into a budget of no time: give --budget more, such as 8m or 90s.")
    if chosen.report is not None:
        check_place(chosen.report)
    if chosen.until is not None and chosen.repeats is not None and chosen.repeats <= FIRST_LOOK:
        raise UsageError(
            f"--until looks twice, first after {FIRST_LOOK} repeats: give --repeats {FIRST_LOOK + 1} or more."
        )
    if not (chosen.presets or chosen.preset or chosen.workload):
        raise UsageError("experiment needs a workload with some -s name=a,b, or --preset quick; --presets lists them.")


def _is_given(chosen: Namespace, name: str) -> bool:
    value = getattr(chosen, name)
    # A number that is 0 is given, too.
    return value is not None and value is not False and value != [] and value != _DEFAULTS.get(name)
