"""Placement of labels in a plot so that they cover neither marks nor each other."""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from app.report.charts import svg

Box = tuple[float, float, float, float]
"""Left, top, width, height."""
Rows = NDArray[np.float64]
"""One box per row."""

HEIGHT = 14.0
_DISTANCE = 8.0
_AWAY = (22.0, 40.0, 60.0)
"""Distances of a name from its point, with a line to it, if there is no room beside the point."""
_FAR_AWAY = (22.0, 40.0, 60.0, 80.0, 100.0, 130.0)
"""Distances of important names, if there is no room closer."""
_DEEPEST = 45
"""How far below the end of its line a name may be, if other lines and names are close."""
_FARTHER = 14.0
"""From this distance on, a line leads from a point to its name."""


def separate_heights(positions: Sequence[float], top: float, bottom: float) -> list[float]:
    """Move label positions apart, by at least `HEIGHT`.

    Returns:
        Positions in the same order, as near to the given ones as possible.
    """
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    placed = list(positions)
    last = top - HEIGHT
    for index in order:
        placed[index] = last = max(positions[index], last + HEIGHT)
    limit = bottom + HEIGHT
    for index in reversed(order):
        placed[index] = limit = min(placed[index], limit - HEIGHT)
    return placed


def name_lines(
    lines: Sequence[Sequence[tuple[float, float]]], widths: Sequence[float], top: float, bottom: float
) -> list[Box]:
    """Place the name of each line at its right end, above or below it, so that it covers no line and no other name.

    Returns:
        A box per line; of lines close together the names below follow in the lines' order.
    """
    label_boxes: dict[int, Box] = {}
    drawn = [box for line in lines for box in boxes_along(line)]
    for index in sorted(range(len(lines)), key=lambda index: lines[index][-1][1]):
        (x, y), width = lines[index][-1], widths[index]
        heights = (y - HEIGHT - 3, *(y + below for below in range(2, _DEEPEST, 2)))
        boxes = [(x - 4 - width - aside, height, width, HEIGHT) for aside in (0, width + 12) for height in heights]
        within = [box for box in boxes if top <= box[1] and box[1] + HEIGHT <= bottom]
        free = _without_overlap(within, _rows([*drawn, *label_boxes.values()]))
        label_boxes[index] = next(iter([*free, *within, *boxes]))
    return [label_boxes[index] for index in range(len(lines))]


def place_labels(
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    size: float,
    inside: Box,
    important: Sequence[bool],
    obstacles: Sequence[Box] = (),
    thin: Sequence[Box] = (),
) -> list[Box | None]:
    """Place the name of each point so that it covers no point and no other name.

    Args:
        points: Positions in pixels.
        names: Their names.
        size: Font size in pixels.
        inside: The area that names must stay in.
        important: Which points are placed first, from the right; their names may be farther away than others and
            cover `thin` boxes if there is no other room.
        obstacles: Boxes that no name may cover.
        thin: Boxes, such as whiskers, that only important names may cover.

    Returns:
        A box per point, None without room.
    """
    full = _rows([*obstacles, *((x - 5, y - 5, 10, 10) for x, y in points)])
    whiskers = _rows(thin)
    placed = _rows(())
    label_boxes: list[Box | None] = [None] * len(points)
    far = [is_important and not all(important) for is_important in important]  # if all are important, none is
    for index in sorted(range(len(points)), key=lambda index: (not important[index], -points[index][0] * far[index])):
        point, width = points[index], svg.text_width(names[index], size)
        boxes = [*_candidate_boxes(*point, width), *(_far_boxes(*point, width, inside) if far[index] else ())]
        within = [box for box in boxes if _is_inside(box, inside)]
        open_boxes = _without_overlap(within, full)
        candidates = [*_without_overlap(open_boxes, whiskers), *(open_boxes if far[index] else ())]
        leading = (box for box in candidates if _leads(point, box, placed))
        free = next(leading, None) or (open_boxes[0] if open_boxes and important[index] else None)
        if free is not None:
            label_boxes[index] = free
            full = np.concatenate([full, _rows([free, *_leader_boxes(point, free)])])
            placed = np.concatenate([placed, _rows([free])])
    return label_boxes


