"""`env`: the environments that the program makes, each with a version of a framework, for runs that name them."""

import contextlib
import os
import select
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from app import units
from app.cli.candidates import complete_environments
from app.cli.options import OneOf, command, on_option
from app.cli.progress import StatusLines
from app.cli.services import stop_on_interrupt
from app.cli.terminal import print_json, print_table, say
from app.environments.known import KNOWN, command_to_add
from app.environments.managed import manage_environments
from app.environments.records import Environment, EnvironmentOffer, EnvironmentRequest, Environments, make
from app.errors import UserError
from app.grants import typed
from app.paths import PROGRAM
from workloads.catalog import FRAMEWORKS, UsageError

_ACTIONS = ("list", "add", "remove")
_LOOK_S = 0.2
_STATES = {
    "complete": "",
    "unfinished": "unfinished: `env add {name}` makes it anew",
    "broken": "its Python is gone: `env add {name}` makes it anew",
}


@command("env", "env", "env add tf219", "env add tf219 --on gpu1", uses_database=False)
@click.argument(
    "action", type=OneOf(_ACTIONS), default="list", metavar="[ACTION]", help=f"{', '.join(_ACTIONS)} (default: list)."
)
@click.argument(
    "name",
    required=False,
    metavar="[NAME]",
    shell_complete=complete_environments,
    help=f"Known are {', '.join(environment.name for environment in KNOWN)}.",
)
@click.option("--packages", multiple=True, metavar="WORDS", help="With add: what is in it, as pip takes it.")
@click.option("--cuda/--cpu", default=None, help="With add: with CUDA's libraries or not (default: by the driver).")
@on_option
@click.option("--yes", is_flag=True, help="With add: do not ask before the download.")
def env(
    as_json: bool, action: str, name: str | None, packages: Sequence[str], cuda: bool | None, yes: bool, on: str
) -> int:
    """Make or remove an environment, or list them."""
    if action != "add" and (packages or cuda is not None or yes):
        raise UsageError("--packages, --cuda, --cpu and --yes go with `env add`.")
    if (name is None) != (action == "list"):
        example = f"`{PROGRAM} env {action} {KNOWN[0].name}`"
        raise UsageError(f"env {action} needs a name: {example}." if name is None else "env list takes no name.")
    words = " ".join(packages).split()
    # uv runs in another folder.
    words = [str(Path(word).absolute()) if os.sep in word and Path(word).exists() else word for word in words]
    request = EnvironmentRequest(name=name or "", packages=tuple(words), cuda=cuda)
    with _environments_of(on) as environments, contextlib.closing(_Terminal(yes=yes)) as terminal:
        if action == "list":
            return _print_list(environments("list", request, terminal.report).environments, on, as_json=as_json)
        with stop_on_interrupt(terminal.stop):
            if action == "add":
                environment = make(environments, request, terminal.ask, terminal.report)
            else:
                environments("remove", request, terminal.report)
    if action == "remove":
        say(f"{name} was removed.")
    elif as_json:
        print_json({"environment": _document(environment)})
    else:
        where = f" --on {on}" if on else ""
        print(f"{name} is complete: {_contents(environment)}. Runs use it with -s interpreter={name}{where}.")
    return 0


@contextlib.contextmanager
def _environments_of(on: str) -> Iterator[Environments]:
    """Reach the environments of this machine, or of the host that a word of `--on` names."""
    if not on:
        yield manage_environments
        return
    from app.hosts.connection import Connection  # here, for most commands use no host
    from app.hosts.open import open_host
    from app.hosts.remote_jobs import RemoteEnvironments

    with contextlib.closing(open_host(on, consent=typed, notify=say)) as connection:
        if not isinstance(connection, Connection):
            raise UserError(f"Environments are made on one host: name a host of {on} by its ssh address.")
        yield RemoteEnvironments(connection.link)


class _Terminal:
    """Asks before the download, and shows how far it is, until Ctrl-C."""

    def __init__(self, *, yes: bool) -> None:
        self._yes = yes
        self._lines = StatusLines()
        self._stopped = False
        self._last = ""

    def stop(self) -> None:
        """End what goes on."""
        self._stopped = True

    def close(self) -> None:
        """Remove the line."""
        self._lines.clear(self)

    def ask(self, offer: EnvironmentOffer) -> bool:
        """Say how much is to be downloaded; ask where somebody can answer."""
        self.close()
        say(offer.sentence)
        if self._yes:
            return True
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UserError("Nobody can be asked here whether to download that: add --yes.")
        print("Download it? [Y/n] ", end="", file=sys.stderr, flush=True)
        while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
            if self._stopped:
                return False
        answer = sys.stdin.readline()
        return answer.endswith("\n") and answer.strip().lower() in ("", "y", "yes")

    def report(self, line: str) -> bool:
        """Show how far it is: one line on a terminal, elsewhere each line anew."""
        if line and line != self._last:
            self._last = line
            self._lines.paint(self, line)
            if not self._lines.live:
                say(line)
        return not self._stopped


def _print_list(environments: Sequence[Environment], on: str, *, as_json: bool) -> int:
    if as_json:
        print_json({"environments": [_document(environment) for environment in environments]})
    elif environments:
        rows = [
            (
                environment.name,
                *(environment.frameworks.get(key, units.ABSENT) for key in FRAMEWORKS),
                environment.python or units.ABSENT,
                units.byte_size(environment.size_bytes),
                _STATES[environment.state].format(name=environment.name) or environment.folder,
            )
            for environment in environments
        ]
        names = [framework.name for framework in FRAMEWORKS.values()]
        print_table(("name", *names, "Python", "size", "folder"), rows, right=frozenset({2 + len(names)}))
    else:
        ways = (f"{command_to_add(on, framework)} makes one with {framework.name}" for framework in FRAMEWORKS.values())
        print(f"No environment has been made yet: {', '.join(ways)}.")
    return 0


def _document(environment: Environment) -> dict[str, Any]:
    """Return an environment as JSON; `framework` is TensorFlow's version, as it was when there was no other."""
    return {**msgspec.structs.asdict(environment), "framework": environment.frameworks.get("tensorflow")}


def _contents(environment: Environment) -> str:
    versions = [f"{FRAMEWORKS[key].name} {version}" for key, version in environment.frameworks.items()]
    frameworks = " and ".join(versions) or "no framework"
    return f"{frameworks}, Python {environment.python}, {units.byte_size(environment.size_bytes)}"
