"""Pictures as SVG: well formed whatever they are called, and everything where its value says."""

from dataclasses import replace
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.report.charts import labels, svg
from app.report.charts.canvas import Drawing
from app.report.charts.draw import WIDTH, draw_chart
from app.viewmodels.charts.model import (
    Axis,
    Bar,
    BarChart,
    Chart,
    Guide,
    Plot,
    Point,
    PointChart,
    PointSeries,
    WaterfallBar,
    WaterfallChart,
    WaterfallRole,
)
from app.viewmodels.charts.palette import DARK, LIGHT, PAGE
from tests.fakes.pictures import charts_of, grid, with_memory_traffic

HOSTILE = "</text><script>alert(1)</script> \"'&amp; \x00\x1b \ud800 <img src=x onerror=y>"
TAG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pictures() -> tuple[Chart, ...]:
    return charts_of([with_memory_traffic(run) for run in grid()], 1)


def parsed(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(drawing.svg(filled=True))


def axis(low: float, high: float) -> Axis:
    return Axis(title="u", low=low, high=high, ticks=((low, "low"), (high, "high")))


def chart(*points: Point, words: str = "line") -> PointChart:
    series = PointSeries(label=words, colour=0, points=points)
    shown = Plot(title=words, x=axis(0, 10), y=axis(0, 100), series=(series,), guides=())
    return PointChart(key="k", title=words, caption=words, plots=(shown,))


def point(
    x: float, y: float | None, low: float | None = None, high: float | None = None, words: str = "words"
) -> Point:
    outcome = "out of memory" if y is None else ""
    return Point(runs=(7,), label=words, tooltip=words, x=x, y=y, low=low, high=high, outcome=outcome)


def test_every_picture_is_one_well_formed_document(pictures: tuple[Chart, ...]) -> None:
    for picture in pictures:
        for ink in (LIGHT, DARK, PAGE):
            root = ElementTree.fromstring(draw_chart(picture, ink).svg())
            assert root.tag == f"{TAG}svg"
            assert root.get("aria-label") == picture.title
            assert {text.get("fill") for text in root.iter(f"{TAG}text")} <= {ink.text, ink.muted}, "read on any ground"


def test_points_are_where_their_values_say() -> None:
    drawing = draw_chart(chart(point(0, 0), point(5, 50), point(10, 100, low=80, high=100)), LIGHT)
    circles = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in parsed(drawing).iter(f"{TAG}circle")]
    (x0, y0), (x1, y1), (x2, y2) = circles
    assert x1 == pytest.approx((x0 + x2) / 2, abs=0.1)
    assert y1 == pytest.approx((y0 + y2) / 2, abs=0.1)
    assert x2 > x0
    assert y2 < y0, "more is above"
    whiskers = [line for line in parsed(drawing).iter(f"{TAG}line") if line.get("x1") == line.get("x2") == f"{x2:.1f}"]
    lengths = [abs(float(w.get("y1", "")) - float(w.get("y2", ""))) for w in whiskers]
    assert max(lengths) == pytest.approx((y0 - y2) * 0.2, abs=0.1)


def test_a_mark_can_be_pointed_at_where_it_is_drawn() -> None:
    drawing = draw_chart(chart(point(0, 0), point(5, 50), point(8, None)), LIGHT)
    circles = [(float(c.get("cx", "")), float(c.get("cy", ""))) for c in parsed(drawing).iter(f"{TAG}circle")]
    by_place = {spot.item: spot for spot in drawing.hit_areas}
    known = [spot for place, spot in by_place.items() if isinstance(place, Point) and place.y is not None]
    assert all(spot.contains(x, y) for spot, (x, y) in zip(known, circles, strict=True))
    assert not known[0].contains(*circles[1])
    (missing,) = (spot for place, spot in by_place.items() if isinstance(place, Point) and place.y is None)
    assert missing.top < min(y for _, y in circles), "what has no result stands above the plot"
    assert "out of memory" in "".join(parsed(drawing).itertext())


def test_an_interval_that_reaches_below_the_axis_ends_at_it() -> None:
    drawing = draw_chart(chart(point(5, 50, low=-1000, high=1e6)), LIGHT)
    assert all(0 <= float(line.get("y1", "")) <= drawing.height for line in parsed(drawing).iter(f"{TAG}line"))


def bar_picture(*bars: Bar) -> BarChart:
    scale = Axis(title="", low=0.5, high=2.0, ticks=((1.0, "1×"),), log=True)
    return BarChart(key="k", title="t", caption="c", bars=bars, axis=scale, start=1.0)


def bar(value: float | None, text: str = "text", **ends: float) -> Bar:
    return Bar(runs=(1,), label="name", tooltip="words", value=value, text=text, colour=1, **ends)


def test_bars_begin_at_the_line_and_go_to_their_side() -> None:
    drawing = draw_chart(bar_picture(bar(2.0), bar(0.5), bar(None, "out of memory")), LIGHT)
    faster, slower = (
        (float(r.get("x", "")), float(r.get("width", "")))
        for r in parsed(drawing).iter(f"{TAG}rect")
        if r.get("fill") == LIGHT.curves[1]
    )
    assert faster[0] == pytest.approx(slower[0] + slower[1], abs=0.1), "both at the line of 1"
    assert faster[1] == pytest.approx(slower[1], abs=0.1), "twice and half are as far from it"
    assert "out of memory" in "".join(parsed(drawing).itertext())
    assert len(drawing.hit_areas) == 3


