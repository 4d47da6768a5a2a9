"""A margin of equivalence, and a gate for continuous integration, in `compare` and `experiment`."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from app.cli.options import FILE, number
from app.cli.terminal import say
from app.errors import write_error
from app.report.gate import Gate
from app.report.render import check_file, gate_markdown
from workloads.catalog import UsageError

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable in which GitHub Actions names the file of a step's summary."""

_MARGIN = number("above 0% and below 100%", lambda value: 0 < value < 100, suffix="%")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """The margin of equivalence in percent, and what a gate writes."""

    margin: float | None = None
    fail_if_slower: float | None = None
    summary: Path | None = None

    @property
    def margin_pct(self) -> float | None:
        """Return the margin of the comparison: that of the gate, if there is one."""
        return self.fail_if_slower or self.margin

    def check(self) -> None:
        """Raise `UsageError` for wrong use."""
        if self.margin is not None and self.fail_if_slower is not None:
            raise UsageError("--fail-if-slower has a margin of its own: leave out --margin.")
        if self.summary is not None:
            if self.fail_if_slower is None:
                raise UsageError("--summary goes with --fail-if-slower.")
            check_file(self.summary, "--summary")


def gate_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options; the function gets them as `gate`, checked `GateOptions`."""

    @functools.wraps(function)
    def with_gate(
        *arguments: Any, margin: float | None, fail_if_slower: float | None, summary: Path | None, **others: Any
    ) -> int:
        gate = GateOptions(margin=margin, fail_if_slower=fail_if_slower, summary=summary)
        gate.check()
        return function(*arguments, gate=gate, **others)

    options = (
        click.option(
            "--margin", type=_MARGIN, metavar="SHARE", help="Say whether variants are equal within SHARE, such as 2%."
        ),
        click.option(
            "--fail-if-slower",
            type=_MARGIN,
            metavar="SHARE",
            help="Exit 3 where a variant is slower than the baseline by more than SHARE, 4 where that is undecided.",
        ),
        click.option(
            "--summary", type=FILE, metavar="FILE", help="With --fail-if-slower: write the outcome as Markdown."
        ),
    )
    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), with_gate)


def report_gate(gate: Gate, options: GateOptions) -> int:
    """Print the outcome, write the summaries, and return the exit status.

    Raises:
        UserError: A summary cannot be written.
    """
    say(gate.sentence)
    text = gate_markdown(gate)
    if options.summary is not None:
        _write(options.summary, text, "w")
    if step := os.environ.get(STEP_SUMMARY):
        _write(Path(step), text, "a")
    return gate.exit_status


def _write(path: Path, text: str, mode: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise write_error(path, error) from error
