"""Free disk space, and the fingerprint that changes when a database is written."""

from pathlib import Path

import pytest

from app.storage.files import DiskSpace, disk_space, file_fingerprint
from app.storage.store import Store

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
    room = DiskSpace(PATH, free_bytes)
    assert (bool(room.warning), bool(room.refusal)) == (warned, refused)


def test_the_sentences_name_the_room_the_file_and_what_to_do() -> None:
    assert DiskSpace(PATH, 150_000_000).warning == (
        "Only 143\xa0MiB is free on the disk that holds data/profiles.db; "
        "free some space, or delete old samples with `python -m app delete --samples-older-than`."
    )
    assert DiskSpace(PATH, 5_400_000).refusal == (
        "The disk that holds data/profiles.db has only 5.1\xa0MiB free; free some space, then run again."
    )


def test_a_database_that_is_not_there_yet_has_the_room_of_its_folder(tmp_path: Path) -> None:
    assert (disk_space(tmp_path / "new" / "folder" / "profiles.db").free_bytes or 0) > 0


def test_writing_leaves_another_stamp_and_reading_the_same(database_path: Path) -> None:
    nothing = file_fingerprint(database_path)
    Store.open(database_path).close()
    made = file_fingerprint(database_path)
    assert made != nothing
    with Store.open(database_path) as reader:
        assert reader.queue.entries() == ()
        assert file_fingerprint(database_path) == made, "its empty log is no news"
        with Store.open(database_path) as writer:
            writer.queue.add(name="one", preset=None, plan='{"variants": []}')
            written = file_fingerprint(database_path)
            assert written != made, "while it is in the log alone"
    closed = file_fingerprint(database_path)
    with Store.open(database_path) as reader:
        reader.queue.entries()
    assert file_fingerprint(database_path) == closed != made
