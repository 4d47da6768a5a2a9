"""The driver on the head node of a Ray cluster: `python -m app.hosts.ray_driver GPUS|look [--gpu=…] [--cpus=…]`.

Ray places this program on a node with that many free GPUs, and this driver provides its stdin and stdout, so that a
cluster is another way to start the program. With `look` the node is the one with the most GPUs, free or not. Ray is
installed only on the cluster; it copies this program's sources to the nodes, and kills an actor whose driver has ended.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from app.errors import UserError
from app.hosts.launchers import WAITS_MARK
from app.hosts.messages import LOST_S
from app.paths import ROOT

_LEAST_RAY = (2, 50)
_LOOK_S = 1.0
_READ_BYTES = 1 << 16


def connect() -> Any:
    """Connect to this host's cluster, or the one in RAY_ADDRESS; return the module `ray`; raises `UserError`."""
    try:
        import ray
    except ImportError:
        raise UserError(f"{sys.executable} has no Ray: name the cluster's own Python with ?python=….") from None
    if tuple(map(int, ray.__version__.split(".")[:2])) < _LEAST_RAY:
        raise UserError(f"This cluster's Python has Ray {ray.__version__}; 2.50 or later is needed.")
    try:
        sources = {"working_dir": str(ROOT)}
        ray.init(address="auto", log_to_driver=False, configure_logging=False, runtime_env=sources)
    except ConnectionError as error:
        several = "Several Ray clusters run on this host; name one by RAY_ADDRESS there."
        none = "No Ray cluster runs on this host; start one with `ray start --head`, or name the cluster's head."
        raise UserError(several if "multiple" in str(error) else none) from error
    except RuntimeError as error:
        raise UserError(f"Ray cannot be used: {str(error).strip().splitlines()[0].rstrip('.')}.") from error
    threading.Thread(target=_watch_head, args=(ray,), daemon=True).start()
    return ray


def _watch_head(ray: Any) -> None:
    """End if the head does not answer: Ray itself would wait a minute, and abort."""
    while True:
        overdue = threading.Timer(LOST_S / 2, _end, ("The head of the Ray cluster does not answer.",))
        overdue.start()
        ray.nodes()
        overdue.cancel()
        time.sleep(_LOOK_S)


def _end(sentence: str) -> None:
    """Print the reason and end immediately: Ray kills the actors of an ended driver without waiting for its threads."""
    os.write(2, f"\nvariantscope ray: {sentence}\n".encode(errors="replace"))
    os._exit(1)


class ProgramActor:
    """Runs this program on a node, whose stdin closes at any end of this process; the program then ends."""

    def __init__(self, gpus: int | None) -> None:
        # If Ray reaps orphans, it ignores this signal: exit codes would be lost, here and in child processes.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Ray's settings for its worker do not apply to this program, whose GPUs are in NVML's order.
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "OMP_NUM_THREADS"))}
        order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if gpus else {"CUDA_VISIBLE_DEVICES": "-1"}
        if gpus is None:  # an actor without GPUs sees none
            order = {}
            inherited.pop("CUDA_VISIBLE_DEVICES", None)
        process = subprocess.Popen(
            [sys.executable, "-m", "app", "run", "--events"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**inherited, **order, "PYTHONSAFEPATH": "1"},
            start_new_session=True,
            bufsize=0,
        )

        assert process.stdin is not None, "it was started with pipes"
        assert process.stdout is not None, "it was started with pipes"
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout

    def output(self) -> Iterator[bytes]:
        while read := self._stdout.read(_READ_BYTES):
            yield read

    def write(self, data: bytes) -> None:
        """Write to its stdin; nothing closes it."""
        with contextlib.suppress(OSError):
            if data:
                self._stdin.write(data)
            else:
                self._stdin.close()


def carry(ray: Any, gpus: int | None, options: dict[str, str], output: int) -> None:
    """Have Ray place the program, and forward its lines until it ends; then end this process.

    With `gpus` None it needs no GPU, but the node with the most.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    kinds = {f"accelerator_type:{options['gpu']}": 0.001} if "gpu" in options else {}
    nodes = [node for node in ray.nodes() if node["Alive"] and kinds.keys() <= node["Resources"].keys()]
    if not nodes:
        _end(f"No node of the cluster has the GPU {options.get('gpu')}.")
    node = max(nodes, key=lambda node: node["Resources"].get("GPU", 0))
    needs = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=False), "num_cpus": 0}
    if gpus is not None:
        if gpus > (most := int(node["Resources"].get("GPU", 0))):
            _end(f"No node of the cluster has {gpus} GPUs: the largest has {most}.")
        needs = {"num_gpus": gpus, "num_cpus": float(options.get("cpus", 1)), "resources": kinds}
    groups = {"output": 1, "orders": 1}
    actor_class = ray.remote(**needs, max_restarts=0, max_task_retries=0, concurrency_groups=groups)(ProgramActor)
    actor = actor_class.remote(gpus)

    def pass_orders() -> None:
        data = b"orders"
        while data:
            data = os.read(0, _READ_BYTES)
            actor.write.options(concurrency_group="orders").remote(data)
        time.sleep(_LOOK_S * 5)  # its last message ends this process meanwhile
        _end("The link was closed.")

    threading.Thread(target=pass_orders, daemon=True).start()
    waits = f"\n{WAITS_MARK}The run waits for {gpus or 0} free GPUs of one node of the Ray cluster.\n"
    waiting = threading.Timer(_LOOK_S * 2, os.write, (2, waits.encode()))
    waiting.daemon = True
    waiting.start()
    try:
        for ref in actor.output.options(num_returns="streaming", concurrency_group="output").remote():
            waiting.cancel()
            view = memoryview(ray.get(ref))
            while view:
                view = view[os.write(output, view) :]
    except ray.exceptions.RayError as error:
        _end(f"Ray lost the run: {str(error).strip().splitlines()[0].rstrip('.')}.")
    _end("The program on the node ended unexpectedly.")


def main() -> None:
    gpus, *words = sys.argv[1:]
    options = dict(word.removeprefix("--").split("=", 1) for word in words)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output = os.dup(1)
    os.dup2(2, 1)  # Ray itself prints to stdout
    try:
        carry(connect(), None if gpus == "look" else int(gpus), options, output)
    except UserError as error:
        _end(str(error))


if __name__ == "__main__":
    main()
