"""Room on the disk: enough, little, next to none, unknown."""

from pathlib import Path

import pytest

from app.storage.space import Room, room_for

PATH = Path("data/profiles.db")


@pytest.mark.parametrize(
    ("free_bytes", "warned", "refused"),
    [
        (10**12, False, False),
        (200_000_000, False, False),
        (199_999_999, True, False),
        (20_000_000, True, False),
        (19_999_999, True, True),
        (0, True, True),
        (None, False, False),
    ],
)
def test_little_room_is_a_warning_and_next_to_none_a_refusal(
    free_bytes: int | None, warned: bool, refused: bool
) -> None:
    room = Room(PATH, free_bytes)
    assert (bool(room.warning), bool(room.refusal)) == (warned, refused)


def test_the_sentences_name_the_room_the_file_and_what_to_do() -> None:
    assert Room(PATH, 150_000_000).warning == (
        "Only 150 MB is free on the disk that holds data/profiles.db; "
        "free some space, or delete old samples with `python -m app prune`."
    )
    assert Room(PATH, 5_400_000).refusal == (
        "The disk that holds data/profiles.db has only 5 MB free; free some space, then run again."
    )


def test_a_database_that_is_not_there_yet_has_the_room_of_its_folder(tmp_path: Path) -> None:
    assert (room_for(tmp_path / "new" / "folder" / "profiles.db").free_bytes or 0) > 0
