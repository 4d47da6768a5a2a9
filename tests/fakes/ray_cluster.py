"""A real Ray cluster with pretended GPUs, in a process of its own: Ray prints, warns and leaves threads.

    python -m tests.fakes.ray_cluster

says the cluster's address, then kills the node whose name is a line on stdin, without grace.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from app.hosts.book import HostEntry
from tests.fakes.nvml import TWO_H200, Driver, environment

ROOT = Path(__file__).parents[2]
GPUS = {"head": 0, "a": 2, "b": 2}
"""GPUs of each node."""


def uuids(node: str) -> list[str]:
    return [f"GPU-{node}{index}" for index in range(GPUS[node])]


def main() -> None:
    """Run the cluster, and kill its nodes by name."""
    import msgspec
    from ray.cluster_utils import Cluster

    def arguments(node: str) -> dict[str, object]:
        cards = tuple(msgspec.structs.replace(TWO_H200[0], uuid=uuid) for uuid in uuids(node))
        fake = environment(Driver(cards=cards)) if cards else {}
        return {"num_cpus": 4, "num_gpus": GPUS[node], "include_dashboard": False, "env_vars": dict(fake)}

    cluster = Cluster(initialize_head=True, head_node_args=arguments("head"))
    nodes = {name: cluster.add_node(wait=False, **arguments(name)) for name in ("a", "b")}
    cluster.wait_for_nodes()
    print(cluster.address, flush=True)
    for line in sys.stdin:
        node = {"head": cluster.head_node, **nodes}[line.strip()]
        for each in [process for group in node.all_processes.values() for process in group]:
            each.process.kill()
            each.process.wait()  # Ray's workers take a zombie for alive
        print("killed", flush=True)


@dataclass(frozen=True)
class RunningCluster:
    """The cluster's address and the process that has it; `cache` is where nodes and head store sources."""

    address: str
    process: "subprocess.Popen[str]"
    cache: Path

    def kill(self, node: str) -> None:
        assert self.process.stdin is not None, "started with pipes"
        assert self.process.stdout is not None, "started with pipes"
        print(node, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline().strip() == "killed"

    def entry(self, options: str = "") -> HostEntry:
        """Return the cluster as a host, which is entered here by a shell."""
        return HostEntry(name="lab", address=f"ray:?python={sys.executable}{options}")

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {"RAY_ADDRESS": self.address, "XDG_CACHE_HOME": str(self.cache)}


@contextmanager
def running_cluster(cache: Path) -> Iterator[RunningCluster]:
    # Other tests hide all GPUs from TensorFlow; Ray would then refuse nodes with pretended ones.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "CUDA_VISIBLE"))}
    # Ray's own folder in /tmp belongs to the user who started Ray first; paths of its sockets must be short.
    folder = TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.ray_cluster"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={
            **inherited,
            "PYTHONPATH": str(ROOT),
            "XDG_CACHE_HOME": str(cache),
            "RAY_TMPDIR": folder.name,
            "RAY_raylet_start_wait_time_s": "120",
        },
        start_new_session=True,
    )
    assert process.stdout is not None, "started with pipes"
    assert process.stdin is not None, "started with pipes"
    with folder, process:
        address = process.stdout.readline().strip()
        assert address, "Ray did not start"
        yield RunningCluster(address, process, cache)
        # Ray's own way waits for each process in turn, and half a minute once the head is gone.
        for each in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        process.kill()


if __name__ == "__main__":
    main()
