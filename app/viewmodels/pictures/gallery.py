"""All pictures of some runs, and why others have nothing to say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.records import StoredRun
from app.viewmodels.pictures.batches import batch_picture
from app.viewmodels.pictures.frontier import frontier_picture
from app.viewmodels.pictures.gpu_counts import gpus_picture
from app.viewmodels.pictures.ratios import energy_picture, speedup_picture
from app.viewmodels.pictures.roofline import roofline_picture
from app.viewmodels.pictures.subjects import subjects
from app.viewmodels.pictures.values import Picture, Silence


@dataclass(frozen=True, slots=True, kw_only=True)
class Gallery:
    """The pictures that say something, in order, and the reasons of those that do not."""

    pictures: tuple[Picture, ...] = ()
    silences: tuple[Silence, ...] = ()


def gallery(runs: Sequence[StoredRun], baseline: int, colours: Mapping[int, int] | None = None) -> Gallery:
    """Every picture of these runs against the variant of run `baseline`.

    `colours` gives each run's look by its number (`app.viewmodels.looks`), which is that of these runs unless given.
    """
    found = subjects(runs, baseline, colours)
    made = (
        speedup_picture(found),
        energy_picture(found),
        batch_picture(found),
        frontier_picture(found),
        gpus_picture(runs),
        roofline_picture(found),
    )
    return Gallery(
        pictures=tuple(each for each in made if not isinstance(each, Silence)),
        silences=tuple(each for each in made if isinstance(each, Silence)),
    )
