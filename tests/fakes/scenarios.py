"""Machines with what goes wrong with them: the files of `tests/scenarios`, each a `Driver` of the fake NVML.

A card of a file names a `template`; what it says besides takes the place of the template's.
"""

import tomllib
from pathlib import Path

import msgspec

from tests.fakes.nvml_cards import H100, JETSON, LAPTOP, MIG, RTX_2080_TI, Card, Driver, mig_instance

FOLDER = Path(__file__).parents[1] / "scenarios"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
TEMPLATES = {
    "h200": Card(uuid="GPU-h200"),
    "h100": H100,
    "rtx2080ti": RTX_2080_TI,
    "laptop": LAPTOP,
    "jetson": JETSON,
    "mig": MIG,
    "mig_instance": mig_instance("MIG-one", 70),
}


class Scenario(Driver, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A driver, its story, and what the program has to make of it.

    The story is told `until_s`. By then the cards of `lost` have been said to be lost, those of `back` answer again,
    those of `silent` never gave a reading, and all others still give theirs.
    """

    about: str
    until_s: float = 2.0
    lost: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()

    @property
    def alive(self) -> frozenset[str]:
        """The cards that answer at the end."""
        cards = {card.uuid for card in self.cards}
        instances = {instance.uuid for card in self.cards for instance in card.mig}
        return frozenset((cards | instances) - set(self.silent) - (set(self.lost) - set(self.back)))


def load(name: str, **changes: object) -> Scenario:
    """Return the scenario of that name, with other values of some attributes."""
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    cards = [_filled(card) for card in table.pop("cards", [])]
    return msgspec.convert({**table, **changes, "cards": cards}, Scenario, str_keys=True)


def _filled(card: dict[str, object]) -> dict[str, object]:
    template = msgspec.to_builtins(TEMPLATES[str(card.pop("template"))], str_keys=True)
    return {**template, **card}
