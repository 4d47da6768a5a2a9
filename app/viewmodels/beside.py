"""Runs that go on at the same time, as the tabs that choose which of them is shown."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.records import RunStarted
from app.viewmodels.cells import OUTCOMES
from app.viewmodels.course import Course
from app.viewmodels.naming import short_name
from app.viewmodels.tracks import HOST_COLOUR, device_colour
from app.viewmodels.variants import differing, variant_names


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTab:
    """One run: where it runs, its number and what tells it from the others, before them how it ended if it has.

    A run that was refused has no GPU. `words` say all that in full, and then ever shorter, for where room is scarce.
    `colour` is that of its first GPU, or of the host.
    """

    run: int
    words: tuple[str, ...]
    help: str
    colour: int


def run_tabs(courses: Sequence[Course]) -> tuple[RunTab, ...]:
    """A tab for each run that has begun; none where there is nothing to choose."""
    begun = [(course, course.started) for course in courses if isinstance(course.started, RunStarted)]
    if len(begun) < 2:
        return ()
    specs = [started.spec for _, started in begun]
    names = variant_names(specs) if differing(specs) else [""] * len(specs)
    return tuple(_tab(course, started, name) for (course, started), name in zip(begun, names, strict=True))


def _tab(course: Course, started: RunStarted, name: str) -> RunTab:
    state = OUTCOMES[course.ended.outcome.name if course.ended else "running"]
    where = f"GPU {', '.join(str(gpu.index) for gpu in course.gpus)}" if course.gpus else "No GPU"
    short = f"{state.symbol} {where}" if course.ended else where
    brief = f"{short} · run {started.run}"
    return RunTab(
        run=started.run,
        words=(f"{brief} · {name}" if name else brief, brief, short),
        help=f"Run {started.run}, {state.word}: {short_name(started.spec)}",
        colour=device_colour(course.gpus[0]) if course.gpus else HOST_COLOUR,
    )
