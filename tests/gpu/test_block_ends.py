"""Ends of blocks as the GPU tells them: their times are the host's, and steps behind them do not delay them."""

import time

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch_gpu() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU that PyTorch sees")


@pytest.mark.usefixtures("torch_gpu")
def test_an_end_is_told_on_the_hosts_clock_whatever_follows_it() -> None:
    import torch

    from workloads.pytorch.steps import BlockEnds, fetch

    ends, matrix = BlockEnds(), torch.randn(8192, 8192, device="cuda")

    def step() -> torch.Tensor:
        for _ in range(40):
            product = matrix @ matrix
        return product[0, 0]

    fetch(step())
    began_ns = time.monotonic_ns()
    result = step()
    value = float(result)
    alone_ns = time.monotonic_ns() - began_ns
    began_ns = time.monotonic_ns()
    wait = ends.mark(step())
    first_ns, loss = wait()
    following = step()
    waits = [ends.mark(step()), ends.mark(step())]
    times = [end()[0] for end in waits]
    fetch(following)
    assert loss == value
    assert 0.8 * alone_ns < first_ns - began_ns < 1.2 * alone_ns
    assert 1.6 * alone_ns < times[0] - first_ns < 2.6 * alone_ns
    assert 0.8 * alone_ns < times[1] - times[0] < 1.2 * alone_ns
    assert times[1] <= time.monotonic_ns()
