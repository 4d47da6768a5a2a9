"""CIFAR-10 from a local copy: both forms of it are read, whatever else is refused in one sentence, nothing is run."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.fakes import cifar10 as fakes
from tests.present import present
from workloads import cifar10
from workloads.catalog import Machine, complete
from workloads.cifar10 import (
    PUBLISHED,
    TEST_FILE,
    Checksums,
    ImageData,
    load,
    stand_in_images,
    stored_data,
    training_images,
)
from workloads.cifar10_copy import ARCHIVE, FOLDER, data_folder
from workloads.errors import RefusedError
from workloads.machine import cache_folder
from workloads.protocol import Value, Variant

Write = Callable[[Path, dict[str, bytes]], None]
DATA = ImageData(fakes.split(50, seed=1), fakes.split(20, seed=2))
CONTENT = fakes.files(DATA)


def refusal(folder: Path, checksums: Checksums) -> str:
    with pytest.raises(RefusedError) as caught:
        load(folder, checksums)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("write", [fakes.write_archive, fakes.write_folder])
def test_archive_and_folder_give_the_same_images(tmp_path: Path, write: Write) -> None:
    write(tmp_path, CONTENT)
    found = load(tmp_path, fakes.checksums(tmp_path, CONTENT))
    for mine, theirs in ((found.train, DATA.train), (found.test, DATA.test)):
        np.testing.assert_array_equal(mine.images, theirs.images)
        np.testing.assert_array_equal(mine.classes, theirs.classes)
        assert [mine.images.dtype.name, mine.classes.dtype.name] == ["uint8", "int64"]


def test_the_folder_itself_can_be_named(tmp_path: Path) -> None:
    fakes.write_folder(tmp_path, CONTENT)
    assert len(load(tmp_path / FOLDER, fakes.checksums(tmp_path, CONTENT)).train.classes) == 50


def test_without_a_copy_it_says_what_to_get_from_where_and_where_to_put_it(tmp_path: Path) -> None:
    said = refusal(tmp_path, PUBLISHED)
    for words in (ARCHIVE, FOLDER, str(tmp_path), "https://www.cs.toronto.edu/~kriz/", "VARIANTSCOPE_DATA"):
        assert words in said


@pytest.mark.parametrize("write", [fakes.write_archive, fakes.write_folder])
def test_what_was_not_published_is_refused(tmp_path: Path, write: Write) -> None:
    write(tmp_path, CONTENT)
    assert "MD5" in refusal(tmp_path, PUBLISHED)


def test_a_folder_with_a_file_missing_names_it(tmp_path: Path) -> None:
    fakes.write_folder(tmp_path, CONTENT)
    (tmp_path / FOLDER / TEST_FILE).unlink()
    assert f"has no {TEST_FILE}" in refusal(tmp_path, fakes.checksums(tmp_path, CONTENT))


def test_the_place_is_the_one_named_or_the_variable_s_or_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARIANTSCOPE_DATA", "/somewhere")
    assert data_folder(" /named ") == Path("/named")
    assert data_folder("") == Path("/somewhere")
    monkeypatch.delenv("VARIANTSCOPE_DATA")
    assert data_folder("") == cache_folder()
    assert data_folder("~/mine") == Path.home() / "mine"


def variant(**given: Value) -> Variant:
    return complete("cnn10", {"gpus": 0, **given}, Machine()).variant


def test_the_stand_in_is_as_large_and_the_same_every_time_and_its_first_images_are_those_of_few() -> None:
    data = present(stored_data(variant(data="stand_in", images=1_500)))
    assert (data.train.images.shape, data.test.images.shape) == ((1_500, 3, 32, 32), (300, 3, 32, 32))
    fewer = present(stored_data(variant(data="stand_in", images=40, seed=2)))
    np.testing.assert_array_equal(fewer.train.images, data.train.images[:40])
    assert data.train.images.dtype == np.dtype(np.uint8)
    assert data.train.classes.dtype == np.dtype(np.int64)
    assert np.bincount(data.train.classes, minlength=10).min() > 100
    assert not {image.tobytes() for image in data.test.images} & {image.tobytes() for image in data.train.images}
    assert training_images(variant(data="stand_in")) == 50_000
    train, test = ((split.images.reshape(-1, 3072) / 255, split.classes) for split in (data.train, data.test))
    means = np.stack([train[0][train[1] == each].mean(axis=0) for each in range(10)])
    nearest = np.square(test[0][:, None] - means).sum(axis=2).argmin(axis=1)
    assert 0.2 < (nearest == test[1]).mean() < 0.7, "the nearest mean image says something, and not all"


def test_a_variant_may_take_a_part_of_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes.write_archive(tmp_path, CONTENT)
    monkeypatch.setattr(cifar10.load, "__defaults__", (fakes.checksums(tmp_path, CONTENT),))
    data = present(stored_data(variant(data="cifar10", data_folder=str(tmp_path), images=30)))
    np.testing.assert_array_equal(data.train.images, DATA.train.images[:30])
    np.testing.assert_array_equal(data.test.classes, DATA.test.classes[:6])


def test_a_variant_takes_a_published_copy_or_none(tmp_path: Path) -> None:
    assert stored_data(variant()) is None
    fakes.write_archive(tmp_path, CONTENT)
    with pytest.raises(RefusedError, match="is not the file that was published"):
        stored_data(variant(data="cifar10", data_folder=str(tmp_path)))


def test_images_of_the_stand_in_are_the_same_from_any_number_on() -> None:
    images, classes = stand_in_images(0, 2_100)
    for first, count in ((0, 10), (500, 10), (990, 20), (1_000, 1_000), (1_999, 101)):
        part_images, part_classes = stand_in_images(first, count)
        np.testing.assert_array_equal(part_images, images[first : first + count])
        np.testing.assert_array_equal(part_classes, classes[first : first + count])
