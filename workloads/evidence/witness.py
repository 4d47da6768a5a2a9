"""Watches a run: the graph of its first step, then a trace of a few more after its measured part."""

from workloads.evidence import graph, profile
from workloads.evidence.ops import Op
from workloads.evidence.seen import Seen
from workloads.evidence.verdict import evidence_of
from workloads.evidence.xplane import Trace
from workloads.protocol import Evidence, RunSpec
from workloads.training import Task


class Witness:
    """One run's witness. It costs the measured part nothing: it sees the first step, and steps after the last."""

    def __init__(self, spec: RunSpec, task: Task) -> None:
        self._spec = spec
        self._task = task
        self._graph: tuple[Op, ...] | None = None
        self._trace = Trace()

    def start(self) -> None:
        """Begin to watch, before the first step."""
        graph.start_collecting()

    def first_step_done(self) -> None:
        """Look at what the first step was."""
        self._graph = graph.collected()

    def trace(self) -> None:
        """Run a few more steps under the profiler."""
        on_gpu = int(self._spec.variant["gpus"]) > 0
        self._trace = profile.guarded(lambda: profile.traced(self._task, gpu=on_gpu))

    def evidence(self) -> Evidence | None:
        """What is known so far; None before the first step was done."""
        if self._graph is None:
            return None
        return evidence_of(Seen(spec=self._spec, graph=self._graph, trace=self._trace))
