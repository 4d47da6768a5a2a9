"""An estimate as a part of JSON documents."""

from typing import Any

from app.analysis.intervals import Estimate


def estimate_document(found: Estimate | None) -> dict[str, Any]:
    """A value with its interval; None where there is none."""
    return {
        "value": found.value if found else None,
        "interval": list(found.interval) if found and found.interval else None,
    }
