"""The search for the largest batch: the question before it, its progress and its result in words."""

from dataclasses import dataclass

from app import units
from app.analysis.largest_batch import LargestBatch
from app.viewmodels.run.fields import FormState
from workloads.protocol import RunSpec

_CPU_DOUBLINGS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitQuestion:
    """Limits of a search: `text` asks for a batch size from `least` to `most`; `usual` is offered."""

    text: str
    minimum: int
    maximum: int
    default: int


def limit_question(state: FormState) -> LimitQuestion:
    """Return the question for the form's variant. On the CPU the offered limit is near the chosen batch size."""
    fields = {field.name: field for field in state.fields}
    first, limit = int(fields["batch_size"].value), int(fields["batch_size"].maximum)
    on_cpu = fields["gpus"].value == 0
    warning = "\nOn the CPU a batch that does not fit makes the whole machine swap." if on_cpu else ""
    return LimitQuestion(
        text=f"Short runs double the batch from {first:,} until memory runs out,\n"
        f"then search between the last two sizes.{warning}\n\nLargest batch to try",
        minimum=first,
        maximum=limit,
        default=min(limit, first * 2**_CPU_DOUBLINGS) if on_cpu else limit,
    )


def describe_largest_batch(found: LargestBatch) -> str:
    """Return the answer, or what is known where the search ended before it."""
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
            return (
                f"The search ended early: {units.sentence(found.reason or 'a try went wrong')} "
                f"{_describe_bounds(found)}"
            )
    return f"The search was stopped. {_describe_bounds(found)}"


def describe_try(spec: RunSpec) -> str:
    """Return what a search does now."""
    return f"Looking for the largest batch: trying {spec.variant['batch_size']:,} …"


def _describe_bounds(found: LargestBatch) -> str:
    bounds = [
        f"{batch:,} {words}"
        for batch, words in ((found.fits, "fits"), (found.fails, "does not fit"))
        if batch is not None
    ]
    return f"So far: {', '.join(bounds)}." if bounds else "Nothing is known yet."
