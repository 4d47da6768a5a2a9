"""`hosts`: the machines that the user has named, and the detached runs there."""

import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from app.cli.options import Verb, command, complete_hosts
from app.cli.progress import ProgressSink
from app.cli.services import open_store, stop_on_interrupt
from app.cli.show import print_run
from app.cli.terminal import print_json, print_table, print_text, say
from app.errors import UserError
from app.grants import typed
from app.hosts.book import HostEntry, add_host, find_host, read_hosts, remove_hosts
from app.hosts.check import HostCheck, check_hosts, check_lines
from app.hosts.detached import DETACHED_DAYS
from app.hosts.fetch import fetch_run, list_detached, stop_detached
from app.hosts.messages import DetachedRun
from app.paths import PROGRAM
from app.report.documents import run_document
from app.values import units
from workloads.catalog import UsageError

_ACTIONS = ("list", "add", "check", "remove", "jobs", "fetch", "stop")
_SHOWN_DIGITS = 8


@command("hosts", "hosts add gpu1 ssh://me@gpu1", "hosts check", "hosts fetch gpu1")
@click.argument(
    "action",
    type=Verb(_ACTIONS),
    default="list",
    metavar="[ACTION]",
    help=f"{', '.join(_ACTIONS)} (default: list).",
)
@click.argument(
    "names",
    nargs=-1,
    metavar="[NAME]... [ADDRESS|RUN]",
    shell_complete=complete_hosts,
    help="Hosts; with add a name and an address, such as ssh://me@gpu1; with fetch and stop a host and a run of `hosts"
    " jobs`.",
)
@click.option("--keep", is_flag=True, help="With fetch: keep the run's data on the host.")
def hosts(database: Path | None, as_json: bool, action: str, names: Sequence[str], keep: bool) -> int:
    """Change the list, and print it; check hosts, or fetch their detached runs: the status is 0 if all is well."""
    match action:
        case "add":
            if len(names) != 2:
                raise UsageError("hosts add takes a name and an address: `hosts add gpu1 ssh://me@gpu1`.")
            add_host(HostEntry(name=names[0], address=names[1]))
        case "remove":
            if not names:
                raise UsageError("hosts remove needs the name of a host; `hosts list` shows them.")
            remove_hosts(names)
        case "check":
            return _check(names, as_json=as_json)
        case "jobs" | "fetch" | "stop":
            if not names or len(names) > (1 if action == "jobs" else 2):
                raise UsageError(f"hosts {action} takes a host, and a run's id from `hosts jobs`.")
            return _follow_detached(action, names[0], "".join(names[1:]), database, as_json=as_json, keep=keep)
        case "list" if names:
            raise UsageError("hosts list shows all hosts; names go with the other actions.")
    return _print_hosts(as_json=as_json)


def _print_hosts(*, as_json: bool) -> int:
    entries = read_hosts()
    if as_json:
        print_json({"hosts": [msgspec.structs.asdict(entry) for entry in entries]})
    elif entries:
        print_table(("name", "address"), [(entry.name, entry.address) for entry in entries])
    else:
        print(f"No hosts yet: `{PROGRAM} hosts add gpu1 ssh://me@gpu1` adds one.")
    return 0


def _check(names: Sequence[str], *, as_json: bool) -> int:
    """Check these hosts, or all; print each result when it is known."""
    entries = [find_host(name, typed) for name in names] or read_hosts()
    if not entries and not as_json:
        return _print_hosts(as_json=False)
    checks: list[HostCheck] = []
    for check in check_hosts(entries):
        checks.append(check)
        if not as_json:
            print("  ".join(dict.fromkeys((check.entry.name, check.entry.address))))
            if check.inventory is None:
                print_text(f"  {check.problem}")
            print_table(("", ""), [(f"  {label}", text) for label, text in check_lines(check)])
            sys.stdout.flush()
    if as_json:
        print_json({"hosts": [{"can_run": not check.problem, **msgspec.to_builtins(check)} for check in checks]})
    return int(any(check.problem for check in checks))


def _follow_detached(action: str, word: str, uid: str, database: Path | None, *, as_json: bool, keep: bool) -> int:
    """List, end or fetch the detached runs of a host whose ids begin with `uid`; they continue after Ctrl-C."""
    entry = find_host(word, typed)
    runs = [run for run in list_detached(entry, say) if run.uid.startswith(uid)]
    if uid and not runs:
        raise UserError(f"There is no run {uid} on {word}: `{PROGRAM} hosts jobs {word}` lists them.")
    if action == "jobs":
        _print_detached(runs, word, as_json=as_json)
        return 0
    if action == "stop":
        if len(runs) != 1:
            raise UsageError(f"hosts stop ends one run: `{PROGRAM} hosts jobs {word}` lists them.")
        if may_go_on := runs[0].goes_on or not runs[0].size_bytes:
            stop_detached(entry, runs[0].uid, say)
        state = "was asked to end" if may_go_on else "is over"
        print(f"The run {state}; `{PROGRAM} hosts fetch {word}` fetches its result.")
        return 0
    with open_store(database, may_be_new=True) as store:
        path = store.path
    fetched, has_failed = [], False
    for run in (run for run in runs if run.size_bytes or run.goes_on):
        left = threading.Event()
        try:
            with stop_on_interrupt(left.set):
                stored = fetch_run(entry, run.uid, path, [ProgressSink()], keep=keep, notify=say, is_left=left.is_set)
        except UserError as error:
            say(f"Run {run.uid[:_SHOWN_DIGITS]}: {error}")
            has_failed = True
            continue
        if stored is None:
            say(f"It continues on {word}; `{PROGRAM} hosts fetch {word}` follows it again.")
            return 1
        fetched.append(stored)
        if not as_json:
            print_run(stored)
    if as_json:
        print_json({"runs": [run_document(stored) for stored in fetched]})
    elif not fetched and not has_failed:
        none = f"There is no detached run on {word}: `{PROGRAM} run WORKLOAD --on {word} --detach` starts one."
        print(f"No detached run on {word} has begun: `{PROGRAM} hosts jobs {word}` shows them." if runs else none)
    return int(has_failed or not all(stored.row.completed for stored in fetched))


def _print_detached(runs: Sequence[DetachedRun], word: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"detached": [msgspec.structs.asdict(run) for run in runs]})
    elif not runs:
        print("No run is detached.")
    else:
        rows = [
            (
                run.uid[:_SHOWN_DIGITS],
                run.workload,
                run.variant,
                units.local_time(run.detached_utc_ns),
                "goes on" if run.goes_on else run.problem or "over",
                units.byte_size(run.size_bytes),
            )
            for run in runs
        ]
        print_table(("run", "workload", "variant", "detached", "state", "size"), rows, right=frozenset({5}))
        print(f"\nA finished run stays there for {DETACHED_DAYS} days; `{PROGRAM} hosts fetch {word}` fetches it.")
