"""Names of graphics cards as a reader wants them."""


def short_name(name: str) -> str:
    """A card's name without what nearly all of them begin with: `H200` for `NVIDIA H200`."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")
