"""Who else used a run's GPUs, from the driver's lists."""

import pytest

from app.runs.neighbours import Neighbours
from app.samples import GpuProcess, Processes

WORKER = 100


def listed(*pids: int, device: str = "GPU-a") -> Processes:
    return Processes(t_ns=0, device=device, processes=tuple(GpuProcess(pid=pid, name=f"p{pid}") for pid in pids))


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([], ""),
        ([listed(), listed(WORKER), listed(WORKER)], ""),
        ([listed(WORKER), listed(WORKER, 7), listed(WORKER)], "p7 (7)"),
        ([listed(7), listed(WORKER)], "p7 (7)"),
        ([listed(WORKER, 7), listed(WORKER, 8, device="GPU-b"), listed(WORKER, 7)], "p7 (7), p8 (8)"),
        ([listed(55), listed(55)], ""),
        ([listed(55), listed(55, 56)], "1 other process"),
        ([listed(55, 56, 57)], "2 other processes"),
        ([listed(55), listed(66, device="GPU-b")], ""),
    ],
)
def test_only_processes_beside_the_worker_are_told(lists: list[Processes], words: str) -> None:
    """The last four are of a driver that numbers processes otherwise: the worker is one of those listed."""
    neighbours = Neighbours(WORKER)
    for each in lists:
        neighbours.note(each)
    assert neighbours.words == words


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([listed(7)], "p7 (7)"),
        ([listed(7, 55)], "p7 (7)"),
        ([listed(7, 55, 56)], "p7 (7), 1 other process"),
        ([listed(55)], ""),
        ([listed(7, WORKER, 8)], "p7 (7), p8 (8)"),
    ],
)
def test_who_was_there_before_the_worker_is_not_taken_for_it(lists: list[Processes], words: str) -> None:
    neighbours = Neighbours(WORKER, before=[7, 9])
    for each in lists:
        neighbours.note(each)
    assert neighbours.words == words
