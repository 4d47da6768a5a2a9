"""A search for the largest batch as a JSON document."""

from dataclasses import asdict
from typing import Any

from app.analysis.largest_batch import LargestBatch
from app.viewmodels.largest_batch import largest_batch_words
from workloads.protocol import RunSpec


def largest_batch_document(spec: RunSpec, found: LargestBatch) -> dict[str, Any]:
    """The answer and every try; `variant` is what was searched for, its batch size the first one tried."""
    return {
        "workload": spec.workload,
        "variant": spec.variant,
        "largest_batch": found.fits,
        "smallest_that_does_not_fit": found.fails,
        "step": found.step,
        "ending": found.ending,
        "reason": found.reason,
        "text": largest_batch_words(found),
        "tries": [asdict(one) for one in found.tries],
    }
