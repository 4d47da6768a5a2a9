"""The variants that pictures are drawn of: each with its name, its colour, its runs and what they came to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.analysis.intervals import LEVEL, Estimate
from app.analysis.verdict import VariantResult
from app.records import StoredRun
from app.viewmodels import units
from app.viewmodels.cells import OUTCOMES, example_word
from app.viewmodels.looks import looks
from app.viewmodels.verdict import verdict_of
from workloads.protocol import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One variant among those compared; `colour` is that of its first run."""

    name: str
    colour: int
    result: VariantResult
    runs: tuple[StoredRun, ...]

    @property
    def spec(self) -> RunSpec:
        """The variant itself."""
        return self.result.runs[0].spec

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its runs."""
        return tuple(row.run for row in self.result.runs)

    @property
    def outcome(self) -> str:
        """How its last run ended, in a word or two: `out of memory`."""
        ended = self.result.runs[-1].outcome
        return OUTCOMES[ended.name if ended else "running"].word

    @property
    def rate_unit(self) -> str:
        """The unit of its throughput: `images/s`."""
        return units.rate_unit(example_word(self.spec))


def subjects(runs: Sequence[StoredRun], baseline: int, colours: Mapping[int, int] | None = None) -> tuple[Subject, ...]:
    """Every variant of these runs, in order; `colours` by run are as everywhere unless given."""
    by_number = {run.row.run: run for run in runs}
    verdict = verdict_of([run.row for run in runs], baseline)
    of_run = colours or looks([result.runs for result in verdict.results])
    return tuple(
        Subject(
            name=name,
            colour=of_run.get(result.runs[0].run, place),
            result=result,
            runs=tuple(by_number[row.run] for row in result.runs),
        )
        for place, (result, name) in enumerate(zip(verdict.results, verdict.names, strict=True))
    )


def apart(colours: Sequence[int], many: int) -> tuple[int, ...]:
    """The same colours where no two are one; of equal ones the later take the next that is free, while there is one."""
    taken: list[int] = []
    for colour in colours:
        free = (other % many for other in range(colour, colour + many) if other % many not in taken)
        taken.append(next(free, colour % many))
    return tuple(taken)


def estimate_words(estimate: Estimate, unit: str) -> str:
    """`68,899 images/s (95 % interval 68,612 to 69,187, 5 runs)`."""
    runs = f"{estimate.n} {units.plural('run', estimate.n)}"
    if estimate.interval is None:
        return f"{units.number(estimate.value, 4)} {unit} ({runs}, no interval)"
    low, high = (units.number(end, 4) for end in estimate.interval)
    return f"{units.number(estimate.value, 4)} {unit} ({100 * LEVEL:.0f} % interval {low} to {high}, {runs})"
