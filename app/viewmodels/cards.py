"""Names of graphics cards as a reader wants them."""

from collections import Counter
from collections.abc import Iterable


def card_name(name: str) -> str:
    """A card's name without what nearly all of them begin with: `H200` for `NVIDIA H200`."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def counted_cards(names: Iterable[str], *, between: str = ", ", one: str = "1× ") -> str:
    """How many cards of each name there are: `2× H200, 1× L4`; `one` stands before a name that is there once."""
    counts = Counter(map(card_name, names))
    return between.join(f"{one if count == 1 else f'{count}× '}{name}" for name, count in counts.items())
