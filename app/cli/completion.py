"""`completion`: the script that lets a shell complete commands, and the command that the script asks."""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import click
from click.shell_completion import ShellComplete, split_arg_string

from app.cli.commands import HELP
from app.cli.options import OneOf
from app.errors import write_error
from app.paths import PROGRAM, ROOT
from app.plain import one_line

_BASH = r"""# VariantScope: completion of `variantscope`, `python -m app` and `python3 start.py`.
_variantscope() {
    local IFS=$'\n' line=${COMP_LINE:0:COMP_POINT} value
    COMPREPLY=()
    [[ $line == variantscope\ * || $line == *start.py\ * || $line == *" -m app "* ]] || return
    for value in $(PYTHON -P -m app completion candidates bash "$line" 2>/dev/null); do
        COMPREPLY+=("$value")
        [[ $value == *= ]] && compopt -o nospace
    done
}
complete -o bashdefault -o default -F _variantscope variantscope python python3
"""

_ZSH = r"""# VariantScope: completion of `variantscope`, `python -m app` and `python3 start.py`.
_variantscope() {
    local line="${(j: :)words[1,CURRENT]}" value text
    local -a values shown open
    if [[ $line != variantscope\ * && $line != *start.py\ * && $line != *" -m app "* ]]; then
        (( $+functions[_python] )) && _python "$@" || _files
        return
    fi
    while IFS=$'\t' read -r value text; do
        if [[ $value == *= ]]; then
            open+=("$value")
        else
            values+=("$value")
            shown+=("$value${text:+  -- $text}")
        fi
    done < <(PYTHON -P -m app completion candidates zsh "$line" 2>/dev/null)
    (( $#values + $#open )) || { _files; return }
    compadd -S '' -a open
    compadd -l -d shown -a values
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _variantscope variantscope python python3
"""

_FISH = r"""# VariantScope: completion of `variantscope`, `python -m app` and `python3 start.py`.
function __variantscope_candidates
    set -l found (PYTHON -P -m app completion candidates fish (commandline -cp) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
function __variantscope_is_called
    string match -qr -- 'start\.py | -m app ' (commandline -cp)
end
complete -c variantscope -f -a '(__variantscope_candidates)'
for name in python python3
    complete -c $name -n __variantscope_is_called -f -a '(__variantscope_candidates)'
end
"""

_SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_shell_argument = click.argument(
    "shell",
    type=OneOf(tuple(_SCRIPTS)),
    default=lambda: Path(os.environ.get("SHELL", "bash")).name,
    metavar="[bash|zsh|fish]",
    help="The shell (default: yours).",
)


@click.group(help=HELP["completion"])
def completion() -> None:
    """Hold the commands below."""


@completion.command(help="Write the script of a shell where that reads it when it starts.")
@_shell_argument
def install(shell: str) -> int:
    """Write the script, and for bash and zsh the line in the user's start file that reads it."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    if shell == "fish":
        _write(config / "fish" / "conf.d" / "variantscope.fish", _script(shell))
        print("Written. New shells complete the commands.")
        return 0
    script = config / "variantscope" / f"completion.{shell}"
    _write(script, _script(shell))
    home = Path(os.environ.get("ZDOTDIR") or Path.home()) if shell == "zsh" else Path.home()
    start, line = home / f".{shell}rc", f". {shlex.quote(str(script))}"
    text = start.read_text(encoding="utf-8") if start.exists() else ""
    if line not in text.splitlines():
        _write(start, f"{text.rstrip()}\n\n# VariantScope: completion of commands\n{line}\n".lstrip())
    print(f"Written to {script}, which {start} reads: new shells complete the commands, this one after `{line}`.")
    return 0


@completion.command(help="Print the script of a shell.")
@_shell_argument
def show(shell: str) -> int:
    """Print the script."""
    print(_script(shell), end="")
    return 0


@completion.command(hidden=True)
@click.argument("shell")
@click.argument("line")
@click.pass_context
def candidates(context: click.Context, /, shell: str, line: str) -> int:
    """Print what could stand at the end of a line, one candidate per line with its help behind a tab."""
    words = _program_arguments(line)
    if words is None:
        return 0
    top = context.find_root()
    *arguments, word = words
    completions = ShellComplete(top.command, {"obj": top.obj}, PROGRAM, "").get_completions(arguments, word)
    option = f"{word.partition('=')[0]}=" if word.startswith("-") and "=" in word else ""
    # bash takes what is before = and : for words of their own.
    cut = max(word.rfind("="), word.rfind(":")) + 1 if shell == "bash" else 0
    for item in completions:
        # A candidate is a line, and somebody else's run may say what is in it.
        if item.type == "plain" and one_line(item.value, len(item.value)) == item.value:
            value = f"{option}{item.value}"[cut:]
            print(value if shell == "bash" or not item.help else f"{value}\t{one_line(item.help)}")
    return 0


def _program_arguments(line: str) -> list[str] | None:
    """Return the words behind the program, the last one empty behind a space; None where it is another program."""
    words = split_arg_string(line)
    if line.endswith(" "):
        words.append("")
    match [Path(words[0]).name, *words[1:]]:
        case ["variantscope", *rest] if rest:
            return rest
        case [_, "-m", "app", *rest] if rest and (not Path("app").exists() or Path("app").resolve() == ROOT / "app"):
            return rest
        case [_, file, *rest] if rest and _is_start(file):
            return rest
    return None


def _is_start(file: str) -> bool:
    try:
        return Path(file).expanduser().resolve() == ROOT / "start.py"
    except RuntimeError:  # nobody's home; before Python 3.13 also a loop of links
        return False


def _script(shell: str) -> str:
    return _SCRIPTS[shell].replace("PYTHON", shlex.quote(sys.executable))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise write_error(path, error) from None