def test_nothing_in_a_name_is_markup() -> None:
    drawings = [
        draw_chart(chart(point(1, 50, words=HOSTILE), point(2, None, words=HOSTILE), words=HOSTILE), LIGHT),
        draw_chart(
            bar_picture(Bar(runs=(1,), label=HOSTILE, tooltip=HOSTILE, value=1.5, text=HOSTILE, colour=0)), LIGHT
        ),
    ]
    for drawing in drawings:
        tags = {element.tag.removeprefix(TAG) for element in parsed(drawing).iter()}
        assert tags <= {"svg", "g", "title", "text", "rect", "line", "circle", "polyline"}
        assert {name for element in parsed(drawing).iter() for name in element.attrib if name.startswith("on")} == set()
        assert "alert(1)" in "".join(parsed(drawing).itertext()), "it is told, as text"


def test_a_line_has_its_name_at_its_end_and_no_name_covers_another(pictures: tuple[Chart, ...]) -> None:
    batch = next(picture for picture in pictures if picture.key == "batch")
    assert isinstance(batch, PointChart)
    root = parsed(draw_chart(batch, LIGHT))
    names = {series.label for series in batch.plots[0].series}
    heights = sorted(float(t.get("y", "")) for t in root.iter(f"{TAG}text") if t.text in names)
    assert len(heights) == len(names)
    assert all(below - above >= labels.HEIGHT - 0.1 for above, below in pairwise(heights))


def test_plots_stand_side_by_side_unless_that_would_cut_the_names_of_their_lines() -> None:
    long = "NCHW · 2 GPUs · TF32 · Hierarchical copy"
    drawn = {}
    for name in ("NCHW", long):
        one = chart(point(0, 0), point(10, 90), words=name)
        drawn[name] = draw_chart(replace(one, title="t", caption="c", plots=(*one.plots, *one.plots)), LIGHT)
    lefts = {name: {spot.left for spot in drawing.hit_areas} for name, drawing in drawn.items()}
    assert (len(lefts["NCHW"]), len(lefts[long])) == (4, 2)
    shown = [element.text for element in parsed(drawn[long]).iter(f"{TAG}text")]
    assert shown.count(long) == 4, "each plot has its title and its line's name"


def test_everything_lies_on_the_paper(pictures: tuple[Chart, ...]) -> None:
    for picture in pictures:
        for width in (500.0, WIDTH, 1200.0):
            drawing = draw_chart(picture, LIGHT, width)
            for text in parsed(drawing).iter(f"{TAG}text"):
                x, y = float(text.get("x", "")), float(text.get("y", ""))
                size = float(text.get("font-size", ""))
                length = svg.text_width(text.text or "", size)
                start = x - {"start": 0.0, "middle": length / 2, "end": length}[text.get("text-anchor", "")]
                assert start >= -6, (picture.key, width, text.text)
                assert start + length <= width + 8, (picture.key, width, text.text)
                assert 0 < y < drawing.height


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_names_are_spread_within_their_room_and_keep_their_order(wanted: list[float]) -> None:
    placed = labels.separate_heights(wanted, 0.0, 200.0)
    assert all(below - above >= labels.HEIGHT - 1e-6 for above, below in pairwise(sorted(placed)))
    assert max(placed) <= 200.0 + 1e-6
    order = sorted(range(len(wanted)), key=lambda n: wanted[n])
    assert [placed[n] for n in order] == sorted(placed)


@pytest.mark.parametrize(
    "heights", [[60.0, 62.0], [60.0, 62.0, 64.0], [60.0, 78.0, 80.0], [30.0, 60.0, 90.0], [4.0, 5.0]]
)
def test_names_of_lines_close_together_cover_no_line_and_no_other_name(heights: list[float]) -> None:
    lines = [[(0.0, 150.0), (100.0, height), (400.0, height)] for height in heights]
    boxes = labels.name_lines(lines, [80.0 + height for height in heights], -10.0, 150.0)
    for (left, top, width, height), line in zip(boxes, heights, strict=True):
        assert not [other for other in heights if top < other < top + height], "no line goes through a name"
        assert min(abs(line - top), abs(line - top - height)) <= 2 * labels.HEIGHT
        assert left + width <= 400.0
    for one, other in combinations(boxes, 2):
        apart_across = one[0] + one[2] <= other[0] or other[0] + other[2] <= one[0]
        assert apart_across or abs(one[1] - other[1]) >= labels.HEIGHT


def test_names_stand_beside_their_points_and_cover_none() -> None:
    points = [(50.0 + 3 * n, 50.0) for n in range(6)]
    boxes = labels.place_labels(points, ["a name"] * 6, 11.0, (0, 0, 200, 100), [True] + [False] * 5)
    assert boxes[0] is not None, "the important one first"
    placed = [box for box in boxes if box is not None]
    assert len(placed) >= 2
    for box in placed:
        assert not [p for p in points if box[0] < p[0] < box[0] + box[2] and box[1] < p[1] < box[1] + box[3]]


