"""How gradients were exchanged, seen in the graphs of two replicas on the CPU and in made-up traces of GPUs."""

import msgspec
import pytest

from tests.unit.workloads.test_evidence import ONE_GPU
from tests.witnessed import spec_of, witnessed
from workloads.evidence.exchange import all_reduce
from workloads.evidence.ops import Op
from workloads.evidence.seen import Seen
from workloads.evidence.xplane import Trace
from workloads.protocol import Kernel, RunSpec
from workloads.runtime import Replicas, replicas_on

NCCL = Kernel(name="ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)", kind="communication", count=4, time_ns=9)
GEMM = Kernel(name="nvjet_tst", kind="gemm", count=8, time_ns=90)
COLLECTIVE = Op(type="CollectiveReduceV2", name="CollectiveReduceV2", device="GPU:0")


def two_gpus(asked: str = "nccl", **more: str) -> RunSpec:
    return spec_of("cnn10", gpus=2, all_reduce=asked, **more)


@pytest.mark.parametrize("asked", ["hierarchical", "one_device"])
def test_copies_are_told_by_who_adds(one: Replicas, asked: str) -> None:
    pair = replicas_on(["CPU:0", "CPU:1"], asked)
    evidence = witnessed(two_gpus(asked), pair)
    assert (evidence.asked["all_reduce"], evidence.ran["all_reduce"]) == (asked, asked)
    other = witnessed(two_gpus("nccl"), pair)
    assert other.match is False
    assert "Gradients were exchanged by copies, added on" in (other.reason or "")


def test_a_collective_says_what_it_used_only_in_a_trace(pair: Replicas) -> None:
    evidence = witnessed(two_gpus(), pair)
    assert "all_reduce" not in evidence.ran
    assert "all_reduce" in evidence.asked


def test_one_device_and_inference_exchange_nothing(one: Replicas) -> None:
    assert "all_reduce" not in witnessed(spec_of("cnn10"), one).asked
    assert "all_reduce" not in witnessed(two_gpus(mode="inference"), one).asked


@pytest.mark.parametrize(
    ("graph", "kernels", "ran", "fits"),
    [
        ((COLLECTIVE,), (NCCL, GEMM), "nccl", True),
        ((COLLECTIVE,), (GEMM,), "ring", False),
        ((COLLECTIVE,), (), None, None),
        ((Op(type="Conv2D", name="Conv2D", device="GPU:0"),), (GEMM,), "none", False),
        ((), (GEMM,), None, None),
    ],
)
def test_nccl_is_told_by_its_kernels(
    graph: tuple[Op, ...], kernels: tuple[Kernel, ...], ran: str | None, fits: bool | None
) -> None:
    times = (ONE_GPU, msgspec.structs.replace(ONE_GPU, device="GPU:1"))
    found = all_reduce(Seen(spec=two_gpus(), graph=graph, trace=Trace(steps=2, times=times, kernels=kernels)))
    assert (found.ran, found.fits) == (ran, fits)
    if NCCL in kernels:
        assert found.note == "Kernels or copies that exchange gradients: 1 a step on each device."
