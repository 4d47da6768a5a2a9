"""A user's command after `--`: the options that describe it and what varies, and its variants."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from app.cli.commands import COMMAND_ARGUMENTS, RareOption
from app.cli.options import FILE, option_group
from app.cli.terminal import print_json
from app.runs.script import Script, script_variants
from app.viewmodels.format.naming import value_text
from app.viewmodels.run.selection import parse_script_values, parse_settings
from workloads import catalog
from workloads.catalog import Machine, UsageError
from workloads.protocol import Command, RunSpec, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions:
    """The words after `--`, and the related options."""

    words: tuple[str, ...]
    folder: Path
    variables: tuple[str, ...]
    revisions: str
    links: tuple[str, ...]
    examples: str
    loop: str
    dry_run: bool

    def check(self, workload: str | None) -> None:
        """Raise `UsageError` if there is a command and a workload, or such options without a command."""
        if self.words and workload is not None:
            raise UsageError(f"{workload} before the -- is a workload, and what follows it is a command: give one.")
        typed = (self.variables, self.revisions, self.links, self.examples, self.loop, self.dry_run)
        if not self.words and (any(typed) or self.folder != Path()):
            options = "-C, -e, --rev, --link, --examples, --loop and --dry-run"
            raise UsageError(f"{options} go with your own command after --, such as -- python train.py.")

    def variants(self, settings: Sequence[str], machine: Machine, database: Path | None) -> list[RunSpec]:
        """Return the variants, with the folder frozen if there is a database."""
        links = {name: str(self.folder.absolute() / name) for name in self.links}
        script = Script(
            command=Command(words=self.words, loop=self.loop, examples=self.examples, links=links),
            folder=self.folder,
            revisions=tuple(filter(None, self.revisions.split(","))),
            variables={name: tuple(text.split(",")) for name, text in parse_settings(self.variables, "-e").items()},
        )
        return script_variants(script, parse_script_values(script.command, parse_settings(settings)), machine, database)

    def print_commands(self, variants: Sequence[RunSpec], *, as_json: bool) -> int:
        """Print what each variant would run, and start nothing."""
        lines = [
            f"{catalog.command_line(Command(words=self.words), spec.variant)}{f'    # {revision}' if revision else ''}"
            for spec in variants
            for revision in [spec.variant.get(catalog.REVISION, "")]
        ]
        if as_json:
            print_json({"commands": lines})
        else:
            print("\n".join((f"cd {shlex.quote(str(self.folder.absolute()))}", *lines)))
        return 0


def has_setting(variant: Variant, name: str, text: str) -> bool:
    """Return whether a command's variant has that value of a placeholder, parameter or variable, or of `rev`."""
    if name == "rev":
        return str(variant.get(catalog.REVISION, "")).rpartition("@")[0] == text
    keys = (catalog.placeholder_key(name), f"{catalog.VARIABLE}{name}")
    texts = {text, {"on": "true", "off": "false"}.get(text, text)}
    return any(texts & {str(variant[key]), value_text(variant[key])} for key in keys if key in variant)


def _words(context: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    if words:
        raise click.UsageError(f"Got unexpected extra argument ({' '.join(words)})", context)
    behind: tuple[str, ...] = context.meta.get(COMMAND_ARGUMENTS, ())
    return behind


script_options = option_group(
    "script",
    ScriptOptions,
    click.argument(
        COMMAND_ARGUMENTS,
        nargs=-1,
        metavar="[-- COMMAND...]",
        callback=_words,
        help="Your own training script: python train.py",
    ),
    click.option(
        "-C",
        "folder",
        type=FILE,
        default=Path(),
        metavar="FOLDER",
        help="The folder in which a command after -- runs.",
    ),
    click.option(
        "-e",
        "variables",
        multiple=True,
        metavar="NAME=A,B",
        help="An environment variable; an empty value unsets it.",
    ),
    click.option(
        "--rev", "revisions", default="", metavar="A,B", help="Commits of the command's folder; several vary."
    ),
    click.option(
        "--link",
        "links",
        cls=RareOption,
        multiple=True,
        metavar="PATH",
        help="A file or folder that git ignores and the command needs.",
    ),
    click.option("--examples", default="", metavar="N", help="Examples per step, as '{batch}*4'."),
    click.option(
        "--loop", cls=RareOption, default="", metavar="FILE:LINE", help="The loop whose iterations are steps."
    ),
    click.option("--dry-run", is_flag=True, help="Print the commands, and start nothing."),
)
