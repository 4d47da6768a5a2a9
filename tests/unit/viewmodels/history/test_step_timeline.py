"""One traced step as rows and bars: what is said of it, and what is drawn of thousands of kernels."""

import msgspec
import numpy as np
import pytest

from app.viewmodels.history.step_timeline import MAX_ROWS, Lanes, TimelineView, timeline_view
from tests.fakes.runs import EVIDENCE
from workloads.protocol import Kernel, StepKernel, StepTimeline, Stream

NBSP = "\N{NO-BREAK SPACE}"


def view_of(step: StepTimeline, noun: str = "kernel") -> TimelineView:
    view = timeline_view(msgspec.structs.replace(EVIDENCE, timeline=step), noun)
    assert view is not None
    return view


@pytest.fixture
def view() -> TimelineView:
    assert EVIDENCE.timeline is not None
    return view_of(EVIDENCE.timeline)


def test_a_step_is_said_in_words(view: TimelineView) -> None:
    assert view.text.replace(NBSP, " ") == (
        "One of the traced steps, 250 µs: 5 kernels on 2 streams. Stream #13(Compute): 2 kernels, 72.0 % busy."
        " Stream #20(nccl): 1 kernel, 8.0 % busy."
    )
    assert view.notes.replace(NBSP, " ").startswith(
        "One of the traced steps, 250 µs: 5 kernels on 2 streams. Only the first 3 kernels are stored."
        " Kernels take as long"
    )
    assert view.describe(0).replace(NBSP, " ") == (
        "convolution · at 0.000 ms for 150 µs, 60.00 % of the step · occupancy 12.5 % · Stream #13(Compute)"
        " · sm90_xmma_fprop_tf32f32"
    )
    assert "occupancy" not in view.describe(1), "it is not known"


def test_of_many_streams_the_busiest_are_shown_with_their_devices() -> None:
    streams = tuple(Stream(device=f"GPU:{n % 2}", name=f"Stream #{n}") for n in range(MAX_ROWS + 3))
    kernels = tuple(StepKernel(n, 0, n, 1) for n in range(len(streams)))
    found = view_of(StepTimeline(start_ns=1, duration_ns=100, streams=streams, kernels=kernels))
    assert (len(found.rows), found.rows[1].label) == (MAX_ROWS, "GPU:1 · Stream #1")
    assert f"27 kernels on 27 streams. The {MAX_ROWS} busiest of them are shown." in found.notes
    assert len(Lanes(found).index) == MAX_ROWS


def test_threads_of_a_cpu_are_called_so_and_a_run_without_a_step_has_no_timeline(view: TimelineView) -> None:
    assert "5 ops on 2 threads" in view_of(view.step, "op").notes
    assert "profiler" not in view_of(view.step, "op").notes
    assert timeline_view(msgspec.structs.replace(EVIDENCE, timeline=None), "kernel") is None


def test_kernels_below_a_pixel_fill_their_part_of_its_height() -> None:
    """A thousand of half a microsecond, one every microsecond, two classes in turn: half of the row."""
    kernels = tuple(StepKernel(0, n % 2, 1000 * n, 500) for n in range(1000))
    streams = (Stream(device="GPU:0", name="Stream #13"),)
    lanes = Lanes(view_of(StepTimeline(start_ns=1, duration_ns=1_000_000, streams=streams, kernels=kernels)))
    whole = lanes.bars(0.0, 1000.0, 100)
    assert whole.left.size == 200, "a bar for each class in each of 100 pixels"
    assert set(whole.width) == {1.0}
    np.testing.assert_allclose(whole.low[whole.colour == 1], 0.0, atol=1e-9)
    np.testing.assert_allclose(whole.high[whole.colour == 1], 0.25, atol=0.051)
    np.testing.assert_allclose(whole.high[whole.colour == 3], 0.5, atol=0.051)
    near = lanes.bars(500.0, 510.0, 100)
    assert near.left.size == 10
    np.testing.assert_allclose(near.left, np.arange(10) * 10.0, atol=1e-6)
    np.testing.assert_allclose((near.width, near.high), (np.full(10, 5.0), np.ones(10)), atol=1e-6)
    cut = lanes.bars(500.25, 501.25, 100)
    np.testing.assert_allclose((cut.left, cut.width), ([0.0, 75.0], [25.0, 25.0]), atol=1e-6)


def test_a_kernel_is_found_by_its_time_and_next_to_another(view: TimelineView) -> None:
    lanes = Lanes(view)
    assert [lanes.find(0, time_us, 5.0) for time_us in (0.0, 149.0, 154.0, 180.0, 196.0, 240.0)] == [
        0,
        0,
        0,
        None,
        2,
        None,
    ]
    assert lanes.find(1, 110.0, 0.0) == 1
    assert [lanes.next_on_row(current, step) for current, step in ((0, 1), (2, 1), (2, -1), (0, -1))] == [2, 2, 0, 0]


def test_a_kernel_of_no_time_is_drawn_and_found() -> None:
    step = StepTimeline(
        start_ns=1, duration_ns=0, streams=(Stream(device="CPU", name="python"),), kernels=(StepKernel(0, 0, 0, 0),)
    )
    found = timeline_view(
        msgspec.structs.replace(
            EVIDENCE, kernels=(Kernel(name="NoOp", kind="other", count=1, time_ns=0),), timeline=step
        ),
        "op",
    )
    assert found is not None
    lanes = Lanes(found)
    assert lanes.find(0, 0.0, 0.0) == 0
    assert lanes.bars(0.0, found.step_us, 10).row.size == 1
