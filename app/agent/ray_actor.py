"""What runs on the nodes of a Ray cluster: the actor that carries one agent, and the probe of a node.

Ray sends both there by value, so they use nothing of this program but what they unpack: the driver's own sources, once
for each node, into the user's cache there.
"""

import contextlib
import io
import os
import select
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ray

_SILENT_S = 60.0
"""The program pings every agent once a second: an actor that gets nothing for so long has lost it, and ends."""
_READ_BYTES = 1 << 16
_STDERR_BYTES = 4_000
_PROBE = (
    "import msgspec, sys; from app.telemetry.sampler import take_inventory;"
    " sys.stdout.buffer.write(msgspec.json.encode(take_inventory()))"
)
_PROBE_S = 60.0


class Sources:
    """The driver's sources: an archive in Ray's store, named by the hash of its contents."""

    def __init__(self, name: str, archive: "ray.ObjectRef[bytes]") -> None:
        self.name = name
        self._archive = archive

    def folder(self) -> Path:
        """Return the folder with the sources on this node, unpacked now if they are not there.

        Raises:
            OSError: They cannot be written.
        """
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "variantscope"
        folder = cache / self.name
        if not folder.is_dir():
            import ray

            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as unpacked:
                with tarfile.open(fileobj=io.BytesIO(ray.get(self._archive))) as archive:
                    archive.extractall(f"{unpacked}/sources", filter="data")
                with contextlib.suppress(OSError):  # another process of this node was faster
                    Path(f"{unpacked}/sources").rename(folder)
        return folder


def agent_environment(sources: Path, gpus: int) -> dict[str, str]:
    """Return the environment of an agent: that of the node, without what Ray sets for its own worker.

    Ray gives indices of GPUs in NVML's order, which CUDA's is only if it is told so. An actor without GPUs sees all of
    them in Ray 2.60: its agent must not.

    Args:
        sources: The folder with the program's sources.
        gpus: How many GPUs the actor has.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    for name in ("OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PYTHONUNBUFFERED", "PYTHONPATH"):
        variables.pop(name, None)
        variables.update(_variable_of_raylet(name))
    paths = os.pathsep.join(filter(None, (str(sources), variables.get("PYTHONPATH"))))
    order = {} if gpus else {"CUDA_VISIBLE_DEVICES": "-1"}
    fixed = {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return {**variables, **fixed, **order}


def _variable_of_raylet(name: str) -> dict[str, str]:
    """Return a variable as the node's user set it, if so: Ray sets OMP_NUM_THREADS=1 in its workers, for example."""
    with contextlib.suppress(OSError):
        for each in Path(f"/proc/{os.environ.get('RAY_RAYLET_PID')}/environ").read_text(errors="replace").split("\0"):
            if each.startswith(f"{name}="):
                return {name: each.partition("=")[2]}
    return {}


class AgentActor:
    """Carries one agent: `lines` starts it and yields what it says, `order` and `close` write its stdin.

    The agent ends when its stdin closes: with this process, however that ends.

    Thread: each concurrency group of the actor has one; the constructor runs on the main thread.
    """

    def __init__(self, sources: Sources, gpus: int) -> None:
        # Where Ray reaps orphans it ignores this signal: exit codes would be lost, here and in what is started here.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._sources = sources
        self._gpus = gpus
        self._agent: subprocess.Popen[bytes] | None = None
        self._ordered_s = time.monotonic()

    def lines(self) -> Iterator[tuple[str, str] | bytes]:
        """Yield the node and what CUDA sees there, then whole lines of the agent, then nothing more or why it ended."""
        import ray

        folder = self._sources.folder()
        environment = agent_environment(folder, self._gpus)
        with tempfile.TemporaryFile() as stderr:
            self._agent = subprocess.Popen(
                [sys.executable, "-m", "app.agent"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
            yield ray.get_runtime_context().get_node_id(), environment.get("CUDA_VISIBLE_DEVICES", "")
            yield from self._read()
            self.close()
            status = self._agent.wait()
            stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _STDERR_BYTES))
            said = stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
        yield f"exit status {status}", said

    def _read(self) -> Iterator[bytes]:
        assert self._agent is not None, "it was started"
        assert self._agent.stdout is not None, "with pipes"
        pipe, rest = self._agent.stdout.fileno(), b""
        self._ordered_s = time.monotonic()
        while time.monotonic() - self._ordered_s < _SILENT_S:
            if select.select([pipe], [], [], 1.0)[0]:
                if not (read := os.read(pipe, _READ_BYTES)):
                    return
                whole, end, rest = (rest + read).rpartition(b"\n")
                if end:
                    yield whole + end

    def order(self, lines: bytes) -> None:
        """Pass lines on to the agent; one that is gone is told by `lines`."""
        self._ordered_s = time.monotonic()
        if self._agent is not None and self._agent.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._agent.stdin.write(lines)
                self._agent.stdin.flush()

    def close(self) -> None:
        """Close the agent's stdin, which ends it."""
        if self._agent is not None and self._agent.stdin is not None:
            with contextlib.suppress(OSError):
                self._agent.stdin.close()


def probe_node(sources: Sources) -> tuple[str, bytes, str, bool]:
    """Return a node's hostname, its inventory as JSON or why there is none, and whether Ray's reporter runs there."""
    folder = sources.folder()
    environment = agent_environment(folder, 1)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-c", _PROBE]
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=_PROBE_S, check=False)
    problem = found.stderr.decode(errors="replace").strip().rpartition("\n")[2] if found.returncode else ""
    return socket.gethostname(), found.stdout, problem, _has_reporter()


def _has_reporter() -> bool:
    """Return whether a process of Ray's dashboard, which has the reporter, belongs to this node."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"dashboard/agent.py" in (process / "cmdline").read_bytes():
                return True
    return False
