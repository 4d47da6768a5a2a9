"""A recording that is played again, in words, so that nobody takes it for what happens now."""

from datetime import UTC, datetime, tzinfo

from app.telemetry.recording import Recording
from app.viewmodels import units
from app.viewmodels.cards import counted_cards

SPEEDS = (1.0, 4.0, 16.0)
"""How many times as fast as it was a recording can be played in the window."""


def replay_words(recording: Recording, zone: tzinfo | None = None) -> str:
    """What is played: `Replay of run 14 · 2× H200 · 2026-11-20`; the day in `zone`, None is the system's."""
    day = datetime.fromtimestamp(recording.utc_ns / 1e9, UTC).astimezone(zone)
    return f"Replay of {recording.name} · {counted_cards(recording.gpu_names) or 'CPU'} · {day:%Y-%m-%d}"


def position_words(position_s: float, end_s: float) -> str:
    """How far it is: `0:12 of 2:10`."""
    return f"{units.duration(min(position_s, end_s))} of {units.duration(end_s)}"
