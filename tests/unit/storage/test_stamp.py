"""Whether a database was written, told by its files."""

from pathlib import Path

from app.storage.stamp import stamp_of
from app.storage.store import Store


def test_writing_leaves_another_stamp_and_reading_the_same(database_path: Path) -> None:
    nothing = stamp_of(database_path)
    Store.open(database_path).close()
    made = stamp_of(database_path)
    assert made != nothing
    with Store.open(database_path) as reader:
        assert reader.queue.entries() == ()
        assert stamp_of(database_path) == made, "its empty log is no news"
        with Store.open(database_path) as writer:
            writer.queue.add(name="one", preset=None, plan='{"variants": []}')
            written = stamp_of(database_path)
            assert written != made, "while it is in the log alone"
    closed = stamp_of(database_path)
    with Store.open(database_path) as reader:
        reader.queue.entries()
    assert stamp_of(database_path) == closed != made
