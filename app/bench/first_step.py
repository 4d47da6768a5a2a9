"""How soon a run measures, and how soon it follows another, with a worker that stands by and without.

Cold and standby take turns; each time a run follows another at once, as in an experiment.
"""

import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from app.bench.result import Result
from app.records import RunEvent
from app.runs.session import RunServices, RunSession
from app.runs.standby import StandbyLauncher
from workloads.protocol import PhaseName, PhaseStarted, RunSpec

_TURNS = 3
_FIRST_STEP_S = 1.5
_GAP_S = 0.5


def results(spec: RunSpec, services: RunServices) -> Sequence[Result]:
    """Seconds from click to measuring less compiling, and from a run's end to the next one's build.

    On the CPU the standby has imported before the first of two runs, which starts cold: nothing is imported beside one.
    On a GPU it is begun with the first run, as in an experiment.
    """
    cold: list[_Following] = []
    warm: list[_Following] = []
    with closing(StandbyLauncher(services.leases, lambda: True)) as launcher:
        standby = replace(services, launcher=launcher)
        for _ in range(_TURNS):
            cold.append(_following(spec, services, services))
            launcher.prepare()
            launcher.wait_ready()
            warm.append(_following(spec, standby if int(spec.variant["gpus"]) else services, standby))
    return [
        _median("click to measuring less compiling, cold", [run.first_step_s for run in cold]),
        _median("click to measuring less compiling, standby", [run.first_step_s for run in warm], _FIRST_STEP_S),
        _median("last step to the next run's build, cold", [run.gap_s for run in cold]),
        _median("last step to the next run's build, standby", [run.gap_s for run in warm], _GAP_S),
    ]


@dataclass(frozen=True, slots=True)
class _Following:
    """A run that followed another at once."""

    first_step_s: float
    gap_s: float


@dataclass(slots=True)
class _Watch:
    """When a run's phases began."""

    phases_ns: dict[PhaseName, int] = field(default_factory=dict)

    def handle(self, event: RunEvent) -> None:
        if isinstance(event, PhaseStarted):
            self.phases_ns[event.phase] = event.t_ns


def _following(spec: RunSpec, first: RunServices, second: RunServices) -> _Following:
    before, watch = _Watch(), _Watch()
    RunSession(spec, first, [before]).run()
    clicked_ns = time.monotonic_ns()
    RunSession(spec, second, [watch]).run()
    began = watch.phases_ns
    if "measure" not in began:
        raise RuntimeError("the benchmark's run never reached its measured part")
    compiling_ns = began["warmup"] - began["compile"]
    return _Following(
        first_step_s=(began["measure"] - clicked_ns - compiling_ns) / 1e9,
        gap_s=(began["build"] - before.phases_ns["finish"]) / 1e9,
    )


def _median(name: str, seconds: Sequence[float], limit: float | None = None) -> Result:
    return Result(name=name, value=statistics.median(seconds), unit="s", limit=limit)
