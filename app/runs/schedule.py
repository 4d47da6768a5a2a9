"""In which order an experiment's runs are made."""


def interleaved(variants: int, repeats: int) -> list[int]:
    """Indices of variants, each `repeats` times, forwards and backwards in turn (A B B A A B).

    Slow drift of the machine then falls on all variants alike instead of on the later ones.
    """
    rounds = (range(variants) if repeat % 2 == 0 else range(variants - 1, -1, -1) for repeat in range(repeats))
    return [index for one_round in rounds for index in one_round]
