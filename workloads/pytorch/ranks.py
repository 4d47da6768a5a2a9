"""Processes that compute together, one per GPU: rank 0 is the worker, and starts the others, which end with it.

Rank 0 writes what it does to the others' stdin, one line each, and never waits for an answer during measured steps:
they run the same steps, as far ahead of their GPUs as rank 0 is. They execute `workloads.pytorch.rank`.
"""

import contextlib
import functools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from socket import create_server
from typing import IO, TYPE_CHECKING, Any

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map  # PyTorch has no public one

from workloads.job_protocol import ComputeGradients
from workloads.protocol import TAG, Finished, RunSpec, Source, Variant, encode, sentence
from workloads.pytorch.trace import write_trace

if TYPE_CHECKING:
    from workloads.pytorch.steps import Step

DATA_PARALLEL = "data_parallel"
"""The all-reduce without a process per GPU: one process with a thread for each, by `nn.DataParallel`."""
_HOST = "127.0.0.1"
_TIMEOUT_S, _GRACE_S = 600.0, 30.0
"""How long ranks wait for each other. Rank 0 waits longer, so that it receives the others' reports."""
_END_S = 3.0
"""How long a rank has to exit; one that waits for another rank's part of a step never does."""
_ENTRY = Path(__file__).parents[1] / "entry.py"


def replica_count(variant: Variant) -> int:
    return max(1, int(variant["gpus"]))


def rank_count(variant: Variant) -> int:
    return 1 if variant["all_reduce"] == DATA_PARALLEL else replica_count(variant)


def gpus_of(variant: Variant, rank: int = 0) -> range:
    """Return the GPUs on which a rank computes; none means the CPU."""
    return range(rank, rank + int(variant["gpus"]) // rank_count(variant))


@dataclass(frozen=True, slots=True)
class Share:
    """The part of each global batch that a rank computes."""

    rank: int = 0
    ranks: int = 1

    def of(self, batch: Any) -> Any:
        return tree_map(lambda tensor: tensor.chunk(self.ranks)[self.rank], batch)


class RankOrder(msgspec.Struct, frozen=True):
    """The first line that a rank reads: what to compute, the port of rank 0's store, and its process.

    A custom workload has a `source`. A job's `gradients` say how to divide its batch and where to start.
    """

    spec: RunSpec
    source: Source | None
    gradients: ComputeGradients | None
    share: Share
    port: int
    parent: int


class RankState(msgspec.Struct, frozen=True, kw_only=True, tag="state", tag_field=TAG):
    """A rank's state after a trace."""

    weights: int
    batch: int
    memory_limit_bytes: int


_decoder: msgspec.json.Decoder[RankState | Finished] = msgspec.json.Decoder(RankState | Finished)


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of a run from one rank's view: its share of the work, and the store that rank 0 serves."""

    share: Share
    store: dist.Store

    @classmethod
    def of(cls, order: RankOrder) -> "Group":
        return cls(order.share, dist.TCPStore(_HOST, order.port, is_master=False, wait_for_workers=False))

    def connect(self, device: torch.device) -> None:
        """Wait for the other ranks and connect with them: by NCCL between GPUs, by Gloo on the CPU."""
        on_gpu, rank = device.type == "cuda", self.share.rank
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=self.store,
            rank=rank,
            world_size=self.share.ranks,
            timeout=timedelta(seconds=_TIMEOUT_S if rank else _TIMEOUT_S + _GRACE_S),
            device_id=device if on_gpu else None,
        )

    def meet(self, name: str) -> None:
        """Wait until all ranks call this with a name, without using their GPUs."""
        if self.store.add(name, 1) == self.share.ranks:
            self.store.set(f"{name}/all", b"")
        self.store.wait([f"{name}/all"], timedelta(seconds=_TIMEOUT_S))


def mean_over_ranks(result: Tensor) -> Tensor:
    total = result.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def trace_rank(step: "Step", group: Group, steps: int, folder: Path) -> float:
    """Write a rank's trace of some steps, which begin when all ranks are ready; return the seconds per step."""
    path, on_gpu = folder / f"{group.share.rank:03}.json", step.device.type == "cuda"
    return write_trace(step, steps, path, gpu=on_gpu, ready=lambda: group.meet(str(folder)))


