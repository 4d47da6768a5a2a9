"""`attach`: fetch the runs that go on on hosts without the program, and follow those that are not over."""

import contextlib
from pathlib import Path
from typing import Any

import click

from app import units
from app.cli.candidates import complete_hosts
from app.cli.options import command
from app.cli.progress import ProgressSink
from app.cli.services import open_store, stop_on_interrupt
from app.cli.show import print_run
from app.cli.terminal import ask_consent, print_json, print_table, say
from app.errors import UserError
from app.grants import typed
from app.hosts.attach import Attachment, SpoolLink, detached_hosts
from app.hosts.book import find_host
from app.paths import PROGRAM
from app.records import StoredRun
from app.report.documents import run_document
from app.spool_protocol import SPOOL_DAYS, Spool
from app.viewmodels.format.naming import short_name
from workloads.catalog import UsageError, own_variant

_SHOWN_DIGITS = 8


@command("attach", "attach", "attach gpu1 --list", "attach gpu1 1b9d6bcd --stop")
@click.argument(
    "host",
    required=False,
    metavar="[HOST]",
    shell_complete=complete_hosts,
    help="A host of `hosts list`, or an address (default: those with runs that were detached from this database).",
)
@click.argument("run", required=False, metavar="[RUN]", help="The beginning of a run's id in --list (default: all).")
@click.option("--list", "list_only", is_flag=True, help="List the detached runs and fetch none.")
@click.option("--stop", is_flag=True, help="End the run there, and fetch what it did.")
@click.option("--keep", is_flag=True, help="Leave the lines of the run on the host.")
def attach(
    database: Path | None, as_json: bool, host: str | None, run: str | None, list_only: bool, stop: bool, keep: bool
) -> int:
    """Fetch, and follow to its end what goes on still; return 0 when every run completed. Ctrl-C leaves it going on."""
    with open_store(database, may_be_new=True) as store:
        path = store.path
    consent = typed if host else ask_consent
    words = [host] if host else sorted(set(detached_hosts(path).values()))
    if stop and not run:
        raise UsageError("--stop ends one run: `attach HOST --list` shows which there are.")
    if not words and not (list_only or as_json):
        print(f"No run was detached from {path}: `{PROGRAM} run WORKLOAD --on HOST --detach` detaches one.")
        return 0
    fetched: list[StoredRun] = []
    listed: list[tuple[str, Spool]] = []
    for word in words:
        with contextlib.closing(SpoolLink.open(find_host(word, consent), say)) as link:
            listing = link.listed()
            spools = [spool for spool in listing.spools if spool.run.uid.startswith(run or "")]
            if listing.unreadable:
                say(
                    f"{listing.unreadable} in the spool of {word} cannot be read: another version of the program "
                    "detached them, and fetches them."
                )
            if run and not spools:
                raise UserError(f"There is no run {run} in the spool of {word}: `{PROGRAM} attach {word} --list`.")
            listed += ((word, spool) for spool in spools)
            for spool in () if list_only else spools:
                stored = _fetch(Attachment(link, spool, path, say), stop=stop, keep=keep, as_json=as_json)
                if stored is None:
                    say(f"It goes on on {word}; `{PROGRAM} attach {word}` follows it again.")
                    return 1
                fetched.append(stored)
    if list_only:
        _print_list(listed, as_json=as_json)
        return 0
    if as_json:
        print_json({"runs": [run_document(stored) for stored in fetched]})
    elif not fetched:
        print(f"No run is in the spool of {', '.join(words)}.")
    return int(not all(stored.row.completed for stored in fetched))


def _fetch(attachment: Attachment, *, stop: bool, keep: bool, as_json: bool) -> StoredRun | None:
    """Fetch a run with its progress on stderr, and print it; return None where it was left."""
    if stop:
        attachment.stop()
    with stop_on_interrupt(attachment.leave):
        stored = attachment.fetch([ProgressSink()], keep=keep)
    if stored is not None and not as_json:
        print_run(stored)
    return stored


def _print_list(listed: list[tuple[str, Spool]], *, as_json: bool) -> None:
    if as_json:
        print_json({"detached": [_document(host, spool) for host, spool in listed]})
    elif not listed:
        print("No run is detached.")
    else:
        rows = [
            (
                spool.run.uid[:_SHOWN_DIGITS],
                host,
                short_name(spool.run.start.spec),
                units.local_time(spool.run.utc_ns),
                "goes on" if spool.goes_on else "over",
                units.byte_size(spool.size_bytes),
            )
            for host, spool in listed
        ]
        print_table(("run", "host", "variant", "detached", "state", "size"), rows, right=frozenset({5}))
        print(f"\nA run that is over stays there for {SPOOL_DAYS} days; `{PROGRAM} attach` fetches it.")


def _document(host: str, spool: Spool) -> dict[str, Any]:
    run = spool.run
    return {
        "uid": run.uid,
        "host": host,
        "workload": run.start.spec.workload,
        "variant": own_variant(run.start.spec),
        "detached_utc_ns": run.utc_ns,
        "goes_on": spool.goes_on,
        "size_bytes": spool.size_bytes,
        "changed_utc_ns": spool.changed_utc_ns,
    }
