"""Epochs and waiting for data as parts of a run's document."""

from typing import Any

from app.records import StoredRun
from app.viewmodels import epochs


def data_document(run: StoredRun) -> dict[str, Any]:
    """How long measured steps waited for data; None where data are made on the device."""
    summary = run.row.summary
    return {"waiting_pct": summary.waiting_pct, "ready_step_ms": summary.ready_step_ms}


def training_document(run: StoredRun) -> dict[str, Any] | None:
    """All epochs together: seconds without testing and seconds of testing, the last accuracy and the best."""
    found = epochs.totals(run)
    return None if found is None else found._asdict()


def epochs_document(run: StoredRun) -> list[dict[str, Any]]:
    """One entry an epoch."""
    return [
        {
            "epoch": epoch.epoch,
            "seconds": epochs.seconds(epoch),
            "testing_seconds": epochs.testing_seconds(epoch),
            "steps": epoch.steps,
            "examples": epoch.examples,
            "loss": epoch.loss,
            "accuracy": epoch.accuracy,
            "waiting_pct": epochs.waiting(epoch, run.row.summary),
        }
        for epoch in run.epochs
    ]
