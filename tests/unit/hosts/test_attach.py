"""What a host says of a detached run is one run, under the id that was asked for, or one sentence."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from app.errors import UserError
from app.events import Outcome, RunEnded, RunEvent, RunStarted
from app.hosts.attach import Attachment, SpoolLink
from app.hosts.book import HostEntry
from app.recording import head_line
from app.spool_protocol import DetachRun, Spool, SpoolDrained
from app.storage.store import Store
from tests.fakes.runs import GPU, HOST_DEVICE, SPEC, UTC_NS
from workloads.protocol import PROTOCOL_VERSION, Start, encode

UID = "ab12cd34"
DRAINED = msgspec.json.encode(SpoolDrained("boot")) + b"\n"
STARTED = RunStarted(uid="00000000", spec=SPEC, t_ns=1, utc_ns=UTC_NS, devices=(GPU, HOST_DEVICE))
ENDED = RunEnded(t_ns=2, outcome=Outcome(name="completed"))


class LyingLink:
    """A link to a spool that says these lines of every run."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.entry = HostEntry(name="gpu1", address="sh:")
        self.removed: list[str] = []
        self._lines = lines

    def follow(self, uid: str) -> Iterator[bytes]:
        return iter(self._lines)

    def remove(self, uid: str) -> None:
        self.removed.append(uid)

    def leave(self) -> None: ...

    def why_ended(self) -> str:
        return "The link to gpu1 was closed."


def attachment(database: Path, link: LyingLink) -> Attachment:
    run = DetachRun(
        uid=UID,
        start=Start(protocol=PROTOCOL_VERSION, spec=SPEC),
        hz=10.0,
        environment={},
        utc_ns=UTC_NS,
        version="0.3.0",
        hello_s=1.0,
        message_gap_s=1.0,
    )
    spool = Spool(run=run, goes_on=False, boot_id="boot", size_bytes=1, changed_utc_ns=UTC_NS)
    return Attachment(cast(SpoolLink, link), spool, database, lambda _: None)


def test_a_run_that_begins_twice_under_another_id_is_one_of_the_id_that_was_asked_for(database_path: Path) -> None:
    events: list[RunEvent] = [STARTED, STARTED, ENDED, STARTED]
    link = LyingLink([head_line("0.3.0"), *map(encode, events), DRAINED])
    stored = attachment(database_path, link).fetch([])
    assert stored is not None
    assert (stored.row.uid, stored.row.completed, link.removed) == (UID, True, [UID])
    with Store.open(database_path) as store:
        assert len(store.list_runs()) == 1


@pytest.mark.parametrize("line", [b'{"type":"file_part"}\n', b'{"type":"spool_drained","boot_id":7}\n', b"[\n"])
def test_what_is_no_recording_is_one_sentence_and_leaves_nothing_here_or_lost_there(
    line: bytes, database_path: Path
) -> None:
    link = LyingLink([head_line("0.3.0"), encode(STARTED), line, DRAINED])
    with pytest.raises(UserError, match=r"^What gpu1 has of the run is not "):
        attachment(database_path, link).fetch([])
    assert link.removed == []
    with Store.open(database_path) as store:
        assert store.list_runs() == []
