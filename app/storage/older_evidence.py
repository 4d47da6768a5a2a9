"""Derive what evidence verified from what was stored before it said so.

Until then an implementation that leaves the same graph as another counted as seen, with no more than a note; so did the
type that most products had, whatever their size; and where Keras was left to choose, anything but cuDNN was a mismatch.
An LSTM in whose program XLA had left no loop was one too, with nothing as what it had.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from sqlite_utils import Database

_DOUBTFUL_NOTES = (
    (
        "implementation",
        re.compile("The executed graph looks the same for |XLA compiled the loop over time as it saw fit"),
    ),
    ("precision", re.compile(r"\d+ of \d+ products are in ")),
)
"""By aspect, the notes of older evidence which say that it was not really seen."""
_UNKNOWN_REASON = "It could not be seen."
_BLANK = re.compile(r"What ran is not \w+: it has \.( |$)")
_BLANK_REASON = "XLA compiled the steps without a loop, so its program does not tell implementations apart."


class _OlderEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The stored evidence of a run; `match` is 1 if all ran as requested, 0 if not, None if that is not known."""

    asked: dict[str, str]
    ran: dict[str, str]
    match: int | None
    reason: str | None
    notes: list[str]


def derive_evidence_states(db: Database) -> None:
    """Set `state` and `unverified` of all evidence, and what follows from them.

    The migration of a file that is imported calls this before its values are checked: what this program never wrote is
    left as it is, and refused then.
    """
    stored = db.execute("SELECT run, asked, ran, match, reason, notes FROM evidence").fetchall()
    for run, asked, ran, match, reason, notes in stored:
        try:
            older = _OlderEvidence(
                asked=msgspec.json.decode(asked, type=dict[str, str]),
                ran=msgspec.json.decode(ran, type=dict[str, str]),
                match=match,
                reason=reason,
                notes=msgspec.json.decode(notes, type=list[str]),
            )
        except msgspec.DecodeError:
            continue
        values = _evidence_columns(_with_choice(_without_blank(older)))
        assignments = ", ".join(f"{name} = :{name}" for name in values)
        db.execute(f"UPDATE evidence SET {assignments} WHERE run = :run", {**values, "run": run})


def _without_blank(older: _OlderEvidence) -> _OlderEvidence:
    """Return the evidence of a run whose implementation was stored as nothing without it: it had not been seen."""
    if older.ran.get("implementation") != "":
        return older
    ran = {aspect: value for aspect, value in older.ran.items() if aspect != "implementation"}
    if any(older.asked.get(aspect) != value for aspect, value in ran.items()):
        return msgspec.structs.replace(older, ran=ran, reason=_BLANK.sub("", older.reason or "") or None)
    return msgspec.structs.replace(older, ran=ran, match=None, reason=_BLANK_REASON)


def _with_choice(older: _OlderEvidence) -> _OlderEvidence:
    """Return the evidence of a run that left its implementation to Keras with what Keras chose as requested."""
    if older.asked.get("implementation") != "auto" or "implementation" not in older.ran:
        return older
    asked = {**older.asked, "implementation": older.ran["implementation"]}
    notes = [note for note in older.notes if not _DOUBTFUL_NOTES[0][1].match(note)]
    if older.match != 0 or any(asked.get(aspect) != value for aspect, value in older.ran.items()):
        return msgspec.structs.replace(older, notes=notes)
    return msgspec.structs.replace(older, match=1, notes=notes)


def _evidence_columns(older: _OlderEvidence) -> dict[str, Any]:
    absent = _UNKNOWN_REASON if older.match == 0 else older.reason or _UNKNOWN_REASON
    unverified = {**{aspect: absent for aspect in older.asked if aspect not in older.ran}, **dict(_doubtful(older))}
    seen = {aspect: value for aspect, value in older.ran.items() if aspect not in unverified}
    match = None if unverified and older.match else older.match
    in_part = "verified in part" if seen else "not verifiable"
    return {
        "ran": json.dumps(seen),
        "unverified": json.dumps(unverified),
        "match": match,
        "reason": " ".join(dict.fromkeys(unverified.values())) if match is None else older.reason,
        "notes": json.dumps([note for note in older.notes if note not in unverified.values()]),
        "state": in_part if match is None else ("mismatch", "verified")[match],
    }


def _doubtful(older: _OlderEvidence) -> Iterator[tuple[str, str]]:
    """Yield the aspects that counted as seen as requested and were not, each with the note that says so."""
    for aspect, pattern in _DOUBTFUL_NOTES:
        note = next(filter(pattern.match, older.notes), None)
        if note is not None and aspect in older.ran and older.ran[aspect] == older.asked.get(aspect):
            yield aspect, note