def test_names_cover_thin_lines_only_where_they_matter_and_have_no_other_room() -> None:
    inside, line = (0.0, 0.0, 200.0, 100.0), (0.0, 0.0, 200.0, 100.0)
    for important in (True, False):
        (box,) = labels.place_labels([(50.0, 50.0)], ["a name"], 11.0, inside, [important], thin=[line])
        assert (box is not None) is important
    thin_line = (55.0, 40.0, 145.0, 20.0)
    (moved,) = labels.place_labels([(50.0, 50.0)], ["a name"], 11.0, inside, [True], thin=[thin_line])
    assert moved is not None
    assert moved[0] + moved[2] <= thin_line[0] or moved[1] >= 60.0 or moved[1] + moved[3] <= 40.0


def test_names_that_matter_are_moved_away_from_an_edge_and_lead_to_their_points_across_no_other() -> None:
    inside, name = (0.0, 0.0, 310.0, 200.0), "a name that is too long to be beside it"
    points = [(300.0, 150.0), (290.0, 150.0), *((100.0 + 9 * n, 150.0) for n in range(20))]
    lines = [(100.0, 70.0 + 12 * n, 200.0, 4.0) for n in range(13)]
    for important in (True, False):
        boxes = labels.place_labels(
            points, [name, name, *[""] * 20], 11.0, inside, [important] * 2 + [False] * 20, thin=lines
        )
        assert [box is not None for box in boxes[:2]] == [important, important]
        for box, point, other in zip(boxes[:2], points[:2], boxes[1::-1], strict=True):
            line = labels.leader_line(point, box) if box else None
            if line and other:
                crossing = [
                    y for _, y, _, _ in labels.boxes_along([line[:2], line[2:]], 2.0) if other[1] < y < other[1] + 14
                ]
                assert not crossing or not other[0] < line[0] < other[0] + other[2]


def test_long_words_lose_their_middle() -> None:
    words = svg.elide("a very long name that ends well", 90.0)
    assert words.startswith("a very")
    assert words.endswith("well")
    assert svg.text_width(words) <= 90.0
    assert svg.elide("short", 90.0) == "short"
    assert len(svg.elide("a very long name that ends well", 90.0, bold=True)) < len(words), "bold letters are wider"


def test_guides_have_a_colour_of_their_own_or_none() -> None:
    guides = (Guide(label="", points=((0, 0), (1, 1)), colour=2), Guide(label="top", points=((0, 100), (10, 100))))
    picture = PointChart(
        key="k",
        title="t",
        caption="c",
        plots=(Plot(title="", x=axis(0, 10), y=axis(0, 100), series=(), guides=guides),),
    )
    strokes = [line.get("stroke") for line in parsed(draw_chart(picture, DARK)).iter(f"{TAG}polyline")]
    assert strokes == [DARK.curves[2], DARK.muted]


@pytest.mark.parametrize("low", [0.0, 15.0])
def test_bars_of_a_waterfall_join_and_a_cut_axis_tears_the_totals(low: float) -> None:
    def bar(start: float, end: float, role: WaterfallRole) -> WaterfallBar:
        return WaterfallBar(
            runs=(7,),
            label=HOSTILE,
            tooltip=HOSTILE,
            start=start,
            end=end,
            low=end - 99,
            high=end + 1,
            role=role,
            figure="f",
        )

    shown = WaterfallChart(
        key="k",
        title="t",
        caption="c",
        bars=(bar(0, 20, "total"), bar(20, 18, "less"), bar(18, 19, "more"), bar(0, 19, "total")),
        axis=axis(low, 21.0),
    )
    drawing = draw_chart(shown, LIGHT)
    root = parsed(drawing)
    bars = [
        (float(box.attrib["x"]), float(box.attrib["width"]), box.attrib["fill"])
        for box in root.iter(f"{TAG}rect")
        if box.attrib["height"] == "14.0"
    ]
    first, less, more, last = bars
    assert less[0] + less[1] == pytest.approx(first[0] + first[1], abs=0.2), "it begins where the total ends"
    assert more[0] == pytest.approx(less[0], abs=0.2)
    assert more[0] + more[1] == pytest.approx(last[0] + last[1], abs=0.2)
    assert (less[2], more[2]) == (LIGHT.curve(2), LIGHT.curve(1))
    tears = [
        line
        for line in root.iter(f"{TAG}line")
        if line.attrib["stroke"] == LIGHT.surface and line.attrib["stroke-width"] == "4"
    ]
    whiskers = 3 * 4
    assert len(tears) - whiskers == (2 if low else 0)
    assert len(drawing.hit_areas) == 4


def test_a_word_wider_than_its_line_has_one_of_its_own() -> None:
    assert svg.wrap("incomprehensibilities are", 10.0) == ["incomprehensibilities", "are"]
    assert svg.wrap("a b", 1000.0) == ["a b"]
