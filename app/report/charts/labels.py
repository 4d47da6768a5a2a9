"""Placement of labels in a plot so that they cover neither marks nor each other."""

from collections.abc import Sequence

from app.report.charts import svg

Box = tuple[float, float, float, float]
"""Left, top, width, height."""

HEIGHT = 14.0
_DISTANCE = 8.0


def separate_heights(wanted: Sequence[float], top: float, bottom: float, least: float = HEIGHT) -> list[float]:
    """Move label positions apart.

    Args:
        wanted: Vertical positions in pixels.
        top: Smallest position.
        bottom: Largest position.
        least: Smallest distance between two.

    Returns:
        Positions in the same order, as near to those wanted as possible.
    """
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed = list(wanted)
    last = top - least
    for index in order:
        placed[index] = last = max(wanted[index], last + least)
    limit = bottom + least
    for index in reversed(order):
        placed[index] = limit = min(placed[index], limit - least)
    return placed


def place_labels(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    size: float,
    inside: Box,
    important: Sequence[bool],
    taken: Sequence[Box] = (),
    thin: Sequence[Box] = (),
) -> list[Box | None]:
    """Place the name of each point so that it covers no point and no other name.

    Args:
        points: Positions in pixels.
        names: Their names.
        size: Font size in pixels.
        inside: The area that names must stay in.
        important: Which points are placed first; their names may cover `thin` boxes if there is no other room.
        taken: Boxes that no name may cover.
        thin: Boxes, such as whiskers, that only important names may cover.

    Returns:
        A box per point, None without room.
    """
    full: list[Box] = [*taken, *((x - 5, y - 5, 10, 10) for x, y in points)]
    found: list[Box | None] = [None] * len(points)
    for index in sorted(range(len(points)), key=lambda index: not important[index]):
        x, y = points[index]
        boxes = _candidate_boxes(x, y, svg.text_width(names[index], size))
        open_boxes = [box for box in boxes if _is_inside(box, inside) and not any(_overlap(box, t) for t in full)]
        clear = [box for box in open_boxes if not any(_overlap(box, t) for t in thin)]
        free = next(iter(clear or (open_boxes if important[index] else ())), None)
        if free is not None:
            found[index] = free
            full.append(free)
    return found


def _candidate_boxes(x: float, y: float, width: float) -> list[Box]:
    """Return boxes to the right, left, above, below, and between these, the best first."""
    near, middle = _DISTANCE, y - HEIGHT / 2
    above, below = y - near - HEIGHT + 2, y + near - 2
    return [
        (x + near, middle, width, HEIGHT),
        (x - near - width, middle, width, HEIGHT),
        (x - width / 2, above, width, HEIGHT),
        (x - width / 2, below, width, HEIGHT),
        (x + near / 2, above, width, HEIGHT),
        (x + near / 2, below, width, HEIGHT),
        (x - near / 2 - width, above, width, HEIGHT),
        (x - near / 2 - width, below, width, HEIGHT),
    ]


def _is_inside(box: Box, outer: Box) -> bool:
    left, top, width, height = box
    return (
        left >= outer[0]
        and top >= outer[1]
        and left + width <= outer[0] + outer[2]
        and top + height <= outer[1] + outer[3]
    )


def _overlap(one: Box, other: Box) -> bool:
    return (
        one[0] < other[0] + other[2]
        and other[0] < one[0] + one[2]
        and one[1] < other[1] + other[3]
        and other[1] < one[1] + one[3]
    )
