"""What an experiment that is being built shows and asks for, as values."""

from dataclasses import dataclass

from app.viewmodels.form import Option
from app.viewmodels.matrix_refused import RefusedGroup
from workloads.protocol import RunSpec, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How far an experiment goes: repeats (None for the usual number), ± percent, seconds, runs side by side.

    With `again` stored runs do not count.
    """

    repeats: int | None = None
    until_pct: float | None = None
    budget_s: float | None = None
    side_by_side: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """One parameter: values to tick (`options`), or else a list to type (`text`); `chosen` are those compared.

    `where_empty` stands in the list while nothing else does. `folded` ones are shown only when asked for. `problem` is
    what is wrong with the text.
    """

    name: str
    label: str
    help: str
    options: tuple[Option, ...]
    chosen: tuple[Value, ...]
    text: str = ""
    unit: str = ""
    where_empty: str = ""
    folded: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixState:
    """Everything the matrix shows; `problem` says why it cannot begin, "" where it can.

    `variants` are names of those that can run, `baseline` the index of the one all are held against. `side_by_side` is
    None on a machine where it is no choice.
    """

    workload: str
    rows: tuple[MatrixRow, ...]
    variants: tuple[str, ...]
    baseline: int
    combinations: int
    refused: tuple[RefusedGroup, ...]
    repeats: int
    least_repeats: int
    until_pct: float | None
    budget_s: float | None
    side_by_side: bool | None
    again: bool
    headline: str
    detail: str
    problem: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedMatrix:
    """The experiment that the matrix asks for, the baseline first; `notes` say what of it cannot run here."""

    name: str
    variants: tuple[RunSpec, ...]
    repeats: int
    until_pct: float | None
    notes: tuple[str, ...]
    budget_s: float | None
    parallel: int
    again: bool
