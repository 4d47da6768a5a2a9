"""`export --model`: a plain Keras model of a run's saved weights."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from app.cli.services import opened_store
from app.cli.terminal import print_json, say
from app.errors import UserError
from app.runs.leases import Leases
from app.runs.portability import export_model, weights_of
from app.viewmodels import units
from workloads.catalog import UsageError

_SUFFIXES = ("", ".keras")


def export_models(chosen: Namespace) -> int:
    """Writes the models and says how well they answer."""
    _check(chosen.model)
    if len(chosen.runs) != 1:
        raise UsageError("--model makes a model of one run; name that run alone.")
    with opened_store(chosen.db) as store:
        run = store.load(chosen.runs[0]).row
        weights = weights_of(run, store.path, chosen.weights)
    say(f"Making a Keras model of run {run.run} …")
    found = export_model(run, weights, chosen.model, Leases(), say)
    if chosen.json:
        models = [str(path) for path in chosen.model]
        differences = {"max_difference": found.max_difference, "max_output": found.max_output}
        print_json({"run": run.run, "models": models, **differences, "tolerance": found.tolerance})
        return 0
    for path in chosen.model:
        load = "keras.saving.load_model" if path.suffix else "tf.saved_model.load"
        print(f'Wrote {path}: load it with {load}("{path}").')
    print(
        f"It answers as the trained model does: within {found.max_difference:.1e} of outputs up to "
        f"{units.number(found.max_output)}."
    )
    return 0


def _check(paths: Sequence[Path]) -> None:
    """Raises `UsageError` for a kind of file that this does not write, `UserError` for one that is there already."""
    for path in paths:
        if path.suffix not in _SUFFIXES:
            raise UsageError(
                f"--model takes a file that ends in .keras, or a folder for a SavedModel, not {path.name}."
            )
        if path.exists():
            raise UserError(f"{path} is there already; name another, or delete it first.")