def _leads(point: tuple[float, float], box: Box, placed: Rows) -> bool:
    """Return whether the line from a point to its name crosses no other name."""
    parts = _leader_boxes(point, box)
    return len(_without_overlap(parts, placed)) == len(parts)


def _leader_boxes(point: tuple[float, float], box: Box) -> list[Box]:
    line = leader_line(point, box)
    return list(boxes_along([line[:2], line[2:]], 2.0)) if line else []


def _candidate_boxes(x: float, y: float, width: float) -> list[Box]:
    """Return boxes to the right, left, above, below, between these, then farther away; the best first."""
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
        *(
            box
            for away in _AWAY
            for box in (
                (x + away, middle - away, width, HEIGHT),
                (x - away - width, middle - away, width, HEIGHT),
                (x + away, middle + away, width, HEIGHT),
                (x - away - width, middle + away, width, HEIGHT),
                (x - width / 2, middle - away, width, HEIGHT),
                (x - width / 2, middle + away, width, HEIGHT),
            )
        ),
    ]


def _far_boxes(x: float, y: float, width: float, inside: Box) -> Iterator[Box]:
    for left in (x - width, min(max(x - width / 2, inside[0]), inside[0] + inside[2] - width)):
        for away in _FAR_AWAY:
            yield left, y - away, width, HEIGHT
            yield left, y + away, width, HEIGHT


def boxes_along(line: Sequence[tuple[float, float]], reach: float = 6.0) -> Iterator[Box]:
    """Yield small boxes along a line, extending that many pixels to both sides, to keep names off it."""
    for (x1, y1), (x2, y2) in pairwise(point for point in line if all(map(math.isfinite, point))):
        count = max(1, math.ceil(math.dist((x1, y1), (x2, y2)) / (2 * reach)))
        for n in range(count + 1):
            x, y = x1 + (x2 - x1) * n / count, y1 + (y2 - y1) * n / count
            yield x - reach, y - 2, 2 * reach, 4.0


def leader_line(point: tuple[float, float], box: Box) -> tuple[float, float, float, float] | None:
    """Return the ends of a line from a point to its name, None if the name is next to it."""
    left, top, width, height = box
    x, y = point
    to = (min(max(x, left), left + width), min(max(y, top + 3), top + height - 2))
    distance = math.dist(point, to)
    if distance < _FARTHER:
        return None
    share = 6 / distance
    return x + (to[0] - x) * share, y + (to[1] - y) * share, *to


def _is_inside(box: Box, outer: Box) -> bool:
    left, top, width, height = box
    x, y, across, high = outer
    return x <= left and left + width <= x + across and y <= top and top + height <= y + high


def _rows(boxes: Sequence[Box]) -> Rows:
    return np.array(boxes, float).reshape(-1, 4)


def _without_overlap(boxes: Sequence[Box], obstacles: Rows) -> list[Box]:
    if not boxes or not len(obstacles):
        return list(boxes)
    left, top, width, height = _rows(boxes).T
    right, bottom = left + width, top + height
    others = obstacles.T
    # Most of the others are far from all of these.
    near = (others[0] < right.max()) & (others[1] < bottom.max())
    near &= (left.min() < others[0] + others[2]) & (top.min() < others[1] + others[3])
    other_left, other_top, other_width, other_height = others[:, near]
    hits = (other_left < right[:, np.newaxis]) & (left[:, np.newaxis] < other_left + other_width)
    hits &= (other_top < bottom[:, np.newaxis]) & (top[:, np.newaxis] < other_top + other_height)
    return [box for box, hit in zip(boxes, hits.any(axis=1), strict=True) if not hit]