def _start(order: RankOrder) -> "subprocess.Popen[bytes]":
    """Start a rank in this process's group; its log is this process's."""
    command = [sys.executable, str(_ENTRY), "workloads.pytorch.rank"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    _tell(child, encode(order))
    return child


def _tell(child: "subprocess.Popen[bytes]", line: bytes) -> None:
    with contextlib.suppress(BrokenPipeError):  # its listener reports the end
        _orders_of(child).write(line)


def _orders_of(child: "subprocess.Popen[bytes]") -> IO[bytes]:
    assert child.stdin is not None, "it was started with a pipe"
    return child.stdin


class RankedStep:
    """The step of all ranks, as rank 0 runs it.

    Thread: one at a time runs steps and traces; one thread per rank reads its messages.
    """

    def __init__(
        self, spec: RunSpec, ranks: int, source: Source | None, gradients: ComputeGradients | None = None
    ) -> None:
        """Start the other ranks, which import PyTorch and build their part meanwhile; then `local` must be set."""
        self.local: Step
        self.states: tuple[RankState, ...] = ()
        # The system chooses a free port, on this host only.
        server = create_server((_HOST, 0))
        port = server.getsockname()[1]
        store = dist.TCPStore(_HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=server.detach())
        self._group = Group(Share(0, ranks), store)
        shares = (Share(rank, ranks) for rank in range(1, ranks))
        self._children = [_start(RankOrder(spec, source, gradients, share, port, os.getpid())) for share in shares]
        self._listeners: list[threading.Thread] = []
        self._states: queue.SimpleQueue[RankState] = queue.SimpleQueue()
        self._kills = False

    def connect(self, finish: Callable[[Finished], object]) -> None:
        """Wait for the other ranks and connect with them; if one of them ends early, `finish` is called.

        It is called on another thread, because this one may wait for that rank forever.
        """
        for rank, child in enumerate(self._children, start=1):
            listen = functools.partial(self._listen, rank, child, finish)
            self._listeners.append(threading.Thread(target=listen, name=f"rank {rank}", daemon=True))
            self._listeners[-1].start()
        self._group.connect(self.local.device)
        self.local.join()

    def __call__(self) -> Tensor:
        self._tell(b"step\n")
        return self.local()

    def mean(self, result: Tensor) -> Tensor:
        """Return the mean of the last step's result over the ranks, once all have finished it."""
        self._tell(b"mean\n")
        return mean_over_ranks(result)

    def differentiate_next(self) -> Tensor:
        """Differentiate the loss of the next batch on all ranks, without an update, and return its mean."""
        self._tell(b"differentiate\n")
        return self.mean(self.local.differentiate_next())

    def halve_scale(self) -> None:
        self._tell(b"halve\n")
        self.local.halve_scale()

    def count_correct(self) -> Tensor:
        """Return how many test images all ranks classify correctly, each on its part of them."""
        self._tell(b"test\n")
        return self.mean(self.local.count_correct()) * self._group.share.ranks

    def statistics(self) -> list[Tensor]:
        """Return the model's running statistics, averaged over the ranks."""
        self._tell(b"statistics\n")
        return list(map(mean_over_ranks, self.local.statistics()))

    def reuse_batches(self, reuse: bool) -> None:
        """Repeat the batches that are already on the devices, or continue."""
        self._tell(f"reuse {reuse:d}\n".encode())
        self.local.reuse_batches(reuse)

    def trace(self, steps: int, folder: Path) -> float:
        """Trace that many steps on all ranks, each into a file of the folder, and keep the ranks' states.

        Returns the seconds per step under the profiler.
        """
        self._tell(f"trace {steps} {folder}\n".encode())
        step_s = trace_rank(self.local, self._group, steps, folder)
        self.states = (self.local.state(), *(self._states.get(timeout=_TIMEOUT_S) for _ in self._children))
        return step_s

    def close(self) -> None:
        """End the other ranks; report one that ended early first."""
        for child in self._children:
            _orders_of(child).close()
        deadline_s = time.monotonic() + _END_S
        for child in self._children:
            try:
                child.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._kills = True
                child.kill()
                child.wait()
        for listener in self._listeners:
            listener.join()

    def _tell(self, line: bytes) -> None:
        for child in self._children:
            _tell(child, line)

    def _listen(self, rank: int, child: "subprocess.Popen[bytes]", finish: Callable[[Finished], object]) -> None:
        assert child.stdout is not None, "it was started with a pipe"
        with child.stdout as answers:
            for line in answers:
                match _decoder.decode(line):
                    case Finished() as finished:
                        reason = f"Rank {rank}: {finished.reason}" if finished.outcome == "failed" else finished.reason
                        finish(msgspec.structs.replace(finished, reason=reason and sentence(reason)))
                        return
                    case state:
                        self._states.put(state)
        code = child.wait()
        if code and not self._kills:
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            reason = f"The process of rank {rank} {how}; the run's log may say why."
            finish(Finished(outcome="failed", t_ns=time.monotonic_ns(), reason=reason))
