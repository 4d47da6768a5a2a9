"""The page docs/cli.md, made from the table of commands: `python -m tests.cli_docs` writes it anew."""

from pathlib import Path

import click

from app.cli.commands import EVERYTHING, SECTIONS, ProgramCommand, UpperLayers
from app.cli.main import program
from app.paths import PROGRAM

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
_ALL_TAKE = {"--db", "--json", "--help", "--help-all"}

_HEAD = f"""# The command line

Look up every command with its options; `--help` after a command shows the same.

```
{PROGRAM} --help
```

`{PROGRAM} COMMAND …` runs in a checkout's environment, `python3 start.py COMMAND …` makes that environment first,
and an installed program is `variantscope COMMAND …`. Without a command the window opens; with a file of
runs, `{PROGRAM} FILE`, it asks whether to add them.

Every command takes `--db PATH` (the database) and `--json` (print one JSON document and nothing else).

| exit status | meaning |
| ---: | --- |
| 0 | completed |
| 1 | any other outcome |
| 2 | wrong use |
| 3, 4 | `--fail-if-slower` found a slower variant, or could not decide ([a CI job](comparing.md#fail-a-ci-job)) |
| 130 | Ctrl-C ended the command; where it stopped a run, 1 |

This page is generated from the commands.
"""


def page() -> str:
    """Return the text of the page."""
    top = click.Context(program, info_name=PROGRAM, obj=UpperLayers())
    parts = [_HEAD]
    for title, entries in SECTIONS.items():
        rows = [f"| [`{name}`](#{name}) | {_cell(text)} |" for name, (_, text) in entries.items()]
        parts.append("\n".join([f"## {title} commands", "", "| command | |", "| --- | --- |", *rows, ""]))
        parts += [_describe(top, name, text) for name, (_, text) in entries.items()]
    return "\n".join([*parts, "## Options before the command\n", _table("option", top)])


def _describe(top: click.Context, name: str, text: str) -> str:
    """Return what a command does, how it is written, examples, and what it takes."""
    context = _context(top, name)
    command = context.command
    lines = [_usage(context)]
    if isinstance(command, click.Group):
        lines = [_usage(_context(context, action)) for action, one in command.commands.items() if not one.hidden]
    examples = command.examples if isinstance(command, ProgramCommand) else ()
    code = "\n".join([*lines, *([""] if examples else []), *(f"{PROGRAM} {example}" for example in examples)])
    table = _table("argument or option", context)
    return f"### {name}\n\n{text}\n\n```\n{code}\n```\n" + (f"\n{table}" if table else "")


def _context(parent: click.Context, name: str) -> click.Context:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None
    context = click.Context(command, parent=parent, info_name=name)
    context.meta[EVERYTHING] = True
    return context


def _usage(context: click.Context) -> str:
    return " ".join([context.command_path, *context.command.collect_usage_pieces(context)])


def _table(title: str, context: click.Context) -> str:
    """Return what a command takes besides what all take; "" where that is nothing."""
    params = [param for param in context.command.get_params(context) if not set(param.opts) & _ALL_TAKE]
    records = [record for param in params if (record := param.get_help_record(context))]
    rows = [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in records]
    return "\n".join([f"| {title} | |", "| --- | --- |", *rows, ""]) if rows else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    _main()
