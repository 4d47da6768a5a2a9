"""The panels of what a run tells itself: throughput, loss and accuracy, and what TensorFlow's allocator holds."""

from collections.abc import Callable
from dataclasses import replace

from app.viewmodels import units
from app.viewmodels.course import Course
from app.viewmodels.panels import Curve, Panel
from app.viewmodels.series import Series

_THROUGHPUT_COLOUR, _LOSS_COLOUR, _ACCURACY_COLOUR, _ALLOCATOR_COLOUR = 2, 3, 4, 6


def training_panels(course: Course) -> tuple[Panel, ...]:
    """Throughput and loss of a run, and its accuracy once an epoch was tested; none where nothing trains."""
    if course.spec is None:
        return ()
    example, accuracy = course.example, course.accuracy_pct
    rate = _curve("Block", _THROUGHPUT_COLOUR, course.throughput.series, lambda value: units.rate(value, example))
    loss = _curve("Last step", _LOSS_COLOUR, course.loss, units.number)
    learnt = _curve("After an epoch", _ACCURACY_COLOUR, accuracy, lambda value: units.percent(value, 1))
    return (
        Panel(key="throughput", title="Throughput", unit=units.rate_unit(example), curves=(rate,)),
        Panel(key="loss", title="Loss", unit="", curves=(loss,)),
        *((Panel(key="accuracy", title="Accuracy", unit="%", curves=(learnt,)),) if len(accuracy) else ()),
    )


def with_allocator(panel: Panel, course: Course) -> Panel:
    """The memory of a run's first GPU with what TensorFlow's allocator holds there beside it; any other as it is."""
    first = next(iter(course.gpus), None)
    if first is None or not len(course.allocator) or panel.key not in ("memory", f"memory {first.device}"):
        return panel
    curve = Curve(
        key="allocator",
        label="TensorFlow",
        colour=_ALLOCATOR_COLOUR,
        series=course.allocator,
        value=units.byte_size(course.allocator.last),
        scale=panel.curves[0].scale,
        words=units.byte_size,
    )
    return replace(panel, curves=(*panel.curves, curve))


def _curve(label: str, colour: int, series: Series, words: Callable[[float | None], str]) -> Curve:
    return Curve(key="run", label=label, colour=colour, series=series, value=words(series.last), words=words)
