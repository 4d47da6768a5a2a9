"""A search for the largest batch in words."""

from app.analysis.largest_batch import LargestBatch
from app.viewmodels import units
from workloads.protocol import RunSpec


def largest_batch_words(found: LargestBatch) -> str:
    """The answer, or what is known where the search ended before it."""
    count = len(found.tries)
    tries = f"{count} {'try' if count == 1 else 'tries'}"
    match found.ending:
        case "found" if found.reason:
            why = units.sentence(found.reason)
            return f"The largest batch that runs is {found.fits:,}; {found.fails:,} fails ({tries}). {why}"
        case "found":
            return f"The largest batch that fits is {found.fits:,}; {found.fails:,} does not fit ({tries})."
        case "limit":
            return f"A batch of {found.fits:,}, the limit, still fits ({tries})."
        case "none fits":
            return f"No batch fits: memory runs out at {found.fails or 0:,} too ({tries})."
        case "broken off":
            return f"The search ended early: {units.sentence(found.reason or 'a try went wrong')} {_so_far(found)}"
    return f"The search was stopped. {_so_far(found)}"


def trying_words(spec: RunSpec) -> str:
    """What a search does now."""
    return f"Looking for the largest batch: trying {spec.variant['batch_size']:,} …"


def _so_far(found: LargestBatch) -> str:
    known = [
        f"{batch:,} {words}"
        for batch, words in ((found.fits, "fits"), (found.fails, "does not fit"))
        if batch is not None
    ]
    return f"So far: {', '.join(known)}." if known else "Nothing is known yet."
