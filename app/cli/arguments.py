"""The words of the command line: what each command takes, with its help."""

import argparse
import functools
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from app.cli.arguments_transfer import NOTIFY_HELP, add_queue, add_transfers
from app.plan import MAX_THROTTLED_PCT, REPEATS_LIMIT
from app.queries import RunOrder
from app.runs.environment import program_version
from app.runs.experiment.stopping import parse_precision_pct
from workloads import catalog

SAMPLE_MS = 50.0
"""Milliseconds between two telemetry readings of a run unless told otherwise."""

Benchmark = Literal["start", "worker", "sampler", "frame", "compare", "database", "resume", "quick"]

_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0}
_TIME = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
_BELOW_0 = re.compile(r"(?!-\d*\.?\d+$)-\.?\d.*")
"""What begins like a number below 0 and is none that argparse knows, as -1%."""
_NUMBER = "its number in `list`"
_SETTINGS = "a parameter of the workload, as name=value; may be repeated"


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What the words say; where they are wrong, says so and ends the program with status 2."""
    return parser().parse_args(_join_negative_values(words))


def _join_negative_values(words: Sequence[str]) -> list[str]:
    """The words with `--until -1%` as one: argparse would take its value for another option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1].startswith("--") and "=" not in joined[-1] and _BELOW_0.fullmatch(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def parser() -> argparse.ArgumentParser:
    """The parser of every command; `command` names the one chosen."""
    top = argparse.ArgumentParser(
        prog="python -m app",
        description="Which training variant is faster on this machine, by how much, at what energy? "
        "Without a command the window opens.",
    )
    top.add_argument("--version", action="version", version=f"VariantScope {program_version()}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _run(commands)
    _experiment(commands)
    _stored(commands)
    _library(commands)
    _weights(commands)
    add_transfers(functools.partial(_new, commands))
    add_queue(functools.partial(_new, commands), _sampled)
    _machine(commands)
    _bench(commands)
    return top


def _new(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, help: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=help, description=help)
    command.add_argument("--db", type=Path, metavar="PATH", help="the database (default: profiles.db of this checkout)")
    command.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return command


def _workload_help() -> str:
    names = (workload.name for workload in catalog.WORKLOADS if not workload.hidden)
    return ", ".join([*names, "or path/to/file.py:name for one of your own"])


def _run(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _new(commands, "run", "run one variant once and store it")
    command.add_argument("workload", nargs="?", metavar="WORKLOAD", help=_workload_help())
    command.add_argument("-s", dest="settings", action="append", default=[], metavar="NAME=VALUE", help=_SETTINGS)
    command.add_argument("--parameters", action="store_true", help="list the workload's parameters and end")
    command.add_argument(
        "--largest-batch",
        action="store_true",
        help="find the largest batch that fits, in short runs from the batch given",
    )
    command.add_argument(
        "--batch-limit", type=_positive, metavar="N", help="go no further than this batch (needed on the CPU)"
    )
    command.add_argument(
        "--batch-step", type=_positive, metavar="N", help="tell batches apart by N (default: an eighth of the first)"
    )
    _sampled(command)


def _experiment(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _new(commands, "experiment", "run several variants in turn, repeated, and say which is faster")
    command.add_argument("workload", nargs="?", metavar="WORKLOAD", help=_workload_help())
    command.add_argument(
        "-s", dest="settings", action="append", default=[], metavar="NAME=A,B", help=_SETTINGS + "; several values vary"
    )
    command.add_argument(
        "--repeats",
        type=_repeats,
        default=None,
        metavar="N",
        help="runs of each variant (default 3; with --until at most so many, default 20)",
    )
    command.add_argument(
        "--until",
        type=_until_pct,
        metavar="WIDTH",
        help="end early, once every speed-up is known to ± 0.5%% or whatever is given",
    )
    command.add_argument(
        "--baseline", metavar="NAME=VALUE", help="the variant others are compared with (default: the first)"
    )
    command.add_argument(
        "--preset", metavar="NAME", help="a prepared experiment of --presets, or the path of a file like theirs"
    )
    command.add_argument(
        "--presets", action="store_true", help="list the prepared experiments: what they ask, and how long they take"
    )
    command.add_argument(
        "--budget",
        type=budget_s,
        metavar="TIME",
        help="start no run that would not end within 8m, 90s or 1h30m; the same command later goes on",
    )
    command.add_argument("--again", action="store_true", help="make every run anew, whatever is stored")
    command.add_argument(
        "--queue", action="store_true", help="only add it to the queue; `queue go-on` makes it, or the window"
    )
    command.add_argument("--notify", action="store_true", help=NOTIFY_HELP)
    command.add_argument("--no-standby", action="store_true", help="never import TensorFlow ahead for the next run")
    _gated(command)
    command.add_argument("--show", action="store_true", help="with --preset: show what is stored of it and run nothing")
    command.add_argument(
        "--report",
        type=Path,
        metavar="FILE",
        help="write a report with pictures too, .html or .md; of an article's preset with its tables",
    )
    _sampled(command)


def _gated(command: argparse.ArgumentParser) -> None:
    """What a machine is to be like for a run, what may go on beside it, and what becomes of one that it held back."""
    command.add_argument(
        "--parallel",
        type=_positive,
        nargs="?",
        const=0,
        default=None,
        metavar="N",
        help="up to N runs at once, each on GPUs of its own (without N as many as there are GPUs)",
    )
    command.add_argument(
        "--no-gate",
        dest="gate_limit",
        action="store_const",
        const=0.0,
        help="never wait for cool GPUs that nobody uses, or a quiet host",
    )
    command.add_argument(
        "--gate-limit", type=budget_s, metavar="TIME", help="wait so long for them before a run at most (default: 60s)"
    )
    command.add_argument(
        "--max-throttled",
        type=_share_pct,
        default=MAX_THROTTLED_PCT,
        metavar="SHARE",
        help="make a run once more that was throttled for more than 5%% of its measured part, or whatever is given",
    )


def _stored(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    show = _new(commands, "show", "show one stored run")
    show.add_argument("run", type=int, metavar="RUN", help=_NUMBER)
    show.add_argument("--log", action="store_true", help="print its log too")
    show.add_argument("--source", action="store_true", help="print the file that a workload of your own was in")
    compare = _new(commands, "compare", "compare stored runs, given by number or found as `list` finds them")
    compare.add_argument("runs", type=int, nargs="*", metavar="RUN", help="their numbers in `list`")
    _filters(compare)
    compare.set_defaults(deleted=False, sort="run", reverse=True)
    compare.add_argument(
        "--baseline",
        type=int,
        metavar="RUN",
        help="the run others are compared with (default: the first that measured)",
    )
    compare.add_argument("--report", type=Path, metavar="FILE", help="write a report with pictures too: .html or .md")
    scaling = _new(commands, "scaling", "say how well runs scale to more GPUs, and why not better")
    scaling.add_argument("runs", type=int, nargs="+", metavar="RUN", help="their numbers in `list`")
    scaling.add_argument("--report", type=Path, metavar="FILE", help="write a page with pictures too: .html or .md")
    replay = _new(commands, "replay", "play a stored run or a trace again, in the window or as lines")
    replay.add_argument(
        "recording",
        type=_recording,
        metavar="RUN|FILE",
        help="a run's number in `list`, or a file that `watch --json` wrote",
    )
    replay.add_argument(
        "--speed", type=_speed, default=1.0, metavar="X", help="how many times as fast as it was (default 1)"
    )
    prune = _new(commands, "prune", "delete samples and log lines of old runs; their figures, phases and blocks stay")
    prune.add_argument(
        "--older-than", type=_days, required=True, metavar="AGE", help="of runs that ended longer ago, such as 30d"
    )
    prune.add_argument("--dry-run", action="store_true", help="say what would be deleted and delete nothing")


def _filters(command: argparse.ArgumentParser) -> None:
    """Which of the stored runs a command is about."""
    command.add_argument(
        "--search", default="", metavar="TEXT", help="words in notes, tags, parameters, outcome or GPUs"
    )
    command.add_argument("--workload", default="", metavar="NAME", help="only this workload")
    command.add_argument("--outcome", default="", metavar="NAME", help="only this outcome, or running")
    command.add_argument("--tag", default="", metavar="TAG", help="only runs with this tag")
    command.add_argument("--experiment", metavar="N|NAME", help="only runs of this experiment")


def _library(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    listed = _new(commands, "list", "list the stored runs, newest first")
    _filters(listed)
    listed.add_argument("--deleted", action="store_true", help="the runs in the trash instead of all others")
    listed.add_argument(
        "--sort", choices=get_args(RunOrder), default="started", metavar="COLUMN", help=", ".join(get_args(RunOrder))
    )
    listed.add_argument("--reverse", action="store_true", help="the other way round")
    listed.add_argument("--limit", type=_positive, metavar="N", help="no more than N runs")
    listed.add_argument("--experiments", action="store_true", help="list the experiments instead of runs")
    note = _new(commands, "note", "keep a note on a run, or show it")
    note.add_argument("run", type=int, metavar="RUN", help=_NUMBER)
    note.add_argument("text", nargs="?", metavar="TEXT", help='the note; "" removes it; without it, it is shown')
    tag = _new(commands, "tag", "give runs tags, or take them off")
    tag.add_argument("--add", action="append", default=[], metavar="TAG", help="may be repeated")
    tag.add_argument("--remove", action="append", default=[], metavar="TAG", help="may be repeated")
    delete = _new(commands, "delete", "put runs into the trash, from where `restore` brings them back")
    delete.add_argument("--for-good", action="store_true", help="delete runs that are in the trash, with their samples")
    restore = _new(commands, "restore", "take runs out of the trash, as they were")
    for command in (tag, delete, restore):
        command.add_argument("runs", type=int, nargs="+", metavar="RUN", help=f"{_NUMBER}; several after each other")


def _weights(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    portability = _new(
        commands, "portability", "try a run's saved weights in other implementations, on the CPU or a GPU"
    )
    portability.add_argument(
        "--into", default="", metavar="A,B", help="the implementations (default: all that can run there)"
    )
    portability.add_argument(
        "--gpus", type=int, choices=(0, 1), help="on the CPU (0) or a GPU (1); default: not where the run trained"
    )
    portability.add_argument("run", type=int, metavar="RUN", help=_NUMBER)
    portability.add_argument("--weights", type=Path, metavar="PATH", help="its weights file, where it was moved")
    calibrate = _new(commands, "calibrate", "measure anew how fast the GPUs, or the CPU, multiply matrices")
    calibrate.add_argument(
        "--precision", action="append", default=[], metavar="NAME", help="may be repeated (default: all there are)"
    )


def _machine(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    _new(commands, "gpus", "show the GPUs and what they can tell")
    watch = _new(commands, "watch", "print live telemetry without a run")
    watch.add_argument("--seconds", type=_duration, metavar="N", help="end after N seconds (default: at Ctrl-C)")
    watch.add_argument(
        "--every", type=_seconds, default=1.0, metavar="S", help="seconds between two readings (default 1)"
    )
    watch.add_argument("--csv", action="store_true", help="print a log with a header, one row a device and reading")


def _bench(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _new(commands, "bench", "measure the program's own cost")
    names = get_args(Benchmark)
    command.add_argument(
        "name", nargs="?", choices=names, metavar="NAME", help=f"one of {', '.join(names)} (default: all)"
    )
    command.add_argument(
        "--kills", type=_positive, metavar="N", help="with resume: kill the program so often (default 50)"
    )
    command.add_argument("--times", type=_positive, metavar="N", help="with quick: make it so often (default 10)")


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a number, not {word!r}") from None


def _positive(word: str) -> int:
    try:
        value = int(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a whole number, not {word!r}") from None
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _repeats(word: str) -> int:
    value = _positive(word)
    if value > REPEATS_LIMIT:
        raise argparse.ArgumentTypeError(f"must be at most {REPEATS_LIMIT}")
    return value


def _until_pct(word: str) -> float:
    """Percent of a speed-up."""
    try:
        return parse_precision_pct(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _share_pct(word: str) -> float:
    """Percent of a whole."""
    value = _number(word.removesuffix("%"))
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError("must be from 0% to 100%")
    return value


def _seconds(word: str) -> float:
    value = _number(word)
    if not 0.01 <= value <= 3600:
        raise argparse.ArgumentTypeError("must be from 0.01 to 3600 seconds")
    return value


def _sampled(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--sample-ms",
        type=sample_ms,
        default=SAMPLE_MS,
        metavar="N",
        help=f"milliseconds between two telemetry readings, 10 to 1000 (default {SAMPLE_MS:g})",
    )


def sample_ms(word: str) -> float:
    """Milliseconds between two telemetry readings."""
    value = _number(word)
    if not 10 <= value <= 1000:
        raise argparse.ArgumentTypeError("must be from 10 to 1000 milliseconds")
    return value


def _recording(word: str) -> int | Path:
    return int(word) if word.isdecimal() else Path(word)


def _speed(word: str) -> float:
    value = _number(word)
    if not 0.01 <= value <= 10_000:
        raise argparse.ArgumentTypeError("must be from 0.01 to 10000")
    return value


def _days(word: str) -> float:
    """Days from `30d`, `12h`, `2w` or a bare number of days."""
    number, unit = (word[:-1], word[-1]) if word[-1:] in _DAYS else (word, "d")
    value = _number(number) * _DAYS[unit]
    if not 0 <= value <= 36_500:
        raise argparse.ArgumentTypeError("must be from 0 to 36500 days, such as 30d")
    return value


def budget_s(word: str) -> float:
    """Seconds from `8m`, `90s`, `1h30m` or a bare number of seconds."""
    found = _TIME.fullmatch(word)
    if found is None or not word:
        raise argparse.ArgumentTypeError("must be a time such as 8m, 90s or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def _duration(word: str) -> float:
    value = _number(word)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("must be a number of seconds above 0")
    return value
