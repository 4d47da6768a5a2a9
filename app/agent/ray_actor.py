"""What runs on the nodes of a Ray cluster: the actor that carries one agent, and the probe of a node.

Ray has brought this program's sources and packages there, and put them on the path.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from app.paths import ROOT
from app.telemetry.sampler import take_inventory

_READ_BYTES = 1 << 16
_STDERR_BYTES = 4_000


def agent_environment(gpus: int) -> dict[str, str]:
    """Return the environment of an agent: that of the node, without what Ray sets for its own worker.

    Ray gives indices of GPUs in NVML's order, which CUDA's is only if it is told so. An actor without GPUs sees all of
    them in Ray 2.60: its agent must not.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    for name in ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONUNBUFFERED"):
        variables.pop(name, None)
        variables.update(_variable_of_raylet(name))
    order = {} if gpus else {"CUDA_VISIBLE_DEVICES": "-1"}
    fixed = {"PYTHONSAFEPATH": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {**variables, **fixed, **order}


def _variable_of_raylet(name: str) -> dict[str, str]:
    """Return a variable as the node's user set it, if so: Ray sets OMP_NUM_THREADS=1 in its workers, for example."""
    with contextlib.suppress(OSError):
        environment = Path(f"/proc/{os.environ.get('RAY_RAYLET_PID')}/environ").read_text(errors="replace")
        for variable in environment.split("\0"):
            if variable.startswith(f"{name}="):
                return {name: variable.partition("=")[2]}
    return {}


class AgentActor:
    """Carries one agent: `lines` starts it and yields what it says, `order` and `close` write its stdin.

    The agent ends when its stdin closes: with this process, however that ends.

    Thread: each concurrency group of the actor has one; the constructor runs on the main thread.
    """

    def __init__(self, gpus: int) -> None:
        # Where Ray reaps orphans it ignores this signal: exit codes would be lost, here and in what is started here.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._gpus = gpus
        self._agent: subprocess.Popen[bytes] | None = None

    def lines(self) -> Iterator[tuple[str, str] | bytes]:
        """Yield the node and what CUDA sees there, then whole lines of the agent, then nothing more or why it ended."""
        import ray

        environment = agent_environment(self._gpus)
        with tempfile.TemporaryFile() as stderr:
            self._agent = subprocess.Popen(
                [sys.executable, "-m", "app.agent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
            yield ray.get_runtime_context().get_node_id(), environment.get("CUDA_VISIBLE_DEVICES", "")
            yield from self._read()
            self.close()
            status = self._agent.wait()
            stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _STDERR_BYTES))
            reason = stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        yield f"exit status {status}", reason

    def _read(self) -> Iterator[bytes]:
        assert self._agent is not None, "it was started"
        assert self._agent.stdout is not None, "with pipes"
        rest = b""
        while read := os.read(self._agent.stdout.fileno(), _READ_BYTES):
            lines, end, rest = (rest + read).rpartition(b"\n")
            if end:
                yield lines + end

    def order(self, lines: bytes) -> None:
        """Pass lines on to the agent; one that is gone is told by `lines`."""
        if self._agent is not None and self._agent.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._agent.stdin.write(lines)
                self._agent.stdin.flush()

    def close(self) -> None:
        """Close the agent's stdin, which ends it."""
        if self._agent is not None and self._agent.stdin is not None:
            with contextlib.suppress(OSError):
                self._agent.stdin.close()


def probe_node() -> tuple[bytes, bool]:
    """Return a node's inventory as JSON, and whether Ray's reporter runs there."""
    return msgspec.json.encode(take_inventory()), _has_reporter()


def _has_reporter() -> bool:
    """Return whether a process of Ray's dashboard, which has the reporter, belongs to this node."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"dashboard/agent.py" in (process / "cmdline").read_bytes():
                return True
    return False
