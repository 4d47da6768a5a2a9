"""A store with one run in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.storage.store import Store


@pytest.fixture
def store(database_path: Path) -> Iterator[Store]:
    with Store.open(database_path) as store:
        yield store
